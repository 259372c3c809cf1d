"""Every call of git, each a named function.

All of them go through ``run``: no prompt, no hook, no inherited GIT_* state, values only after an end of
options, and configuration given per call, so that nothing of the person's is written or depended on.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ci.errors import InfrastructureError
from ci.locks import held_handles
from ci.text import show

_TIMEOUT = 1800.0
_LIST_TIMEOUT = 120.0
_FATAL = 128  # git's own "it cannot be done"; not there, killed and timed out have other codes
_GRACE = 3.0  # for git to remove its own lock files and half-made worktree
_KEPT = ("GIT_SSH", "GIT_SSL", "GIT_ALLOW_PROTOCOL", "GIT_PROXY", "GIT_HTTP", "GIT_TRACE", "GIT_CONFIG_NOSYSTEM")
_CONFIG = (
    ("safe.directory", "*"),  # in a container the checkout belongs to another user
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.symlinks", "true"),
    ("core.autocrlf", "false"),  # a tree in the cache holds the bytes of the commit, whoever made it
    ("core.eol", "lf"),
    ("core.quotePath", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("protocol.ext.allow", "never"),
)


class GitError(InfrastructureError):
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


def run(
    command: str,
    *arguments: str,
    repository: Path | None = None,
    cwd: Path | None = None,
    options: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    timeout: float = _TIMEOUT,
) -> str:
    """``run_bytes`` as text: what is not UTF-8 survives as surrogates, and every CR stays."""
    stdout = run_bytes(
        command, *arguments, repository=repository, cwd=cwd, options=options, extra=extra, timeout=timeout
    )
    return stdout.decode("utf-8", "surrogateescape")


def run_bytes(
    command: str,
    *arguments: str,
    repository: Path | None = None,
    cwd: Path | None = None,
    options: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
    timeout: float = _TIMEOUT,
) -> bytes:
    """Run git on a bare ``repository``, or on the checkout whose top is ``cwd``; its stdout.

    Neither is searched for further up: a cache that lies in somebody's checkout, and is damaged, must not
    lead git to that checkout.

    Raises:
        GitError: a non-zero exit, or no end within ``timeout`` seconds.
    """
    where = [] if repository is None else [f"--git-dir={repository}"]
    ceiling = {} if cwd is None else {"GIT_CEILING_DIRECTORIES": str(cwd.absolute().parent)}
    try:
        process = subprocess.Popen(
            ["git", *where, *options, command, *arguments],
            cwd=cwd,
            env=environment(os.environ) | ceiling | dict(extra or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=held_handles(),
            # no terminal to prompt on, and a group that can be ended with git's own helpers
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise GitError(command, 127, "git is not installed") from error
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise GitError(command, 124, f"no end after {timeout:.0f} s") from error
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise GitError(command, process.returncode, stderr.decode("utf-8", "surrogateescape"))
    return stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and its helpers, which do not notice its death while a server is silent; git tidies up first."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _upload_pack(url: str) -> tuple[str, ...]:
    """Git drops per-call configuration for the other end, which then refuses a local repository of another user."""
    return ("--upload-pack=git -c safe.directory=* upload-pack",) if os.path.isdir(url.removeprefix("file://")) else ()


def list_remote(url: str, names: Iterable[str]) -> dict[str, str]:
    """Full name → object, of exactly these names and of their peeled tags (``refs/tags/x^{}``).

    ls-remote matches suffixes (``refs/heads/main`` also finds ``refs/x/refs/heads/main``), so the answer is
    filtered by whole names.
    """
    wanted = {full for name in names for full in (name, f"{name}^{{}}")}
    listed = run("ls-remote", "--quiet", *_upload_pack(url), "--", url, *sorted(wanted), timeout=_LIST_TIMEOUT)
    lines = listed.splitlines()
    pairs = [line.split("\t", 1) for line in lines if "\t" in line]
    return {name: commit for commit, name in pairs if name in wanted}


def init_bare(folder: Path) -> None:
    """Make an empty bare repository."""
    run("init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--", str(folder))


def has_commit(repository: Path, commit: str) -> bool:
    """Whether the commit and its tree are there."""
    try:
        run("cat-file", "-e", f"{commit}^{{tree}}", repository=repository)
    except GitError:
        return False
    return True


def ref_commit(repository: Path, name: str) -> str | None:
    """The commit that a full name stands for in a local repository, or None."""
    try:
        return run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", repository=repository
        ).strip()
    except GitError:
        return None


def fetch(repository: Path, url: str, source: str, target: str) -> None:
    """Fetch one ref or commit and keep it under the name ``target``.

    Without its history, unless the repository has whole histories: a depth would cut them for all its branches.
    """
    depth = ["--depth=1"] if is_shallow_or_empty(repository) else []
    run(
        *("fetch", "--quiet", *depth, "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--force"),
        *(*_upload_pack(url), "--", url, f"{source}:{target}"),
        repository=repository,
    )


def is_shallow_or_empty(repository: Path) -> bool:
    """Whether no whole history is there that a fetch with a depth could cut."""
    if run("rev-parse", "--is-shallow-repository", repository=repository).strip() == "true":
        return True
    return not run("for-each-ref", "--count=1", repository=repository)


def add_worktree(repository: Path, folder: Path, commit: str) -> None:
    """Check a commit out into a new folder; forgets worktrees whose folder is gone first."""
    run("worktree", "prune", repository=repository)
    # forced twice: a killed git leaves the worktree that it was making locked
    run(
        *("worktree", "add", "--quiet", "--force", "--force", "--detach", "--", str(folder), commit),
        repository=repository,
    )


def head_commit(folder: Path) -> str | None:
    """The commit that a checkout is on, or None if ``folder`` is not the top of one.

    Raises:
        GitError: git did not come to an answer.
    """
    try:
        top, commit = run("rev-parse", "--show-toplevel", "HEAD", cwd=folder).splitlines()
    except ValueError:
        return None
    except GitError as error:
        if error.code != _FATAL:
            raise
        return None
    return commit if Path(top).resolve() == folder.resolve() else None


def changed_files(folder: Path) -> list[str]:
    """Paths that differ from the checked-out commit; what running Python leaves behind is not counted."""
    entries = run(
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
    run("add", "--all", "--force", "--", ".", options=("-c", "core.excludesFile="), cwd=folder, extra=identity)
    tree = run("write-tree", cwd=folder, extra=identity).strip()
    parents = ["-p", parent] if parent else []
    commit = run("commit-tree", *parents, "-m", message, tree, cwd=folder, extra=identity)
    run("update-ref", branch, commit.strip(), repository=repository)
    (repository / "index.new").unlink(missing_ok=True)
    return commit.strip()


def set_head(repository: Path, branch: str) -> None:
    """Make ``branch`` (a full name) the default branch of a bare repository."""
    run("symbolic-ref", "--", "HEAD", branch, repository=repository)
