"""GPU stages as processes: real hostile scripts, and a stand-in for nvidia-smi with the real one's answers."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.factory import read_results, workspace
from tests.processes import alive, pids_in, wait_for

REPOSITORY = Path(__file__).parent.parent
REGISTER = "from tests.ci.ci_register import register_cuda_ci\n"
SMI = """#!/bin/sh
case "$1" in
--query-gpu*) cat "{folder}/devices" ;;
--query-compute-apps*) cat "{folder}/holders" ;;
esac
"""


# what the command line leaves fixed: {"root", "results", "backend", …} as JSON
RUNNING = """
import json, os, sys
from ci.registration import Registration
from ci.results import results_json
from ci.scripts import ScriptRun, run_scripts
from ci.show_output import Output
from ci.supervise import Stop
given = {"attempts": 1, "retry_pause": 0.1, "python": sys.executable, **json.loads(sys.argv[1])}
root, results = given.pop("root"), given["results"]
if (user := given.pop("user", None)) is not None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
registrations = tuple(
    Registration(file=f"tests/e2e/{name}", line=1, backend=given["backend"], suite="stage", est_time=1.0)
    for name in sorted(os.listdir(f"{root}/tests/e2e"))
)
stop = Stop()
with stop.listening(), open(os.devnull, "wb") as stream:
    outcome = run_scripts(
        ScriptRun(
            title="stage", workspace=root, registrations=registrations, env={**os.environ, "PYTHONPATH": root},
            keep_going=True, grace=5.0, timeout=None, shared=results, **given,
        ),
        Output(stream),
        stop,
    )
print(results_json(outcome, {}))
"""


def machine(tmp_path: Path, *, count: int = 4, name: str = "NVIDIA H200") -> Path:
    """A folder for PATH with a tool that answers for this many devices."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "devices").write_text("".join(f"{number}, GPU-{number}, {name}, 100\n" for number in range(count)))
    (folder / "holders").write_text("")
    (folder / "nvidia-smi").write_text(SMI.format(folder=folder))
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def command(root: Path, results: Path, *arguments: str) -> list[str]:
    base = [sys.executable, "-m", "ci.suite", "--workspace", str(root), "--suite", "stage-c-4-gpu-h200"]
    return [*base, "--match-all-labels", "--results", str(results), *arguments]


def tree(tmp_path: Path, files: Mapping[str, str], est_time: int = 60) -> Path:
    call = f'register_cuda_ci(est_time={est_time}, suite="stage-c-4-gpu-h200", labels=["short"])\n'
    register = "def register_cuda_ci(*a, **k): ...\n"
    sources = {f"tests/e2e/{name}": f"{REGISTER}{call}{text}" for name, text in files.items()}
    return workspace(
        tmp_path / "w",
        {"miles_plugins/__init__.py": "", "tests/ci/__init__.py": "", "tests/ci/ci_register.py": register, **sources},
    )


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    cache = str(tmp_path / "cache")
    return {**os.environ, "CI_CACHE_DIR": cache, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **more}


class Ran:
    def __init__(self, ran: subprocess.CompletedProcess[str], results: Path) -> None:
        self.code, self.output, self.folder = ran.returncode, ran.stdout, results
        self.results = read_results(results)

    @property
    def verdicts(self) -> dict[str, str]:
        return {entry["file"].removeprefix("tests/e2e/"): entry["verdict"] for entry in self.results["files"]}

    def entry(self, file: str) -> dict[str, Any]:
        return next(entry for entry in self.results["files"] if entry["file"] == f"tests/e2e/{file}")


