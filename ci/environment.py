"""Python environments in the cache, one for each set of pins and interpreter (spec §9).

Nox has no lock on its environments, and reuses one whose pins have changed. Here the folder's name is a hash
of all that decides its content, it is built under a lock, and it counts only with the mark that is written
last: complete environments are never changed, incomplete ones are built anew.
"""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.console import say, warn
from ci.errors import InfrastructureError
from ci.install_failure import InstallFailed
from ci.installer import Installer, choose_installers
from ci.interpreter import Interpreter
from ci.locks import held
from ci.requirement_files import RequirementFile, content_hash, read_requirements, requirement_names
from ci.text import did_you_mean, show

_FORMAT = "1"
_MARK = ".complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """What an environment holds. ``leave_out``: canonical names that are not installed."""

    name: str
    interpreter: Interpreter
    files: tuple[RequirementFile, ...]
    leave_out: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A hash of everything that decides what the environment is."""
        who = self.interpreter
        identity = (
            _FORMAT,
            who.version,
            who.implementation,
            who.machine,
            who.platform,
            who.base,
            *sorted(self.leave_out),
        )
        return content_hash(self.files, *identity)[:16]


def ensure(spec: EnvironmentSpec, *, cache: Path, offline: bool) -> Path:
    """The folder of the environment's programs, built first if it is not there.

    Raises:
        InfrastructureError: something cannot be installed; it is named, and no environment is left behind.
    """
    home = cache / "environments"
    folder = home / f"{spec.name}-{spec.key}"
    _say_useless_leave_outs(spec)
    if not _is_complete(folder):
        with held(home / f"{folder.name}.lock", what=f"the environment {folder.name}"):
            if not _is_complete(folder):
                _build(spec, folder, cache, offline=offline)
    return folder / "bin"


def _is_complete(folder: Path) -> bool:
    """Whether it was built to the end and its interpreter is still on the machine."""
    return (folder / _MARK).exists() and (folder / "bin" / "python").exists()


def _build(spec: EnvironmentSpec, folder: Path, cache: Path, *, offline: bool) -> None:
    if folder.exists():
        say(f"environment: removing an unfinished one, {show(folder.name)}")
        shutil.rmtree(folder)
    pins = len(requirement_names(spec.files))
    say(f"environment: {spec.name}, {pins} requirements, Python {spec.interpreter.version}: building")
    started = time.monotonic()
    log = cache / "environments" / f"{folder.name}.log"
    log.write_bytes(b"")
    try:
        _install(spec, folder, log, choose_installers(), offline=offline)
        _refuse_changed(spec.files)
        (folder / _MARK).write_text(f"{spec.key}\n")
    except BaseException:
        # an interrupt too: half an environment would be taken for a whole one by anything that looks inside
        shutil.rmtree(folder, ignore_errors=True)
        raise
    say(f"environment: ready in {time.monotonic() - started:.1f} s")


def _install(spec: EnvironmentSpec, folder: Path, log: Path, installers: Sequence[Installer], *, offline: bool) -> None:
    """Install with the first installer that can; one that is old or broken, or lacks a mirror, is not the last word."""
    for number, installer in enumerate(installers, start=1):
        try:
            installer.create(folder, spec.interpreter, log)
            installer.install(folder, spec.files, spec.leave_out, log, offline=offline)
        except InstallFailed as failed:
            if not failed.final and number < len(installers):
                say(f"environment: {installer.name} gives up ({failed}); trying {installers[number].name}")
                shutil.rmtree(folder, ignore_errors=True)
                continue
            raise _explain(failed, log, offline=offline) from failed
        return


def _refuse_changed(files: Sequence[RequirementFile]) -> None:
    """The installer reads the files itself; what it read must be what the environment's name stands for."""
    if read_requirements([Path(file.path) for file in files if file.top]) != tuple(files):
        raise InfrastructureError("the requirement files changed while they were installed", hint="run it again")


def _explain(failed: InstallFailed, log: Path, *, offline: bool) -> InfrastructureError:
    if offline:
        return InfrastructureError(
            "the environment is not in the cache and cannot be built offline", hint="run once without --offline"
        )
    if failed.requirement:
        name = show(failed.requirement, 80)
        return InfrastructureError(
            f"the requirement `{name}` cannot be installed: {failed.reason}",
            hint=f"--leave-out {name} goes on without it; the installer's output: {show(log)}",
        )
    return InfrastructureError(
        f"the environment cannot be built: {failed.reason}", hint=f"the installer's output: {show(log)}"
    )


def _say_useless_leave_outs(spec: EnvironmentSpec) -> None:
    names = requirement_names(spec.files)
    for name in spec.leave_out:
        if name not in names:
            warn(f"--leave-out {name}: the requirement files do not name it; {did_you_mean(name, names)}")


def program(bin_folder: Path, name: str) -> str:
    """The path of one of the environment's programs."""
    return os.path.join(bin_folder, name)
