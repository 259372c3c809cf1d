"""Runs pytest in the session's interpreter and reports what happens, a JSON line per event.

This file is run as a script by an interpreter that knows nothing of this repository, so it imports nothing of
it, and takes its own folder off the path before anything else: tests see exactly what PYTHONPATH says.

    python pytest_report.py JOB     JOB: a JSON file with "args" (for pytest), "report" (a file to append to)
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Generator
from typing import IO, Any

TAIL = 8000


class Recorder:
    """A pytest plugin that writes events; under pytest-xdist it acts in the controller, where reports arrive."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._pid = os.getpid()

    def write(self, event: str, **fields: Any) -> None:
        """Append one event; a child that a test forked and that goes on as a second pytest has no say."""
        if os.getpid() != self._pid:
            return
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        self._stream.flush()

    def pytest_collectstart(self, collector: Any) -> None:
        """A file is about to be imported."""
        import pytest

        if isinstance(collector, pytest.Module):
            self.write("collecting", file=collector.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """A file or class was collected. Of a class only a fault is told; of a file also that it went well."""
        if report.outcome != "passed" or "::" not in report.nodeid:
            self.write("collect", file=report.nodeid, outcome=report.outcome, text=_tail(report))

    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        """A file that leaves the interpreter while it is imported costs itself, not the whole collection."""
        import pytest

        outcome = yield
        if outcome.excinfo is not None and issubclass(outcome.excinfo[0], SystemExit):
            text = f"SystemExit: {outcome.excinfo[1]}\nthe file calls sys.exit() while it is imported"
            report = pytest.CollectReport(nodeid=collector.nodeid, outcome="failed", longrepr=text, result=[])
            outcome.force_result(report)

    def pytest_collection_finish(self, session: Any) -> None:
        """All is collected; the number of tests by file."""
        self._collected([item.nodeid for item in session.items])

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """A worker has collected all."""
        self._collected(ids)

    def _collected(self, ids: list[str]) -> None:
        counts: dict[str, int] = {}
        for nodeid in ids:
            file = _file(nodeid)
            counts[file] = counts.get(file, 0) + 1
        self.write("collected", counts=counts)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.write("start", file=_file(nodeid), test=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A phase of a test ended."""
        self.write(
            "report",
            file=_file(report.nodeid),
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            duration=report.duration,
            xfail=hasattr(report, "wasxfail"),
            text=_tail(report) if report.outcome != "passed" else "",
        )


def _file(nodeid: str) -> str:
    # not the location: an inherited test is located in the file of its base class
    return nodeid.partition("::")[0]


def _tail(report: Any) -> str:
    return str(report.longreprtext)[-TAIL:] if report.longrepr is not None else ""


def main() -> int:
    """Run the job; pytest's exit code, or 3 where pytest is not installed."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        job = json.load(stream)
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # it is not there with PYTHONSAFEPATH
    sys.argv = ["pytest", *job["args"]]
    # not inheritable (Python's default): what tests start must not hold the file open
    with open(job["report"], "a", encoding="utf-8") as report:
        recorder = Recorder(report)
        try:
            import pytest
        except ImportError as error:
            recorder.write("unusable", text=str(error))
            return 3
        # looked for, not imported: pytest warns of plugins that were imported before it could rewrite them
        if "-n" in job["args"] and importlib.util.find_spec("xdist") is None:
            recorder.write("unusable", text="pytest-xdist is not installed, and --parallel needs it")
            return 3
        pytest.hookimpl(optionalhook=True)(Recorder.pytest_xdist_node_collection_finished)
        pytest.hookimpl(hookwrapper=True, tryfirst=True)(Recorder.pytest_make_collect_report)
        code = int(pytest.main(job["args"], plugins=[recorder]))
        recorder.write("exit", code=code)
        return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # while pytest was still being imported; afterwards pytest handles it
        sys.exit(130)
