"""What dead runs left on this host: decided on values, found and ended with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci import proc
from ci.clean_host import end
from ci.leftovers import Host, judge
from ci.mark import Mark, Process, parse_mark
from tests.processes import UNSHARE, alive, in_own_process_table, pids_in, wait_for
from tests.test_scripts import REPOSITORY, command, environ, machine, run, tree

BOOT = "0b5a1c9e-1111-4222-8333-444455556666"
DEAD = Mark(pid=99, started=900, namespace=1, boot=BOOT)
LIVE = Mark(pid=50, started=500, namespace=1, boot=BOOT)


def process(pid: int, *marks: Mark, parent: int = 1, **fields: Any) -> Process:
    given = {"started": pid * 10, "terminal": False, "uid": 7, "inner_pid": pid, "namespace": 1, **fields}
    return Process(pid=pid, parent=parent, marks=marks, **given)


def leftovers(*processes: Process, uid: int = 7, **held: int) -> dict[int, str | None]:
    """Pid → why it is kept; the runner that asks is process 10."""
    host = Host(processes=(process(1), process(10), *processes), pid=10, uid=uid, namespace=1, boot=BOOT)
    found = judge(host, {int(name[1:]): used for name, used in held.items()})
    return {leftover.process.pid: leftover.kept for leftover in found}


@given(
    st.builds(
        Mark,
        pid=st.integers(1, 1 << 22),
        started=st.integers(0, 1 << 60),
        namespace=st.integers(0, 1 << 60),
        boot=st.just(BOOT),
    )
)
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert parse_mark(str(mark)) == mark


@given(st.text())
def test_anything_else_is_no_mark(text: str) -> None:
    found = parse_mark(text)
    assert found is None or str(found) == text


def test_what_a_dead_runner_started_is_a_leftover_and_a_living_ones_is_not() -> None:
    assert leftovers(process(50), process(60, LIVE), process(61, DEAD), process(62)) == {61: None}


@pytest.mark.parametrize(
    "mark",
    [
        Mark(pid=50, started=501, namespace=1, boot=BOOT),
        Mark(pid=50, started=500, namespace=1, boot=BOOT.replace("0b", "0c")),
    ],
    ids=["another start", "another boot"],
)
def test_another_process_with_the_runners_id_is_not_the_runner(mark: Mark) -> None:
    assert leftovers(process(50), process(60, mark)) == {60: None}


def test_a_runner_of_another_pid_namespace_lives_under_another_id() -> None:
    inside = Mark(pid=5, started=500, namespace=2, boot=BOOT)
    runner = process(50, inner_pid=5, namespace=2)
    child = process(60, inside, inner_pid=6, namespace=2)
    assert leftovers(runner, child) == {}
    assert leftovers(child) == {60: None}
    # its namespace is another user's to look into
    assert leftovers(process(50, inner_pid=5, namespace=None), child) == {}


def test_of_a_namespace_that_nobody_here_is_in_nothing_is_known() -> None:
    assert leftovers(process(60, Mark(pid=5, started=500, namespace=3, boot=BOOT))) == {}


def test_above_and_below_a_living_runner_everything_is_spared() -> None:
    shell = process(40, DEAD)  # as a terminal that a test once started, in which a person runs tests now
    runner = process(50, DEAD, parent=40)
    child, cleared = process(60, LIVE, parent=50), process(61, parent=50)
    assert leftovers(shell, runner, child, cleared, p61=5) == {}
    assert leftovers(shell, process(51, DEAD, parent=50)) == {40: None, 51: None}


def test_this_run_and_what_it_comes_from_are_spared() -> None:
    host = Host(
        processes=(process(5, DEAD), process(10, DEAD, parent=5), process(11, parent=10)),
        pid=10,
        uid=7,
        namespace=1,
        boot=BOOT,
    )
    assert judge(host, {5: 1, 10: 1, 11: 1}) == ()


def test_a_holder_of_memory_without_a_living_runner_is_a_leftover() -> None:
    assert leftovers(process(50), process(60, LIVE), process(61), process(62), p60=5, p61=5) == {61: None}


@pytest.mark.parametrize(
    ("found", "uid", "said"),
    [
        (process(61, DEAD, uid=8), 7, "it is another user's"),
        (process(61, DEAD, uid=8), 0, None),
        (process(61, uid=8), 7, "it is another user's"),
        (process(61, uid=8), 0, "it is another user's"),
        (process(61, terminal=True), 7, "it has a terminal, so a person may be working with it"),
    ],
)
def test_what_is_not_ours_is_kept(found: Process, uid: int, said: str | None) -> None:
    assert leftovers(found, uid=uid, p61=5) == {61: said}


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12), st.sampled_from([None, LIVE, DEAD])), max_size=12))
def test_whatever_is_seen_this_run_is_never_a_leftover(seen: list[tuple[int, int, Mark | None]]) -> None:
    processes = tuple(process(pid, *([mark] if mark else []), parent=parent) for pid, parent, mark in seen)
    host = Host(processes=processes, pid=10, uid=0, namespace=1, boot=BOOT)
    assert 10 not in {leftover.process.pid for leftover in judge(host, dict.fromkeys(range(20), 1))}


STUBBORN = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open({noted!r}, "a") as stream:
            stream.write(f"{{os.getpid()}}\\n")
        time.sleep(100)
    os._exit(0)
time.sleep(100)
"""


