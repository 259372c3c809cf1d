"""Source trees in the cache: one bare repository per dependency, one worktree per commit (spec §7, §9).

All changes happen under a lock of the operating system, which a killed process cannot leave behind. What a
killed one leaves half-made is told by a missing mark and made anew.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci import git
from ci.console import say
from ci.errors import InfrastructureError, UsageError
from ci.inventory import Dependency
from ci.last_seen import last_seen, remember
from ci.locks import held
from ci.ref import Ref, RefKind
from ci.stale_locks import clear_stale_files
from ci.text import show

_SHOWN_CHANGES = 3
_STALE = 3600.0
_DAMAGE = (
    "corrupt",
    "bad object",
    "unable to read",
    "missing blob",
    "missing tree",
    "not a git repository",
    "packfile",
)


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


def repository_url(dependency: Dependency, environ: Mapping[str, str]) -> str:
    """The repository's address: its variable's (a mirror), else the inventory's.

    Raises:
        UsageError: git could take it for an option, or would run a command for it.
    """
    variable = environ.get(dependency.repository_variable, "")
    url = variable or dependency.repository
    if url.startswith(("-", "ext::")) or not url.isprintable():
        raise UsageError(
            f"{dependency.repository_variable}: `{show(url, 80)}` is not an address that can be used",
            hint="give a URL or the path of a repository",
        )
    return os.path.abspath(url) if variable and os.path.isdir(url) else url


def show_url(url: str) -> str:
    """An address, safe to show: a mirror's may hold a token."""
    return show(re.sub(r"(?<=://)[^/@]*@", "", url))


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


def resolve_commit(dependency: Dependency, ref: Ref, *, url: str, cache: Path, offline: bool) -> str:
    """The full commit that a ref names; the network is not touched for a commit, or offline.

    Raises:
        UsageError: the repository has no such ref, or a branch and a tag of that name.
        InfrastructureError: it does not answer, or offline nothing is known.
    """
    if ref.kind is RefKind.COMMIT:
        return ref.value
    record = cache / "sources" / dependency.name / "resolved.json"
    if offline:
        return _last_seen(dependency, ref, url, record)
    try:
        found = git.list_remote(url, ref.candidates)
    except git.GitError as error:
        raise _unreachable(dependency, url, error) from error
    present = [name for name in ref.candidates if name in found]
    if len(present) > 1:
        raise UsageError(
            f"{dependency.title}: `{show(ref.value, 80)}` is a branch and a tag at {show_url(url)}",
            hint=f"write {' or '.join(show(name) for name in present)}",
        )
    if not present:
        raise _no_such_ref(dependency, ref, url)
    # an annotated tag is an object of its own; what it points at follows under its peeled name
    commit = found.get(f"{present[0]}^{{}}", found[present[0]])
    remember(record, show_url(url), ref.value, commit)
    return commit


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
            _ensure_commit(dependency, ref, commit, url, repository, offline=offline)
            _remove(tree)
            git.add_worktree(repository, tree, commit)
            break
        except git.GitError as error:
            if attempt != "first" or not _is_damage(error):
                raise InfrastructureError(
                    f"{dependency.title}: {commit} cannot be checked out: {error.last}",
                    hint=f"if the disk is not full, delete {show(home)} and run again",
                ) from error
            aside = home / f"repo.broken-{time.time_ns()}.git"
            os.replace(repository, aside)
            say(f"sources: the {dependency.title} repository in the cache is damaged ({error.last}); fetching it anew")
            shutil.rmtree(aside, ignore_errors=True)
    (home / "trees" / f"{commit}.complete").write_text(f"{commit}\n")


