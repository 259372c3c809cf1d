"""uv and pip, each behind the same two steps: make an environment, install requirement files into it."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from packaging.utils import canonicalize_name

from ci.console import warn
from ci.interpreter import Interpreter, find_uv
from ci.locks import held_handles
from ci.requirement_files import RequirementFile, all_pinned, without
from ci.text import show

# what another environment left in this one would install elsewhere, or with another interpreter
_DROPPED = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_BREAK_SYSTEM_PACKAGES", "UV_NO_DEPS", "UV_TARGET"),
    *("PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_PYTHON", "PIP_NO_DEPS", "PIP_ROOT"),
)
_UNREACHABLE = (
    *("error sending request", "failed to fetch", "connection refused", "name resolution", "dns error"),
    *("network is unreachable", "connection timed out", "max retries exceeded", "newconnectionerror", "invalid peer"),
)
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
# the message of the installer, and the requirement that it names
_CAUSES = (
    (
        re.compile(r"HASHES DO NOT MATCH|THESE PACKAGES DO NOT MATCH THE HASHES", re.IGNORECASE),
        "its hash is not the pinned one",
    ),
    (re.compile(r"Hash mismatch for `?([A-Za-z0-9._-]+)"), "its hash is not the pinned one"),
    (re.compile(r"^\s+([A-Za-z0-9._-]+)[=<>~! ].* from .*:\s*$", re.MULTILINE), "its hash is not the pinned one"),
    (re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)"), "no version of it fits this machine"),
    (re.compile(r"Failed (?:building wheel for|to build) `?([A-Za-z0-9._-]+?)(?:==|[`\s]|$)"), "it could not be built"),
    (re.compile(r"Encountered error while [^\n]*\n╰─> (?!See )([A-Za-z0-9._-]+)"), "it could not be built"),
    (re.compile(r"Failed to download(?: and build)? `([A-Za-z0-9._-]+?)(?:==|`)"), "it could not be downloaded"),
    (re.compile(r"Because ([A-Za-z0-9._-]+)(?:\[[^]]*\])? was not found"), "it is not to be found"),
    (re.compile(r"Because ([A-Za-z0-9._-]+?)(?:[=<>~!]=?\S*)? has no wheels"), "it has no wheel for this machine"),
    (re.compile(r"there (?:is|are) no versions? of ([A-Za-z0-9._-]+)"), "no such version is to be found"),
    (re.compile(r"Because you require ([A-Za-z0-9._-]+)"), "they contradict each other"),
    (
        re.compile(r"Cannot install (?:-r \S+ \(line \d+\) and )?([A-Za-z0-9._-]+)"),
        "they contradict each other",
    ),
    (re.compile(r"Could not find a version that satisfies the requirement ([A-Za-z0-9._-]+)"), "no version of it fits"),
)


class InstallFailed(Exception):
    """An installer ended with an error. ``requirement``: the one at fault, if its output names one."""

    def __init__(self, reason: str, *, requirement: str | None = None, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.requirement = requirement
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True)
class Installer:
    """uv, or pip where ``uv`` is None."""

    uv: str | None

    @property
    def name(self) -> str:
        """Its name."""
        return "uv" if self.uv else "pip"

    def create(self, folder: Path, interpreter: Interpreter, log: Path) -> None:
        """Make an empty environment.

        Raises:
            InstallFailed: it cannot be made.
        """
        if self.uv:
            _run(
                [self.uv, "venv", "--no-config", "--quiet", "--python", interpreter.path, str(folder)],
                log,
                append=False,
            )
        else:
            # virtualenv brings pip along; the standard library's venv lacks it where ensurepip was taken out
            command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-download", "--no-periodic-update"]
            _run([*command, "--python", interpreter.path, str(folder)], log, append=False)

    def install(
        self,
        folder: Path,
        files: Sequence[RequirementFile],
        leave_out: Sequence[str],
        log: Path,
        *,
        offline: bool,
    ) -> None:
        """Install the files, but not what is left out.

        Raises:
            InstallFailed: with the requirement at fault, where the output names it.
        """
        python = str(folder / "bin" / "python")
        with _on_disk(files, leave_out) as (arguments, excluded):
            if self.uv:
                command = [self.uv, "pip", "install", "--no-config", "--python", python, *arguments]
                command += ["--offline"] if offline else []
                command += ["--excludes", excluded] if leave_out else []
            else:
                command = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
                command += ["--no-index"] if offline else []
                command += _pip_leaves_out(files, leave_out)
            _run(command, log, append=True)


def _pip_leaves_out(files: Sequence[RequirementFile], leave_out: Sequence[str]) -> list[str]:
    """Pip has no list of exclusions; where all is pinned, it need not look for what others ask for."""
    if not leave_out:
        return []
    if all_pinned(files):
        return ["--no-deps"]
    warn(f"pip installs {', '.join(leave_out)} all the same if another requirement asks for it; uv does not")
    return []


def choose_installers() -> tuple[Installer, ...]:
    """Uv if it is there, and pip behind it, which also reads pip's own configuration of mirrors."""
    uv = find_uv()
    return (Installer(uv), Installer(None)) if uv else (Installer(None),)


