"""Credentials of a registry, from the environment or as docker keeps them. Never shown, and for one registry only."""

import base64
import binascii
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci.errors import InfrastructureError, UsageError
from ci.image_tags import DOCKER_HUB, registry_name
from ci.text import show

USER, PASSWORD, REGISTRY = "CI_REGISTRY_USER", "CI_REGISTRY_PASSWORD", "CI_REGISTRY"
_HUB_KEY = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_HELPER_TIMEOUT = 30.0
_TOKEN_USER = "<token>"  # noqa: S105 - docker's word for "the secret is an identity token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and a password, or an identity token, which a token server takes instead. ``origin``: who gave them."""

    user: str
    secret: str = field(repr=False)
    is_identity_token: bool = False
    origin: str

    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode("ascii")


def find_credentials(registry: str, *, helper_timeout: float = _HELPER_TIMEOUT) -> Credentials | None:
    """What is known for a registry (``docker.io``, ``localhost:5000``): the environment, then docker's configuration.

    ``helper_timeout``: seconds that a credential helper may take.

    Raises:
        UsageError: the environment gives half of them, or the configuration cannot be read.
        InfrastructureError: a credential helper is not there, fails or does not end.
    """
    return _from_environment(registry) or _from_docker(registry, helper_timeout)


def _from_environment(registry: str) -> Credentials | None:
    user, secret = os.environ.get(USER, ""), os.environ.get(PASSWORD, "")
    if registry_name(os.environ.get(REGISTRY) or DOCKER_HUB) != registry or not (user or secret):
        return None
    if not (user and secret) or ":" in user:
        wrong = f"{USER} has a colon" if ":" in user else f"{PASSWORD if user else USER} is not set"
        raise UsageError(wrong, hint=f"set both {USER} and {PASSWORD}; {REGISTRY} says for which registry")
    return Credentials(user=user, secret=secret, origin=USER)


def _from_docker(registry: str, helper_timeout: float) -> Credentials | None:
    file = Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")) / "config.json"
    config = _read(file)
    helpers, store, logins = config.get("credHelpers", {}), config.get("credsStore", ""), config.get("auths", {})
    if not isinstance(helpers, dict) or not isinstance(store, str) or not isinstance(logins, dict):
        raise UsageError(f"{show(file)}: `credHelpers`, `credsStore` or `auths` is of another kind than docker writes")
    key = _key_for(registry, helpers)
    helper = helpers[key] if key is not None else store
    if helper:
        server = _HUB_KEY if registry == DOCKER_HUB else registry
        found = _from_helper(file, helper, server, helper_timeout)
        if found is not None:
            return found
    key = _key_for(registry, logins)
    return None if key is None else _login(logins[key], f"{show(file)}, `{show(key, 100)}`")


def _key_for(registry: str, entries: Mapping[str, Any]) -> str | None:
    """The entry of a registry: by its very name, else by the host in what docker wrote for it."""
    if registry in entries:
        return registry
    return next((key for key in entries if registry_name(key) == registry), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{show(file)}:{error.lineno}:{error.colno}: not JSON", hint="docker login writes it anew"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise UsageError(f"{show(file)} cannot be read: {reason}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{show(file)}: not a JSON object", hint="docker login writes it anew")
    return config


def _login(entry: Any, where: str) -> Credentials | None:
    """An entry of ``auths``; an empty one says that a credential store has them."""
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: not an object", hint="docker login writes it anew")
    encoded, token = entry.get("auth") or "", entry.get("identitytoken") or ""
    user, secret = entry.get("username") or "", entry.get("password") or ""
    if not all(isinstance(text, str) for text in (encoded, token, user, secret)):
        raise UsageError(f"{where}: not text", hint="docker login writes it anew")
    if encoded:
        try:
            user, colon, secret = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            # the cause is left out: it can quote what was decoded
            raise UsageError(
                f"{where}: `auth` is not user:password in base64", hint="docker login writes it anew"
            ) from None
        secret = secret.strip("\0")
    if token:
        return Credentials(user=user, secret=token, is_identity_token=True, origin=where)
    return Credentials(user=user, secret=secret, origin=where) if user and secret else None


def _from_helper(file: Path, helper: Any, server: str, timeout: float) -> Credentials | None:
    if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
        raise UsageError(f"{show(file)}: `{show(helper, 60)}` is not the name of a credential helper")
    program = f"docker-credential-{helper}"
    hint = f"named by {show(file)}; {USER} and {PASSWORD} go before it"
    path = shutil.which(program)
    if path is None:
        raise InfrastructureError(f"{program} is not installed", hint=hint)
    code, output = _run([path, "get"], server, timeout)
    if code is None:
        raise InfrastructureError(f"{program} did not answer within {timeout:.0f} s", hint=hint)
    if code and b"credentials not found" in output:
        return None
    try:
        answer: Any = json.loads(output) if not code else None
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, TypeError, KeyError, RecursionError):
        # what it printed may hold the secret
        user = secret = None
    if not isinstance(user, str) or not isinstance(secret, str):
        wrong = f"ended with exit code {code}" if code else "answered without a user and a secret"
        raise InfrastructureError(f"{program} {wrong}", hint=hint)
    return (
        Credentials(user=user, secret=secret, is_identity_token=user == _TOKEN_USER, origin=program) if secret else None
    )


def _run(command: list[str], text: str, timeout: float) -> tuple[int | None, bytes]:
    """Exit code and output of a helper; no code where it did not end in time."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # no terminal to ask on, and a group that can be ended
        )
    except OSError as error:
        raise InfrastructureError(f"{show(command[0])} cannot be started: {error.strerror}") from error
    with process:
        try:
            output, _ = process.communicate(f"{text}\n".encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            return None, b""
        except BaseException:
            _end(process)
            raise
    return process.returncode, output


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
