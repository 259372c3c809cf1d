"""Which processes did dead runs leave on this host? Decided from what they hold: our mark, accelerator memory.

A process is known by the mark in its environment (``ci/mark.py``). One that cleared its environment is found by
the accelerator memory that it holds alone; if it holds none, it is not found.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ci.mark import Mark, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What can be seen from here. ``pid``, ``uid``, ``namespace``: of this process; ``boot``: the kernel's id of it."""

    processes: tuple[Process, ...]
    pid: int
    uid: int
    namespace: int | None
    boot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process that should be gone. ``memory``: accelerator bytes, None when none are known of.

    ``kept``: why it is not for us to end, None when it is.
    """

    process: Process
    why: str
    memory: int | None
    kept: str | None


def judge(host: Host, held: Mapping[int, int]) -> tuple[Leftover, ...]:
    """The leftovers, in the order of ``host.processes``.

    ``held``: process → accelerator bytes on the devices of this run. Everything above and below a runner that
    lives is spared, this one's surroundings as well.
    """
    spared = _surroundings(host)
    found = []
    for process in host.processes:
        if process.pid in spared or any(_may_live(mark, host) for mark in process.marks):
            continue
        memory = held.get(process.pid)
        if process.marks:
            why = f"the runner that started it is gone (process {process.marks[0].pid})"
            kept = None if host.uid in {0, process.uid} else "it is another user's"
        elif memory is not None:
            why = "it holds accelerator memory and belongs to no runner that lives"
            kept = _not_ours(process, host)
        else:
            continue
        found.append(Leftover(process=process, why=why, memory=memory, kept=kept))
    return tuple(found)


def _not_ours(process: Process, host: Host) -> str | None:
    """Nothing but memory speaks against it: it may as well be somebody's work, so even root asks whose it is."""
    if process.uid != host.uid:
        return "it is another user's"
    # what a runner starts has no terminal
    return "it has a terminal, so a person may be working with it" if process.terminal else None


def _runners(mark: Mark, host: Host) -> Iterable[Process]:
    """The process that a mark means: at most one, under whatever id it has in our PID namespace."""
    if mark.boot != host.boot:
        return
    for process in host.processes:
        same = (process.inner_pid, process.started) == (mark.pid, mark.started)
        if same and process.namespace in {mark.namespace, None}:
            yield process


def _may_live(mark: Mark, host: Host) -> bool:
    """Whether the runner lives, or lives perhaps: of a PID namespace that we do not look into nothing is known."""
    if not host.boot or any(_runners(mark, host)):
        return True
    seen = {process.namespace for process in host.processes} | {host.namespace}
    return mark.boot == host.boot and mark.namespace not in seen


def _surroundings(host: Host) -> set[int]:
    """Living runners and this process, all that they come from and all that comes from them."""
    parents = {process.pid: process.parent for process in host.processes}
    marks = {mark for process in host.processes for mark in process.marks}
    runners = {host.pid} | {process.pid for mark in marks for process in _runners(mark, host)}
    above: set[int] = set()
    for runner in runners:
        above.update(_line(runner, parents))
    below = {pid for pid in parents if runners & set(_line(pid, parents))}
    return above | below


def _line(pid: int, parents: Mapping[int, int]) -> list[int]:
    """A process and its ancestors; what was read while processes came and went may hold a circle."""
    line: list[int] = []
    while pid in parents and pid not in line:
        line.append(pid)
        pid = parents[pid]
    return line
