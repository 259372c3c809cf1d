"""The GPU runner against its worst days: floods, full disks, deleted results, signals at any time, kills."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.factory import read_results, workspace
from tests.processes import alive, in_own_process_table, pids_in, wait_for
from tests.test_scripts import REPOSITORY, RUNNING, Ran, command, environ, machine, run, tree

MEGABYTE = 1 << 20


def start(tmp_path: Path, files: Mapping[str, str], *arguments: str, **more: str) -> "subprocess.Popen[bytes]":
    """A runner whose output goes to the file ``log``."""
    if not (tmp_path / "bin").exists():
        machine(tmp_path)
    with (tmp_path / "log").open("wb") as stream:
        return subprocess.Popen(
            command(tree(tmp_path, files), tmp_path / "r", *arguments),
            cwd=REPOSITORY,
            env=environ(tmp_path, **more),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def said(tmp_path: Path, text: str) -> bool:
    return text in (tmp_path / "log").read_text(errors="replace")


def most_memory(process: "subprocess.Popen[bytes]") -> int:
    """The most bytes that a process itself had in RAM until it ended; its children do not count."""
    most = 0
    while process.poll() is None:
        if found := re.search(r"VmHWM:\s*([0-9]+) kB", Path(f"/proc/{process.pid}/status").read_text()):
            most = int(found[1]) << 10
        time.sleep(0.02)
    return most


def test_a_flood_in_one_line_costs_no_memory_and_is_in_the_log_whole(tmp_path: Path) -> None:
    flood = f"import sys\nfor _ in range(200):\n    sys.stdout.write('x' * {MEGABYTE})\nsys.stdout.write('the end')\n"
    runner = start(tmp_path, {"test_a.py": flood})
    assert most_memory(runner) < 80 * MEGABYTE
    assert runner.returncode == 0
    (attempt,) = read_results(tmp_path / "r")["files"][0]["attempts"]
    log = Path(attempt["log"])
    assert log.stat().st_size == 200 * MEGABYTE + len("the end")
    log.unlink()
    assert (tmp_path / "log").stat().st_size < 100_000
    assert said(tmp_path, "bytes more in the log)")


def test_bytes_that_are_no_text_change_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": "import os\nos.write(1, bytes(range(256)) + b'\\xff\\n')\nraise SystemExit(1)\n"})
    (attempt,) = ran.entry("test_a.py")["attempts"]
    assert Path(attempt["log"]).read_bytes() == bytes(range(256)) + b"\xff\n"
    assert ran.verdicts == {"test_a.py": "failed"}


def test_a_daemon_that_holds_a_port_is_gone_for_the_next_file(tmp_path: Path) -> None:
    holds = """
import os, signal, socket, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server = socket.create_server(("127.0.0.1", int({port!r})))
        print("listening", flush=True)
        time.sleep(90)
    os._exit(0)
