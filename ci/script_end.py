"""What the end of a script means: its kind, the signal's name, and whether the kernel wanted its memory."""

import signal
from contextlib import suppress
from pathlib import Path

from ci.results import Status
from ci.supervise import Ended

_OOM_EVENTS = Path("/sys/fs/cgroup/memory.events")


def status_of(ended: Ended, *, interrupted: bool, oom_killed: bool) -> Status:
    """The kind of end; ``interrupted``: the run was asked to stop; ``oom_killed``: the kernel killed meanwhile."""
    if ended.timed_out:
        return Status.TIMED_OUT
    if ended.code == 0:
        return Status.PASSED
    if interrupted:
        return Status.INTERRUPTED
    if ended.code == -signal.SIGKILL and oom_killed:
        return Status.OUT_OF_MEMORY
    return Status.SIGNALLED if ended.code < 0 else Status.FAILED


def oom_kills() -> int:
    """How often the kernel killed for memory in our cgroup; 0 where it does not say."""
    with suppress(OSError, ValueError):
        for line in _OOM_EVENTS.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def signal_name(code: int) -> str:
    """``SIGSEGV`` for -11; a number where the signal has no name."""
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
