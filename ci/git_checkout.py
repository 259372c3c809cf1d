"""Calls of git on a checkout that somebody else made, as an image's; nothing in it is lost by them."""

import hashlib
from pathlib import Path

from ci.git import GitError, run

_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    # a fixed date, so that the same changes are kept once
    for field, value in (("NAME", "ci"), ("EMAIL", "ci@localhost"), ("DATE", "2026-01-01T00:00:00+0000"))
}


def git_dir(folder: Path) -> Path:
    """The repository of the checkout whose top is ``folder``.

    Raises:
        GitError: it is not the top of a checkout.
    """
    return Path(run("rev-parse", "--absolute-git-dir", cwd=folder).rstrip("\n"))


def origin(folder: Path) -> str | None:
    """The address of the remote ``origin``, or None."""
    try:
        return run("remote", "get-url", "origin", cwd=folder).rstrip("\n") or None
    except GitError:
        return None


def keep_changes(folder: Path) -> str | None:
    """Keep changes to tracked files under a ref, the same changes once; its name, or None if there are none.

    ``git stash apply REF`` brings them back.
    """
    commit = run("stash", "create", "kept by ci", cwd=folder, extra=_IDENTITY).strip()
    if not commit:
        return None
    # not the stash's own hash: its message names the branch
    content = run("rev-parse", f"{commit}^1", f"{commit}^2^{{tree}}", f"{commit}^{{tree}}", cwd=folder)
    name = f"refs/ci/kept/{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    run("update-ref", name, commit, cwd=folder)
    return name


def switch(folder: Path, commit: str) -> None:
    """Make the tree that of ``commit``, without a branch; changes to tracked files are gone, kept or not.

    Raises:
        GitError: a file that git does not track is in the way.
    """
    run("reset", "--quiet", "--hard", cwd=folder)
    run("checkout", "--quiet", "--detach", commit, "--", cwd=folder)


def apply(folder: Path, patch: Path) -> bool:
    """Apply a patch; False if the tree has it already.

    Raises:
        GitError: neither; says at which file.
    """
    try:
        run("apply", "--whitespace=nowarn", "--", str(patch), cwd=folder)
    except GitError as refused:
        try:
            run("apply", "--whitespace=nowarn", "--check", "--reverse", "--", str(patch), cwd=folder)
        except GitError:
            raise refused from None
        return False
    return True


def files_in_the_way(error: GitError, *, most: int = 3) -> list[str]:
    """The first files that a refused ``switch`` names as not tracked and in its way; none: it has another reason."""
    if "untracked working tree files would be overwritten" not in error.stderr:
        return []
    return [line.strip() for line in error.stderr.splitlines() if line.startswith("\t")][:most]