time.sleep(1)
"""
    takes = "import socket\nsocket.create_server(('127.0.0.1', int({port!r})))\n"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    ran = run(tmp_path, {"test_a.py": holds.format(port=port), "test_b.py": takes.format(port=port)})
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "passed"}, ran.output
    assert "listening" in ran.output


def mounted(folder: Path, options: str) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def a_full_disk(tmp_path: Path) -> None:
    mounted(tmp_path / "r", "size=64k")
    ran = run(tmp_path, {"test_a.py": "print('x' * 300_000)\n", "test_b.py": "print('y')\n"})
    assert ran.code == 3
    assert "the log cannot be written any more: No space left on device" in ran.output
    assert "passed: tests/e2e/test_b.py" in ran.output
    assert "2 passed in" in ran.output
    assert "the results cannot be written to" in ran.output
    assert not list((tmp_path / "r").glob(".results*")), "half a file stays behind"
    assert "Traceback" not in ran.output


def test_a_full_disk_costs_the_log_and_not_the_verdicts(tmp_path: Path) -> None:
    in_own_process_table(a_full_disk, tmp_path)


def a_disk_that_is_full_in_the_middle_of_a_write(tmp_path: Path) -> None:
    mounted(tmp_path / "r", "size=16k")
    ran = run(tmp_path, {"test_a.py": "import os\nos.write(1, b'x' * 30_000)\n"})
    assert "the log cannot be written any more: No space left on device" in ran.output


def test_a_log_that_took_a_part_of_a_write_is_not_taken_for_whole(tmp_path: Path) -> None:
    in_own_process_table(a_disk_that_is_full_in_the_middle_of_a_write, tmp_path)


def no_room_for_another_folder(tmp_path: Path) -> None:
    mounted(tmp_path / "r", "nr_inodes=5")
    ran = run(tmp_path, {"test_a.py": "raise SystemExit(4)\n", "test_b.py": ""}, "--bypass-fastfail")
    assert "failed: tests/e2e/test_a.py" in ran.output
    assert "1 failed, 1 not run in" in ran.output
    assert "No space left on device" in ran.output
    assert ran.code in {1, 3}
    assert "Traceback" not in ran.output


def test_what_is_known_is_said_when_there_is_no_room_for_the_next_file(tmp_path: Path) -> None:
    in_own_process_table(no_room_for_another_folder, tmp_path)


def test_a_test_that_deletes_its_results_folder_loses_the_log_alone(tmp_path: Path) -> None:
    deletes = f"import shutil\nprint('lost')\nshutil.rmtree({str(tmp_path / 'r')!r})\n"
    ran = run(tmp_path, {"test_a.py": "", "test_b.py": deletes, "test_c.py": "print('kept')\n"})
    assert ran.code == 0, ran.output
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "passed", "test_c.py": "passed"}
    logs = {entry["file"][-9:]: entry["attempts"][0]["log"] for entry in ran.results["files"]}
    assert (logs["test_a.py"], logs["test_b.py"]) == (None, None)
    assert Path(logs["test_c.py"]).read_text() == "kept\n"
    assert "warning: tests/e2e/test_b.py: the log of attempt 1 is gone" in ran.output


def interrupt(tmp_path: Path, runner: "subprocess.Popen[bytes]", condition: Callable[[], object]) -> dict[str, Any]:
    """Ctrl-C once the condition holds; the results."""
    wait_for(condition)
    runner.send_signal(signal.SIGINT)
    assert runner.wait(30) == 130
    assert not said(tmp_path, f'File "{REPOSITORY}/ci/')
    return read_results(tmp_path / "r")


def test_ctrl_c_while_the_hardware_is_waited_for(tmp_path: Path) -> None:
    (machine(tmp_path) / "nvidia-smi").write_text("#!/bin/sh\necho the driver is down\nexit 9\n")
    runner = start(tmp_path, {"test_a.py": ""})
    assert interrupt(tmp_path, runner, lambda: said(tmp_path, "does not answer")) == {}
    assert said(tmp_path, "error: interrupted")


def test_ctrl_c_while_the_environment_is_verified(tmp_path: Path) -> None:
    machine(tmp_path)
    slow, noted = tmp_path / "slow-python", tmp_path / "noted"
    # the first call asks for its version, the second is the verification
    slow.write_text(
        f'#!/bin/sh\necho $$ >> "{noted}"\n[ $(wc -l < "{noted}") = 2 ] && sleep 2\nexec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    runner = start(tmp_path, {"test_a.py": "", "test_b.py": ""}, "--python", str(slow))
    found = interrupt(tmp_path, runner, lambda: len(pids_in(noted)) == 2)
    assert [entry["reason"] for entry in found["files"]] == ["interrupted before it ran"] * 2


TEARS_DOWN = """
import time
try:
    print("it runs", flush=True)
    time.sleep(60)
finally:
    print("it tears down", flush=True)
    time.sleep({seconds})
    print("it is torn down", flush=True)