def _ensure_commit(dependency: Dependency, ref: Ref, commit: str, url: str, repository: Path, *, offline: bool) -> None:
    if repository.is_dir():
        clear_stale_files(repository)
        if _is_kept(repository, commit):
            return
    if offline:
        raise InfrastructureError(
            f"{dependency.title}: commit {commit} is not in the cache", hint="run once without --offline"
        )
    if not repository.is_dir():
        fresh = repository.with_name(f"repo.new-{os.getpid()}.git")
        git.init_bare(fresh)
        os.replace(fresh, repository)
    say(f"sources: fetching {dependency.title} {show(ref)} ({commit[:12]})")
    try:
        git.fetch(repository, url, commit, f"refs/ci/{commit}")
    except git.GitError as error:
        _require_refusal_of_bare_commits(dependency, ref, commit, url, error)
        _fetch_by_name(dependency, ref, commit, url, repository)
    if not _is_kept(repository, commit):
        raise UsageError(
            f"{dependency.title}: {commit} is not a commit of {show_url(url)}",
            hint="check the hash (that of an annotated tag is not its commit's), or name a branch or tag",
        )


def _is_kept(repository: Path, commit: str) -> bool:
    """Whether a fetch of the commit ran to its end: git writes the ref last, some objects may be there before."""
    return git.ref_commit(repository, f"refs/ci/{commit}") == commit and git.has_commit(repository, commit)


def _require_refusal_of_bare_commits(
    dependency: Dependency, ref: Ref, commit: str, url: str, error: git.GitError
) -> None:
    """Raise unless the server answered, has the ref, and only wants to be asked by name."""
    if _is_damage(error):
        raise error
    if "not our ref" not in error.stderr and "unadvertised object" not in error.stderr:
        raise _unreachable(dependency, url, error) from error
    if ref.kind is RefKind.COMMIT:
        raise UsageError(
            f"{dependency.title}: {show_url(url)} has no commit {commit}",
            hint="check the hash; a repository hands out what its branches and tags lead to, some only their tips",
        ) from error


def _fetch_by_name(dependency: Dependency, ref: Ref, commit: str, url: str, repository: Path) -> None:
    """For a server that hands out names only; a branch that moved meanwhile is an honest failure."""
    for name in ref.candidates:
        try:
            git.fetch(repository, url, name, f"refs/ci/{commit}")
        except git.GitError:
            continue
        if git.ref_commit(repository, f"refs/ci/{commit}") == commit:
            return
    raise InfrastructureError(f"{dependency.title}: {show(ref)} moved while it was fetched", hint="run again")


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


def _is_damage(error: git.GitError) -> bool:
    """Whether our own repository is broken; what is broken at the other end, no new one of ours will mend."""
    theirs = "remote side" in error.stderr or "remote: " in error.stderr
    return not theirs and any(word in error.stderr for word in _DAMAGE)


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


def _no_such_ref(dependency: Dependency, ref: Ref, url: str) -> UsageError:
    if ref.looks_like_short_hash:
        return UsageError(
            f"{dependency.title}: `{ref.value}` is no branch or tag of {show_url(url)}",
            hint="if it is a commit, all of its 40 hex digits are needed",
        )
    what = "has no" if ref.kind is RefKind.FULL else "has no branch or tag"
    return UsageError(
        f"{dependency.title}: {show_url(url)} {what} `{show(ref.value, 120)}`", hint="check the name at the repository"
    )


def _unreachable(dependency: Dependency, url: str, error: git.GitError) -> InfrastructureError:
    return InfrastructureError(
        f"{dependency.title}: {show_url(url)} does not answer: {error.last}",
        hint=f"set {dependency.repository_variable} to a mirror, use --offline, or --{dependency.name} path:DIR",
    )


def _last_seen(dependency: Dependency, ref: Ref, url: str, record: Path) -> str:
    known = last_seen(record, show_url(url), ref.value)
    if known is None:
        raise InfrastructureError(
            f"{dependency.title}: where `{show(ref)}` stands is not known offline",
            hint="run once without --offline, or give a full commit",
        )
    commit, hours = known
    say(f"sources: {dependency.title} {show(ref)} as last seen {hours:.1f} h ago, {commit[:12]}")
    return commit
