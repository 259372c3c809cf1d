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