"""


def test_ctrl_c_gives_a_file_its_time_to_tear_down(tmp_path: Path) -> None:
    runner = start(tmp_path, {"test_a.py": TEARS_DOWN.format(seconds=0.5), "test_b.py": ""})
    found = interrupt(tmp_path, runner, lambda: said(tmp_path, "it runs"))
    assert said(tmp_path, "it is torn down")
    assert [entry["verdict"] for entry in found["files"]] == ["not run", "not run"]
    assert found["files"][0]["attempts"][0]["status"] == "interrupted"


def test_ctrl_c_while_a_file_tears_down_ends_it_now(tmp_path: Path) -> None:
    runner = start(tmp_path, {"test_a.py": TEARS_DOWN.format(seconds=60)}, "--grace", "60")
    wait_for(lambda: said(tmp_path, "it runs"))
    runner.send_signal(signal.SIGINT)
    found = interrupt(tmp_path, runner, lambda: said(tmp_path, "it tears down"))
    assert not said(tmp_path, "it is torn down")
    assert found["files"][0]["attempts"][0]["code"] == -signal.SIGKILL


def test_ctrl_c_in_the_pause_before_another_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    cards = {f"card{n}": {"Card Series": "AMD Instinct MI350X", "VRAM Total Used Memory (B)": "5"} for n in range(4)}
    (folder / "rocm-smi").write_text(f"#!/bin/sh\necho '{json.dumps(cards)}'\n")
    (folder / "rocm-smi").chmod(0o755)
    register = "from tests.ci.ci_register import register_rocm_ci\n"
    register += 'register_rocm_ci(60, "stage-c-4-gpu-mi350", labels=["short"])\n'
    root = workspace(
        tmp_path / "w",
        {
            "miles_plugins/__init__.py": "",
            "tests/ci/__init__.py": "",
            "tests/ci/ci_register.py": "def register_rocm_ci(*a, **k): ...\n",
            "tests/e2e/test_a.py": f"{register}raise AssertionError\n",
        },
    )
    base = [sys.executable, "-m", "ci.suite", "--workspace", str(root), "--suite", "stage-c-4-gpu-mi350"]
    with (tmp_path / "log").open("wb") as stream:
        runner = subprocess.Popen(
            [*base, "--match-all-labels", "--results", str(tmp_path / "r")],
            cwd=REPOSITORY,
            env=environ(tmp_path),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    found = interrupt(tmp_path, runner, lambda: said(tmp_path, "trying again in 60 s"))
    (entry,) = found["files"]
    assert (entry["verdict"], len(entry["attempts"])) == ("failed", 1)


def test_ctrl_c_while_accelerator_memory_is_waited_for(tmp_path: Path) -> None:
    devices = str(machine(tmp_path) / "devices")
    leak = f"open({devices!r}, 'w').write(''.join(f'{{n}}, GPU-{{n}}, NVIDIA H200, 9000\\n' for n in range(4)))\n"
    runner = start(tmp_path, {"test_a.py": leak, "test_b.py": ""})
    found = interrupt(tmp_path, runner, lambda: said(tmp_path, "passed: tests/e2e/test_a.py"))
    assert [entry["verdict"] for entry in found["files"]] == ["passed", "not run"]
    assert found["infrastructure"] is None


def test_ctrl_c_while_results_are_written_changes_nothing(tmp_path: Path) -> None:
    # the step summary is a pipe that nobody reads yet, so that the runner stands there with its results in hand
    os.mkfifo(tmp_path / "summary")
    runner = start(tmp_path, {"test_a.py": ""}, GITHUB_STEP_SUMMARY=str(tmp_path / "summary"))
    wait_for(lambda: said(tmp_path, "results: "))
    runner.send_signal(signal.SIGINT)
    runner.send_signal(signal.SIGTERM)
    with (tmp_path / "summary").open() as reader:
        assert "1 passed" in reader.read()
    assert runner.wait(30) == 0
    assert read_results(tmp_path / "r")["interrupted"] is False


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_unprivileged_runner_ends_what_its_files_leave() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # noqa: S103 - for the other user
        root = workspace(
            Path(folder) / "w",
            {"tests/e2e/test_a.py": "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &\nsleep 0.3\n"},
        )
        given = {"root": str(root), "results": f"{folder}/r", "backend": "cuda", "python": "/bin/sh", "user": 65534}
        ran = subprocess.run(
            [sys.executable, "-c", RUNNING, json.dumps(given)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(ran.stdout)
        assert [entry["verdict"] for entry in found["files"]] == ["passed"]
        assert any("trap" in reaped["command"] for reaped in found["reaped"])
        assert not [reaped for reaped in found["reaped"] if alive(reaped["pid"])]
        assert os.stat(found["files"][0]["attempts"][0]["log"]).st_uid == 65534


LOSING_ITS_RIGHTS = """
import os, sys, time
from ci import process
from ci.show_output import Output
from ci.supervise import Stop, Supervisor
process.become_reaper()
code = "import subprocess, time; subprocess.Popen(['sleep', '64'], start_new_session=True); time.sleep(1)"
with open(os.devnull, "wb") as log:
    supervisor = Supervisor(Output(), log, Stop(), 1.0)
    ended = supervisor.run(
        [sys.executable, "-c", code], cwd="/", env={}, title="", tick=lambda: os.setresuid(65534, 65534, 0)
    )
print(ended.code, [found.command for found in supervisor.reaped])
os.setresuid(0, 0, 0)
process.end_descendants(frozenset())
"""


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_cannot_be_ended_is_said_and_waited_for_once() -> None:
    started = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", LOSING_ITS_RIGHTS], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert re.search(r"warning: process [0-9]+ could not be ended and is still there: sleep 64", ran.stdout)
    assert "0 ['sleep 64']" in ran.stdout
    assert time.monotonic() - started < 24, "it was waited for more than once"


HOSTILE = (
    # ignores SIGTERM after a double fork, and holds a port
    """
import os, signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        server = socket.create_server(("127.0.0.1", int(os.environ["MILES_CI_PORT_BASE"])))
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
    # crashes, and leaves a child that keeps stdout open
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


def table() -> set[str]:
    """All processes, zombies too."""
    return {name for name in os.listdir("/proc") if name.isdigit()}


def fifty_hostile_files(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    note = f"def note(pid):\n    with open({str(noted)!r}, 'a') as stream:\n        stream.write(f'{{pid}}\\n')\n"
    files = {f"test_{number:02}.py": note + HOSTILE[number % len(HOSTILE)] for number in range(50)}
    before = table()
    ran: Ran = run(tmp_path, files, "--bypass-fastfail")
    assert table() == before
    assert ran.code == 1, ran.output
    assert len(ran.verdicts) == 50
    assert len(pids_in(noted)) > 100
    assert {entry["attempts"][0]["status"] for entry in ran.results["files"]} == {"passed", "failed", "signalled"}


@pytest.mark.long
def test_fifty_hostile_files_in_a_row_leave_the_process_table_as_it_was(tmp_path: Path) -> None:
    in_own_process_table(fifty_hostile_files, tmp_path)
