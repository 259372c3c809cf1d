"""The suite runner's command line, as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.factory import cases, registered_workspace, workspace

REPOSITORY = Path(__file__).parent.parent


def suite(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ci.suite", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listed(root: Path, stage: str, *arguments: str, hw: str = "cpu") -> dict[str, Any]:
    ran = suite(
        *("--workspace", str(root), "--hw", hw, "--suite", stage, "--list-only", "--format", "json", *arguments)
    )
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return registered_workspace(tmp_path_factory.mktemp("live"), cases("registrations"))


@pytest.mark.parametrize(
    "case",
    cases("plans"),
    ids=lambda case: f"{case['suite']}-{case['cadence']}-{'+'.join(case['labels'])}{'-all' * case['match_all_labels']}",
)
def test_every_plan_of_the_live_system_comes_out_of_the_command_line(case: dict[str, Any], live: Path) -> None:
    arguments = ["--cadence", case["cadence"], *(["--labels", *case["labels"]] if case["labels"] else [])]
    arguments += ["--match-all-labels"] if case["match_all_labels"] else []
    plan = listed(live, case["suite"], *arguments, hw=case["hw"])
    assert [entry["file"] for entry in plan["enabled"]] == case["plan"]["enabled"]
    assert [entry["file"] for entry in plan["skipped"]] == case["plan"]["skipped"]
    for size, shards in case.get("shards", {}).items():
        for number, files in enumerate(shards):
            part = listed(live, case["suite"], *arguments, "--partition", f"{number}/{size}", hw=case["hw"])
            assert [entry["file"] for entry in part["enabled"]] == files
            assert part["partition"] == {"id": number, "size": int(size)}


def test_the_document_has_the_promised_shape(live: Path) -> None:
    plan = listed(live, "stage-a-cpu", "--labels", "run-ci-megatron", "--partition", "1/4")
    assert list(plan) == ["suite", "backend", "cadence", "partition", "policy", "enabled", "skipped"]
    assert list(plan["policy"]) == ["cadence", "include_labels", "admit_nightly", "bypass_fastfail", "write_baseline"]
    assert list(plan["enabled"][0]) == ["file", "est_time", "labels", "nightly", "implicit"]
    assert plan["policy"]["include_labels"] == ["megatron"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "stage-a-cpu", "--partition", "4/4"], "the ids are 0 to 3"),
        (["--suite", "stage-a-cpu", "--partition", "-1/4"], "ID from 0 to SIZE-1"),
        (["--suite", "stage-a-cpu", "--partition", "a/b"], "ID from 0 to SIZE-1"),
        (["--suite", "stage-a-cup"], "did you mean `stage-a-cpu`"),
        (["--suite", "stage-a-cpu", "--hw", "cuda"], "is a suite of cpu"),
        (["--suite", "stage-a-cpu", "--hw", "gpu"], "is not a backend"),
        (["--suite", "stage-a-cpu", "--lst-only"], "did you mean `--list-only`"),
        (["--suite", "stage-a-cpu", "--cadence", "daily"], "is not a cadence"),
        (["--suite", "stage-a-cpu", "--workspace", "/nowhere"], "is not a folder"),
        ([], "--suite is missing"),
    ],
)
def test_wrong_input_is_two_lines_and_exit_2(arguments: list[str], said: str) -> None:
    ran = suite(*arguments, "--list-only")
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2
    assert ran.stdout == ""


def test_problems_of_the_tree_are_all_listed(tmp_path: Path) -> None:
    root = workspace(tmp_path, {"tests/ci/test_a.py": "x = 1\n", "tests/e2e/test_b.py": "def f(:\n"})
    ran = suite("--workspace", str(root), "--suite", "stage-a-cpu", "--list-only")
    assert ran.returncode == 2
    assert "tests/ci/test_a.py: has no registration" in ran.stderr
    assert "tests/e2e/test_b.py:1: Python cannot read it" in ran.stderr


def test_an_empty_plan_says_that_it_is_no_coverage(tmp_path: Path) -> None:
    root = workspace(tmp_path, {"tests/fast/test_a.py": ""})
    ran = suite("--workspace", str(root), "--suite", "stage-a-cpu", "--partition", "1/4", "--list-only")
    assert ran.returncode == 0
    assert "this is no coverage" in ran.stdout


def test_hostile_file_names_break_neither_text_nor_json(tmp_path: Path) -> None:
    names = ["test_a\n::error::x.py", "test_'\"é.py", os.fsdecode(b"test_\xff.py")]
    root = workspace(tmp_path, {f"tests/fast/{name}": "" for name in names})
    ran = suite("--workspace", str(root), "--suite", "stage-a-cpu", "--list-only", LC_ALL="C", PYTHONIOENCODING="")
    assert ran.returncode == 0, ran.stderr
    assert not any(line.lstrip().startswith("::") for line in ran.stdout.splitlines())
    assert len(ran.stdout.splitlines()) == 5
    files = {entry["file"] for entry in listed(root, "stage-a-cpu")["enabled"]}
    assert files == {f"tests/fast/{name}" for name in names}


def test_a_closed_pipe_is_no_traceback(live: Path) -> None:
    command = f"{sys.executable} -m ci.suite --workspace {live} --suite stage-a-cpu --list-only | head -1"
    ran = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr


def test_help_works_without_a_workspace() -> None:
    assert "--list-only" in suite("--help", MILES_ROOT="/nowhere").stdout