def run(tmp_path: Path, files: Mapping[str, str], *arguments: str, **more: str) -> Ran:
    if not (tmp_path / "bin").exists():
        machine(tmp_path)
    ran = subprocess.run(
        command(tree(tmp_path, files), tmp_path / "r", *arguments),
        cwd=REPOSITORY,
        env=environ(tmp_path, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=100,
        check=False,
    )
    return Ran(ran, tmp_path / "r")


def seconds_between(first: str, second: str) -> float:
    return (dt.datetime.fromisoformat(second) - dt.datetime.fromisoformat(first)).total_seconds()


def test_each_file_is_a_process_of_its_own_and_its_exit_code_is_the_verdict(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        {"test_a.py": "print('hello')\n", "test_b.py": "raise AssertionError\n", "test_c.py": ""},
        "--bypass-fastfail",
    )
    assert ran.code == 1
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "passed"}
    (attempt,) = ran.entry("test_b.py")["attempts"]
    assert (attempt["status"], attempt["code"], attempt["limit"]) == ("failed", 1, 1800.0)
    assert attempt["retry"] == "this backend does not retry"
    assert abs(seconds_between(attempt["started"], attempt["ended"]) - attempt["duration"]) < 1
    assert "AssertionError" in ran.entry("test_b.py")["tail"]
    assert Path(ran.entry("test_a.py")["attempts"][0]["log"]).read_text() == "hello\n"


