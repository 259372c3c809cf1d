"""From what pytest reported to a verdict per file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ci.results import FileResult, TestResult, Verdict

_TAIL, _TEXT = 4000, 8000
_RANK = ("passed", "xpassed", "xfailed", "skipped", "error", "failed")
# what pytest-rerunfailures and pytest-retry call a phase after which they run the test again
_AGAIN = {"rerun", "retried"}
_RED = {"failed": Verdict.FAILED, "error": Verdict.ERROR}


@dataclass(slots=True)
class _Seen:
    """What the events said of one file so far.

    ``imported``: it was collected without a fault. Under pytest-xdist that is not told.
    """

    imported: bool = False
    collected: int | None = None
    tests: dict[str, TestResult] = field(default_factory=dict)
    running: str | None = None
    collect_outcome: str | None = None
    text: str = ""


class Events:
    """The events of one pytest process, in order; answers what is known of each file."""

    def __init__(self, files: Sequence[str]) -> None:
        self._seen = {file: _Seen() for file in files}
        self.exit_code: int | None = None
        self.unusable: str | None = None
        self.collecting: str | None = None
        self.any_collected = False

    def add(self, event: Mapping[str, Any]) -> str | None:
        """Take one event; the file that now runs, for a progress line."""
        match event["event"]:
            case "collecting":
                self.collecting = event["file"]
            case "collect":
                self._collect(event)
            case "collected":
                self._count(event["counts"])
            case "start":
                seen = self._seen.get(event["file"])
                if seen is not None:
                    seen.running = event["test"]
                return str(event["file"])
            case "report":
                self._report(event)
            case "unusable":
                self.unusable = event["text"]
            case "exit":
                self.exit_code = event["code"]
        return None

    def finished(self) -> Iterable[str]:
        """Files whose every collected test has ended."""
        return [file for file, seen in self._seen.items() if _is_complete(seen)]

    def is_red(self, file: str) -> bool:
        """Whether a file has failed so far."""
        return _verdict(self._seen[file]) in _RED.values()

    def running(self) -> list[tuple[str, str]]:
        """(file, test) of tests that began and did not end."""
        return [(file, seen.running) for file, seen in self._seen.items() if seen.running is not None]

    def result(self, file: str) -> FileResult:
        """What is known of one file."""
        seen = self._seen[file]
        tests = tuple(seen.tests.values())
        return FileResult(
            file=file,
            verdict=_verdict(seen),
            duration=sum(test.duration for test in tests),
            tests=tests,
            reason=_reason(seen),
            tail=_tail(seen),
        )

    def _collect(self, event: Mapping[str, Any]) -> None:
        # a class or folder that fails to collect is told by its own id; what counts here is the file
        seen = self._seen.get(event["file"].partition("::")[0])
        if event["file"] == self.collecting:
            self.collecting = None
        if seen is None:
            return
        if event["outcome"] == "passed":
            seen.imported = True
        else:
            seen.collect_outcome, seen.text = event["outcome"], event["text"]

    def _count(self, counts: Mapping[str, int]) -> None:
        self.any_collected = True
        for file, seen in self._seen.items():
            seen.collected = max(seen.collected or 0, counts.get(file, 0))

    def _report(self, event: Mapping[str, Any]) -> None:
        seen = self._seen.get(event["file"])
        if seen is None:
            return
        name, outcome = event["test"], _outcome(event)
        if outcome in _AGAIN:
            seen.tests.pop(name, None)
            return
        before = seen.tests.get(name)
        if before is not None:
            outcome = max(before.outcome, outcome, key=_RANK.index)
        seen.tests[name] = TestResult(
            name=name.partition("::")[2] or name,
            outcome=outcome,
            duration=event["duration"] + (before.duration if before else 0.0),
            text="\n\n".join(text for text in (before.text if before else "", event["text"]) if text)[-_TEXT:],
        )
        # a worker that died reports no phase; any other test ends with its teardown
        if event["when"] in {"teardown", "???"}:
            seen.running = None


def _outcome(event: Mapping[str, Any]) -> str:
    """Pytest's words for one phase of a test."""
    outcome = str(event["outcome"])
    if event["xfail"]:
        return {"skipped": "xfailed", "passed": "xpassed"}.get(outcome, outcome)
    if outcome == "failed" and event["when"] in {"setup", "teardown"}:
        return "error"
    # a word that only a plugin knows is not taken for a pass
    return outcome if outcome in {*_RANK, *_AGAIN} else "error"


def _is_complete(seen: _Seen) -> bool:
    if seen.collect_outcome is not None:
        return True
    if not seen.collected:
        # a collection that was cut short has no tests of a file either
        return seen.collected is not None and seen.imported
    return seen.running is None and len(seen.tests) >= seen.collected


def _verdict(seen: _Seen) -> Verdict:
    outcomes = {test.outcome for test in seen.tests.values()}
    for outcome, verdict in _RED.items():
        if outcome in outcomes:
            return verdict
    if seen.collect_outcome is not None:
        return Verdict.ERROR if seen.collect_outcome == "failed" else Verdict.SKIPPED
    if not _is_complete(seen):
        return Verdict.NOT_RUN
    if not outcomes:
        return Verdict.EMPTY
    return Verdict.SKIPPED if outcomes == {"skipped"} else Verdict.PASSED


def _reason(seen: _Seen) -> str | None:
    match _verdict(seen):
        case Verdict.ERROR if seen.collect_outcome == "failed":
            return "it could not be collected"
        case Verdict.NOT_RUN if seen.tests:
            return f"stopped after {len(seen.tests)} of {seen.collected} tests"
        case Verdict.EMPTY:
            return "it has no tests"
        case _:
            return None


def _tail(seen: _Seen) -> str:
    red = [test.text for test in seen.tests.values() if test.outcome in _RED]
    return "\n\n".join(red or [seen.text])[-_TAIL:]
