"""The CPU runner: one pytest over a partition's files, a verdict for each, nothing left behind (spec §9)."""

import json
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO

from ci import process
from ci.errors import InfrastructureError
from ci.process import Reaped
from ci.results import FileResult, SuiteOutcome, Verdict
from ci.show_output import Output
from ci.text import show
from ci.verdicts import Events

_SCRIPT = Path(__file__).with_name("pytest_report.py")
_TICK = 0.1
_DRAIN = 2.0
_CHUNK = 1 << 16
# bytes of output that are kept: the last, for a file of which pytest says nothing, and the first, to see why
# it would not start
_RECENT, _EARLY = 4000, 1 << 16
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


class _Stop:
    """Signals that ask the run to stop, and what came of them."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count signals instead of dying by them."""

        def note(_number: int, _frame: FrameType | None) -> None:
            self.count += 1

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_cpu(run: CpuRun, output: Output) -> SuiteOutcome:
    """Run the files to their verdicts.

    Signals are counted while it runs: the first lets tests tear down for ``grace`` seconds, the second or the
    end of that time ends the whole tree.

    Raises:
        InfrastructureError: the interpreter cannot be started or has no pytest.
    """
    started = time.monotonic()
    process.become_reaper()
    spared = process.children()
    stop = _Stop()
    with stop.listening(), _log(run) as log:
        runner = _Runner(run, output, log, stop, spared)
        runner.run_all()
        output.clear()
        return SuiteOutcome(
            files=tuple(runner.results[file] for file in run.files),
            duration=time.monotonic() - started,
            interrupted=stop.count > 0,
            reaped=tuple(runner.reaped),
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
    """The state of one run: what is known of each file, and what had to be reaped."""

    def __init__(self, run: CpuRun, output: Output, log: IO[bytes], stop: _Stop, spared: frozenset[int]) -> None:
        self._run, self._output, self._log, self._stop, self._spared = run, output, log, stop, spared
        self._log_broken = False
        self._recent = bytearray()
        self._early = bytearray()
        self.results = {file: FileResult(file=file, verdict=Verdict.NOT_RUN) for file in run.files}
        self.reaped: list[Reaped] = []
        self._started = time.monotonic()

    def run_all(self) -> None:
        """Run every file once; after a death of the interpreter the rest in a new one, unless fast-fail stops."""
        pending = self._without_unusable_names()
        while pending and not self._stop.count:
            pending = self._run_once(pending)

    def _without_unusable_names(self) -> list[str]:
        pending = []
        for file in self._run.files:
            if "::" in file or "[" in file:
                reason = "pytest cannot be given a file whose name holds `::` or `[`; rename it"
                self.results[file] = FileResult(file=file, verdict=Verdict.ERROR, reason=reason)
            else:
                pending.append(file)
        stopped = len(pending) < len(self._run.files) and not self._run.keep_going
        return [] if stopped else pending

    def _run_once(self, files: list[str]) -> list[str]:
        """One pytest process; the files that are to be run in another one."""
        self._early.clear()
        with tempfile.TemporaryDirectory(prefix="ci-pytest-") as folder:
            events, code = self._supervise(files, Path(folder))
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
            return self._after_death(files, events, code)
        if events.exit_code == _USAGE and not events.any_collected:
            return self._after_refusal(files)
        if self._run.parallel > 1 and (rest := self._rest(files)) and len(rest) < len(files):
            return rest
        self._explain_not_run(files, events.exit_code)
        return []

    def _explain_not_run(self, files: list[str], code: int) -> None:
        """Pytest ended by itself and left files out: by fast-fail, or by a fault of its own."""
        broken = code in {_INTERNAL, _USAGE}
        reason = "pytest ended with an error of its own" if broken else "an earlier file failed"
        verdict = Verdict.ERROR if broken else Verdict.NOT_RUN
        for file in files:
            result = self.results[file]
            if result.verdict is Verdict.NOT_RUN and result.reason is None:
                tail = self._last_words() if broken and file == files[0] else ""
                self.results[file] = replace(result, verdict=verdict, reason=reason, tail=tail)

    def _note_interrupted(self, files: Sequence[str], events: Events) -> None:
        running = {file for file, _ in events.running()}
        for file in files:
            result = self.results[file]
            if result.verdict is Verdict.NOT_RUN:
                reason = "interrupted while it ran" if file in running or result.tests else "interrupted before it ran"
                self.results[file] = replace(result, reason=reason)

    def _after_death(self, files: list[str], events: Events, code: int) -> list[str]:
        """The interpreter died: blame the file that it died in, go on with the others."""
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
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
            self.results[file] = replace(self.results[file], verdict=verdict, reason=reason, tail=self._last_words())
            self._output.line(f"{verdict}: {show(file)}: {reason}")
        return self._rest(files)

    def _after_refusal(self, files: list[str]) -> list[str]:
        """Pytest would not start: a conftest.py that fails costs its folder, a fault without a place costs all."""
        named = _CONFTEST.search(bytes(self._early))
        folder = os.path.relpath(os.path.dirname(os.fsdecode(named[1])), self._run.workspace) if named else "."
        lost = [file for file in files if folder == "." or file.startswith(f"{folder}/")] or files
        reason = "pytest would not start: its conftest.py or configuration is broken"
        # the same words stand for all of them; once is enough
        tails = [self._last_words(), *[""] * (len(lost) - 1)]
        for file, tail in zip(lost, tails, strict=True):
            self.results[file] = replace(self.results[file], verdict=Verdict.ERROR, reason=reason, tail=tail)
        return self._rest(files)

    def _last_words(self) -> str:
        return self._recent.decode("utf-8", "replace").strip()

    def _rest(self, files: list[str]) -> list[str]:
        if not self._run.keep_going:
            return []
        return [file for file in files if self.results[file].verdict is Verdict.NOT_RUN]

    def _supervise(self, files: list[str], folder: Path) -> tuple[Events, int]:
        """Start pytest over the files and see it to its end and the end of all it started."""
        report = folder / "report"
        report.touch()
        job = folder / "job.json"
        job.write_text(json.dumps({"args": self._arguments(files), "report": str(report)}))
        events = Events(files)
        try:
            child = process.start(
                [self._run.python, str(_SCRIPT), str(job)], cwd=self._run.workspace, env=self._run.env
            )
        except OSError as error:
            raise InfrastructureError(
                f"{show(self._run.python)} cannot be started: {show(error.strerror)}", hint="give another --python"
            ) from error
        self._output.begin(self._run.title)
        try:
            with open(report, encoding="utf-8") as reports:
                self._follow(child, events, reports)
                code = child.wait()
                self._reap()
                self._drain(child)
                self._read_events(reports, events)
        finally:
            self._reap()
            self._output.end()
        return events, code

    def _arguments(self, files: Sequence[str]) -> list[str]:
        flow = ["--continue-on-collection-errors"] if self._run.keep_going else ["-x"]
        parallel: list[str] = []
        if self._run.parallel > 1:
            # with by-file distribution xdist 3.8 hangs after it replaced a worker that died; without a
            # replacement it ends, and the files that are left go to another pytest
            parallel = ["-n", str(self._run.parallel), "--dist", "loadfile", "--max-worker-restart=0"]
        return ["-v", f"--rootdir={self._run.workspace}", *flow, *parallel, *files]

    def _follow(self, child: subprocess.Popen[bytes], events: Events, reports: IO[str]) -> None:
        """Until the child ends: pass its output on, read its reports, and stop it when asked to."""
        assert child.stdout is not None  # noqa: S101 - started with a pipe
        os.set_blocking(child.stdout.fileno(), False)
        stopper = _Stopper(child, self._stop, self._run.grace, self._output)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while child.poll() is None:
                if selector.get_map():
                    if selector.select(_TICK) and not self._pass_on(child):
                        selector.unregister(child.stdout)
                else:
                    time.sleep(_TICK)
                self._read_events(reports, events)
                if stopper.should_kill():
                    child.kill()
                    return

    def _pass_on(self, child: subprocess.Popen[bytes]) -> bool:
        """One piece of output; False at its end."""
        assert child.stdout is not None  # noqa: S101 - started with a pipe
        try:
            chunk = os.read(child.stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        try:
            self._log.write(chunk)
        except OSError as error:
            if not self._log_broken:
                self._output.line(f"pytest.log cannot be written any more: {show(error.strerror)}")
            self._log_broken = True
        self._output.feed(chunk)
        self._recent = (self._recent + chunk)[-_RECENT:]
        self._early += chunk[: _EARLY - len(self._early)]
        return bool(chunk)

    def _drain(self, child: subprocess.Popen[bytes]) -> None:
        """What the pipe still holds; somebody else may keep it open for ever."""
        assert child.stdout is not None  # noqa: S101 - started with a pipe
        until = time.monotonic() + _DRAIN
        with child.stdout, selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while time.monotonic() < until and selector.select(0.05):
                if not self._pass_on(child):
                    break

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

    def _reap(self) -> None:
        self._note_reaped(process.end_descendants(self._spared))

    def _note_reaped(self, reaped: Sequence[Reaped]) -> None:
        known = {found.pid for found in self.reaped}
        self.reaped.extend(found for found in reaped if found.pid not in known)


class _Stopper:
    """Asks the child to stop, then decides when its time is over."""

    def __init__(self, child: subprocess.Popen[bytes], stop: _Stop, grace: float, output: Output) -> None:
        self._child, self._stop, self._grace, self._output = child, stop, grace, output
        self._deadline: float | None = None

    def should_kill(self) -> bool:
        """Whether the whole tree is to be ended now."""
        if not self._stop.count:
            return False
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace
            self._output.line(f"stopping: tests have {self._grace:g} s to tear down; Ctrl-C again to stop now")
            process.signal_session(self._child, signal.SIGINT)
        return self._stop.count > 1 or time.monotonic() > self._deadline
