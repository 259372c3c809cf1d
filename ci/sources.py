"""Source trees in the cache: one bare repository per dependency, one worktree per commit (spec §7, §9).

All changes happen under a lock of the operating system, which a killed process cannot leave behind. What a
killed one leaves half-made is told by a missing mark and made anew.
"""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci import git
from ci.commits import ensure_commit, is_damage, repository_url, resolve_commit
from ci.console import say
from ci.errors import InfrastructureError, UsageError
from ci.inventory import Dependency
from ci.locks import held
from ci.ref import Ref, RefKind
from ci.text import show

_SHOWN_CHANGES = 3
_STALE = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """A dependency's tree on disk.

    ``repository``: the checkout's root. ``root``: the folder that goes on PYTHONPATH. ``commit`` is None for
    a local folder that is no git checkout; ``changed``: a local tree with changes that are not committed.
    """

    dependency: str
    ref: str
    commit: str | None
    repository: str
    root: str
    changed: bool


def obtain(
    dependency: Dependency, ref: Ref, *, environ: Mapping[str, str], cache: Path, offline: bool = False
) -> SourceTree:
    """The tree of a dependency at a ref, fetched if it is not in the cache.

    Raises:
        UsageError: no such ref, or a local folder that is not the dependency's tree.
        InfrastructureError: the repository does not answer.
    """
    try:
        if ref.kind is RefKind.PATH:
            return local_tree(dependency, ref)
        url = repository_url(dependency, environ)
        commit = resolve_commit(dependency, ref, url=url, cache=cache, offline=offline)
        return checkout(dependency, ref, commit, url=url, cache=cache, offline=offline)
    except git.GitError as error:
        raise InfrastructureError(
            f"{dependency.title}: {error}", hint="see that git works here: `git --version`"
        ) from error
    except OSError as error:
        raise InfrastructureError(
            f"{dependency.title}: the cache {show(cache)} cannot be used: {show(error, 200)}",
            hint="set CI_CACHE_DIR to a folder that can be written and has space",
        ) from error


def checkout(
    dependency: Dependency, ref: Ref, commit: str, *, url: str, cache: Path, offline: bool = False
) -> SourceTree:
    """The worktree of a commit; one that is in the cache is used without the network.

    Raises:
        UsageError: the repository does not have the commit, or the tree in the cache was edited.
        InfrastructureError: it does not answer, or offline the commit is not there.
    """
    home = cache / "sources" / dependency.name
    tree, mark = home / "trees" / commit, home / "trees" / f"{commit}.complete"
    if not _is_whole(tree, mark):
        with held(home.with_name(f"{dependency.name}.lock"), what=f"the {dependency.title} cache"):
            if not _is_whole(tree, mark):
                _set_aside(dependency, tree, mark)
                _make_tree(dependency, ref, commit, url, home, offline=offline)
    _require_unchanged(dependency, tree)
    return SourceTree(
        dependency=dependency.name,
        ref=str(ref),
        commit=commit,
        repository=str(tree),
        root=os.path.normpath(tree / dependency.source),
        changed=False,
    )


def local_tree(dependency: Dependency, ref: Ref) -> SourceTree:
    """A local folder, as it is.

    Raises:
        UsageError: it is not there, or lacks the dependency's package.
    """
    folder = Path(os.path.expanduser(ref.value)).absolute()
    root = Path(os.path.normpath(folder / dependency.source))
    package = dependency.modules[0].partition(".")[0]
    if not os.path.isdir(root / package):
        raise UsageError(
            f"{dependency.title}: {show(folder)} has no {show(root.relative_to(folder) / package)}/",
            hint=f"give the root of a {dependency.title} checkout: --{dependency.name} path:DIR",
        )
    commit = git.head_commit(folder)
    return SourceTree(
        dependency=dependency.name,
        ref=str(ref),
        commit=commit,
        repository=str(folder),
        root=str(root),
        changed=commit is not None and bool(git.changed_files(folder)),
    )


def _make_tree(dependency: Dependency, ref: Ref, commit: str, url: str, home: Path, *, offline: bool) -> None:
    """Fetch the commit and check it out; whatever a killed run left here is cleared first."""
    repository, tree = home / "repo.git", home / "trees" / commit
    _clear_leftovers(home)
    for attempt in ("first", "after damage"):
        try:
            ensure_commit(dependency, ref, commit, url, repository, offline=offline)
            _remove(tree)
            git.add_worktree(repository, tree, commit)
            break
        except git.GitError as error:
            if attempt != "first" or not is_damage(error):
                raise InfrastructureError(
                    f"{dependency.title}: {commit} cannot be checked out: {error.last}",
                    hint=f"if the disk is not full, delete {show(home)} and run again",
                ) from error
            aside = home / f"repo.broken-{time.time_ns()}.git"
            os.replace(repository, aside)
            say(f"sources: the {dependency.title} repository in the cache is damaged ({error.last}); fetching it anew")
            shutil.rmtree(aside, ignore_errors=True)
    (home / "trees" / f"{commit}.complete").write_text(f"{commit}\n")


def _is_whole(tree: Path, mark: Path) -> bool:
    """Whether the tree was made to its end, and its repository still knows it."""
    return mark.exists() and tree.is_dir() and git.head_commit(tree) == tree.name


def _set_aside(dependency: Dependency, tree: Path, mark: Path) -> None:
    """Keep a finished tree that git does not know, or that somebody moved to another commit: it may hold work."""
    if mark.exists() and tree.is_dir():
        aside = tree.parent.with_name("aside") / f"{tree.name}-{time.time_ns()}"
        aside.parent.mkdir(exist_ok=True)
        os.replace(tree, aside)
        say(f"sources: a {dependency.title} tree is no longer at its commit for git; made anew, kept: {show(aside)}")
    mark.unlink(missing_ok=True)


def _require_unchanged(dependency: Dependency, tree: Path) -> None:
    """Refuse a tree that somebody edited: running it would not be what CI runs, resetting it would lose work."""
    try:
        changed = git.changed_files(tree)
    except git.GitError as error:
        raise InfrastructureError(
            f"{dependency.title}: {show(tree)} cannot be compared with its commit: {error.last}",
            hint="run again; if that does not help, delete that folder",
        ) from error
    if changed:
        files = ", ".join(show(file, 80) for file in changed[:_SHOWN_CHANGES])
        more = f" and {len(changed) - _SHOWN_CHANGES} more" if len(changed) > _SHOWN_CHANGES else ""
        raise UsageError(
            f"{dependency.title}: the tree in the cache was edited ({files}{more}): {show(tree)}",
            hint=f"to test local changes use --{dependency.name} path:DIR; to discard these, delete that folder",
        )


def _clear_leftovers(home: Path) -> None:
    """Remove what killed runs left half-made. Only called under the lock."""
    trees = home / "trees"
    trees.mkdir(parents=True, exist_ok=True)
    for leftover in (*home.glob("repo.new-*.git"), *home.glob("repo.broken-*.git")):
        _remove(leftover)
    for record in home.glob(".resolved.json.*"):
        # another run may be writing one: they are not written under the lock
        if time.time() - record.stat().st_mtime > _STALE:
            record.unlink(missing_ok=True)
    for tree in trees.iterdir():
        if tree.is_dir() and not tree.with_name(f"{tree.name}.complete").exists():
            say(f"sources: removing a half-made tree, {show(tree)}")
            _remove(tree)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
