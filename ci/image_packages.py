"""The image's packages, brought in line with the workspace's requirements (spec §9).

The image's interpreter is used as it is; what the requirements move is said, and protected packages get the
image's version back, whatever needs another.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from ci.console import say
from ci.errors import InfrastructureError
from ci.files import replace_bytes
from ci.install_failure import InstallFailed
from ci.installer import install_into, installer_environ
from ci.locks import held
from ci.requirement_files import RequirementFile
from ci.text import show

_LIST = """
import importlib.metadata, json, sysconfig
found = {}
for entry in importlib.metadata.distributions():
    if entry.metadata["Name"]:
        found.setdefault(entry.metadata["Name"], entry.version)
print(json.dumps([sysconfig.get_path("purelib"), found]))
"""
_NOTE = "miles-ci-protected.json"
_SHOWN = 20
_TIMEOUT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A package whose version changed; None where it was not there. ``put_back``: it has ``before`` again."""

    name: str
    before: str | None
    after: str | None
    put_back: bool


def moves(before: Mapping[str, str], after: Mapping[str, str], protected: Sequence[str]) -> tuple[Moved, ...]:
    """What an installation changed, by name; of protected ones only what the image had has to come back."""
    return tuple(
        Moved(
            name=name,
            before=before.get(name),
            after=after.get(name),
            put_back=name in protected and name in before,
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def reconcile(
    python: str,
    files: Sequence[RequirementFile],
    *,
    protected: Sequence[str],
    leave_out: Sequence[str],
    log: Path,
    offline: bool,
) -> tuple[Moved, ...]:
    """Install the files into the image's interpreter, without moving what is protected; what moved.

    ``log`` gets what pip prints.

    Raises:
        InfrastructureError: something cannot be installed, or not put back; it is named.
    """
    folder, _ = _packages(python)
    note = folder / _NOTE
    try:
        with held(folder / "miles-ci-packages", what="the image's packages"):
            # of a run that was killed before it had put them back: the versions of now are not the image's
            before = {**_packages(python)[1], **_noted(note)}
            replace_bytes(note, json.dumps({name: before[name] for name in protected if name in before}).encode())
            install_into(python, files, leave_out, log, offline=offline)
            found = moves(before, _packages(python)[1], protected)
            _put_back(python, found, log, offline=offline)
            note.unlink()
    except InstallFailed as failed:
        what = f"the requirement `{show(failed.requirement, 80)}`" if failed.requirement else "the requirements"
        raise InfrastructureError(
            f"{what} cannot be installed into the image: {failed.reason}",
            hint=f"pip's output: {show(log)}; --python INTERPRETER uses one as it is",
        ) from failed
    except OSError as error:
        raise InfrastructureError(
            f"the image's packages cannot be changed: {show(error, 200)}",
            hint="run as the image's own user, or use an interpreter as it is: --python INTERPRETER",
        ) from error
    _say(found)
    return found


def install_tree(python: str, root: str, *, title: str, log: Path, offline: bool) -> None:
    """Install a source tree in place, without what it depends on: the image has that.

    Raises:
        InfrastructureError: it cannot be installed.
    """
    # what builds it may not be to be had offline, and the image built it once already
    alone = ("--no-build-isolation",) if offline else ()
    try:
        install_into(python, (), (), log, offline=offline, more=("--no-deps", *alone, "--editable", root))
    except InstallFailed as failed:
        raise InfrastructureError(
            f"{title}: {show(root)} cannot be installed: {failed.reason}", hint=f"pip's output: {show(log)}"
        ) from failed
    say(f"environment: {title} is installed from {show(root)}")


def _put_back(python: str, found: Sequence[Moved], log: Path, *, offline: bool) -> None:
    """Give protected packages their version again, without what that version asks for, and see that it is so."""
    wanted = {moved.name: moved.before for moved in found if moved.put_back}
    if not wanted:
        return
    pins = [f"{name}=={version}" for name, version in wanted.items()]
    install_into(python, (), (), log, offline=offline, more=("--no-deps", *pins))
    now = _packages(python)[1]
    if wrong := [f"{name} {now.get(name, 'none')}" for name, version in wanted.items() if now.get(name) != version]:
        raise InstallFailed(f"{', '.join(wrong)} could not be put back to the image's version")


def _packages(python: str) -> tuple[Path, dict[str, str]]:
    """Where the interpreter's packages lie, and canonical name → version, asked without the tests' PYTHONPATH."""
    try:
        ran = subprocess.run(
            [python, "-I", "-c", _LIST],
            env=installer_environ(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=True,
        )
        folder, found = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise InfrastructureError(
            f"{show(python)} does not say what packages it has: {show(error, 200)}",
            hint="see that the image's python3 works, or name another with --python INTERPRETER",
        ) from error
    return Path(folder), {str(canonicalize_name(name)): version for name, version in found.items()}


def _noted(note: Path) -> dict[str, str]:
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(version) for name, version in noted.items()} if isinstance(noted, dict) else {}


def _say(found: Sequence[Moved]) -> None:
    for moved in found[:_SHOWN]:
        change = f"{moved.name} {moved.before or 'none'} → {moved.after or 'none'}"
        say(f"environment: {show(change)}{', put back' if moved.put_back else ''}")
    if len(found) > _SHOWN:
        say(f"environment: and {len(found) - _SHOWN} more, in the results")
    if not found:
        say("environment: the image has all that the requirements ask for")
