"""The CPU runner: one pytest over a partition's files, a verdict for each, nothing left behind (spec §9)."""

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ci import process
from ci.errors import InfrastructureError
from ci.results import FileResult, SuiteOutcome, Verdict
from ci.show_output import Output
from ci.supervise import Ended, Stop, Supervisor
from ci.text import show
from ci.verdicts import Events

_SCRIPT = Path(__file__).with_name("pytest_report.py")
_CONFTEST = re.compile(rb"ImportError while loading conftest '([^'\n]+)'")
# exit codes of pytest
_INTERNAL, _USAGE, _NO_TESTS = 3, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRun:
    """One run. ``files`` are relative to ``workspace``, in order; ``env`` is the child's whole environment.

    ``keep_going``: fast-fail is bypassed. ``parallel``: files at a time, 0 for one after the other. ``grace``:
    seconds for tear-down after an interrupt. ``results``: an absolute folder.
    """

    title: str
    python: str
    workspace: str
    files: tuple[str, ...]
    env: Mapping[str, str]
    keep_going: bool
    parallel: int
    results: str
    grace: float


def run_cpu(run: CpuRun, output: Output, stop: Stop) -> SuiteOutcome:
    """Run the files to their verdicts; the caller has ``stop`` listen.

    The first signal lets tests tear down for ``grace`` seconds, the second or the end of that time ends the
    whole tree.

    Raises:
        InfrastructureError: the interpreter cannot be started or has no pytest.
    """
    started = time.monotonic()
    process.become_reaper()
    with _log(run) as log:
        supervisor = Supervisor(output, log, stop, run.grace)
        runner = _Runner(run, output, supervisor, stop)
        runner.run_all()
        output.clear()
        return SuiteOutcome(
            files=tuple(runner.results[file] for file in run.files),
            duration=time.monotonic() - started,
            interrupted=stop.count > 0,
            reaped=tuple(supervisor.reaped),
            fault=runner.fault,
        )


