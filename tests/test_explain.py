from pathlib import Path

from ci.explain import explain, explanation_text
from ci.facts import Given, read_facts
from ci.inventory import Inventory
from ci.tree import read_tree
from tests.factory import cases, registered_workspace, workspace


def text(root: Path, file: str, inventory: Inventory, *labels: str) -> str:
    facts = read_facts(Given(labels=labels, refs={}), inventory, workspace=root, started_in=root)
    tree = read_tree(root, inventory, cache=None)
    return explanation_text(file, explain(file, tree, facts, inventory))


def test_a_test_that_runs_names_its_partition_and_how_to_reproduce_it(tmp_path: Path, inventory: Inventory) -> None:
    root = registered_workspace(tmp_path, cases("registrations"))
    said = text(root, "tests/fast/utils/test_misc.py", inventory)
    assert "runs in stage-a-cpu (" in said
    assert 'nox -s "stage-a-cpu(' in said


def test_a_test_that_does_not_run_gives_every_reason_and_remedy(tmp_path: Path, inventory: Inventory) -> None:
    call = 'register_cuda_ci(est_time=5, suite="stage-c-4-gpu-h200", labels=["megatron"], nightly=True, disabled="x")\n'
    root = workspace(tmp_path, {"tests/e2e/test_x.py": call})
    said = text(root, "tests/e2e/test_x.py", inventory)
    assert said.count("to run it:") == 3
    assert "does not run in stage-c-4-gpu-h200" in said
    assert "`run-ci-megatron`" in said


def test_the_label_that_it_names_does_make_it_run(tmp_path: Path, inventory: Inventory) -> None:
    call = 'register_cuda_ci(est_time=5, suite="stage-c-4-gpu-h200", labels=["megatron"])\n'
    root = workspace(tmp_path, {"tests/e2e/test_x.py": call})
    assert "runs in stage-c-4-gpu-h200 (0)" in text(root, "tests/e2e/test_x.py", inventory, "run-ci-megatron")


def test_a_file_that_is_not_there_suggests_the_nearest(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path, {"tests/fast/test_rollout.py": ""})
    assert "did you mean `tests/fast/test_rollout.py`?" in text(root, "tests/fast/test_rolout.py", inventory)
    assert "is not under tests/fast" in text(root, "miles/zzzzzzzz.py", inventory)


def test_a_broken_file_says_what_is_wrong_with_it(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path, {"tests/ci/test_x.py": "register_cpu_ci(0, 'stage-a-cpu')\n"})
    assert "line 1: register_cpu_ci: est_time must be" in text(root, "tests/ci/test_x.py", inventory)


def test_a_stage_run_elsewhere_says_so(tmp_path: Path, inventory: Inventory) -> None:
    call = 'register_rocm_ci(est_time=5, suite="nightly-stage-c-8-gpu-mi350", labels=["amd"])\n'
    root = workspace(tmp_path, {"tests/e2e/test_x.py": call})
    assert "another repository's nightly" in text(root, "tests/e2e/test_x.py", inventory, "run-ci-amd")
