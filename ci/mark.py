"""The mark that everything a runner starts carries in its environment: which runner of which boot it was.

And a process as a value, with the marks that it carries.
"""

import re
from dataclasses import dataclass

VARIABLE = "MILES_CI_RUNNER"
_FORM = re.compile(r"([1-9][0-9]{0,9}):([0-9]{1,20}):([0-9]{1,20}):([0-9a-f-]{36})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A runner, so that no other process is ever taken for it.

    ``pid`` as the runner saw it in its PID namespace, ``namespace`` that namespace's inode; ``started``: clock
    ticks after boot; ``boot``: the kernel's id of the boot.
    """

    pid: int
    started: int
    namespace: int
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}:{self.namespace}:{self.boot}"


def parse_mark(text: str) -> Mark | None:
    """The mark that ``text`` is, or None."""
    if (found := _FORM.fullmatch(text)) is None:
        return None
    return Mark(pid=int(found[1]), started=int(found[2]), namespace=int(found[3]), boot=found[4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process at one moment. ``started``: clock ticks after boot, which with ``pid`` names it for ever.

    ``inner_pid``: its pid in its own PID namespace, whose inode is ``namespace`` (None where we may not know).
    ``marks``: of runners, in its environment. ``terminal``: it has a controlling terminal.
    """

    pid: int
    parent: int
    started: int
    terminal: bool
    uid: int
    inner_pid: int
    namespace: int | None
    marks: tuple[Mark, ...]

    @property
    def identity(self) -> tuple[int, int]:
        """What stays the same while it lives, whoever its parent becomes."""
        return self.pid, self.started
