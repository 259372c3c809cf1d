"""The sessions and tasks as people call them: real nox and invoke processes on the sample."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.inventory import Inventory
from tests.factory import workspace
from tests.processes import alive, pids_in, wait_for

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def own_cache(cache: Path) -> Path:
    return cache


def program(name: str, *arguments: str, cwd: Path = REPOSITORY, **environ: str) -> subprocess.CompletedProcess[str]:
    more = ["-f", str(REPOSITORY / "noxfile.py")] if name == "nox" else ["-r", str(REPOSITORY)]
    return subprocess.run(
        [sys.executable, "-m", name, *more, *arguments],
        cwd=cwd,
        env={**os.environ, "PWD": str(cwd), **environ},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def with_own_python(*arguments: str) -> list[str]:
    """Session arguments that install nothing: this interpreter has pytest."""
    return [*arguments, "--python", sys.executable]


def test_the_list_has_a_session_for_every_partition(inventory: Inventory) -> None:
    listed = json.loads(program("nox", "-l", "--json", "-t", "cpu", "cuda", "rocm").stdout)
    stages = {entry["session"]: entry for entry in listed if "self" not in entry["tags"]}
    expected = {
        f"{stage.name}({number})" if stage.partitions > 1 else stage.name: stage
        for stage in inventory.stages.values()
        for number in range(stage.partitions)
    }
    assert set(stages) == set(expected)
    assert {name: entry["tags"] for name, entry in stages.items()} == {
        name: [stage.backend] for name, stage in expected.items()
    }
    assert stages["stage-c-8-gpu-h100(1)"]["description"] == "8×h100, 2 partitions"


def test_one_partition_of_the_sample(tmp_path: Path) -> None:
    results = tmp_path / "results"
    ran = program("nox", "-s", "stage-a-cpu(1)", "--", *with_own_python("--results", str(results)))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((results / "stage-a-cpu-1/results.json").read_text())
    assert found["facts"]["partition"] == {"id": 1, "size": 4}
    assert {ref["origin"] for ref in found["facts"]["refs"]} == {"branch"}
    assert all(len(ref["commit"]) == 40 for ref in found["facts"]["refs"])
    assert {entry["verdict"] for entry in found["files"]} == {"passed"}


def test_the_pull_request_of_the_sample_is_what_the_tests_see(tmp_path: Path) -> None:
    source = """
import megatron.core
def test_pull_request():
    assert megatron.core.PULL_REQUEST == 72
"""
    sample = tmp_path / "sample"
    shutil.copytree(REPOSITORY / "sample", sample)
    (sample / "miles/tests/fast/test_pull_request.py").write_text(source)
    body = tmp_path / "body.md"
    body.write_bytes(b"A change.\r\nci-megatron-pr: #72\r\n")
    sources = {}
    for name, variable in (("sglang", "CI_SGLANG_REPO"), ("megatron", "CI_MEGATRON_REPO")):
        program("invoke", "refs")
        (repository,) = (tmp_path / "cache/sample").glob(f"*/{name}.git")
        sources[variable] = str(repository)
    arguments = with_own_python("--workspace", str(sample / "miles"), "--only", "tests/fast/test_pull_request.py")
    command = [sys.executable, "-m", "ci.session", "stage-a-cpu", *arguments]
    for more, code in ((["--pr-body", str(body)], 0), ([], 1)):
        ran = subprocess.run(
            [*command, *more, "--results", str(tmp_path / "r")],
            cwd=REPOSITORY,
            env={**os.environ, **sources},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr


def test_a_failing_partition_does_not_stop_the_others_and_the_code_is_1(tmp_path: Path) -> None:
    files = {f"tests/fast/test_{name}.py": "def test_x(): ...\n" for name in "abc"}
    files |= {"tests/fast/test_d.py": "def test_x():\n    assert 0\n", "miles_plugins/__init__.py": ""}
    root = workspace(tmp_path / "w", files)
    arguments = with_own_python("--workspace", str(root), "--sglang", f"path:{REPOSITORY}/sample/sglang")
    arguments += ["--megatron", f"path:{REPOSITORY}/sample/Megatron-LM", "--results", str(tmp_path / "r")]
    ran = program("nox", "-s", "stage-a-cpu", "--", *arguments)
    assert ran.returncode == 1
    ended = [line.partition("): ")[2] for line in ran.stderr.splitlines() if "* stage-a-cpu(" in line]
    assert [word.partition(",")[0] for word in ended] == ["success", "success", "success", "aborted"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--worskpace", "x"], 2, "did you mean `--workspace`?"),
        (["--workspace", "/nowhere"], 2, "is not a folder"),
        (["--sglang", "--upload-pack=x"], 2, "--help lists the arguments"),
        (["--sglang=--upload-pack=x"], 2, "begins with `-`"),
        (["--sglang", "no-such-branch"], 2, "has no branch or tag `no-such-branch`"),
        (["--event", "/nowhere.json"], 2, "--event"),
        (["--cadence", "daily"], 2, "is not a cadence"),
        (["--python", "/nowhere/python"], 2, "is not a program"),
        (["--offline"], 3, "not known offline"),
        (["--parallel", "many"], 2, "is not a number"),
    ],
)
def test_wrong_arguments_end_with_their_code_and_two_lines(arguments: list[str], code: int, said: str) -> None:
    ran = program("nox", "-s", "stage-b-cpu", "--", *arguments)
    assert ran.returncode == code
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    errors = [line for line in ran.stderr.splitlines() if line.startswith(("error:", "  "))]
    assert len(errors) <= 2


def test_help_needs_nothing_and_ends_the_run() -> None:
    ran = program("nox", "-s", "stage-a-cpu", "--", "--help", MILES_ROOT="/nowhere")
    assert ran.returncode == 0
    assert ran.stdout.count("usage:") == 1
    assert "--leave-out" in ran.stdout


def test_a_gpu_stage_without_the_hardware_is_infrastructure_and_can_be_listed() -> None:
    session = "stage-c-4-gpu-h200(0)"
    refused = program("nox", "-s", session, "--", "--match-all-labels", CUDA_VISIBLE_DEVICES="")
    assert refused.returncode == 3
    assert "stage-c-4-gpu-h200 needs 4×h200" in refused.stderr
    empty = program("nox", "-s", session)
    assert (empty.returncode, "nothing ran: this is no coverage" in empty.stdout) == (0, True)
    listed = program("nox", "-s", "stage-c-4-gpu-h200(0)", "--", "--list-only", "--match-all-labels")
    assert listed.returncode == 0
    assert "tests/e2e/megatron/test_tiny_train.py" in listed.stdout


def test_the_workspace_is_the_miles_tree_one_is_in(tmp_path: Path) -> None:
    root = workspace(tmp_path / "miles", {"tests/fast/test_here.py": ""})
    ran = program("nox", "-s", "stage-a-cpu(0)", "--", "--list-only", cwd=root)
    assert "tests/fast/test_here.py" in ran.stdout
    assert f"workspace: {root} (the folder started in)" in ran.stderr


def slow_workspace(tmp_path: Path) -> tuple[Path, Path, Path]:
    noted, torn = tmp_path / "pid", tmp_path / "torn"
    source = f"""
