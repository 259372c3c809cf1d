"""What came of a run, as frozen values, and the files that say it.

``results.json`` has the shape that ``ci/results.schema.json`` declares and explains.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ci.errors import ExitCode, InfrastructureError
from ci.files import replace_bytes
from ci.junit import junit_xml
from ci.process import Reaped
from ci.text import show

# a reader of an older number must not be misled: fields are added under the same number, changed under the next
SCHEMA = 1


class Verdict(enum.StrEnum):
    """What is known of one file.

    ``error``: it could not be collected, or a fixture broke; ``flaky``: it passed on a retry.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    FLAKY = "flaky"
    SKIPPED = "skipped"
    EMPTY = "empty"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One test. ``outcome``: passed, failed, error, skipped, xfailed or xpassed."""

    __test__ = False  # its name is no test class of pytest's

    name: str
    outcome: str
    duration: float
    text: str


class Status(enum.StrEnum):
    """How one attempt at a file that is run as a script ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    SIGNALLED = "signalled"
    INFRASTRUCTURE = "infrastructure"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a file. ``started``, ``ended``: UTC; ``duration``, ``limit`` in seconds; ``peak_memory`` in bytes.

    ``code``: exit code, -N for signal N. ``retry``: why another attempt followed or not. ``log``: None when a
    test deleted it.
    """

    number: int
    started: str
    ended: str
    duration: float
    limit: float
    status: Status
    code: int
    retry: str
    peak_memory: int
    log: str | None
    reaped: tuple[Reaped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """One file. ``duration`` in seconds; ``tail``: the bounded end of what failed."""

    file: str
    verdict: Verdict
    duration: float = 0.0
    tests: tuple[TestResult, ...] = ()
    reason: str | None = None
    tail: str = ""
    attempts: tuple[Attempt, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Outcome → number of tests."""
        outcomes = [test.outcome for test in self.tests]
        return {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOutcome:
    """A whole run of one suite or partition; ``duration`` in seconds.

    ``infrastructure``: why the rest of it could not be run here, which is no fault of a test; ``fault``: how
    pytest itself failed although no file did, as by a crash while the interpreter ended.
    """

    files: tuple[FileResult, ...]
    duration: float = 0.0
    interrupted: bool = False
    reaped: tuple[Reaped, ...] = field(default=())
    infrastructure: str | None = None
    fault: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that the verdicts ask for."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        verdicts = {result.verdict for result in self.files}
        if self.fault is not None or verdicts & {Verdict.FAILED, Verdict.ERROR}:
            return ExitCode.FAILED
        if self.infrastructure is not None:
            return ExitCode.INFRASTRUCTURE
        return ExitCode.FAILED if Verdict.NOT_RUN in verdicts else ExitCode.OK

    @property
    def covers_nothing(self) -> bool:
        """Whether no test ran at all."""
        tests = any(test.outcome != "skipped" for result in self.files for test in result.tests)
        return not tests and not any(result.attempts for result in self.files)

    def count(self, verdict: Verdict) -> int:
        """How many files have that verdict."""
        return sum(result.verdict is verdict for result in self.files)


def results_json(outcome: SuiteOutcome, facts: Mapping[str, object]) -> str:
    """The results as one JSON document."""
    document = {
        "schema": SCHEMA,
        "facts": facts,
        "exit_code": int(outcome.exit_code),
        "interrupted": outcome.interrupted,
        "covers_nothing": outcome.covers_nothing,
        "infrastructure": outcome.infrastructure,
        "fault": outcome.fault,
        "duration": round(outcome.duration, 3),
        "files": [
            {
                "file": result.file,
                "verdict": result.verdict,
                "duration": round(result.duration, 3),
                "tests": result.counts,
                "reason": result.reason,
                "tail": result.tail,
                "attempts": [asdict(attempt) for attempt in result.attempts],
            }
            for result in outcome.files
        ],
        "reaped": [asdict(process) for process in outcome.reaped],
    }
    return json.dumps(document, indent=1) + "\n"


def write_results(folder: Path, outcome: SuiteOutcome, facts: Mapping[str, object], *, title: str) -> None:
    """Write results.json and junit.xml; a test may have deleted the folder.

    Raises:
        InfrastructureError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_bytes(folder / "results.json", results_json(outcome, facts).encode())
        replace_bytes(folder / "junit.xml", junit_xml(title, _suites(outcome)))
    except OSError as error:
        raise InfrastructureError(
            f"the results cannot be written to {show(folder)}: {show(error.strerror or error)}",
            hint="what is known is said above; give another folder with --results DIR",
        ) from error


def _suites(outcome: SuiteOutcome) -> list[tuple[str, float, list[tuple[str, float, str, str]]]]:
    """Suites of (test, seconds, outcome, text); a file that never got to a test stands as one test of its own."""
    alone = {Verdict.EMPTY: "skipped", Verdict.NOT_RUN: "skipped", Verdict.FAILED: "failed", Verdict.ERROR: "error"}
    suites = []
    for result in outcome.files:
        tests = [(test.name, test.duration, test.outcome, test.text) for test in result.tests]
        red = any(test.outcome in {"failed", "error"} for test in result.tests)
        if result.verdict in alone and not (tests and red):
            text = "\n".join(part for part in (result.reason, result.tail) if part)
            tests.append((f"({result.verdict})", result.duration, alone[result.verdict], text))
        suites.append((result.file, result.duration, tests))
    if outcome.fault is not None:
        suites.append(("pytest", 0.0, [("(its end)", 0.0, "error", outcome.fault)]))
    return suites
