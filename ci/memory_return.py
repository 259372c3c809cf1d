"""Accelerator memory must come back after each file: the next one would fail for want of it (spec §9)."""

import time
from collections.abc import Callable, Mapping

from ci.hardware import memory_holders, used_memory
from ci.proc import command_of
from ci.text import show

_SLACK = 1 << 30
_WAIT = 10.0
_PAUSE = 0.5


def memory_fault(
    backend: str, environ: Mapping[str, str], before: int | None, stopped: Callable[[], bool]
) -> str | None:
    """Why the next file cannot have the memory, or None; ten seconds are given to it to come back.

    ``before``: bytes that were used before the file, None where the tool does not answer. ``stopped``: the run
    is over, so that nobody needs the answer.
    """
    if before is None:
        return None
    until = time.monotonic() + _WAIT
    while (now := used_memory(backend, environ)) is not None and now > before + _SLACK and not stopped():
        if time.monotonic() > until:
            held = ", ".join(_describe(holder.pid, holder.used) for holder in memory_holders(backend, environ))
            kept = f"{(now - before) / (1 << 30):.1f} GiB of accelerator memory did not come back"
            return f"{kept}; held by {held or 'nobody known'}"
        time.sleep(_PAUSE)
    return None


def _describe(pid: int, used: int) -> str:
    return f"process {pid} ({show(command_of(pid), 60)}, {used / (1 << 30):.1f} GiB)"
