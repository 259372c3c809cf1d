"""A stage in a container, seen to its end. An edge module: engines, processes, signals.

The client of the engine is a process of ours; the container is not. So a stop is handed on through the client,
and however the client ended, no container of the run's name is left behind.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select

from ci.console import say, warn
from ci.container import ContainerRun, run_command, shell_line, without_mounts
from ci.container_owner import give_back
from ci.container_setup import container_run, host, missing_data, results_parent
from ci.engine import Engine, find_engine, last_words
from ci.errors import ExitCode, InfrastructureError
from ci.facts import Facts
from ci.options import Option
from ci.plan import StagePlan
from ci.process import die_with_parent, is_linux
from ci.supervise import Stop
from ci.text import show
from ci.workspace import Workspace

_TICK = 0.1
_CHUNK = 1 << 16
_RECENT = 4000
# seconds that the session inside gets beyond the tests' own, to end what they left and write the results
_MARGIN = 30.0
# seconds that a client has to end after its container was killed, and its output after it ended
_BOUND, _DRAIN = 20.0, 2.0
_ENGINE_FAILED = frozenset({125, 126, 127})
_KILLED = 128 + signal.SIGKILL
_PR_SET_PDEATHSIG = 1


def run_in_container(
    options: Namespace,
    workspace: Workspace,
    plan: StagePlan,
    facts: Facts,
    *,
    declared: Sequence[Option],
    started_in: Path,
) -> int:
    """Run the plan's stage inside its image; the exit code of the session there.

    Raises:
        UsageError: what it needs cannot be put into a container.
        InfrastructureError: the engine is not there, or did not run it to its end.
    """
    run = container_run(options, workspace, plan, facts, declared=declared, started_in=started_in)
    missing = missing_data(workspace, plan)
    if missing:
        warn(f"not on this machine, so a run here goes without: {', '.join(missing)}")
    if options.dry_run:
        print(shell_line(run_command(run)))
        return ExitCode.OK
    run = without_mounts(run, missing)
    engine = find_engine(run.engine, os.environ)
    die_with_parent(signal.SIGTERM)
    _clear_leftovers(engine, remove=options.clean_host)
    for mount in run.mounts:
        # the results and the cache; made by the engine they would be root's
        if not os.path.exists(mount.source):
            os.makedirs(mount.source)
    results = results_parent(options, started_in) / plan.folder / "results.json"
    before = _stamp(results)
    stop = Stop()
    # until nothing is left: a signal may cost tests, never what they leave behind
    with stop.listening():
        code, said = _Client(run, engine, stop, options.grace).run()
        give_back(run, uid=os.getuid(), gid=os.getgid())
    return _verdict(run, code, said, stopped=bool(stop.count), wrote=_stamp(results) != before)


def _clear_leftovers(engine: Engine, *, remove: bool) -> None:
    for found in engine.leftovers(host()):
        what = f"container {show(found.name)}, left by a run that is dead (process {found.runner})"
        if not remove:
            warn(f"{what}; --clean-host removes it")
        elif engine.remove(found.name):
            say(f"removed: {what}")
        else:
            warn(f"{what}, cannot be removed")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


class _Client:
    """The engine's client while it runs the container: its errors passed on, stops handed to it."""

    def __init__(self, run: ContainerRun, engine: Engine, stop: Stop, grace: float) -> None:
        self._run, self._engine, self._stop, self._grace = run, engine, stop, grace
        self._recent = b""

    def run(self) -> tuple[int, bytes]:
        """Its exit code (-N for signal N) and the end of what it and the container said on stderr."""
        try:
            client = _start(run_command(self._run))
        except OSError as error:
            raise InfrastructureError(
                f"{self._run.engine} cannot be started: {show(error.strerror)}", hint="--dry-run prints the command"
            ) from error
        try:
            self._follow(client)
            self._drain(client)
        finally:
            if client.poll() is None:
                client.kill()
            # whatever the client says: one that was killed leaves its container running
            if not self._engine.remove(self._run.name) and client.wait() not in _ENGINE_FAILED:
                _try_to_warn(f"whether the container {self._run.name} is left cannot be told")
        return client.wait(), self._recent

    def _follow(self, client: subprocess.Popen[bytes]) -> None:
        """Until the client ends. The first stop lets the tests tear down; another one, or time, ends the container."""
        patience: float | None = None
        killed: float | None = None
        while client.poll() is None:
            self._pass_on(client, _TICK)
            now = time.monotonic()
            if self._stop.count and patience is None:
                patience = now + self._grace + _MARGIN
                client.send_signal(signal.SIGINT)
            elif killed is None and patience is not None and (self._stop.count > 1 or now > patience):
                killed = now
                _try_to_warn(f"stopping now: the container {self._run.name} is killed")
                self._engine.kill(self._run.name)
            elif killed is not None and now > killed + _BOUND:
                client.kill()

    def _drain(self, client: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _DRAIN
        while time.monotonic() < until and self._pass_on(client, _TICK):
            pass

    def _pass_on(self, client: subprocess.Popen[bytes], wait: float) -> bool:
        """One piece of its stderr, if there is one by then; False at the end."""
        pipe = client.stderr
        if pipe is None or pipe.closed:
            time.sleep(wait)
            return False
        if not select([pipe], [], [], wait)[0]:
            return True
        if not (chunk := os.read(pipe.fileno(), _CHUNK)):
            pipe.close()
            return False
        self._recent = (self._recent + chunk)[-_RECENT:]
        # nobody may be there to read; the container has to be seen to its end all the same
        with suppress(OSError):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()
        return True


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """The client, in a session of its own; if this process is killed it is asked to end, and asks the container."""
    libc = ctypes.CDLL(None) if is_linux() else None

    def before_exec() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    sys.stdout.flush()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=before_exec,  # noqa: PLW1509 - this process has one thread
    )


def _try_to_warn(text: str) -> None:
    with suppress(OSError):
        warn(text)


def _verdict(run: ContainerRun, code: int, said: bytes, *, stopped: bool, wrote: bool) -> int:
    """The exit code that this process ends with.

    Raises:
        InfrastructureError: it is not the session's own.
    """
    own = code in set(ExitCode) and (code != ExitCode.FAILED or wrote)
    if own or stopped:
        return ExitCode(code) if own else ExitCode.INTERRUPTED
    if code in _ENGINE_FAILED:
        offline = "" if run.pull else "; without --offline a missing image is fetched"
        raise InfrastructureError(
            f"{run.engine} could not run the stage in {show(run.image)}: {last_words(said)}",
            hint=f"--dry-run prints the command{offline}",
        )
    if code == ExitCode.FAILED:
        raise InfrastructureError(
            f"the session in {show(run.image)} ended before it had results: {last_words(said)}",
            hint="its python3 has to be 3.11 or newer, with packaging and PyYAML",
        )
    if code == _KILLED:
        raise InfrastructureError(
            f"the container was killed (exit code {code})",
            hint=f"by the kernel for want of memory, or by somebody's `{run.engine} kill`",
        )
    raise InfrastructureError(
        f"the {run.engine} client was ended by {signal.Signals(-code).name}; its container is removed"
        if code < 0
        else f"the container ended with {code}, which no session does: {last_words(said)}",
        hint="run it again",
    )
