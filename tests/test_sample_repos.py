from pathlib import Path

from ci.inventory import Inventory
from ci.paths import SAMPLE
from ci.sample_repos import materialise
from tests.repositories import dependency, git


def test_the_sample_becomes_repositories_with_branch_and_pull_request(tmp_path: Path, inventory: Inventory) -> None:
    pairs = [(inventory.dependencies["sglang"], "sglang"), (inventory.dependencies["megatron"], "Megatron-LM")]
    made = materialise(SAMPLE, tmp_path, pairs)
    refs = git(Path(made["megatron"]), "for-each-ref", "--format=%(refname)").splitlines()
    assert refs == ["refs/heads/miles-main", "refs/pull/72/head"]
    assert git(Path(made["sglang"]), "symbolic-ref", "HEAD") == "refs/heads/sglang-miles"
    changed = git(Path(made["megatron"]), "diff", "--stat", "miles-main", "refs/pull/72/head")
    assert "megatron/core/__init__.py" in changed
    assert "1 insertion(+), 1 deletion(-)" in changed


def test_the_same_content_gives_the_same_commits(tmp_path: Path, inventory: Inventory) -> None:
    pairs = [(inventory.dependencies["sglang"], "sglang")]
    commits = [
        git(Path(materialise(SAMPLE, tmp_path / name, pairs)["sglang"]), "rev-parse", "refs/pull/72/head")
        for name in ("a", "b")
    ]
    assert commits[0] == commits[1]


def test_changed_content_is_another_repository_and_the_old_one_stays(tmp_path: Path) -> None:
    tree = tmp_path / "sample/sglang"
    tree.mkdir(parents=True)
    (tree / "a.py").write_text("x = 1\n")
    first = materialise(tmp_path / "sample", tmp_path / "cache", [(dependency(), "sglang")])
    (tree / "a.py").write_text("x = 2\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__/a.pyc").write_bytes(b"x")
    second = materialise(tmp_path / "sample", tmp_path / "cache", [(dependency(), "sglang")])
    assert first != second
    assert git(Path(first["sglang"]), "show", "main:a.py") == "x = 1"
    assert "__pycache__" not in git(Path(second["sglang"]), "ls-tree", "-r", "--name-only", "main")
    assert "PULL_REQUEST" in git(Path(second["sglang"]), "ls-tree", "-r", "--name-only", "refs/pull/72/head")
