"""Real git repositories for tests."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ci.inventory import Dependency

IDENTITY = {
    "GIT_AUTHOR_NAME": "ci",
    "GIT_AUTHOR_EMAIL": "ci@localhost",
    "GIT_COMMITTER_NAME": "ci",
    "GIT_COMMITTER_EMAIL": "ci@localhost",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, with an identity; its output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env={**environ, **IDENTITY},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def commit(folder: Path, files: Mapping[str, str], message: str = "change") -> str:
    """Write files and commit them; the commit."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit on ``main``."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    commit(folder, files)
    return folder


def dependency(**fields: object) -> Dependency:
    """A dependency of the shape of the inventory's."""
    base = {
        "name": "sglang",
        "title": "SGLang",
        "repository": "https://localhost.invalid/sglang.git",
        "repository_variable": "CI_SGLANG_REPO",
        "branch": "main",
        "directive": "ci-sglang-pr",
        "lock_key": "sglang_commit",
        "source": "python",
        "root_variable": "SGLANG_SOURCE_ROOT",
        "modules": ("sglang",),
    }
    return Dependency(**{**base, **fields})  # type: ignore[arg-type]
