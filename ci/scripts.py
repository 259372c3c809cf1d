"""Files run as scripts, one after the other: a limit, retries by rule, and nothing left behind (spec §9)."""

import datetime as dt
import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ci import process
from ci.attempt_logs import without_lost_logs
from ci.errors import InfrastructureError
from ci.hardware import DEVICE_NODES, memory_of, used_memory
from ci.limits import limit_of
from ci.memory_return import memory_fault
from ci.metric_records import merge_records
from ci.ports import VARIABLE as PORT_VARIABLE
from ci.ports import port_range
from ci.registration import Registration
from ci.results import Attempt, FileResult, Status, SuiteOutcome, Verdict
from ci.retry import decide
from ci.script_end import oom_kills, signal_name, status_of
from ci.show_output import Output
from ci.supervise import Stop, Supervisor
from ci.text import show

RECORD_VARIABLE = "MILES_CI_GATE_RECORD_DIR"
_RETRY_LIMIT = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One run. ``timeout``: seconds for each file instead of its own limit. ``attempts``: at most, by backend.

    ``retry_pause``: seconds before another attempt. ``shared``: a folder where the runners of this host meet,
    for their ports. ``nodes``: shell patterns of the files that whoever uses an accelerator has open.
    """

    title: str
    python: str
    workspace: str
    backend: str
    registrations: tuple[Registration, ...]
    env: Mapping[str, str]
    keep_going: bool
    attempts: int
    results: str
    grace: float
    timeout: float | None
    retry_pause: float
    shared: str
    nodes: tuple[str, ...] = DEVICE_NODES


def run_scripts(run: ScriptRun, output: Output, stop: Stop) -> SuiteOutcome:
    """Run the files to their verdicts; the caller has ``stop`` listen.

    Stops at the first failure unless ``keep_going``, and at once when the next file could not run here: its
    folder cannot be written, or accelerator memory does not come back.
    """
    started = time.monotonic()
    process.become_reaper()
    results: dict[str, FileResult] = {}
    infrastructure: str | None = None
    failed = False
    for number, registration in enumerate(run.registrations, start=1):
        file = registration.file
        if stop.count or infrastructure or (failed and not run.keep_going):
            reason = "interrupted before it ran" if stop.count else infrastructure or "an earlier file failed"
            results[file] = FileResult(file=file, verdict=Verdict.NOT_RUN, reason=reason)
            continue
        output.live(f"[{number}/{len(run.registrations)}] {show(file, 100)}")
        before = used_memory(run.backend, run.env)
        attempts = _File(run, registration, output, stop)
        try:
            results[file] = attempts.run()
        except (InfrastructureError, OSError) as error:
            # what is known of the files before it must not be lost with it
            infrastructure = _described(error)
            results[file] = attempts.known(infrastructure)
        failed = failed or results[file].verdict is Verdict.FAILED
        infrastructure = infrastructure or memory_fault(run.backend, run.env, before, lambda: stop.count > 0)
    output.clear()
    files, lost = without_lost_logs(results[registration.file] for registration in run.registrations)
    for line in lost:
        output.line(line)
    return SuiteOutcome(
        files=files,
        duration=time.monotonic() - started,
        interrupted=stop.count > 0,
        reaped=tuple(found for result in results.values() for attempt in result.attempts for found in attempt.reaped),
        infrastructure=infrastructure,
    )


class _File:
    """All attempts at one file."""

    def __init__(self, run: ScriptRun, registration: Registration, output: Output, stop: Stop) -> None:
        self._run, self._registration, self._output, self._stop = run, registration, output, stop
        self._attempts: list[Attempt] = []
        self._tail = ""
        self._folder = Path(run.results) / re.sub(r"[^A-Za-z0-9._-]+", "_", registration.file)

    def run(self) -> FileResult:
        """Try until it passes or the rules say that is enough.

        Raises:
            InfrastructureError, OSError: it cannot be started, or its folder cannot be written.
        """
        limit = limit_of(self._registration, self._run.timeout)
        while True:
            attempt, self._tail, again = self._attempt(len(self._attempts) + 1, limit)
            self._attempts.append(attempt)
            if not again:
                return self._result()
            limit += _RETRY_LIMIT
            self._output.line(f"{show(self._registration.file)}: trying again in {self._run.retry_pause:g} s")
            until = time.monotonic() + self._run.retry_pause
            while time.monotonic() < until and not self._stop.count:
                time.sleep(0.1)
            if self._stop.count:
                return self._result()

    def known(self, reason: str) -> FileResult:
        """What the attempts so far say, where another could not be made for that reason."""
        if self._attempts:
            return self._result()
        return FileResult(file=self._registration.file, verdict=Verdict.NOT_RUN, reason=reason)

    def _attempt(self, number: int, limit: float) -> tuple[Attempt, str, bool]:
        """One start of the file; how it ended, the end of its output, and whether to try again."""
        log = self._folder / f"attempt-{number}.log"
        records = self._folder / f"attempt-{number}-records"
        ooms = oom_kills()
        began, started = dt.datetime.now(dt.UTC), time.monotonic()
        with ExitStack() as stack:
            try:
                records.mkdir(parents=True, exist_ok=True)
                stream = stack.enter_context(open(log, "wb", buffering=0))
            except OSError as error:
                raise InfrastructureError(
                    f"results cannot be written to {show(self._folder)}: {show(error.strerror)}",
                    hint="give another folder with --results DIR",
                ) from error
            base = stack.enter_context(port_range(Path(self._run.shared)))
            supervisor = Supervisor(self._output, stream, self._stop, self._run.grace, memory_of=self._memory_of)
            env = {**self._run.env, PORT_VARIABLE: str(base), RECORD_VARIABLE: str(records)}
            try:
                ended = supervisor.run(
                    [self._run.python, self._registration.file],
                    cwd=self._run.workspace,
                    env=env,
                    title=f"{show(self._registration.file)} (attempt {number})",
                    tick=lambda: None,
                    limit=limit,
                )
            except OSError as error:
                raise InfrastructureError(
                    f"{show(self._run.python)} cannot be started: {show(error.strerror)}", hint="give another --python"
                ) from error
        status = status_of(ended, interrupted=self._stop.count > 0, oom_killed=oom_kills() > ooms)
        tail = ended.recent.decode("utf-8", "replace")
        again, reason = self._decide(status, tail, number)
        attempt = Attempt(
            number=number,
            started=began.isoformat(timespec="milliseconds"),
            ended=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            duration=round(time.monotonic() - started, 3),
            limit=limit,
            status=status,
            code=ended.code,
            retry=reason,
            peak_memory=ended.peak,
            log=str(log),
            reaped=tuple(supervisor.reaped),
        )
        self._say(attempt)
        if status is Status.PASSED:
            self._write_metrics(records)
        return attempt, tail, again

    def _memory_of(self, pids: Iterable[int]) -> Mapping[int, int]:
        return memory_of(pids, self._run.backend, self._run.env, nodes=self._run.nodes)

    def _decide(self, status: Status, tail: str, number: int) -> tuple[bool, str]:
        if status is Status.PASSED:
            return False, ""
        if status is Status.INTERRUPTED:
            return False, "interrupted"
        decision = decide(
            tail,
            attempt=number,
            attempts=self._run.attempts,
            signalled=status in {Status.SIGNALLED, Status.OUT_OF_MEMORY},
            timed_out=status is Status.TIMED_OUT,
        )
        return decision.retry, decision.reason

    def _say(self, attempt: Attempt) -> None:
        how = "" if attempt.status is Status.PASSED else f", exit code {attempt.code}; {show(attempt.retry, 300)}"
        self._output.line(f"{attempt.status}: {show(self._registration.file)} in {attempt.duration:.1f} s{how}")

    def _write_metrics(self, records: Path) -> None:
        with suppress(OSError):
            merged, faults = merge_records(records)
            for fault in faults:
                self._output.line(f"warning: {fault}")
            if merged:
                (self._folder / "metrics.json").write_text(json.dumps(merged, indent=1))

    def _result(self) -> FileResult:
        attempts, last = self._attempts, self._attempts[-1]
        verdict = {Status.PASSED: Verdict.PASSED, Status.INTERRUPTED: Verdict.NOT_RUN}.get(last.status, Verdict.FAILED)
        if verdict is Verdict.PASSED and len(attempts) > 1:
            verdict = Verdict.FLAKY
        reason = {
            Status.TIMED_OUT: f"timed out after {last.limit:g} s",
            Status.OUT_OF_MEMORY: "killed because the host was out of memory",
            Status.SIGNALLED: f"ended by {signal_name(last.code)}",
            Status.INTERRUPTED: "interrupted while it ran",
        }.get(last.status)
        if verdict is Verdict.FLAKY:
            reason = f"passed on attempt {last.number}; before: {attempts[0].status}"
        return FileResult(
            file=self._registration.file,
            verdict=verdict,
            duration=sum(attempt.duration for attempt in attempts),
            reason=reason,
            tail=self._tail if verdict is Verdict.FAILED else "",
            attempts=tuple(attempts),
        )


def _described(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{show(error.filename)}: {show(error.strerror)}" if error.filename else show(error)
    return "; ".join(line.strip() for line in str(error).splitlines())
