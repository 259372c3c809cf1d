"""What the commits of a checkout hold: the diff to the first parent, and files as the commit has them.

An edge module. Any folder of the checkout will do, and nothing of its configuration decides an answer.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ci.diff import Diff, Unusable, parse_diff
from ci.errors import UsageError
from ci.git import GitError, run, run_bytes
from ci.text import show

_TIMEOUT = 300.0
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DEEPEN = "fetch it with a depth of 2 or more"
# a replacement object or a graft would show another history than the one that is tested
_OPTIONS = ("--no-replace-objects",)
_DIFF = (
    # diff-tree reads no diff.renames, diff.external, diff.noprefix or color.ui; what it does read is overridden
    *("-r", "--no-commit-id", "--name-status", "-z", "-M50%", "-l1000", "--no-relative", "--no-ext-diff"),
    *("--no-textconv", "--no-color", "--ignore-submodules=none", "--diff-algorithm=default"),
)


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of a commit, by its path from the folder that was asked for. ``blob`` is its object's name."""

    path: str
    blob: str


def diff_of_checkout(folder: Path) -> Diff | Unusable:
    """What ``HEAD`` changes against its first parent, the base of a pull request's merge commit. Never raises.

    The paths are those of the whole checkout, from its top. A shallow clone has the diff when it was fetched
    with a depth of 2 or more; both ends are whole trees, so that no merge base is needed.
    """
    try:
        if (top := checkout_top(folder)) is None:
            return Unusable(f"{show(folder)} is not in a git checkout")
        if reason := _parent_missing(top):
            return Unusable(reason)
        output = run_bytes("diff-tree", *_DIFF, "HEAD^1", "HEAD", "--", cwd=top, options=_OPTIONS, timeout=_TIMEOUT)
        return parse_diff(output)
    except GitError as error:
        return Unusable(f"git has no diff of HEAD^1 and HEAD ({error.last})")
    except (OSError, ValueError) as error:
        return Unusable(f"{show(folder)} cannot be read ({show(error, 120)})")


def is_merge(folder: Path) -> bool:
    """Whether ``HEAD`` has a second parent, as the commit has that GitHub tests a pull request by."""
    try:
        top = checkout_top(folder)
        return top is not None and bool(
            run("rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^2", cwd=top, options=_OPTIONS)
        )
    except GitError:
        return False


def diff_of_file(path: Path) -> Diff | Unusable:
    """The diff in a file, as ``--diff FILE`` gives it. Never raises."""
    try:
        return parse_diff(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Unusable(f"there is no diff: {show(path)}: {show(why)}")


def checkout_top(folder: Path) -> Path | None:
    """The top of the checkout that ``folder`` lies in, or None.

    Looked for here and not by git, which would go on above a damaged ``.git`` to another checkout.
    """
    resolved = folder.resolve()
    return next((each for each in (resolved, *resolved.parents) if os.path.lexists(each / ".git")), None)


def resolve_commit(folder: Path, revision: str) -> tuple[Path, str]:
    """The top of the checkout, and the full hash of the commit that a person's ``revision`` names.

    Raises:
        UsageError: not a checkout, or no such commit in it.
        GitError: git did not come to an answer.
    """
    if (top := checkout_top(folder)) is None:
        raise UsageError(f"{show(folder)} is not in a git checkout", hint="name one with --workspace DIR")
    try:
        wanted = f"{revision}^{{commit}}"
        found = run("rev-parse", "--verify", "--quiet", "--end-of-options", wanted, cwd=top, options=_OPTIONS).strip()
    except (GitError, ValueError) as error:
        if isinstance(error, GitError) and error.code not in {1, 128}:
            raise
        found = ""
    if not _HASH.fullmatch(found):  # `^HEAD` is a revision to git, but not a commit
        hint = f"the clone is shallow: {_DEEPEN}" if _is_shallow(top) else "`git log` in the checkout lists its commits"
        raise UsageError(f"`{show(revision, 80)}` is not a commit of {show(top)}", hint=hint)
    return top, found


def files_at(top: Path, commit: str, folder: Path) -> list[TreeFile]:
    """Every file below ``folder`` (of the checkout ``top``) as the commit has it; links count, submodules do not.

    Raises:
        UsageError: the commit does not have the folder.
    """
    inner = os.path.relpath(folder.resolve(), top)
    tree = f"{commit}:{'' if inner == os.curdir else inner}"
    try:
        listed = run("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree, cwd=top, options=_OPTIONS)
    except GitError as error:
        raise UsageError(
            f"{commit[:12]} has no readable folder {show(inner)} ({error.last})",
            hint="name a revision that has it with --rev REV",
        ) from error
    entries = (entry.split("\t", 1) for entry in listed.split("\0") if entry)
    fields = ((path, about.split(" ")) for about, path in entries)
    return [TreeFile(path, about[2]) for path, about in fields if about[1] == "blob"]


def content_at(top: Path, file: TreeFile) -> bytes:
    """The bytes of the file as they were committed: no filter, line ending or LFS pointer is resolved."""
    return run_bytes("cat-file", "blob", file.blob, cwd=top, options=_OPTIONS, timeout=_TIMEOUT)


def _parent_missing(top: Path) -> str | None:
    """Why HEAD^1 is not to be had, or None."""
    for revision, what in (("HEAD", "no commit"), ("HEAD^1^{tree}", "no parent")):
        try:
            run("rev-parse", "--verify", "--quiet", "--end-of-options", revision, cwd=top, options=_OPTIONS)
        except GitError as error:
            if error.code != 1:
                raise
            shallow = f" because the clone is shallow; {_DEEPEN}" if _is_shallow(top) else ""
            return f"HEAD has {what} in {show(top)}{shallow}"
    return None


def _is_shallow(top: Path) -> bool:
    try:
        return run("rev-parse", "--is-shallow-repository", cwd=top).strip() == "true"
    except GitError:
        return False
