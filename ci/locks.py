"""A lock between runs on one cache. It belongs to processes: when the last of them ends, however, it is free.

Not filelock: programs started while it is held must hold it too. A run that is killed leaves its git or
installer writing for a moment longer, and the next run must not begin before that has ended as well.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from ci.console import say
from ci.text import show

_PATIENCE = 1.0
_held: ContextVar[tuple[int, ...]] = ContextVar("held", default=())


@contextmanager
def held(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock at ``path``; a wait of more than a second is said once, with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(handle, what)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        token = _held.set((*_held.get(), handle))
        try:
            yield
        finally:
            _held.reset(token)
            # for the daemons, too, that a helper of git may have left with it
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def held_handles() -> tuple[int, ...]:
    """What a program that is started now must inherit (``pass_fds``)."""
    return _held.get()


def _acquire(handle: int, what: str) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.02)
    holder = os.pread(handle, 20, 0).decode(errors="replace")
    say(f"waiting for another run that uses {what}{f' (process {show(holder)})' if holder else ''}")
    fcntl.flock(handle, fcntl.LOCK_EX)
