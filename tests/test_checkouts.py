"""The image's own checkouts on real repositories: brought to a ref in place, nothing in them lost."""

import os
from pathlib import Path

import pytest

from ci.checkouts import bring_checkout, checkout_as_it_is, image_checkouts, patch_checkout
from ci.errors import CiError, InfrastructureError, UsageError
from ci.inventory import Inventory
from ci.ref import parse_ref
from ci.sources import SourceTree
from tests.repositories import commit, dependency, git, repository

FILES = {"python/sglang/__init__.py": "VERSION = 1\n", ".gitignore": "*.so\n"}


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "remote", FILES)
    commit(folder, {"python/sglang/__init__.py": "VERSION = 2\n"})
    return folder


@pytest.fixture
def image(remote: Path, tmp_path: Path) -> Path:
    """A checkout as an image has it: whole history, an old commit, a compiled file, and a change of the build."""
    folder = tmp_path / "image/sglang"
    git(tmp_path, "clone", "-q", f"file://{remote}", str(folder))
    (folder / "python/sglang/core.so").write_bytes(b"compiled")
    (folder / "python/sglang/__init__.py").write_text("VERSION = 2  # cu12\n")
    commit(remote, {"python/sglang/__init__.py": "VERSION = 3\n"})
    return folder


def bring(
    image: Path, cache: Path, ref: str, remote: Path | None, *, from_origin: bool = False, offline: bool = False
) -> SourceTree:
    environ = {"CI_SGLANG_REPO": str(remote)} if remote else {}
    return bring_checkout(
        dependency(), parse_ref(ref), image, from_origin=from_origin, environ=environ, cache=cache, offline=offline
    )


def version(image: Path) -> str:
    return (image / "python/sglang/__init__.py").read_text()


def test_it_is_brought_to_the_ref_where_it_is(image: Path, remote: Path, cache: Path) -> None:
    tree = bring(image, cache, "main", remote)
    assert (tree.repository, tree.root) == (str(image), f"{image}/python")
    assert tree.commit == git(remote, "rev-parse", "main") == git(image, "rev-parse", "HEAD")
    assert version(image) == "VERSION = 3\n"
    assert git(image, "status", "--porcelain") == ""


def test_what_the_build_left_and_git_ignores_stays(image: Path, remote: Path, cache: Path) -> None:
    bring(image, cache, "main", remote)
    assert (image / "python/sglang/core.so").read_bytes() == b"compiled"


