"""Logs that are gone at the end of a run, because a test deleted them: said, and no longer pointed at."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ci.results import FileResult
from ci.text import show


def without_lost_logs(files: Iterable[FileResult]) -> tuple[tuple[FileResult, ...], tuple[str, ...]]:
    """The results with None for each log that is not there any more, and a line for each file that lost one."""
    kept, lines = [], []
    for result in files:
        lost = [attempt.number for attempt in result.attempts if attempt.log and not Path(attempt.log).is_file()]
        if lost:
            which = ", ".join(map(str, lost))
            lines.append(f"warning: {show(result.file)}: the log of attempt {which} is gone: something deleted it")
        attempts = tuple(
            replace(attempt, log=None) if attempt.number in lost else attempt for attempt in result.attempts
        )
        kept.append(replace(result, attempts=attempts))
    return tuple(kept), tuple(lines)
