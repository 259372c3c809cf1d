"""Diffs and files of real checkouts, whatever their configuration says."""

import os
import shutil
from pathlib import Path

import pytest

from ci.diff import Change, Diff, Unusable
from ci.errors import UsageError
from ci.git import GitError
from ci.git_read import TreeFile, content_at, diff_of_checkout, diff_of_file, files_at, resolve_commit
from tests.repositories import commit, git, repository

LONG = "".join(f"line {number}\n" for number in range(60))
ODD = 'tests/größe\n"::error::\r.py'


def submodule(root: Path, commit_of_it: str) -> None:
    (root / "module").mkdir(exist_ok=True)
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{commit_of_it},module")
    git(root, "commit", "-qm", "module")


def changes_of(folder: Path) -> dict[tuple[str, ...], str]:
    diff = diff_of_checkout(folder)
    assert isinstance(diff, Diff), diff
    return {change.paths: change.status for change in diff.changes}


def unusable(folder: Path) -> str:
    diff = diff_of_checkout(folder)
    assert isinstance(diff, Unusable), diff
    assert diff.reason.isprintable()
    return diff.reason


def assert_all_changes(folder: Path) -> None:
    found = changes_of(folder)
    renamed = found.pop(("docs/a.md", "miles/a.py"))
    assert renamed.startswith("R")
    assert found == {(ODD,): "M", ("sub/s.txt",): "M", ("miles/x.py",): "D", ("module",): "M"}


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A merge of a pull request into its base, as GitHub makes it; the base has moved on."""
    root = repository(tmp_path / "merged", {"miles/x.py": "1\n", "docs/a.md": LONG, ODD: "1\n", "sub/s.txt": "1\n"})
    submodule(root, "1" * 40)
    git(root, "checkout", "-qb", "pull")
    git(root, "mv", "docs/a.md", "miles/a.py")
    commit(root, {ODD: "2\n", "sub/s.txt": "2\n"})
    (root / "miles/x.py").unlink()
    commit(root, {})
    submodule(root, "2" * 40)
    git(root, "checkout", "-q", "main")
    commit(root, {"only/on/base.py": "1\n"})
    git(root, "merge", "-q", "--no-ff", "-m", "merge", "pull")
    return root


def test_the_diff_is_that_of_the_pull_request_against_its_base(merged: Path) -> None:
    assert_all_changes(merged)


@pytest.mark.parametrize("folder", ["sub", "tests"])
def test_any_folder_of_the_checkout_will_do(merged: Path, folder: str) -> None:
    assert_all_changes(merged / folder)


def test_a_worktree_is_a_checkout_too(merged: Path, tmp_path: Path) -> None:
    git(merged, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), "HEAD")
    assert_all_changes(tmp_path / "tree/sub")


CONFIGURED = (
    ("diff.renames", "false"),
    ("diff.renameLimit", "1"),
    ("diff.relative", "true"),
    ("diff.noprefix", "true"),
    ("diff.mnemonicPrefix", "true"),
    ("diff.external", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.submodule", "log"),
    ("diff.orderFile", "/dev/null"),
    ("diff.algorithm", "histogram"),
    ("diff.nope.textconv", "false"),
    ("diff.nope.command", "false"),
    ("diff.colorMoved", "zebra"),
    ("color.ui", "always"),
    ("color.diff", "always"),
    ("core.quotePath", "true"),
    ("core.pager", "false"),
    ("core.fsmonitor", "false-hook"),
    ("core.precomposeUnicode", "true"),
    ("log.showSignature", "true"),
    ("status.relativePaths", "true"),
)


@pytest.mark.parametrize("where", ["repository", "person"])
def test_no_configuration_changes_the_diff(
    merged: Path, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    scope = ["--local"] if where == "repository" else ["--global"]
    for key, value in CONFIGURED:
        git(merged, "config", *scope, key, value)
    (merged / ".git/info/attributes").write_text("* diff=nope\n")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=0")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    assert_all_changes(merged)
    assert_all_changes(merged / "sub")


def test_the_configuration_would_change_the_plain_command(merged: Path) -> None:
    # or the test above could not fail
    plain = git(merged, "diff", "--name-status", "-z", "HEAD^1", "HEAD")
    for key, value in (("diff.renames", "false"), ("diff.relative", "true")):
        git(merged, "config", key, value)
        assert git(merged / "sub", "diff", "--name-status", "-z", "HEAD^1", "HEAD") != plain


def test_a_copy_counts_its_new_path(merged: Path) -> None:
    commit(merged, {"docs/copy.py": LONG})
    assert changes_of(merged) == {("docs/copy.py",): "A"}


def test_a_name_that_is_not_utf8_makes_the_diff_unusable(merged: Path) -> None:
    (merged / os.fsdecode(b"docs/\xff.md")).parent.mkdir(exist_ok=True)
    (merged / os.fsdecode(b"docs/\xff.md")).write_text("x")
    git(merged, "add", "--all")
    git(merged, "commit", "-qm", "odd")
    assert "not UTF-8" in unusable(merged)


def test_a_commit_that_changes_nothing_is_unusable(merged: Path) -> None:
    git(merged, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert unusable(merged) == "the diff is empty"


def test_a_shallow_clone_without_the_parent_says_so(merged: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{merged}", "shallow")
    assert "the clone is shallow; fetch it with a depth of 2 or more" in unusable(tmp_path / "shallow")


def test_a_shallow_clone_of_two_has_the_diff_without_a_merge_base(merged: Path, tmp_path: Path) -> None:
    # both parents are there, what they have in common is not
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{merged}", "shallow")
    assert_all_changes(tmp_path / "shallow")


def test_a_first_commit_and_no_commit_have_no_parent(tmp_path: Path) -> None:
    first = repository(tmp_path / "first", {"a": "a"})
    assert unusable(first).startswith("HEAD has no parent in ")
    git(tmp_path, "init", "-q", "none")
    assert unusable(tmp_path / "none").startswith("HEAD has no commit in ")


def test_a_replaced_commit_does_not_hide_a_change(merged: Path) -> None:
    git(merged, "replace", "HEAD", git(merged, "commit-tree", "-p", "HEAD^1", "-m", "x", "HEAD^1^{tree}"))
    assert_all_changes(merged)


def test_an_object_that_is_lost_makes_the_diff_unusable(merged: Path) -> None:
    tree = git(merged, "rev-parse", "HEAD^1^{tree}")
    (merged / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert "git has no diff of HEAD^1 and HEAD" in unusable(merged) or "no parent" in unusable(merged)


def test_what_is_no_checkout_is_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not in a git checkout" in unusable(tmp_path)
    assert "is not in a git checkout" in unusable(tmp_path / "no\nwhere")
    assert "cannot be read" in unusable(tmp_path / "a\0b")
    root = repository(tmp_path / "root", {"a": "a"})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in unusable(root)


def test_a_damaged_checkout_does_not_lead_to_the_one_around_it(merged: Path) -> None:
    inner = repository(merged / "inner", {"a": "a"})
    (inner / ".git/HEAD").unlink()
    assert "not a git repository" in unusable(inner)


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "diff").write_bytes("M\0größe\r\n\0".encode())
    assert diff_of_file(tmp_path / "diff") == Diff(changes=(Change("M", ("größe\r\n",)),))


@pytest.mark.parametrize("name", ["nowhere", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_unusable(tmp_path: Path, name: str) -> None:
    diff = diff_of_file(tmp_path / name)
    assert isinstance(diff, Unusable)
    assert diff.reason.startswith("there is no diff: ")
    assert diff.reason.isprintable()


def test_files_have_the_bytes_of_the_commit(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "root", {"sub/deep/a": "one\r\ntwo\n", "b": "b", ".gitattributes": "* text eol=crlf\n"}
    )
    (root / "sub/link").symlink_to("deep/a")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub/module")
    head = commit(root, {ODD: "odd"})
    git(root, "config", "core.autocrlf", "true")
    (root / "b").write_text("changed, not committed")
    top, found = resolve_commit(root / "sub", "HEAD")
    assert (top, found) == (root.resolve(), head)
    assert {file.path for file in files_at(top, head, root)} == {".gitattributes", "b", "sub/deep/a", "sub/link", ODD}
    content = {file.path: content_at(top, file) for file in files_at(top, head, root / "sub")}
    assert content == {"deep/a": b"one\ntwo\n", "link": b"deep/a"}
    assert content_at(top, files_at(top, head, root)[1]) == b"b"


def test_a_blob_keeps_every_byte(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", {"a": "a"})
    every = bytes(range(256)) + b"\r\n\r"
    (root / "bytes").write_bytes(every)
    head = commit(root, {})
    (file,) = (file for file in files_at(root, head, root) if file.path == "bytes")
    assert content_at(root, file) == every


@pytest.mark.parametrize("revision", ["HEAD", "HEAD^0", "main", "HEAD~0", "v1"])
def test_a_revision_is_what_git_takes_for_a_commit(tmp_path: Path, revision: str) -> None:
    root = repository(tmp_path / "root", {"a": "a"})
    git(root, "tag", "-a", "v1", "-m", "one")
    assert resolve_commit(root, revision)[1] == git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "revision",
    ["HEAD^1", "", "^HEAD", "--all", "-x", "HEAD..HEAD", "HEAD:a", "nope", "a\0b", "a\nb", "main --all", "f" * 40],
)
def test_what_names_no_commit_is_refused(tmp_path: Path, revision: str) -> None:
    root = repository(tmp_path / "root", {"a": "a"})
    with pytest.raises(UsageError, match="is not a commit of"):
        resolve_commit(root, revision)


def test_a_shallow_clone_is_named_as_the_likely_cause(merged: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{merged}", "shallow")
    with pytest.raises(UsageError, match="the clone is shallow"):
        resolve_commit(tmp_path / "shallow", "HEAD^1")


def test_a_folder_that_the_commit_does_not_have_is_refused(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", {"a": "a"})
    (root / "new").mkdir()
    with pytest.raises(UsageError, match="has no readable folder new"):
        files_at(root, git(root, "rev-parse", "HEAD"), root / "new")


def test_a_folder_outside_of_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a git checkout"):
        resolve_commit(tmp_path, "HEAD")


def test_a_lost_blob_is_an_error_of_git(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", {"a": "a"})
    with pytest.raises(GitError):
        content_at(root, TreeFile("a", "1" * 40))
    shutil.rmtree(root / ".git/objects")
    with pytest.raises((GitError, UsageError)):
        resolve_commit(root, "HEAD")
