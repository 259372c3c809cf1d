"""What tests of processes share: looking for a process, and waiting for something to become true."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
# a process table of its own; the namespace, and all in it, ends with its first process
UNSHARE = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--pid", "--fork", "--mount-proc")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once the condition holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(f"not within {seconds} s")


def pids_in(file: Path) -> list[int]:
    """Process ids that hostile tests noted, a line each."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def process_count() -> int:
    """Processes of this machine that are not zombies."""
    return sum(alive(int(name)) for name in os.listdir("/proc") if name.isdigit())


def in_own_process_table(scenario: Callable[[Path], None], folder: Path) -> None:
    """Call a function of a test module where no processes are but those that it starts.

    What looks at all processes, or ends some that are not its own, then touches nobody else's.
    """
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a PID namespace here")
    code = f"import sys, pathlib, {scenario.__module__} as m; m.{scenario.__name__}(pathlib.Path(sys.argv[1]))"
    ran = subprocess.run(
        [*UNSHARE, sys.executable, "-c", code, str(folder)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