@contextmanager
def left_behind(tmp_path: Path) -> Iterator[int]:
    """A daemon whose runner was killed with -9."""
    machine(tmp_path)
    noted = tmp_path / "left"
    root = tree(tmp_path / "killed", {"test_a.py": STUBBORN.format(noted=str(noted))})
    arguments = command(root, tmp_path / "killed/r")
    runner = subprocess.Popen(arguments, cwd=REPOSITORY, env=environ(tmp_path), stdout=subprocess.DEVNULL)
    wait_for(lambda: pids_in(noted))
    (pid,) = pids_in(noted)
    try:
        runner.kill()
        runner.wait()
        yield pid
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def rows(ran: Any, pid: int) -> list[dict[str, Any]]:
    # other runs on this host may have left something as well
    return [row for row in ran.results["facts"]["leftovers"] if row["pid"] == pid]


def test_the_next_start_lists_what_a_killed_runner_left_(tmp_path: Path) -> None:
    with left_behind(tmp_path) as pid:
        listed = run(tmp_path, {"test_a.py": ""})
        assert listed.code == 0, listed.output
        assert alive(pid)
        (row,) = rows(listed, pid)
        assert (row["removed"], row["kept"], row["memory"]) == (False, None, None)
        assert "tests/e2e/test_a.py" in row["command"]
        assert f"leftover: process {pid} of {row['user']}" in listed.output
        assert "the runner that started it is gone" in listed.output
        assert "--clean-host ends" in listed.output


def removes_it_when_asked(tmp_path: Path) -> None:
    with left_behind(tmp_path) as pid:
        cleaned = run(tmp_path, {"test_a.py": ""}, "--clean-host")
        assert cleaned.code == 0, cleaned.output
        assert not alive(pid)
        (row,) = cleaned.results["facts"]["leftovers"]
        assert (row["pid"], row["removed"], row["kept"]) == (pid, True, None)
        assert "leftovers: 1 of 1 ended" in cleaned.output


def test_clean_host_removes_what_a_killed_runner_left(tmp_path: Path) -> None:
    in_own_process_table(removes_it_when_asked, tmp_path)


def spares_a_living_run(tmp_path: Path) -> None:
    machine(tmp_path)
    noted = tmp_path / "noted"
    daemon = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '90'], start_new_session=True)\n"
    daemon += f"open({str(noted)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(90)\n"
    root = tree(tmp_path / "living", {"test_a.py": daemon})
    arguments = command(root, tmp_path / "living/r")
    runner = subprocess.Popen(arguments, cwd=REPOSITORY, env=environ(tmp_path), stdout=subprocess.DEVNULL)
    wait_for(lambda: len(pids_in(noted)) == 2)
    (tmp_path / "bin/holders").write_text("".join(f"{pid}, 5000, GPU-1\n" for pid in pids_in(noted)))
    cleaned = run(tmp_path, {"test_a.py": ""}, "--clean-host")
    assert cleaned.results["facts"]["leftovers"] == []
    assert all(alive(pid) for pid in [runner.pid, *pids_in(noted)])


def test_clean_host_touches_nothing_of_a_run_that_lives(tmp_path: Path) -> None:
    in_own_process_table(spares_a_living_run, tmp_path)


@contextmanager
def holder(tmp_path: Path, code: str = "pass", **variables: str) -> Iterator[int]:
    """A process with /dev/full open, which stands for an accelerator here."""
    hold = f"import os, signal, time\n{code}\nstream = open('/dev/full')\nprint('on', flush=True)\ntime.sleep(100)\n"
    started = subprocess.Popen(
        [sys.executable, "-c", hold], stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **variables}
    )
    assert started.stdout is not None
    started.stdout.readline()
    with (tmp_path / "bin/holders").open("a") as holders:
        holders.write(f"{started.pid}, 2048, GPU-1\n")
    try:
        yield started.pid
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


