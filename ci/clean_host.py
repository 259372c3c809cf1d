"""What dead runs left on this host: found and told before a GPU stage starts, and ended when that is asked for."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ci import proc
from ci.console import say
from ci.hardware import DEVICE_NODES, visible_holders
from ci.leftovers import Host, Leftover, judge
from ci.mark import Process
from ci.plan import duration

_POLITE = 5.0
_BOUND = 10.0
_PAUSE = 0.05
# what is ended may start another in its place
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A leftover with what a person reads of it, taken before it is ended."""

    leftover: Leftover
    user: str
    command: str
    age: float


def look_for_leftovers(
    backend: str, environ: Mapping[str, str], *, clean: bool, nodes: Sequence[str] = DEVICE_NODES
) -> list[dict[str, object]]:
    """Say what dead runs left here, end it if ``clean``, and return the rows for the results.

    ``nodes``: shell patterns of the files that whoever uses an accelerator has open.
    """
    told: dict[tuple[int, int], _Told] = {}
    failed: dict[tuple[int, int], str] = {}
    found = find(lambda: visible_holders(backend, environ, nodes=nodes))
    for _ in range(_ROUNDS):
        fresh = [leftover for leftover in found if leftover.process.identity not in told]
        told |= {leftover.process.identity: _tell(leftover) for leftover in fresh}
        if not (clean and fresh):
            break
        failed |= end([leftover.process for leftover in fresh if leftover.kept is None])
        # the ids of the holders are old by now; what they started anew is known by its mark
        found = find(dict)
    rows = [_row(entry, failed, clean=clean) for entry in told.values()]
    _say_outcome(rows, clean=clean)
    return rows


def find(held: Callable[[], Mapping[int, int]]) -> tuple[Leftover, ...]:
    """The leftovers of now; ``held``: asks which process holds how many bytes of accelerator memory."""
    own = proc.own_mark()
    if own is None:
        return ()
    # before the holders: an id that is used anew in between then has another start, and nobody signals it
    processes = tuple(proc.read_all())
    host = Host(processes=processes, pid=own.pid, uid=os.geteuid(), namespace=own.namespace, boot=own.boot)
    return judge(host, held())


def end(processes: Sequence[Process]) -> dict[tuple[int, int], str]:
    """End these: SIGTERM, SIGKILL five seconds later; why it failed for those that live on after ten more."""
    failed: dict[tuple[int, int], str] = {}
    for number, seconds in ((signal.SIGTERM, _POLITE), (signal.SIGKILL, _BOUND)):
        for process in filter(_lives, processes):
            if reason := _signal(process, number):
                failed[process.identity] = reason
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(
            _lives(process) for process in processes if process.identity not in failed
        ):
            time.sleep(_PAUSE)
    return {
        process.identity: failed.get(process.identity, "not even SIGKILL ended it: it is stuck in the kernel")
        for process in processes
        if _lives(process)
    }


def _lives(process: Process) -> bool:
    """Whether it runs; another process of that id does not count."""
    return proc.state(process.pid) not in {"", "Z", "X"} and proc.started(process.pid) == process.started


def _signal(process: Process, number: signal.Signals) -> str | None:
    """Signal exactly this process; why it was refused, or None."""
    handle = None
    try:
        handle = _handle(process.pid)
        # from here on the handle can mean no other process, so that what it means is looked at after
        if proc.started(process.pid) == process.started:
            _send(process.pid, handle, number)
            if number is signal.SIGTERM:
                _send(process.pid, handle, signal.SIGCONT)  # a stopped process would not hear of it
    except ProcessLookupError:
        return None
    except PermissionError:
        return "this user may not signal it"
    finally:
        if handle is not None:
            os.close(handle)
    return None


def _handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # a kernel before 5.3, or a sandbox
        return None


def _send(pid: int, handle: int | None, number: signal.Signals) -> None:
    if handle is None:
        os.kill(pid, number)
    else:
        signal.pidfd_send_signal(handle, number)


def _tell(leftover: Leftover) -> _Told:
    pid = leftover.process.pid
    told = _Told(
        leftover=leftover,
        user=proc.user_name(leftover.process.uid),
        command=proc.command_of(pid),
        age=proc.age_of(pid),
    )
    memory = "" if leftover.memory is None else f", {leftover.memory / (1 << 30):.1f} GiB of accelerator memory"
    say(f"leftover: process {pid} of {told.user}, {duration(told.age)} old{memory}: {told.command}")
    say(f"  {leftover.why}" + (f"; not ours to end: {leftover.kept}" if leftover.kept else ""))
    return told


def _row(told: _Told, failed: Mapping[tuple[int, int], str], *, clean: bool) -> dict[str, object]:
    process = told.leftover.process
    kept = told.leftover.kept or failed.get(process.identity)
    return {
        "pid": process.pid,
        "user": told.user,
        "command": told.command,
        "age": told.age,
        "memory": told.leftover.memory,
        "why": told.leftover.why,
        "removed": clean and kept is None,
        "kept": kept,
    }


def _say_outcome(rows: Sequence[Mapping[str, object]], *, clean: bool) -> None:
    if not rows:
        return
    removed = sum(bool(row["removed"]) for row in rows)
    if not clean:
        ours = sum(row["kept"] is None for row in rows)
        say(f"leftovers: {len(rows)} are only listed; --clean-host ends {ours} of them")
        return
    say(f"leftovers: {removed} of {len(rows)} ended")
    for row in rows:
        if not row["removed"]:
            say(f"  process {row['pid']} of {row['user']} is still there: {row['kept']}")
