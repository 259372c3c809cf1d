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
_INTERNAL, _USAGE = 3, 4


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


class _Runner:
    """The state of one run: what is known of each file."""

    def __init__(self, run: CpuRun, output: Output, supervisor: Supervisor, stop: Stop) -> None:
        self._run, self._output, self._supervisor, self._stop = run, output, supervisor, stop
        self.results = {file: FileResult(file=file, verdict=Verdict.NOT_RUN) for file in run.files}
        self._started = time.monotonic()

    def run_all(self) -> None:
        """Run every file once; after a death of the interpreter the rest in a new one, unless fast-fail stops."""
        pending = self._without_unusable_names()
        while pending and not self._stop.count:
            pending = self._run_once(pending)

    def _without_unusable_names(self) -> list[str]:
        pending = []
        for file in self._run.files:
            if reason := _unusable_name(file, parallel=self._run.parallel > 1):
                self.results[file] = FileResult(file=file, verdict=Verdict.ERROR, reason=reason)
            else:
                pending.append(file)
        if len(pending) == len(self._run.files) or self._run.keep_going:
            return pending
        for file in pending:
            reason = "another file of the partition failed before any ran"
            self.results[file] = replace(self.results[file], reason=reason)
        return []

    def _run_once(self, files: list[str]) -> list[str]:
        """One pytest process; the files that are to be run in another one."""
        with tempfile.TemporaryDirectory(prefix="ci-pytest-") as folder:
            events, ended = self._pytest(files, Path(folder))
        if events.unusable is not None:
            raise InfrastructureError(
                f"{show(self._run.python)} cannot run the tests: {show(events.unusable)}",
                hint="add what is missing to the workspace's requirements, or give another --python",
            )
        for file in files:
            self.results[file] = events.result(file)
        if self._stop.count:
            self._note_interrupted(files, events)
            return []
        if events.exit_code is None:
            return self._after_death(files, events, ended)
        if events.exit_code == _USAGE and not events.any_collected:
            return self._after_refusal(files, ended)
        if self._run.parallel > 1 and (rest := self._rest(files)) and len(rest) < len(files):
            return rest
        self._explain_not_run(files, events.exit_code, ended)
        return []

    def _explain_not_run(self, files: list[str], code: int, ended: Ended) -> None:
        """Pytest ended by itself and left files out: by fast-fail, or by a fault of its own."""
        broken = code in {_INTERNAL, _USAGE}
        reason = "pytest ended with an error of its own" if broken else "an earlier file failed"
        verdict = Verdict.ERROR if broken else Verdict.NOT_RUN
        for file in files:
            result = self.results[file]
            if result.verdict is Verdict.NOT_RUN and result.reason is None:
                tail = _last_words(ended) if broken and file == files[0] else ""
                self.results[file] = replace(result, verdict=verdict, reason=reason, tail=tail)

    def _note_interrupted(self, files: Sequence[str], events: Events) -> None:
        running = {file for file, _ in events.running()}
        for file in files:
            result = self.results[file]
            if result.verdict is Verdict.NOT_RUN:
                reason = "interrupted while it ran" if file in running or result.tests else "interrupted before it ran"
                self.results[file] = replace(result, reason=reason)

    def _after_death(self, files: list[str], events: Events, ended: Ended) -> list[str]:
        """The interpreter died: blame the file that it died in, go on with the others."""
        how = f"signal {signal.Signals(-ended.code).name}" if ended.code < 0 else f"exit code {ended.code}"
        blamed = {
            file: f"the interpreter died with {how} while running {show(test)}" for file, test in events.running()
        }
        verdict = Verdict.FAILED
        if not blamed and events.collecting in self.results:
            blamed = {events.collecting: f"the interpreter died with {how} while importing it"}
            verdict = Verdict.ERROR
        if not blamed:
            rest = [file for file in files if self.results[file].verdict is Verdict.NOT_RUN]
            blamed = dict.fromkeys(rest, f"pytest died with {how}")
            verdict = Verdict.ERROR
        for file, reason in blamed.items():
            self.results[file] = replace(self.results[file], verdict=verdict, reason=reason, tail=_last_words(ended))
            self._output.line(f"{verdict}: {show(file)}: {reason}")
        return self._rest(files)

    def _after_refusal(self, files: list[str], ended: Ended) -> list[str]:
        """Pytest would not start: a conftest.py that fails costs its folder, a fault without a place costs all."""
        named = _CONFTEST.search(ended.early)
        folder = os.path.relpath(os.path.dirname(os.fsdecode(named[1])), self._run.workspace) if named else "."
        lost = [file for file in files if folder == "." or file.startswith(f"{folder}/")] or files
        reason = "pytest would not start: its conftest.py or configuration is broken"
        # the same words stand for all of them; once is enough
        tails = [_last_words(ended), *[""] * (len(lost) - 1)]
        for file, tail in zip(lost, tails, strict=True):
            self.results[file] = replace(self.results[file], verdict=Verdict.ERROR, reason=reason, tail=tail)
        return self._rest(files)

    def _rest(self, files: list[str]) -> list[str]:
        if not self._run.keep_going:
            return []
        return [file for file in files if self.results[file].verdict is Verdict.NOT_RUN]

    def _pytest(self, files: list[str], folder: Path) -> tuple[Events, Ended]:
        """One pytest process over the files, seen to its end."""
        report, job = folder / "report", folder / "job.json"
        report.touch()
        job.write_text(json.dumps({"args": self._arguments(files), "report": str(report)}))
        events = Events(files)
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

    def _arguments(self, files: Sequence[str]) -> list[str]:
        flow = ["--continue-on-collection-errors"] if self._run.keep_going else ["-x"]
        parallel: list[str] = []
        if self._run.parallel > 1:
            # with by-file distribution xdist 3.8 hangs after it replaced a worker that died; without a
            # replacement it ends, and the files that are left go to another pytest
            parallel = ["-n", str(self._run.parallel), "--dist", "loadfile", "--max-worker-restart=0"]
        return ["-v", f"--rootdir={self._run.workspace}", *flow, *parallel, *files]

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


def _last_words(ended: Ended) -> str:
    return ended.recent.decode("utf-8", "replace").strip()
