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
from ci.install_failure import InstallFailed, read_failure
from ci.interpreter import Interpreter, find_uv
from ci.locks import held_handles
from ci.requirement_files import RequirementFile, all_pinned, without
from ci.text import show

# these would install elsewhere, with another interpreter, or something else than the files say; an environment
# is kept by the content of its files, so nothing else may have a say in what it holds
_DROPPED = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_BREAK_SYSTEM_PACKAGES", "UV_NO_DEPS", "UV_TARGET"),
    *("UV_PREFIX", "UV_PYTHON_PREFERENCE", "UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON", "UV_VENV_RELOCATABLE"),
    *("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_RESOLUTION", "UV_PRERELEASE"),
    *("UV_CONFIG_FILE", "UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY", "UV_NO_VERIFY_HASHES"),
    *("PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_PYTHON", "PIP_NO_DEPS", "PIP_ROOT"),
    *("PIP_DRY_RUN", "PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_PRE", "PIP_NO_COMPILE"),
    *("PIP_PLATFORM", "PIP_PYTHON_VERSION", "PIP_IMPLEMENTATION", "PIP_ABI"),
)
_DROPPED_PREFIXES = ("VIRTUALENV_",)
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


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
            _run([self.uv, "venv", "--no-config", "--quiet", "--python", interpreter.path, str(folder)], log)
        else:
            # virtualenv brings pip along; the standard library's venv lacks it where ensurepip was taken out
            command = [sys.executable, "-m", "virtualenv", "--quiet", "--no-download", "--no-periodic-update"]
            _run([*command, "--python", interpreter.path, str(folder)], log)

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
        if not self.uv:
            install_into(python, files, leave_out, log, offline=offline)
            return
        with _on_disk(files, leave_out) as (arguments, excluded):
            command = [self.uv, "pip", "install", "--no-config", "--python", python, *arguments]
            command += ["--offline"] if offline else []
            command += ["--excludes", excluded] if leave_out else []
            _run(command, log)


def install_into(
    python: str,
    files: Sequence[RequirementFile],
    leave_out: Sequence[str],
    log: Path,
    *,
    offline: bool,
    more: Sequence[str] = (),
) -> None:
    """Install with an interpreter's own pip; ``more``: further arguments of pip.

    Raises:
        InstallFailed: with the requirement at fault, where the output names it.
    """
    with _on_disk(files, leave_out) as (arguments, _):
        command = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments, *more]
        command += ["--no-index"] if offline else []
        command += ["--no-deps"] if leave_out and all_pinned(files) else []
        _run(command, log)
    if leave_out:
        _say_what_pip_cannot(python, files, leave_out)


def _say_what_pip_cannot(python: str, files: Sequence[RequirementFile], leave_out: Sequence[str]) -> None:
    """Pip has no list of exclusions: only where all is pinned can it be told not to look for what others need."""
    if not all_pinned(files):
        warn(f"pip installs {', '.join(leave_out)} all the same if another requirement asks for it; uv does not")
        return
    checked = subprocess.run(
        [python, "-m", "pip", "check", "--disable-pip-version-check"],
        env=installer_environ(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    needed = re.findall(r"requires ([A-Za-z0-9._-]+), which is not installed", checked.stdout)
    missing = sorted({str(canonicalize_name(name)) for name in needed} - set(leave_out))
    if missing:
        warn(f"not installed, because --leave-out lets pip install only what is pinned: {', '.join(missing)}")


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
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }
    certificates = next((path for path in _CERTIFICATES if os.path.exists(path)), None)
    if certificates:
        # uv brings certificates of its own, which know nothing of a company's proxy; pip here reads PIP_CERT
        kept.setdefault("SSL_CERT_FILE", certificates)
    return {**kept, "UV_COMPILE_BYTECODE": "1", "UV_CONCURRENT_DOWNLOADS": "8", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def _run(command: Sequence[str], log: Path) -> None:
    with open(log, "ab") as stream:
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        start = stream.tell()
        code = _wait(command, stream)
    if code:
        raise read_failure(log.read_bytes()[start:].decode(errors="replace"), code)


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
