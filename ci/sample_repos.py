"""The sample's dependencies as real git repositories in the cache, so that they are fetched as the real ones are."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from ci import git
from ci.inventory import Dependency

_PULL_REQUEST = 72
_STALE = 3600.0
_LINE = "PULL_REQUEST = None\n"


def materialise(sample: Path, cache: Path, dependencies: Iterable[tuple[Dependency, str]]) -> Mapping[str, str]:
    """Dependency name → path of a bare repository made from its folder of the sample.

    Each has the dependency's branch, which HEAD names, and ``refs/pull/72/head`` with one more commit. The
    same content gives the same commits; what is there already is used as it is.
    """
    return {
        dependency.name: str(_repository(dependency, sample / folder, cache / "sample"))
        for dependency, folder in dependencies
    }


def _repository(dependency: Dependency, tree: Path, home: Path) -> Path:
    repository = home / _content_hash(tree, dependency.branch) / f"{dependency.name}.git"
    if repository.is_dir():
        return repository
    repository.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(repository.parent)
    with tempfile.TemporaryDirectory(dir=repository.parent, prefix=".new-") as folder:
        fresh, copy = Path(folder) / "repository.git", Path(folder) / "tree"
        git.init_bare(fresh)
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".pytest_cache"))
        branch = f"refs/heads/{dependency.branch}"
        base = git.commit_tree(fresh, copy, parent=None, message=f"The sample's {dependency.title}", branch=branch)
        _apply_pull_request(copy)
        pull = f"refs/pull/{_PULL_REQUEST}/head"
        git.commit_tree(fresh, copy, parent=base, message=f"Pull request {_PULL_REQUEST}", branch=pull)
        git.set_head(fresh, branch)
        try:
            os.rename(fresh, repository)
        except OSError:
            # another run was first; what it made has the same content
            if not repository.is_dir():
                raise
    return repository


def _clear_leftovers(folder: Path) -> None:
    """Remove what a killed run left; a young one may be a living run's."""
    for leftover in folder.glob(".new-*"):
        if time.time() - leftover.stat().st_mtime > _STALE:
            shutil.rmtree(leftover, ignore_errors=True)


def _apply_pull_request(tree: Path) -> None:
    """Change the one line that the sample keeps for this, or add a file where it has none."""
    changed = f"PULL_REQUEST = {_PULL_REQUEST}\n"
    for file in sorted(tree.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if _LINE in source:
            file.write_text(source.replace(_LINE, changed), encoding="utf-8")
            return
    (tree / "PULL_REQUEST").write_text(changed, encoding="utf-8")


def _content_hash(tree: Path, branch: str) -> str:
    digest = hashlib.sha256(branch.encode())
    for file in sorted(path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(tree).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
