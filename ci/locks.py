"""A lock between runs on one cache. It belongs to the process: killed, it leaves none behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ci.console import say
from ci.text import show

_PATIENCE = 1.0


@contextmanager
def held(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock at ``path``; a wait of more than a second is said once, with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        say(f"waiting for another run that uses {what}{_holder(path)}")
        lock.acquire()
    try:
        path.with_suffix(".holder").write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    with suppress(OSError):
        return f" (process {show(path.with_suffix('.holder').read_text(), 20)})"
    return ""