@contextmanager
def _log(run: CpuRun) -> Iterator[IO[bytes]]:
    try:
        Path(run.results).mkdir(parents=True, exist_ok=True)
        stream = open(Path(run.results) / "pytest.log", "wb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise InfrastructureError(
            f"results cannot be written to {show(run.results)}: {show(error.strerror)}",
            hint="give another folder with --results DIR",
        ) from error
    with stream:
        yield stream


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Files for one pytest process; ``parallel``: so many at a time, 0 for one after the other."""

    files: tuple[str, ...]
    parallel: int = 0


class _Runner:
    """The state of one run: what is known of each file."""

    def __init__(self, run: CpuRun, output: Output, supervisor: Supervisor, stop: Stop) -> None:
        self._run, self._output, self._supervisor, self._stop = run, output, supervisor, stop
        self.results = {file: FileResult(file=file, verdict=Verdict.NOT_RUN) for file in run.files}
        self.fault: str | None = None
        self._started = time.monotonic()

    def run_all(self) -> None:
        """Run every file once; what a pytest left unanswered goes to another, unless fast-fail stops."""
        usable = self._without_unusable_names()
        pending = [_Batch(files=usable, parallel=self._run.parallel)] if usable else []
        while pending and not self._stop.count:
            pending = [*self._run_batch(pending[0]), *pending[1:]]
        for file, result in self.results.items():
            if result.verdict is Verdict.NOT_RUN and result.reason is None:
                reason = "interrupted before it ran" if self._stop.count else "an earlier file failed"
                self.results[file] = replace(result, reason=reason)

    def _without_unusable_names(self) -> tuple[str, ...]:
        pending = []
        for file in self._run.files:
            if reason := _unusable_name(file, parallel=self._run.parallel > 1):
                self.results[file] = FileResult(file=file, verdict=Verdict.ERROR, reason=reason)
            else:
                pending.append(file)
        if len(pending) == len(self._run.files) or self._run.keep_going:
            return tuple(pending)
        for file in pending:
            reason = "another file of the partition failed before any ran"
            self.results[file] = replace(self.results[file], reason=reason)
        return ()

    def _run_batch(self, batch: _Batch) -> list[_Batch]:
        """One pytest process; what is to be run in others after it."""
        with tempfile.TemporaryDirectory(prefix="ci-pytest-") as folder:
            events, ended = self._pytest(batch, Path(folder))
        if events.unusable is not None:
            raise InfrastructureError(
                f"{show(self._run.python)} cannot run the tests: {show(events.unusable)}",
                hint="add what is missing to the workspace's requirements, or give another --python",
            )
        files = batch.files
        for file in files:
            self.results[file] = events.result(file)
        if self._stop.count:
            self._note_interrupted(files, events)
            return []
        if events.exit_code == _USAGE and not events.any_collected:
            self._note_refusal(files, ended)
        elif not self._stopped_by_fast_fail():
            self._note_culprit(files, events, ended)
        rest = [file for file in files if self.results[file].verdict is Verdict.NOT_RUN]
        if not rest:
            self._note_fault(files, ended)
        if not rest or self._stopped_by_fast_fail():
            return []
        return self._further(batch, rest, events, ended)

    def _further(self, batch: _Batch, rest: Sequence[str], events: Events, ended: Ended) -> list[_Batch]:
        """How to come to a verdict for the files that a pytest left out: the fewer in one process the surer."""
        progress = len(rest) < len(batch.files)
        if batch.parallel > 1:
            # also files that have no tests: of them workers tell nothing
            return [_Batch(files=tuple(rest), parallel=batch.parallel if progress and len(rest) > 1 else 0)]
        if progress and events.exit_code != _INTERNAL:
            return [_Batch(files=tuple(rest))]
        if progress or events.exit_code is not None:
            # a hook that fails would fail in each new process
            self._give_up(rest, "pytest ended with an error of its own", ended)
            return []
        folders: dict[str, list[str]] = {}
        for file in rest:
            folders.setdefault(os.path.dirname(file), []).append(file)
        if len(folders) > 1:
            return [_Batch(files=tuple(files)) for files in folders.values()]
        self._give_up(rest, f"pytest died with {_how(ended)} before it ran a test", ended)
        return []

    def _give_up(self, files: Sequence[str], reason: str, ended: Ended) -> None:
        # the same words stand for all of them; once is enough
        tails = [_last_words(ended), *[""] * (len(files) - 1)]
        for file, tail in zip(files, tails, strict=True):
            self.results[file] = replace(self.results[file], verdict=Verdict.ERROR, reason=reason, tail=tail)

    def _stopped_by_fast_fail(self) -> bool:
        red = any(result.verdict in {Verdict.FAILED, Verdict.ERROR} for result in self.results.values())
        return red and not self._run.keep_going

    def _note_fault(self, files: Sequence[str], ended: Ended) -> None:
        """All files are done: pytest's own exit code has to agree with them."""
        red = any(self.results[file].verdict in {Verdict.FAILED, Verdict.ERROR} for file in files)
        if ended.code not in {0, _NO_TESTS} and not red:
            words = _last_words(ended).splitlines()[-1:]
            last = f"; its last line: {words[0]}" if words else ""
            self.fault = f"no test failed, but pytest ended with {_how(ended)}{last}"

    def _note_interrupted(self, files: Sequence[str], events: Events) -> None:
        running = {file for file, _ in events.running()}
        for file in files:
            result = self.results[file]
            if result.verdict is Verdict.NOT_RUN:
                reason = "interrupted while it ran" if file in running or result.tests else "interrupted before it ran"
                self.results[file] = replace(result, reason=reason)

    def _note_culprit(self, files: Sequence[str], events: Events, ended: Ended) -> None:
        """Pytest ended in the middle of a file: blame that one."""
        what = f"the interpreter died with {_how(ended)}"
        if events.exit_code is not None:
            what = f"it ended the whole pytest (exit code {events.exit_code})"
        blamed = {file: (Verdict.FAILED, f"{what} while running {show(test)}") for file, test in events.running()}
        importing = events.collecting
        if not blamed and importing is not None and importing in files:
            blamed = {importing: (Verdict.ERROR, f"{what} while importing it")}
        for file, (verdict, reason) in blamed.items():
            self.results[file] = replace(self.results[file], verdict=verdict, reason=reason, tail=_last_words(ended))
            self._output.line(f"{verdict}: {show(file)}: {reason}")

    def _note_refusal(self, files: Sequence[str], ended: Ended) -> None:
        """Pytest would not start: a conftest.py that fails costs its folder, a fault without a place costs all."""
        named = _CONFTEST.search(ended.early)
        folder = os.path.relpath(os.path.dirname(os.fsdecode(named[1])), self._run.workspace) if named else "."
        lost = [file for file in files if folder == "." or file.startswith(f"{folder}/")] or files
        self._give_up(lost, "pytest would not start: its conftest.py or configuration is broken", ended)

    def _pytest(self, batch: _Batch, folder: Path) -> tuple[Events, Ended]:
        """One pytest process over the files, seen to its end."""
        report, job = folder / "report", folder / "job.json"
        report.touch()
        job.write_text(json.dumps({"args": self._arguments(batch), "report": str(report)}))
        events = Events(batch.files)
        with open(report, encoding="utf-8") as reports:
            try:
                ended = self._supervisor.run(
                    [self._run.python, str(_SCRIPT), str(job)],
                    cwd=self._run.workspace,
                    env=self._run.env,
                    title=self._run.title,
                    tick=lambda: self._read_events(reports, events),
                )
            except OSError as error:
                raise InfrastructureError(
                    f"{show(self._run.python)} cannot be started: {show(error.strerror)}", hint="give another --python"
                ) from error
        return events, ended

    def _arguments(self, batch: _Batch) -> list[str]:
        # a workspace may stop at the first failure by its own addopts
        flow = ["--continue-on-collection-errors", "--maxfail=0"] if self._run.keep_going else ["-x"]
        parallel: list[str] = []
        if batch.parallel > 1:
            # with by-file distribution xdist 3.8 hangs after it replaced a worker that died; without a
            # replacement it ends, and the files that are left go to another pytest
            parallel = ["-n", str(batch.parallel), "--dist", "loadfile", "--max-worker-restart=0"]
        return ["-v", f"--rootdir={self._run.workspace}", *flow, *parallel, *batch.files]

    def _read_events(self, reports: IO[str], events: Events) -> None:
        while True:
            position = reports.tell()
            line = reports.readline()
            if not line.endswith("\n"):
                reports.seek(position)  # half a line: the rest follows, or the child died in it
                break
            running = events.add(json.loads(line))
            if running is not None:
                self._show_progress(events, running)

    def _show_progress(self, events: Events, running: str) -> None:
        done = {
            *events.finished(),
            *(file for file, known in self.results.items() if known.verdict is not Verdict.NOT_RUN),
        }
        red = sum(events.is_red(file) for file in events.finished())
        seconds = int(time.monotonic() - self._started)
        failed = f"{red} failed · " if red else ""
        clock = f"{seconds // 60:02}:{seconds % 60:02}"
        self._output.live(f"[{len(done)}/{len(self._run.files)}] {failed}{show(running, 100)} · {clock}")


def _unusable_name(file: str, *, parallel: bool) -> str | None:
    """Why pytest cannot be given a file of that name."""
    if "::" in file or "[" in file:
        return "pytest cannot be given a file whose name holds `::` or `[`; rename it"
    if parallel and not file.isprintable() and file.encode("utf-8", "ignore").decode() != file:
        return "pytest-xdist cannot be given a file whose name is not UTF-8; rename it, or run without --parallel"
    return None


def _how(ended: Ended) -> str:
    if ended.code >= 0:
        return f"exit code {ended.code}"
    try:
        return f"signal {signal.Signals(-ended.code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-ended.code}"


def _last_words(ended: Ended) -> str:
    return ended.recent.decode("utf-8", "replace").strip()
