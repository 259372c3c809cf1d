import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ci.locks import held
from tests.processes import alive, pids_in, wait_for

REPOSITORY = Path(__file__).parent.parent
HOLDER = """
import subprocess, sys, time
from pathlib import Path
from ci.locks import held, held_handles
with held(Path(sys.argv[1]), what="the cache"):
    worker = subprocess.Popen(["sleep", sys.argv[2]], pass_fds=held_handles())
    Path(sys.argv[1] + ".pids").write_text(f"{worker.pid}")
    time.sleep(float(sys.argv[3]))
"""


def holder(lock: Path, worker: float, itself: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLDER, str(lock), str(worker), str(itself)]
    started = subprocess.Popen(command, cwd=REPOSITORY)
    wait_for(Path(f"{lock}.pids").exists)
    return started


def test_a_waiting_run_names_the_holder_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = holder(tmp_path / "lock", 0, 1.6)
    with held(tmp_path / "lock", what="the cache"):
        assert other.wait(5) == 0
    assert capsys.readouterr().err == f"waiting for another run that uses the cache (process {other.pid})\n"


def test_a_killed_holder_is_waited_for_until_what_it_started_has_ended(tmp_path: Path) -> None:
    other = holder(tmp_path / "lock", 1.5, 60)
    (worker,) = pids_in(tmp_path / "lock.pids")
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert alive(worker)
    with held(tmp_path / "lock", what="the cache"):
        assert not alive(worker)


def test_the_lock_is_free_once_the_holder_is_done_whoever_inherited_it(tmp_path: Path) -> None:
    other = holder(tmp_path / "lock", 30, 0)
    other.wait()
    (worker,) = pids_in(tmp_path / "lock.pids")
    with held(tmp_path / "lock", what="the cache"):
        assert alive(worker)
    subprocess.run(["kill", str(worker)], check=True)


def test_it_can_be_taken_again_and_leaves_no_lock_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        with held(tmp_path / "lock", what="the cache"):
            pass
    assert capsys.readouterr().err == ""
