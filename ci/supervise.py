"""One child at a time, seen to its end and the end of all it started: output, signals, time to tear down."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO

from ci import process
from ci.mark import VARIABLE
from ci.proc import own_mark
from ci.process import Reaped
from ci.show_output import Output
from ci.text import show

_TICK = 0.1
_DRAIN = 2.0
_CHUNK = 1 << 16
_MEASURE = 1.0
# bytes of output that are kept: the last, to say what a child said that explains nothing itself, and the
# first, to see why it would not start
_RECENT, _EARLY = 4000, 1 << 16


class Stop:
    """Signals that ask the run to stop. The first lets the child tear down; ``count`` of two means now."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended. ``code``: its exit code, -N for signal N; ``early`` and ``recent``: ends of its output.

    ``timed_out``: it was ended at its limit. ``peak``: the most memory that it and its descendants were seen to
    have in RAM, in bytes.
    """

    code: int
    early: bytes
    recent: bytes
    timed_out: bool
    peak: int


class Supervisor:
    """Runs children one after the other; collects what had to be reaped after them.

    ``log`` gets every byte; ``grace`` is the time to tear down in seconds; ``memory_of`` knows the accelerator
    memory of what has to be reaped. The process must be a reaper.
    """

    def __init__(
        self,
        output: Output,
        log: IO[bytes],
        stop: Stop,
        grace: float,
        *,
        memory_of: Callable[[Iterable[int]], Mapping[int, int]] = process.no_memory,
    ) -> None:
        self._output, self._log, self._stop, self._grace = output, log, stop, grace
        self._memory_of = memory_of
        self._spared = process.children()
        self._log_broken = False
        self._recent = bytearray()
        self._early = bytearray()
        self._timed_out = False
        self._peak = 0
        self._measured = 0.0
        self.reaped: list[Reaped] = []

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        title: str,
        tick: Callable[[], None],
        limit: float | None = None,
    ) -> Ended:
        """Start the child and return when it and all that it started have ended; ``tick`` is called meanwhile.

        After ``limit`` seconds the whole tree is ended.

        Raises:
            OSError: it cannot be started.
        """
        self._recent.clear()
        self._early.clear()
        self._timed_out, self._peak = False, 0
        mark = own_mark()
        child = process.start(command, cwd=cwd, env={**env, VARIABLE: str(mark)} if mark else env)
        self._output.begin(title)
        try:
            self._follow(child, tick, limit)
            code = child.wait()
            process.end_group(child)
            # before the pipe is drained: a grandchild may hold it open
            self._reap()
            self._drain(child)
            tick()
        finally:
            self._reap()
            self._output.end()
        return Ended(
            code=code,
            early=bytes(self._early),
            recent=bytes(self._recent),
            timed_out=self._timed_out,
            peak=self._peak,
        )

    def _follow(self, child: subprocess.Popen[bytes], tick: Callable[[], None], limit: float | None) -> None:
        """Until the child ends: pass its output on, and stop it when asked to."""
        pipe = _pipe(child)
        os.set_blocking(pipe, False)
        deadline: float | None = None
        started = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while child.poll() is None:
                if not selector.get_map():
                    # it mostly ends a moment after it closed its output: not a whole tick later
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_TICK)
                elif selector.select(_TICK) and not self._pass_on(pipe):
                    selector.unregister(pipe)
                tick()
                self._measure()
                if limit is not None and time.monotonic() - started > limit:
                    self._timed_out = True
                    child.kill()
                    return
                if self._stop.count and deadline is None:
                    deadline = time.monotonic() + self._grace
                    self._output.line(f"stopping: tests have {self._grace:g} s to tear down; Ctrl-C again to stop now")
                    process.signal_session(child, signal.SIGINT)
                if deadline is not None and (self._stop.count > 1 or time.monotonic() > deadline):
                    child.kill()
                    return

    def _measure(self) -> None:
        """Now and then, what the tree has in RAM."""
        if (now := time.monotonic()) - self._measured >= _MEASURE:
            self._measured = now
            self._peak = max(self._peak, process.tree_memory(self._spared))

    def _pass_on(self, pipe: int) -> bool:
        """One piece of output; False at its end."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        try:
            rest = memoryview(chunk)
            while rest:  # a disk that fills up takes a part before it refuses
                rest = rest[self._log.write(rest) :]
        except OSError as error:
            if not self._log_broken:
                self._output.line(f"the log cannot be written any more: {show(error.strerror)}")
            self._log_broken = True
        self._output.feed(chunk)
        self._recent = (self._recent + chunk)[-_RECENT:]
        self._early += chunk[: _EARLY - len(self._early)]
        return bool(chunk)

    def _drain(self, child: subprocess.Popen[bytes]) -> None:
        """What the pipe still holds; whoever is left may keep it open for ever."""
        pipe = _pipe(child)
        until = time.monotonic() + _DRAIN
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while time.monotonic() < until and selector.select(0.05):
                if not self._pass_on(pipe):
                    break
        if child.stdout is not None:
            child.stdout.close()

    def _reap(self) -> None:
        known = {found.pid for found in self.reaped}
        reaped = process.end_descendants(self._spared, memory_of=self._memory_of)
        self.reaped.extend(found for found in reaped if found.pid not in known)
        if not reaped:
            return
        for found in process.still_alive(self._spared):
            self._output.line(f"warning: process {found.pid} could not be ended and is still there: {found.command}")
            # the next try would take as long and end no better
            self._spared |= {found.pid}


def _pipe(child: subprocess.Popen[bytes]) -> int:
    if child.stdout is None:
        raise ValueError("the child was started without a pipe")
    return child.stdout.fileno()
