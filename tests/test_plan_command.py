"""``invoke plan`` on real repositories and event payloads."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.factory import workspace
from tests.repositories import commit, git

REPOSITORY = Path(__file__).parent.parent
CALL = 'from tests.ci.ci_register import register_cuda_ci\nregister_cuda_ci(60, "{suite}", labels=["{label}"])\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout whose HEAD merges a pull request that changes documentation and one test."""
    files = {
        "miles_plugins/__init__.py": "",
        "tests/fast/test_fast.py": "def test_it(): pass\n",
        "tests/e2e/test_short.py": CALL.format(suite="stage-b-2-gpu-h200", label="short"),
        "tests/e2e/test_mega.py": CALL.format(suite="stage-c-4-gpu-h200", label="megatron"),
        "requirements.txt": "a\n",
    }
    root = workspace(tmp_path / "w", files)
    git(root, "init", "-q")
    commit(root, {})
    git(root, "checkout", "-q", "-b", "pr")
    commit(
        root,
        {"docs/x.md": "x", "tests/e2e/test_mega.py": CALL.format(suite="stage-c-4-gpu-h200", label="megatron") + "#"},
    )
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "merge", "pr")
    return root


def payload(tmp_path: Path, *labels: str, **more: Any) -> str:
    pull = {"number": 5, "body": "", "labels": [{"name": label} for label in labels], **more}
    (tmp_path / "event.json").write_text(json.dumps({"action": "labeled", "pull_request": pull}))
    return str(tmp_path / "event.json")


def plan(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    base = [sys.executable, "-m", "invoke", "plan", "--workspace", str(root), "--offline"]
    return subprocess.run([*base, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def stages(ran: subprocess.CompletedProcess[str]) -> list[str]:
    assert ran.returncode == 0, ran.stderr
    return [stage["name"] for stage in json.loads(ran.stdout)["stages"] if stage["starts"]]


def test_a_pull_request_starts_the_stages_that_its_merge_changes(tree: Path, tmp_path: Path) -> None:
    event = payload(tmp_path, "run-ci-megatron", "run-ci-short")
    ran = plan(tree, "--workflow", "pr-test", "--event", event, "--format", "json")
    # test_short.py did not change, but its label adds its stage
    assert stages(ran) == ["stage-a-cpu", "stage-b-cpu", "stage-b-2-gpu-h200", "stage-c-4-gpu-h200"]
    data = json.loads(ran.stdout)
    assert data["group"] == "pr-test-5"
    reasons = {stage["name"]: stage["reason"] for stage in data["stages"]}
    assert reasons["stage-c-4-gpu-h200"] == "its test tests/e2e/test_mega.py changed"
    assert "no merge commit" not in ran.stderr


def test_the_command_of_a_partition_lists_the_files_of_the_plan(tree: Path, tmp_path: Path) -> None:
    event = payload(tmp_path, "run-ci-megatron")
    data = json.loads(plan(tree, "--workflow", "pr-test", "--event", event, "--format", "json").stdout)
    stage = next(stage for stage in data["stages"] if stage["name"] == "stage-c-4-gpu-h200")
    part = next(part for part in stage["partitions"] if part["files"])
    command = [sys.executable, "-m", *part["command"], "--list-only"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for found in part["files"]:
        assert found["file"] in listed.stdout


def test_both_workflows_as_tables_of_at_most_100_columns(tree: Path, tmp_path: Path) -> None:
    ran = plan(tree, "--event", payload(tmp_path, "run-ci-all"), "--files")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("concurrency group") == 2
    assert "tests/e2e/test_short.py" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines() if "nox -s" not in line) <= 100


def test_outputs_for_a_workflow(tree: Path, tmp_path: Path) -> None:
    ran = plan(tree, "--workflow", "pr-test-rocm", "--event", payload(tmp_path), "--format", "github")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "stages=[]"
    refused = plan(tree, "--event", payload(tmp_path), "--format", "github")
    assert refused.returncode == 2
    assert "--workflow" in refused.stderr


def test_a_diff_file_that_is_not_there_skips_nothing(tree: Path, tmp_path: Path) -> None:
    arguments = ("--workflow", "pr-test", "--event", payload(tmp_path), "--format", "json")
    assert len(stages(plan(tree, *arguments, "--diff", str(tmp_path / "none")))) == 7


def test_a_branch_that_is_no_merge_is_warned_of(tree: Path, tmp_path: Path) -> None:
    git(tree, "checkout", "-q", "pr")
    ran = plan(tree, "--event", payload(tmp_path))
    assert "HEAD is no merge commit" in ran.stderr


def test_a_change_of_image_inputs_waits_for_the_registry(tree: Path, tmp_path: Path) -> None:
    commit(tree, {"requirements.txt": "b\n"})
    arguments = ("--workflow", "pr-test", "--format", "json", "--event")
    data = json.loads(plan(tree, *arguments, payload(tmp_path)).stdout)
    assert data["backends"]["cuda"]["own_image"]["action"] == "undecided"
    assert data["backends"]["cuda"]["image"] is None
    fork = {"head": {"repo": {"full_name": "x/miles"}}, "base": {"repo": {"full_name": "radixark/miles"}}}
    data = json.loads(plan(tree, *arguments, payload(tmp_path, **fork)).stdout)
    assert data["event"]["fork"]
    assert data["backends"]["cuda"]["own_image"]["action"] == "none"
    assert data["backends"]["cuda"]["image"]["name"] == "radixark/miles:dev"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workflow", "pr-tset"], "did you mean `pr-test`?"),
        (["--format", "yaml"], "text, json, github"),
        (["--image", "a/b", "--event-name", "pull_request"], "not a tag of an image"),
        (["--event-name", "push"], "no policy for the event `push`"),
        (["--event-name", "schedule", "--schedule", "0 1 * * *"], "no cadence for the cron"),
    ],
)
def test_wrong_input_is_two_lines_and_exit_2(tree: Path, arguments: list[str], said: str) -> None:
    ran = plan(tree, *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
