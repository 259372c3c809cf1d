"""Processes that end when they should: started in sessions of their own, and reaped with all they left behind.

The runner makes itself the reaper of its descendants (PR_SET_CHILD_SUBREAPER): a daemon that left its
session and whose parents are gone becomes the runner's own child, whatever it did to its environment. Only
descendants are ever signalled; nothing is looked up by name.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci.proc import age_of, command_of, state

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLITE = 2.0
_BOUND = 10.0
_PAUSE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """A process that had to be ended. ``age`` in seconds; ``memory``: accelerator bytes, None where none are known."""

    pid: int
    command: str
    age: float
    memory: int | None = None


def no_memory(_pids: Iterable[int]) -> Mapping[int, int]:
    """Nothing is known of anybody's accelerator memory."""
    return {}


def is_linux() -> bool:
    """Whether descendants can be followed across sessions; elsewhere only the process group is ended."""
    return sys.platform == "linux"


def become_reaper() -> None:
    """Orphaned descendants become children of this process. Process-wide: for a runner, never for Nox itself."""
    if is_linux():
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: signal.Signals) -> None:
    """Ask the kernel to send this process a signal when its parent ends, even by SIGKILL."""
    if is_linux():
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it ended in between
            os.kill(os.getpid(), number)


def start(command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, its output and errors in one pipe; it dies with this process."""
    libc = ctypes.CDLL(None) if is_linux() else None

    def before_exec() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=before_exec,  # noqa: PLW1509 - this process has one thread
    )


def signal_session(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the child and what stayed in its process group; never our own group."""
    if child.pid != os.getpgrp() and child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Where descendants cannot be followed (not on Linux), end what stayed in the process group of an ended child."""
    if not is_linux() and child.pid != os.getpgrp():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def children() -> frozenset[int]:
    """Direct children of this process, zombies included."""
    return frozenset(_children_of("self"))


def end_descendants(
    spared: frozenset[int],
    *,
    polite: float = _POLITE,
    memory_of: Callable[[Iterable[int]], Mapping[int, int]] = no_memory,
) -> tuple[Reaped, ...]:
    """End every descendant but ``spared`` and theirs; what was alive, in the order found.

    SIGTERM first, SIGKILL after ``polite`` seconds, and again for whatever was forked meanwhile, for ten
    seconds at most. The caller has already waited for the children that it wants the exit codes of.
    ``memory_of``: process → accelerator bytes, asked once and only when something is alive.
    """
    found = {pid: _describe(pid) for pid in _living(spared)}
    if found:
        held = memory_of(found)
        found = {pid: replace(entry, memory=held.get(pid)) for pid, entry in found.items()}
    termed: set[int] = set()
    started = time.monotonic()
    while (now := time.monotonic()) - started < polite + _BOUND:
        _collect_zombies(spared)
        alive = list(_living(spared))
        if not alive and not children() - spared:
            break
        for pid in alive:
            found.setdefault(pid, _describe(pid))
            with suppress(ProcessLookupError, PermissionError):
                if now - started >= polite:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in termed:
                    termed.add(pid)
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a stopped process would not hear of it
        time.sleep(_PAUSE if now - started < polite else _PAUSE / 10)
    return tuple(found.values())


def still_alive(spared: frozenset[int]) -> tuple[Reaped, ...]:
    """Descendants that even SIGKILL did not end (stuck in the kernel)."""
    return tuple(_describe(pid) for pid in _living(spared))


def tree_memory(spared: frozenset[int]) -> int:
    """Bytes that all descendants but ``spared`` have in RAM now; shared pages count for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in _living(spared):
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
    return total


def _collect_zombies(spared: frozenset[int]) -> None:
    for pid in children() - spared:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _living(spared: frozenset[int]) -> Iterator[int]:
    """Descendants that are not zombies, parents before their children."""
    pending = list(children() - spared)
    while pending:
        pid = pending.pop(0)
        pending.extend(_children_of(str(pid)))
        if state(pid) not in {"Z", "X", ""}:
            yield pid


def _children_of(pid: str) -> Iterator[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                yield from map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())


def _describe(pid: int) -> Reaped:
    return Reaped(pid=pid, command=command_of(pid), age=age_of(pid))