import os, pytest, time
@pytest.fixture
def server():
    open({str(noted)!r}, "w").write(str(os.getpid()))
    yield
    time.sleep(2)
    open({str(torn)!r}, "w").write("1")
def test_waits(server):
    time.sleep(60)
"""
    root = workspace(tmp_path / "w", {"tests/fast/test_slow.py": source, "miles_plugins/__init__.py": ""})
    return root, noted, torn


def start_slow(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int, Path]:
    """Nox running a test that waits; the test's process; the file that its tear-down writes."""
    root, noted, torn = slow_workspace(tmp_path)
    arguments = with_own_python("--workspace", str(root), "--sglang", f"path:{REPOSITORY}/sample/sglang")
    arguments += ["--megatron", f"path:{REPOSITORY}/sample/Megatron-LM", "--results", str(tmp_path / "r")]
    command = [sys.executable, "-m", "nox", "-s", "stage-a-cpu(0)", "--", *arguments]
    nox = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    wait_for(lambda: pids_in(noted))
    return nox, pids_in(noted)[0], torn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_nox_lets_tests_tear_down(tmp_path: Path, number: signal.Signals) -> None:
    nox, test, torn = start_slow(tmp_path)
    nox.send_signal(number)
    assert nox.wait(30) == 130
    assert torn.exists()
    assert not alive(test)


def test_a_killed_nox_takes_the_tests_along(tmp_path: Path) -> None:
    nox, test, _ = start_slow(tmp_path)
    nox.kill()
    nox.wait()
    wait_for(lambda: not alive(test))


def answer(*arguments: str) -> Any:
    ran = program("invoke", *arguments, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_invoke_policy_reads_an_event(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7, "labels": [{"name": "nightly"}], "body": None}}))
    found = answer("policy", "--event", str(event))
    assert (found["cadence"], found["because"]["cadence"]) == ("nightly", "label nightly")
    scheduled = answer("policy", "--event-name", "schedule", "--schedule", "0 15 * * 6")
    assert scheduled["cadence"] == "weekly"
    manual = answer("policy", "--event-name", "workflow_dispatch", "--backend", "cuda")
    assert len(manual["include_labels"]) == 19


def test_invoke_refs_says_origin_and_commit(tmp_path: Path) -> None:
    body = tmp_path / "body.md"
    body.write_text("ci-megatron-pr: #72\n CI-sglang-pr: x\n")
    found = answer("refs", "--pr-body", str(body))
    megatron = found["dependencies"][1]
    assert (megatron["ref"], megatron["origin"]) == ("refs/pull/72/head", "directive")
    assert len(megatron["commit"]) == 40
    assert found["warnings"] == [
        "line 2: `ci-sglang-pr:` is not read, because it is indented; put it at the very start of the line"
    ]
    rocm = answer("refs", "--backend", "rocm")
    assert [entry["origin"] for entry in rocm["dependencies"]] == ["image", "image"]


def test_invoke_image_inputs(tmp_path: Path) -> None:
    miles = workspace(tmp_path / "miles", {"requirements.txt": "ray\n"})
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=miles, check=True)
    found = answer("image-inputs", "--workspace", str(miles), "--rev", "HEAD")
    assert [entry["path"] for entry in found["inputs"]] == ["requirements.txt"]
    assert len(found["hash"]) == 64
    refused = program("invoke", "image-inputs", "--workspace", str(miles), "--rev", "HEAD^1")
    assert (refused.returncode, "is not a commit" in refused.stderr) == (2, True)


def test_invoke_explain(tmp_path: Path) -> None:
    found = answer("explain", "tests/e2e/megatron/test_tiny_ckpt.py", "--labels", "run-ci-ckpt")
    (registration,) = found["registrations"]
    assert registration["runs"] is True
    assert registration["suite"] == "stage-c-4-gpu-h200"
    assert program("invoke", "explain", "tests/fast/test_tres.py").stdout.count("did you mean") == 1
    assert program("invoke", "policy", "--cadence", "daily").returncode == 2
    assert not list(tmp_path.glob("*.json"))