def test_changes_are_kept_once_and_can_be_brought_back(
    image: Path, remote: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = git(image, "rev-parse", "HEAD")
    bring(image, cache, "main", remote)
    said = capsys.readouterr().err
    (name,) = git(image, "for-each-ref", "--format=%(refname)", "refs/ci/kept").splitlines()
    assert f"git stash apply {name}" in said
    git(image, "checkout", "-q", old)
    git(image, "stash", "apply", name)
    assert version(image) == "VERSION = 2  # cu12\n"
    bring(image, cache, "main", remote)
    assert len(git(image, "for-each-ref", "refs/ci/kept").splitlines()) == 1


def test_the_same_commit_with_changes_becomes_that_commit(image: Path, remote: Path, cache: Path) -> None:
    bring(image, cache, git(image, "rev-parse", "HEAD"), remote)
    assert version(image) == "VERSION = 2\n"


def test_a_whole_history_stays_whole_and_a_branch_where_it_was(image: Path, remote: Path, cache: Path) -> None:
    before = git(image, "rev-parse", "main")
    bring(image, cache, "main", remote)
    assert git(image, "rev-list", "--count", "HEAD") == "3"
    assert git(image, "rev-parse", "--is-shallow-repository") == "false"
    assert git(image, "rev-parse", "main") == before


def test_a_shallow_checkout_gets_one_commit(remote: Path, tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "image/sglang"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{remote}", str(folder))
    new = commit(remote, {"python/sglang/__init__.py": "VERSION = 3\n"})
    assert bring(folder, cache, "main", remote).commit == new
    assert git(folder, "rev-list", "--count", "HEAD") == "1"


def test_a_file_in_the_way_is_named_and_stays(image: Path, remote: Path, cache: Path) -> None:
    commit(remote, {"python/new.py": "theirs\n"})
    (image / "python/new.py").write_text("mine\n")
    with pytest.raises(UsageError, match=r"python/new\.py, which git does not track"):
        bring(image, cache, "main", remote)
    assert (image / "python/new.py").read_text() == "mine\n"


def test_its_own_origin_is_asked_when_that_is_wanted(image: Path, remote: Path, cache: Path) -> None:
    assert bring(image, cache, "main", None, from_origin=True).commit == git(remote, "rev-parse", "main")


def test_a_mirror_that_somebody_named_comes_before_the_origin(image: Path, tmp_path: Path, cache: Path) -> None:
    mirror = repository(tmp_path / "mirror", {"python/sglang/__init__.py": "VERSION = 9\n"})
    bring(image, cache, "main", mirror, from_origin=True)
    assert version(image) == "VERSION = 9\n"


def test_offline_takes_a_commit_that_it_has(image: Path, remote: Path, cache: Path) -> None:
    first = git(image, "rev-list", "--max-parents=0", "HEAD")
    remote.rename(remote.with_name("gone"))
    bring(image, cache, first, None, offline=True)
    assert version(image) == "VERSION = 1\n"


def test_a_stale_lock_of_a_killed_git_is_mended(image: Path, remote: Path, cache: Path) -> None:
    (image / ".git/index.lock").write_bytes(b"")
    bring(image, cache, "main", remote)
    assert version(image) == "VERSION = 3\n"


def test_a_broken_checkout_says_where_and_what_to_do(image: Path, remote: Path, cache: Path) -> None:
    (image / ".git/HEAD").write_text("nonsense\n")
    with pytest.raises(InfrastructureError, match=r"the checkout .*image/sglang.*\n.*fresh container"):
        bring(image, cache, "main", remote)


def test_a_ref_that_is_not_there_leaves_it_alone(image: Path, remote: Path, cache: Path) -> None:
    with pytest.raises(UsageError, match="no branch or tag `nothing`"):
        bring(image, cache, "nothing", remote)
    assert version(image) == "VERSION = 2  # cu12\n"


def test_as_it_is_tells_commit_and_changes(image: Path) -> None:
    tree = checkout_as_it_is(dependency(), image)
    assert (tree.commit, tree.changed) == (git(image, "rev-parse", "HEAD"), True)


def patch(image: Path, target: Path, text: str) -> Path:
    """A patch that makes the version file hold ``text``, made by git; the checkout is as before."""
    file = image / "python/sglang/__init__.py"
    file.write_text(text)
    target.write_text(f"{git(image, 'diff')}\n")
    git(image, "checkout", "-q", "--", ".")
    return target


def test_a_patch_is_applied_or_there_already_or_refused(
    image: Path, remote: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = bring(image, cache, "main", remote)
    fits = patch(image, tmp_path / "fits.patch", "VERSION = 3  # rocm\n")
    patch_checkout(dependency(), tree, fits)
    assert version(image) == "VERSION = 3  # rocm\n"
    patch_checkout(dependency(), tree, fits)
    assert version(image) == "VERSION = 3  # rocm\n"
    said = capsys.readouterr().err
    assert "fits.patch applied" in said
    assert "fits.patch was there already" in said
    other = tmp_path / "other.patch"
    other.write_text(fits.read_text().replace("VERSION = 3", "VERSION = 8"))
    with pytest.raises(UsageError, match=r"other\.patch does not apply to main.*__init__\.py"):
        patch_checkout(dependency(), tree, other)
    assert version(image) == "VERSION = 3  # rocm\n"


def test_a_patch_cannot_write_outside_the_checkout(image: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.patch"
    evil.write_text("--- /dev/null\n+++ b/../outside.txt\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(CiError):
        patch_checkout(dependency(), checkout_as_it_is(dependency(), image), evil)
    assert not os.path.lexists(image.parent / "outside.txt")


def test_a_workspace_without_the_patch_goes_on_and_says_so(
    image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patch_checkout(dependency(), checkout_as_it_is(dependency(), image), tmp_path / "none.patch")
    assert "has no" in capsys.readouterr().err


def test_outside_the_image_there_are_none(inventory: Inventory) -> None:
    assert image_checkouts(inventory.backends["cpu"].image) == {}
    assert image_checkouts(inventory.backends["cuda"].image) == {}