STAND_IN = ("/dev/ful?",)


def looked(tmp_path: Path, *, clean: bool, nodes: tuple[str, ...] = STAND_IN, **variables: str) -> list[dict[str, Any]]:
    """Rows of a process that does what the start of a GPU stage does; its own children would be spared."""
    code = """
import json, os, sys
from ci.clean_host import look_for_leftovers
clean, *nodes = json.loads(sys.argv[1])
print(json.dumps(look_for_leftovers("cuda", os.environ, clean=clean, nodes=nodes)))
"""
    rows: list[dict[str, Any]] = json.loads(
        subprocess.run(
            [sys.executable, "-c", code, json.dumps([clean, *nodes])],
            cwd=REPOSITORY,
            env=environ(tmp_path, **variables),
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        ).stdout
    )
    return rows


def holders_of_memory(tmp_path: Path) -> None:
    machine(tmp_path)
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    with holder(tmp_path) as plain, holder(tmp_path, stubborn) as deaf:
        (tmp_path / "bin/holders").open("a").write("1, 9000, GPU-1\n999999, 9000, GPU-1\n")
        # only a device node that is really open makes one believed
        assert looked(tmp_path, clean=False, nodes=("/dev/nvidia*",)) == []
        # on a device that this run does not see
        assert looked(tmp_path, clean=True, CUDA_VISIBLE_DEVICES="0,2") == []
        listed = looked(tmp_path, clean=False, CUDA_VISIBLE_DEVICES="1")
        assert {row["pid"]: row["memory"] for row in listed} == {plain: 2 << 30, deaf: 2 << 30}
        assert alive(plain)
        started = time.monotonic()
        removed = looked(tmp_path, clean=True)
        assert {row["pid"] for row in removed if row["removed"]} == {plain, deaf}
        assert not alive(plain)
        assert not alive(deaf)
        assert time.monotonic() - started >= 5, "SIGKILL came before its time"


def test_holders_of_accelerator_memory_are_believed_only_when_verified(tmp_path: Path) -> None:
    in_own_process_table(holders_of_memory, tmp_path)


def test_another_users_process_is_named_and_stays(tmp_path: Path) -> None:
    in_own_process_table(another_users, tmp_path)


def another_users(tmp_path: Path) -> None:
    if os.getuid() != 0 or Path("/proc/self/uid_map").read_text().split()[0:3] != ["0", "0", "4294967295"]:
        return  # only root can be two users
    machine(tmp_path)
    with holder(tmp_path, "os.setuid(65534)") as pid:
        (row,) = looked(tmp_path, clean=True)
        assert (row["pid"], row["removed"], row["kept"]) == (pid, False, "it is another user's")
        assert alive(pid)


def test_a_reused_id_is_not_signalled() -> None:
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        found = proc.read(innocent.pid)
        assert found is not None
        before = Process(**{name: getattr(found, name) for name in found.__slots__} | {"started": found.started - 1})
        assert end([before]) == {}
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


RUNNER_INSIDE = """
import os, signal, subprocess, time
from ci import proc
if (runner := os.fork()) == 0:
    subprocess.Popen(["sleep", "67"], start_new_session=True, env={"MILES_CI_RUNNER": str(proc.own_mark())})
    print("on", flush=True)
    time.sleep(60)
input()
os.kill(runner, signal.SIGKILL)
os.waitpid(runner, 0)
print("killed", flush=True)
input()
"""


def test_the_processes_of_a_runner_in_a_container_are_known_from_outside(tmp_path: Path) -> None:
    machine(tmp_path)
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a PID namespace here")
    inside = subprocess.Popen(
        [*UNSHARE, sys.executable, "-c", RUNNER_INSIDE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
        bufsize=1,
    )
    assert inside.stdin is not None
    assert inside.stdout is not None

    def found() -> list[str]:
        return [row["command"] for row in looked(tmp_path, clean=False)]

    try:
        assert inside.stdout.readline() == "on\n"
        assert "sleep 67" not in found()
        inside.stdin.write("\n")
        assert inside.stdout.readline() == "killed\n"
        assert "sleep 67" in found()
    finally:
        inside.communicate("\n", timeout=20)
