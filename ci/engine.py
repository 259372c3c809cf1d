"""Docker or podman, asked and told. An edge module: it runs their client."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ci.container import LABEL
from ci.errors import InfrastructureError
from ci.proc import started as started_at
from ci.text import show

ENGINES = ("docker", "podman")
# seconds for a question or an order; a daemon that hangs must not hang the run
_TIMEOUT = 30.0
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A container whose runner is dead."""

    name: str
    runner: int


@dataclass(frozen=True, slots=True)
class Engine:
    """The client at ``program``."""

    program: str

    def remove(self, name: str) -> bool:
        """Make sure that there is no container of that name; whether that can be said."""
        for number in range(_TRIES):
            time.sleep(number)
            if self._ask("rm", "--force", name) is not None:
                return True
            # some versions call it an error if it is gone, or if the engine is removing it already
            listed = self._ask("ps", "--all", "--filter", f"name={name}", "--format", "{{.Names}}")
            if listed is not None and name not in listed.split():
                return True
        return False

    def kill(self, name: str) -> None:
        """End a container now, if it is there."""
        self._ask("kill", name)

    def leftovers(self, host: str) -> Iterator[Leftover]:
        """Containers of this machine's runs whose runner is dead; none where the engine does not answer."""
        names = self._ask("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}") or ""
        for name in names.split():
            # older podman cannot say one label in a list
            owner = self._ask("inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', name) or ""
            if (runner := dead_runner(owner.strip(), host)) is not None:
                yield Leftover(name=name, runner=runner)

    def _ask(self, *arguments: str) -> str | None:
        """What it printed; None if it could not do it."""
        try:
            ran = subprocess.run(
                [self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
                # a Ctrl-C of the terminal is for us to hand on
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ran.stdout if ran.returncode == 0 else None


def find_engine(name: str, environ: Mapping[str, str]) -> Engine:
    """The client of that name on PATH.

    Raises:
        InfrastructureError: it is not there.
    """
    if program := shutil.which(name, path=environ.get("PATH")):
        return Engine(program)
    raise InfrastructureError(f"--container {name}: this machine has no {name}", hint=_instead(environ))


def installed_engines(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Engines on PATH."""
    return tuple(name for name in ENGINES if shutil.which(name, path=environ.get("PATH")))


def dead_runner(owner: str, host: str) -> int | None:
    """The process id in a label of this host whose process is gone; None while it lives, or if it cannot be told."""
    where, *numbers = owner.split("/")
    if where != host or len(numbers) != 2 or not numbers[0].isdecimal():  # noqa: PLR2004 - process id and start
        return None
    pid = int(numbers[0])
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return pid
    started = started_at(pid)
    # a process id that another process has by now
    return pid if started is not None and str(started) != numbers[1] else None


def last_words(stderr: bytes) -> str:
    """The last line that an engine said that is not a pointer to its help."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("See '", "Run '"))]
    return show((telling or lines or ["it said nothing"])[-1], 300)


def _instead(environ: Mapping[str, str]) -> str:
    if others := installed_engines(environ):
        return f"--container {others[0]} is here; inside the image itself, leave --container out"
    return "install docker or podman; inside the image itself, leave --container out"
