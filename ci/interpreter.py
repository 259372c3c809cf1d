"""Which Python runs the tests. An edge module: it asks interpreters who they are."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

from ci.errors import InfrastructureError, UsageError
from ci.text import show

_ASK = (
    "import json, os, platform, sys;"
    "print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.implementation.name, platform.machine(), sys.platform,"
    " os.path.realpath(getattr(sys, '_base_executable', '') or sys.executable)]))"
)
_TIMEOUT = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter and what makes an environment of it another one. ``base``: the real path behind links."""

    path: str
    version: str
    implementation: str
    machine: str
    platform: str
    base: str

    @property
    def minor(self) -> str:
        """``3.11``."""
        return self.version.rpartition(".")[0]


def interpreter_at(path: str) -> Interpreter:
    """The interpreter at a path or name, asked itself.

    Raises:
        UsageError: nothing there that answers as a Python does.
    """
    found = shutil.which(os.path.expanduser(path))
    if found is None:
        raise UsageError(f"--python: {show(path)} is not a program", hint="give the path of an interpreter")
    interpreter = _ask(os.path.abspath(found))
    if interpreter is None:
        raise UsageError(
            f"--python: {show(path)} does not answer as a Python does", hint="give the path of an interpreter"
        )
    return interpreter


def find_interpreter(version: str | None) -> Interpreter:
    """The interpreter of a minor version: the running one, one on PATH, one that uv knows. None: the running one.

    A name on PATH counts only if it runs and says that version; a shim may not.

    Raises:
        InfrastructureError: none is to be had.
    """
    running = _ask(sys.executable)
    if running is not None and version in {None, running.minor}:
        return running
    for candidate in _candidates(version or ""):
        interpreter = _ask(candidate)
        if interpreter is not None and interpreter.minor == version:
            return interpreter
    raise InfrastructureError(
        f"Python {version}, which CI uses for these tests, is not on this machine",
        hint=f"install it (`uv python install {version}`), or name another with --python INTERPRETER",
    )


def _candidates(version: str) -> list[str]:
    found = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, f"python{version}")
        if os.path.isabs(path) and os.access(path, os.X_OK) and not os.path.isdir(path):
            found.append(path)
    if uv := find_uv():
        asked = _output([uv, "python", "find", "--no-config", "--no-python-downloads", version])
        if asked:
            found.append(asked.strip())
    return found


def find_uv() -> str | None:
    """Uv beside the running interpreter, where its version is ours, or on PATH, where it may be any."""
    return shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")


def _ask(path: str) -> Interpreter | None:
    answer = _output([path, "-I", "-c", _ASK])
    try:
        version, implementation, machine, platform, base = json.loads(answer or "")
    except (ValueError, TypeError):
        return None
    return Interpreter(
        path=path, version=version, implementation=implementation, machine=machine, platform=platform, base=base
    )


def _output(command: list[str]) -> str | None:
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return ran.stdout if ran.returncode == 0 else None
