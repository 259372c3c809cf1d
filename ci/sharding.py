"""Partitions of a suite, balanced by estimated time (spec §6)."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ci.errors import UsageError
from ci.registration import Registration
from ci.text import show

_PARTITION = re.compile(r"([0-9]{1,6})/([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Partition:
    """Part ``id`` (from 0, as in the check's name) of ``size``."""

    id: int
    size: int

    def __str__(self) -> str:
        return f"{self.id}/{self.size}"


def parse_partition(text: str) -> Partition:
    """Read ``ID/SIZE`` with 0 ≤ ID < SIZE.

    Raises:
        UsageError: anything else; the valid range is said.
    """
    read = _PARTITION.fullmatch(text)
    if read is None or int(read[2]) < 1:
        raise UsageError(
            f"`{show(text, 60)}` is not a partition", hint="write ID/SIZE with ID from 0 to SIZE-1, as 1/4"
        )
    partition = Partition(int(read[1]), int(read[2]))
    if partition.id >= partition.size:
        raise UsageError(
            f"partition {partition} does not exist", hint=f"of {partition.size}, the ids are 0 to {partition.size - 1}"
        )
    return partition


def shard(registrations: Sequence[Registration], size: int) -> tuple[tuple[Registration, ...], ...]:
    """Split into ``size`` partitions, longest first, each to the one with the least total so far.

    Ties go to the lower id. The order inside a partition is the order of assignment, which is the order in
    which the live system runs it.
    """
    parts: list[list[Registration]] = [[] for _ in range(size)]
    totals = [(0.0, part) for part in range(size)]
    for registration in sorted(registrations, key=lambda r: (-r.est_time, r.file)):
        total, part = totals[0]
        parts[part].append(registration)
        heapq.heapreplace(totals, (total + registration.est_time, part))
    return tuple(tuple(part) for part in parts)
