"""What a pull request changes, from the bytes of ``git diff --name-status -z -M`` (spec §5)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ci.text import show

_ONE_PATH = re.compile(r"[ADMT]")
_TWO_PATHS = re.compile(r"[RC](?:100|0?[0-9]{1,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry: the status as git prints it, and its path; a rename or copy has the old and the new one."""

    status: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All changes, in git's order; at least one."""

    changes: tuple[Change, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is named, once, in order."""
        return tuple(dict.fromkeys(path for change in self.changes for path in change.paths))


@dataclass(frozen=True, slots=True)
class Unusable:
    """Nothing can be concluded from the diff, so nothing may be skipped. ``reason`` is safe to show."""

    reason: str


class _Bad(Exception):
    """The bytes are no diff; carries the reason."""


def parse_diff(source: bytes | None) -> Diff | Unusable:
    """Read the diff; None stands for one that could not be made. Never raises.

    The statuses are those that git prints for two commits: A, D, M and T with one path, R and C with a
    similarity (0–100) and two. U, X and B cannot come from two commits and are as bad as any other letter.
    """
    if source is None:
        return Unusable("there is no diff")
    if not source:
        return Unusable("the diff is empty")
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        return Unusable(f"the diff is not UTF-8 (byte {error.start})")
    if not text.endswith("\0"):
        return Unusable("the diff does not end in NUL, so it was cut short")
    try:
        return Diff(changes=tuple(_changes(text.split("\0")[:-1])))
    except _Bad as error:
        return Unusable(str(error))


def _changes(fields: list[str]) -> Iterator[Change]:
    position = 0
    while position < len(fields):
        status = fields[position]
        count = 1 if _ONE_PATH.fullmatch(status) else 2 if _TWO_PATHS.fullmatch(status) else 0
        if not count:
            raise _Bad(f"field {position + 1} of the diff, `{show(status, 40)}`, is not a status")
        paths = fields[position + 1 : position + 1 + count]
        if len(paths) < count:
            raise _Bad(f"the diff ends where a path of the status `{status}` (field {position + 1}) is missing")
        if "" in paths:
            raise _Bad(f"a path of the status `{status}` (field {position + 1} of the diff) is empty")
        yield Change(status, tuple(paths))
        position += 1 + count