@contextmanager
def _on_disk(files: Sequence[RequirementFile], leave_out: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """``-r`` arguments for the files, copied beside their originals' relative names when something is left out."""
    if not leave_out:
        yield [argument for file in files if file.top for argument in ("-r", file.path)], ""
        return
    with tempfile.TemporaryDirectory(prefix="ci-requirements-") as folder:
        common = os.path.commonpath([os.path.dirname(file.path) for file in files])
        arguments: list[str] = []
        for file in files:
            copy = Path(folder) / "files" / os.path.relpath(file.path, common)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(without(file.content, leave_out), encoding="utf-8")
            arguments += ["-r", str(copy)] if file.top else []
        excluded = Path(folder) / "excluded.txt"
        excluded.write_text("".join(f"{name}\n" for name in leave_out))
        yield arguments, str(excluded)


def installer_environ(inherited: Mapping[str, str]) -> dict[str, str]:
    """The installers' environment: settings of mirrors and certificates stay, another environment's do not."""
    kept = {name: value for name, value in inherited.items() if name not in _DROPPED}
    certificates = next((path for path in _CERTIFICATES if os.path.exists(path)), None)
    if certificates:
        # uv brings certificates of its own, which know nothing of a company's proxy; pip here reads PIP_CERT
        kept.setdefault("SSL_CERT_FILE", certificates)
    return {**kept, "UV_COMPILE_BYTECODE": "1", "UV_CONCURRENT_DOWNLOADS": "8", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def _run(command: Sequence[str], log: Path, *, append: bool) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab" if append else "wb") as stream:
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        start = stream.tell()
        code = _wait(command, stream)
    if code:
        raise _failure(log.read_bytes()[start:].decode(errors="replace"), code)


def _wait(command: Sequence[str], stream: IO[bytes]) -> int:
    try:
        return subprocess.run(
            command,
            env=installer_environ(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=held_handles(),
            check=False,
        ).returncode
    except OSError as error:
        raise InstallFailed(f"{show(command[0])} cannot be started: {show(error.strerror)}") from error


def _failure(text: str, code: int) -> InstallFailed:
    """What an installer's output says went wrong."""
    if any(sign in text.lower() for sign in _UNREACHABLE):
        return InstallFailed("the package index does not answer", unreachable=True)
    mismatch = next((reason for pattern, reason in _CAUSES[:1] if pattern.search(text)), None)
    for pattern, reason in _CAUSES[1:]:
        if found := pattern.search(text):
            return InstallFailed(mismatch or reason, requirement=str(canonicalize_name(found[1])))
    last = next((line for line in reversed(text.splitlines()) if line.strip()), f"exit code {code}")
    return InstallFailed(mismatch or show(last, 200))
