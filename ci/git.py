"""Every call of git, each a named function.

All of them go through ``_git``: no prompt, no hook, no inherited GIT_* state, values only after an end of
options, and configuration given per call, so that nothing of the person's is written or depended on.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from ci.locks import held_handles
from ci.text import show

_TIMEOUT = 1800.0
_KEPT = ("GIT_SSH", "GIT_SSL", "GIT_ALLOW_PROTOCOL", "GIT_PROXY", "GIT_HTTP", "GIT_TRACE", "GIT_CONFIG_NOSYSTEM")
_CONFIG = (
    ("safe.directory", "*"),  # in a container the checkout belongs to another user
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.symlinks", "true"),
    ("core.quotePath", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("protocol.ext.allow", "never"),
)


class GitError(Exception):
    """git ended with an error. ``last`` is the last line that it said, safe to show."""

    def __init__(self, command: str, code: int, stderr: str) -> None:
        lines = [line for line in stderr.splitlines() if line.strip()]
        self.command = command
        self.code = code
        self.last = show(lines[-1] if lines else f"exit code {code}", 300)
        self.stderr = stderr
        super().__init__(f"git {command}: {self.last}")


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a call: a hook or an outer git must not lead it to another repository."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    configuration = {"GIT_CONFIG_COUNT": str(len(_CONFIG))}
    for number, (key, value) in enumerate(_CONFIG):
        configuration |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        **kept,
        **configuration,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GCM_INTERACTIVE": "never",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }


def _git(*arguments: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None) -> str:
    """Run git; its stdout. The child ends with us: on Ctrl-C ``run`` kills it and waits for it.

    Raises:
        GitError: a non-zero exit, or no end in half an hour.
    """
    try:
        ran = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            env=environment(os.environ) | dict(extra or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_TIMEOUT,
            pass_fds=held_handles(),
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError(arguments[0], 127, "git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(arguments[0], 124, f"no end after {_TIMEOUT:.0f} s") from error
    if ran.returncode:
        raise GitError(arguments[0], ran.returncode, ran.stderr)
    return ran.stdout


def _upload_pack(url: str) -> tuple[str, ...]:
    """Git drops per-call configuration for the other end, which then refuses a local repository of another user."""
    return ("--upload-pack=git -c safe.directory=* upload-pack",) if os.path.isdir(url) else ()


def list_remote(url: str, names: Iterable[str]) -> dict[str, str]:
    """Full name → object, of exactly these names and of their peeled tags (``refs/tags/x^{}``).

    ls-remote matches suffixes (``refs/heads/main`` also finds ``refs/x/refs/heads/main``), so the answer is
    filtered by whole names.
    """
    wanted = {full for name in names for full in (name, f"{name}^{{}}")}
    lines = _git("ls-remote", "--quiet", *_upload_pack(url), "--", url, *sorted(wanted)).splitlines()
    pairs = [line.split("\t", 1) for line in lines if "\t" in line]
    return {name: commit for commit, name in pairs if name in wanted}


def init_bare(folder: Path) -> None:
    """Make an empty bare repository."""
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--", str(folder))


def has_commit(repository: Path, commit: str) -> bool:
    """Whether the commit and its tree are there."""
    try:
        _git("cat-file", "-e", f"{commit}^{{tree}}", cwd=repository)
    except GitError:
        return False
    return True


def ref_commit(repository: Path, name: str) -> str | None:
    """The commit that a full name stands for in a local repository, or None."""
    try:
        return _git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=repository
        ).strip()
    except GitError:
        return None


def fetch(repository: Path, url: str, source: str, target: str) -> None:
    """Fetch one ref or commit, without its history, and keep it under the name ``target``."""
    _git(
        *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--force"),
        *(*_upload_pack(url), "--", url, f"{source}:{target}"),
        cwd=repository,
    )


def add_worktree(repository: Path, folder: Path, commit: str) -> None:
    """Check a commit out into a new folder; forgets worktrees whose folder is gone first."""
    _git("worktree", "prune", cwd=repository)
    _git("worktree", "add", "--quiet", "--force", "--detach", "--", str(folder), commit, cwd=repository)


def prune_worktrees(repository: Path) -> None:
    """Forget worktrees whose folder is gone."""
    _git("worktree", "prune", cwd=repository)


def head_commit(folder: Path) -> str | None:
    """The commit that a checkout is on, or None if ``folder`` is not the top of one."""
    try:
        top, commit = _git("rev-parse", "--show-toplevel", "HEAD", cwd=folder).splitlines()
    except (GitError, ValueError):
        return None
    return commit if Path(top).resolve() == folder.resolve() else None


def changed_files(folder: Path) -> list[str]:
    """Paths that differ from the checked-out commit; what running Python leaves behind is not counted."""
    entries = _git(
        *(
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=normal",
            "--no-renames",
            "--ignore-submodules=all",
            "--",
            ".",
        ),
        *(f":(exclude,glob)**/{left}" for left in ("__pycache__", "__pycache__/**", "*.pyc", ".pytest_cache/**")),
        cwd=folder,
    ).split("\0")
    return [entry[3:] for entry in entries if entry]


def commit_tree(repository: Path, folder: Path, *, parent: str | None, message: str, branch: str) -> str:
    """Commit all files of ``folder`` to ``branch`` of a bare repository, the same content always as the same commit."""
    identity = {
        "GIT_AUTHOR_NAME": "ci",
        "GIT_AUTHOR_EMAIL": "ci@localhost",
        "GIT_COMMITTER_NAME": "ci",
        "GIT_COMMITTER_EMAIL": "ci@localhost",
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
        "GIT_INDEX_FILE": str(repository / "index.new"),
        "GIT_DIR": str(repository),
        "GIT_WORK_TREE": str(folder),
    }
    _git(
        "-c",
        "core.excludesFile=",
        "-c",
        "core.autocrlf=false",
        "add",
        "--all",
        "--force",
        "--",
        ".",
        cwd=folder,
        extra=identity,
    )
    tree = _git("write-tree", cwd=folder, extra=identity).strip()
    parents = ["-p", parent] if parent else []
    commit = _git(
        "-c", "commit.gpgSign=false", "commit-tree", *parents, "-m", message, tree, cwd=folder, extra=identity
    )
    _git("update-ref", branch, commit.strip(), cwd=repository)
    (repository / "index.new").unlink(missing_ok=True)
    return commit.strip()


def set_head(repository: Path, branch: str) -> None:
    """Make ``branch`` (a full name) the default branch of a bare repository."""
    _git("symbolic-ref", "--", "HEAD", branch, cwd=repository)