def test_fast_fail_stops(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": "raise SystemExit(3)\n", "test_b.py": ""})
    assert ran.verdicts == {"test_a.py": "failed", "test_b.py": "not run"}


def test_limits_follow_the_estimate(tmp_path: Path) -> None:
    machine(tmp_path)
    root = tree(tmp_path, {"test_a.py": ""}, est_time=2000)
    subprocess.run(
        command(root, tmp_path / "r"), cwd=REPOSITORY, env=environ(tmp_path), stdout=subprocess.DEVNULL, check=True
    )
    found = read_results(tmp_path / "r")
    assert found["files"][0]["attempts"][0]["limit"] == 2500.0


@pytest.mark.parametrize(
    ("est_time", "said"),
    [
        (70000, "their est_times to 38.9 h; the CI ends the job after 24.0 h: it cannot finish there"),
        (40000, "the limits of the 2 files add up to 27.8 h, their est_times to 22.2 h"),
    ],
)
def test_files_that_may_outlast_their_job_are_warned_of_before_the_start(
    tmp_path: Path, est_time: int, said: str
) -> None:
    machine(tmp_path)
    root = tree(tmp_path, {"test_a.py": "print('it began')\n", "test_b.py": ""}, est_time=est_time)
    ran = subprocess.run(
        command(root, tmp_path / "r"),
        cwd=REPOSITORY,
        env=environ(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert said in ran.stdout
    assert ran.stdout.index(said) < ran.stdout.index("it began")


def test_what_was_reaped_is_told_with_the_accelerator_memory_that_it_held(tmp_path: Path) -> None:
    folder = machine(tmp_path)
    root = tree(tmp_path, {"test_a.py": HOLDER.format(holders=str(folder / "holders"))})
    ran = subprocess.run(
        [sys.executable, "-c", RUNNING, json.dumps({"root": str(root), "results": str(tmp_path / "r"), **STAND_IN})],
        cwd=REPOSITORY,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    (engine, other) = sorted(json.loads(ran.stdout)["reaped"], key=lambda found: found["command"], reverse=True)
    assert (engine["command"], engine["memory"]) == ("sleep 63", 3 << 30)
    assert (other["command"], other["memory"]) == ("sleep 62", None)


HOLDER = """
import subprocess, sys
held = subprocess.Popen(["sleep", "63"], start_new_session=True, stdin=open("/dev/full"))
other = subprocess.Popen(["sleep", "62"], start_new_session=True)
# the second has no device open, so that its number may mean a process of another PID namespace
open({holders!r}, "w").write(f"{{held.pid}}, 1024, GPU-0\\n{{held.pid}}, 2048, GPU-1\\n{{other.pid}}, 2048, GPU-1\\n")
"""
STAND_IN = {"nodes": ["/dev/full"], "backend": "cuda"}


def test_five_endings_are_five_statuses(tmp_path: Path) -> None:
    hang = "import subprocess, time\nsubprocess.Popen(['sleep', '50'], start_new_session=True)\ntime.sleep(50)\n"
    ran = run(
        tmp_path,
        {
            "test_a.py": hang,
            "test_b.py": "import os\nos.kill(os.getpid(), 11)\n",
            "test_c.py": "1 / 0\n",
            "test_d.py": "",
        },
        *("--bypass-fastfail", "--timeout-per-file", "2"),
    )
    statuses = {entry["file"][-9:]: entry["attempts"][0]["status"] for entry in ran.results["files"]}
    assert statuses == {
        "test_a.py": "timed out",
        "test_b.py": "signalled",
        "test_c.py": "failed",
        "test_d.py": "passed",
    }
    assert ran.entry("test_a.py")["reason"] == "timed out after 2 s"
    assert ran.entry("test_b.py")["reason"] == "ended by SIGSEGV"
    assert [found["command"] for found in ran.results["reaped"]] == ["sleep 50"]


def daemon(noted: Path) -> str:
    return f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open({str(noted)!r}, "a") as stream:
            stream.write(f"{{os.getpid()}}\\n")
        os.execve("/bin/sleep", ["sleep", "62"], {{}})
    os._exit(0)
os.wait()
time.sleep(0.2)
"""


def test_nothing_survives_an_attempt_and_what_did_is_named(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    ran = run(tmp_path, {f"test_{number}.py": daemon(noted) for number in range(3)})
    assert ran.code == 0
    assert len(pids_in(noted)) == 3
    assert not [pid for pid in pids_in(noted) if alive(pid)]
    for entry in ran.results["files"]:
        (reaped,) = entry["attempts"][0]["reaped"]
        assert reaped["command"] == "sleep 62"


def test_each_attempt_has_ports_and_a_folder_for_records(tmp_path: Path) -> None:
    source = """
import json, os
base = int(os.environ["MILES_CI_PORT_BASE"])
assert 20000 <= base < 32768
folder = os.environ["MILES_CI_GATE_RECORD_DIR"]
for name, points in (("a", [[2, 0.5]]), ("b", [[1, "NaN"], [0, 1]])):
    with open(f"{folder}/{name}.jsonl", "w") as stream:
        stream.write(json.dumps({"metric": "loss", "series": points}) + "\\nhalf a li")
"""
    ran = run(tmp_path, {"test_a.py": source})
    assert ran.code == 0, ran.output
    (metrics,) = ran.folder.rglob("metrics.json")
    assert json.loads(metrics.read_text()) == {"loss": [[0, 1], [1, "NaN"], [2, 0.5]]}
    assert "a.jsonl:2: not a metric record" in ran.output


def test_memory_that_does_not_come_back_stops_the_run_as_infrastructure(tmp_path: Path) -> None:
    folder = machine(tmp_path)
    leak = f"""
import os
open({str(folder / "devices")!r}, "w").write("".join(f"{{n}}, GPU-{{n}}, NVIDIA H200, 9000\\n" for n in range(4)))
open({str(folder / "holders")!r}, "w").write(f"{{os.getppid()}}, 35600\\n")
"""
    ran = run(tmp_path, {"test_a.py": leak, "test_b.py": ""}, "--bypass-fastfail")
    assert ran.code == 3
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "not run"}
    assert "GiB of accelerator memory did not come back; held by process" in ran.results["infrastructure"]


@pytest.mark.parametrize(
    ("count", "name", "more", "said"),
    [
        (2, "NVIDIA H200", {}, "2 are (NVIDIA H200)"),
        (8, "NVIDIA H100 80GB HBM3", {}, "0 are (NVIDIA H100 80GB HBM3)"),
        (8, "NVIDIA H200", {"CUDA_VISIBLE_DEVICES": "0,1"}, "that CUDA_VISIBLE_DEVICES leaves visible 2 are"),
    ],
)
def test_hardware_that_is_not_enough_is_two_lines_and_exit_3(
    tmp_path: Path, count: int, name: str, more: dict[str, str], said: str
) -> None:
    machine(tmp_path, count=count, name=name)
    ran = run(tmp_path, {"test_a.py": ""}, **more)
    assert ran.code == 3
    assert said in ran.output
    assert "--any-hardware" in ran.output
    assert len(ran.output.splitlines()) == 2


def test_any_hardware_takes_another_class(tmp_path: Path) -> None:
    machine(tmp_path, name="NVIDIA B200")
    assert run(tmp_path, {"test_a.py": ""}, "--any-hardware").code == 0


def test_a_machine_without_the_tool_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ran = run(tmp_path, {"test_a.py": ""}, PATH=str(tmp_path / "bin"))
    assert (ran.code, "this machine has no nvidia-smi" in ran.output) == (3, True)


def test_a_signal_ends_the_file_and_keeps_what_is_known(tmp_path: Path) -> None:
    machine(tmp_path)
    noted = tmp_path / "pid"
    waits = f"import os, time\nopen({str(noted)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    root = tree(tmp_path, {"test_a.py": "", "test_b.py": waits, "test_c.py": ""})
    with (tmp_path / "log").open("wb") as stream:
        started = subprocess.Popen(command(root, tmp_path / "r"), cwd=REPOSITORY, env=environ(tmp_path), stdout=stream)
    wait_for(lambda: pids_in(noted))
    started.send_signal(signal.SIGINT)
    assert started.wait(30) == 130
    assert not alive(pids_in(noted)[0])
    found = read_results(tmp_path / "r")
    assert [entry["verdict"] for entry in found["files"]] == ["passed", "not run", "not run"]
    assert found["files"][1]["attempts"][0]["status"] == "interrupted"


def test_a_grandchild_that_keeps_stdout_open_does_not_hang(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run(tmp_path, {"test_a.py": "import subprocess\nsubprocess.Popen(['sleep', '61'], start_new_session=True)\n"})
    assert ran.code == 0
    assert time.monotonic() - started < 15


def test_a_pass_on_a_retry_is_flaky_and_never_a_plain_pass(tmp_path: Path) -> None:
    once = f"""
import os
if not os.path.exists({str(tmp_path / "tried")!r}):
    open({str(tmp_path / "tried")!r}, "w")
    raise AssertionError("accuracy 0.41 is below 0.45")
"""
    root = workspace(
        tmp_path / "w",
        {
            "tests/e2e/test_a_once.py": once,
            "tests/e2e/test_b_always.py": "raise AssertionError('score')\n",
            "tests/e2e/test_c_never.py": "raise RuntimeError('NCCL')\n",
        },
    )
    given = {"root": str(root), "results": str(tmp_path / "r"), "backend": "rocm", "attempts": 2}
    ran = subprocess.run(
        [sys.executable, "-c", RUNNING, json.dumps(given)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    entries = {entry["file"][10:]: entry for entry in found["files"]}
    assert found["exit_code"] == 1
    assert {name: entry["verdict"] for name, entry in entries.items()} == {
        "test_a_once.py": "flaky",
        "test_b_always.py": "failed",
        "test_c_never.py": "failed",
    }
    assert entries["test_a_once.py"]["reason"] == "passed on attempt 2; before: failed"
    assert [attempt["limit"] for attempt in entries["test_b_always.py"]["attempts"]] == [1800.0, 2400.0]
    assert entries["test_b_always.py"]["attempts"][1]["retry"] == "it was attempt 2 of 2"
    (only,) = entries["test_c_never.py"]["attempts"]
    assert only["retry"] == "runtime error is not retried: RuntimeError: NCCL"
    first, _ = entries["test_a_once.py"]["attempts"]
    assert first["retry"] == "assertion is retried: AssertionError: accuracy 0.41 is below 0.45"


def test_a_gpu_session_of_the_sample_from_end_to_end(tmp_path: Path) -> None:
    machine(tmp_path)
    base = [sys.executable, "-m", "ci.session", "stage-c-4-gpu-h200", "--match-all-labels", "--python", sys.executable]
    ran = subprocess.run(
        [*base, "--results", str(tmp_path / "r")],
        cwd=REPOSITORY,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = read_results(tmp_path / "r/stage-c-4-gpu-h200")
    assert [entry["verdict"] for entry in found["files"]] == ["passed", "passed"]
    assert {ref["name"] for ref in found["facts"]["refs"]} == {"sglang", "megatron"}
