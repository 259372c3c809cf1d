"""Real children that do what they can to survive."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.processes import alive, pids_in, wait_for

REPOSITORY = Path(__file__).parent.parent

# a runner in a process of its own: the reaper is process-wide
RUNNER = """
import json, os, sys, time
from ci import process
process.become_reaper()
spared = process.children()
child = process.start([sys.executable, "-c", sys.argv[1]], cwd=".", env=dict(os.environ))
child.stdout.read(int(sys.argv[2]))
child.wait(timeout=20)
started = time.monotonic()
reaped = process.end_descendants(spared, polite=float(sys.argv[3]))
print(json.dumps({
    "seconds": time.monotonic() - started,
    "reaped": [[found.pid, found.command, found.age] for found in reaped],
    "left": [found.pid for found in process.still_alive(spared)],
}))
"""

DAEMON = """
import os, sys, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {trick}
        with open({pids!r}, "a") as stream:
            stream.write(f"{{os.getpid()}}\\n")
        os.closerange(0, 100)
        {environment}
        while True:
            time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists({pids!r}) or not open({pids!r}).read():
    time.sleep(0.01)
"""


def run(child: str, *, output: int = 0, polite: float = 0.5) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, textwrap.dedent(child), str(output), str(polite)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


@pytest.mark.parametrize(
    ("trick", "environment"),
    [
        ("pass", "pass"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "pass"),
        ("pass", 'os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"], {})'),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))", "pass"),
        ("os.kill(os.getppid(), 0)", "os.kill(os.getpid(), signal.SIGSTOP)"),
    ],
    ids=["daemon", "ignores SIGTERM", "cleared environment", "blocks all signals", "stopped"],
)
def test_a_daemon_that_left_its_session_is_ended_and_named(tmp_path: Path, trick: str, environment: str) -> None:
    pids = tmp_path / "pids"
    answer = run(DAEMON.format(trick=trick, environment=environment, pids=str(pids)))
    (daemon,) = pids_in(pids)
    assert not alive(daemon)
    assert daemon in [pid for pid, _, _ in answer["reaped"]]  # type: ignore[attr-defined]
    assert answer["left"] == []


def test_a_polite_process_gets_its_time(tmp_path: Path) -> None:
    said = tmp_path / "said"
    child = f"""
    import os, signal, sys, time
    if os.fork() == 0:
        os.setsid()
        def bye(*_):
            open({str(said)!r}, "w").write("bye")
            os._exit(0)
        signal.signal(signal.SIGTERM, bye)
        os.write(1, b"x")
        time.sleep(60)
    """
    run(child, output=1, polite=5)
    assert said.read_text() == "bye"


def test_a_fork_storm_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"""
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        until = time.monotonic() + 20
        os.write(1, b"x")
        while time.monotonic() < until:
            try:
                pid = os.fork()
            except OSError:
                time.sleep(0.01)
                continue
            if pid == 0:
                with open({str(pids)!r}, "a") as stream:
                    stream.write(f"{{os.getpid()}}\\n")
                os.setsid()
                time.sleep(20)
                os._exit(0)
            time.sleep(0.002)
    """
    answer = run(child, output=1, polite=0.3)
    assert answer["left"] == []
    assert len(pids_in(pids)) > 5
    assert not [pid for pid in pids_in(pids) if alive(pid)]


def test_a_quiet_end_costs_nothing_and_names_nobody() -> None:
    answer = run("pass")
    assert answer["reaped"] == []
    assert float(str(answer["seconds"])) < 0.5


def test_processes_that_were_there_before_are_spared() -> None:
    code = """
import os, subprocess, sys, time
from ci import process
process.become_reaper()
before = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
spared = process.children()
after = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
process.end_descendants(spared)
print(before.poll() is None, process.children() == spared)
before.kill()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.split() == ["True", "True"]


def test_the_child_dies_with_a_killed_runner(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, child, "0", "1"], cwd=REPOSITORY)
    wait_for(lambda: pids_in(pids))
    runner.kill()
    runner.wait()
    wait_for(lambda: not alive(pids_in(pids)[0]))


def test_where_descendants_cannot_be_followed_the_group_is_ended(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
from ci import process
process.is_linux = lambda: False
child = process.start(["sh", "-c", "sleep 60 & echo $! > {tmp_path}/pids"], cwd=".", env=dict(os.environ))
child.wait()
process.end_group(child)
"""
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=60, check=True)
    wait_for(lambda: not alive(pids_in(tmp_path / "pids")[0]))
