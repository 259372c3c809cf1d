"""Metric records that the processes of a test write, merged (spec §12)."""

import json
from pathlib import Path
from typing import Any

from ci.text import show


def merge_records(folder: Path) -> tuple[dict[str, list[list[Any]]], list[str]]:
    """Metric → ``[[step, value], …]`` sorted by step over all ``*.jsonl`` files, and what could not be read.

    Values stay as they were written: non-finite ones are the strings "NaN", "Infinity", "-Infinity".
    """
    merged: dict[str, list[list[Any]]] = {}
    faults: list[str] = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                metric, series = _record(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                faults.append(f"{show(file.name)}:{number}: not a metric record")
                continue
            merged.setdefault(metric, []).extend(series)
    for series in merged.values():
        series.sort(key=lambda point: point[0])
    return merged, faults


def _record(record: Any) -> tuple[str, list[list[Any]]]:
    metric, series = record["metric"], record["series"]
    if not isinstance(metric, str) or not isinstance(series, list):
        raise TypeError("metric or series")
    for step, value in series:
        if isinstance(step, bool) or not isinstance(step, int):
            raise TypeError("step")
        if not isinstance(value, int | float) and value not in {"NaN", "Infinity", "-Infinity"}:
            raise TypeError("value")
    return metric, [[step, value] for step, value in series]
