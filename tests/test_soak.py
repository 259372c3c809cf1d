"""Long proofs: kills and signals at many moments, each followed by a whole run."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from ci.ref import parse_ref
from ci.sources import obtain
from tests.processes import alive, pids_in
from tests.repositories import commit, dependency, repository
from tests.test_cpu import start
from tests.test_scripts import run as run_scripts
from tests.test_sources import obtaining

pytestmark = pytest.mark.long


def test_a_fetch_killed_at_any_moment_is_mended_by_the_next(tmp_path: Path) -> None:
    remote = repository(tmp_path / "remote", {"python/sglang/__init__.py": "VERSION = 0\n"})
    for number in range(200):
        (remote / f"file_{number}.txt").write_text(f"{number}\n" * 500)
    chance = random.Random(7)  # noqa: S311 - the same moments each time
    for number in range(40):
        version = commit(remote, {"python/sglang/__init__.py": f"VERSION = {number}\n"})
        run = obtaining(remote, tmp_path / "cache")
        time.sleep(chance.uniform(0.1, 0.5))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        environ = {"CI_SGLANG_REPO": str(remote)}
        tree = obtain(dependency(), parse_ref("main"), environ=environ, cache=tmp_path / "cache")
        assert tree.commit == version
        assert (Path(tree.root) / "sglang/__init__.py").read_text() == f"VERSION = {number}\n"
    assert not list((tmp_path / "cache/sources/sglang").rglob("*.lock"))


def test_a_signal_at_any_moment_leaves_nobody(tmp_path: Path) -> None:
    chance = random.Random(8)  # noqa: S311 - the same moments each time
    for number in range(30):
        folder = tmp_path / str(number)
        noted = folder / "pids"
        source = f"""
import os, subprocess, time
def note(pid):
    with open({str(noted)!r}, "a") as stream:
        stream.write(f"{{pid}}\\n")
note(os.getpid())
note(subprocess.Popen(["sleep", "30"], start_new_session=True).pid)
def test_x():
    note(subprocess.Popen(["sleep", "30"], start_new_session=True).pid)
    time.sleep(0.3)
"""
        ran = start(folder, {"test_a.py": source, "test_b.py": "def test_y(): ...\n"}, "--grace", "1")
        time.sleep(chance.uniform(0.15, 1.2))
        asked = chance.choice([signal.SIGINT, signal.SIGTERM])
        ran.process.send_signal(asked)
        code = ran.process.wait(30)
        # while the interpreter itself starts, it dies by the signal, and nothing has been started yet
        assert code in {0, 130} or (code == -asked and not noted.exists()), code
        assert not [pid for pid in pids_in(noted) if alive(pid)], number
        os.sync()


HOSTILE = (
    # ignores SIGTERM after a double fork
    """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note(os.getpid())
        while True:
            time.sleep(9)
    os._exit(0)
os.wait()
""",
    # a burst of sessions
    """
import os, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        note(os.getpid())
        time.sleep(60)
        os._exit(0)
""",
    # much output in one line, and invalid bytes
    "import os\nos.write(1, b'x' * 5_000_000)\nos.write(1, b'\\xff\\n')\n",
    # crashes, and leaves a child
    """
import os, subprocess
note(subprocess.Popen(["sleep", "77"], start_new_session=True).pid)
os.kill(os.getpid(), 11)
""",
    # exits at once, and leaves one that closed everything and cleared its environment
    """
import os
if os.fork() == 0:
    os.setsid()
    note(os.getpid())
    os.closerange(0, 99)
    os.execve("/bin/sleep", ["sleep", "78"], {})
os._exit(3)
""",
)


def test_fifty_hostile_files_in_a_row_leave_nobody(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    note = f"def note(pid):\n    with open({str(noted)!r}, 'a') as stream:\n        stream.write(f'{{pid}}\\n')\n"
    files = {f"test_{number:02}.py": note + HOSTILE[number % len(HOSTILE)] for number in range(50)}
    ran = run_scripts(tmp_path, files, "--bypass-fastfail")
    assert ran.code == 1
    assert len(ran.verdicts) == 50
    assert len(pids_in(noted)) > 100
    assert not [pid for pid in pids_in(noted) if alive(pid)]
    assert {entry["attempts"][0]["status"] for entry in ran.results["files"]} == {"passed", "failed", "signalled"}
