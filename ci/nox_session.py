"""Running a stage from a Nox session, with the time to stop that its tests need and the exit code of its kind."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from ci.errors import ExitCode, combine
from ci.inventory import Stage
from ci.paths import REPOSITORY

if TYPE_CHECKING:
    import nox

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ExitCodes:
    """Collects the exit codes of a Nox run and makes the process end with their kind.

    Nox ends with 1 for whatever failed; a caller needs to know whether another machine could do better (3).
    """

    def __init__(self) -> None:
        self._codes: list[ExitCode] = []

    def add(self, code: ExitCode) -> None:
        """Note one code."""
        if not self._codes:
            # after Nox's own summary, when the process ends
            atexit.register(self._leave)
        self._codes.append(code)

    def _leave(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(combine(self._codes))


def run_stage(session: "nox.Session", stage: Stage, partition: int | None, codes: ExitCodes) -> None:
    """Run one stage or partition through ``python -m ci.session``.

    Wrong input ends the whole Nox run at once: it is wrong for every other partition too.
    """
    command = [sys.executable, "-m", "ci.session", stage.name, "--started-in", session.invoked_from]
    if partition is not None:
        command += ["--partition-id", str(partition)]
    code = run_child([*command, *session.posargs])
    if code == ExitCode.OK:
        if {"--help", "-h"} & set(session.posargs):
            raise SystemExit(ExitCode.OK)
        return
    known = ExitCode(code) if code in set(ExitCode) else ExitCode.FAILED
    codes.add(known)
    if known in {ExitCode.USAGE, ExitCode.INTERRUPTED}:
        raise SystemExit(known)
    reasons = {ExitCode.FAILED: "tests failed", ExitCode.INFRASTRUCTURE: "not run: something it needs is missing"}
    session.error(reasons[known])


def run_child(command: Sequence[str]) -> int:
    """Run a command to its end, however long that takes after a signal; its exit code, 128+N for signal N.

    The child stands in a process group of its own, so that a Ctrl-C reaches it once, from here, and not a
    second time from the terminal: a second one means "stop now" to it. Nox itself would kill it after half
    a second.
    """
    with (
        _pending_signals() as pending,
        subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, process_group=0) as child,
    ):
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(timeout=0.1)
                return code if code >= 0 else 128 - code
            while pending:
                child.send_signal(pending.pop(0))


@contextlib.contextmanager
def _pending_signals() -> Iterator[list[signal.Signals]]:
    """Signals that arrive meanwhile, in order, instead of what they did before."""
    pending: list[signal.Signals] = []

    def note(number: int, _frame: FrameType | None) -> None:
        pending.append(signal.Signals(number))

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
