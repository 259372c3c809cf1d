"""From a ref to its commit, and the commit into a repository on disk (spec §7)."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ci import git
from ci.console import say
from ci.errors import InfrastructureError, UsageError
from ci.inventory import Dependency
from ci.last_seen import last_seen, remember
from ci.ref import Ref, RefKind
from ci.stale_locks import clear_stale_files
from ci.text import show

_DAMAGE = (
    "corrupt",
    "bad object",
    "unable to read",
    "missing blob",
    "missing tree",
    "not a git repository",
    "packfile",
)


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


def ensure_commit(dependency: Dependency, ref: Ref, commit: str, url: str, repository: Path, *, offline: bool) -> None:
    """Fetch a commit into a repository, made if it is not there, unless it is kept there from an earlier fetch.

    The caller holds the lock of the repository.

    Raises:
        UsageError: the other end has no such commit.
        InfrastructureError: it does not answer, or offline the commit is not here.
        GitError: the repository here is damaged (``is_damage``).
    """
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


def is_damage(error: git.GitError) -> bool:
    """Whether our own repository is broken; what is broken at the other end, no new one of ours will mend."""
    theirs = "remote side" in error.stderr or "remote: " in error.stderr
    return not theirs and any(word in error.stderr for word in _DAMAGE)


def _is_kept(repository: Path, commit: str) -> bool:
    """Whether a fetch of the commit ran to its end: git writes the ref last, some objects may be there before."""
    return git.ref_commit(repository, f"refs/ci/{commit}") == commit and git.has_commit(repository, commit)


def _require_refusal_of_bare_commits(
    dependency: Dependency, ref: Ref, commit: str, url: str, error: git.GitError
) -> None:
    """Raise unless the server answered, has the ref, and only wants to be asked by name."""
    if is_damage(error):
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
