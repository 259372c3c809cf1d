"""What tests of processes share: looking for a process, and waiting for something to become true."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest


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
