"""The door to git: what reaches it, and how a call ends. Real git; the network is denied."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci import git
from tests.processes import alive, wait_for
from tests.repositories import commit, repository
from tests.repositories import git as real_git

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    git.init_bare(tmp_path / "bare.git")
    return tmp_path / "bare.git"


def test_only_what_says_how_to_reach_a_server_is_inherited() -> None:
    kept = {"GIT_SSH_COMMAND": "ssh -i k", "GIT_SSL_CAINFO": "c", "GIT_ALLOW_PROTOCOL": "file", "https_proxy": "p"}
    names = (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_COMMON_DIR"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_KEY_99", "GIT_DEFAULT_HASH", "GIT_EXTERNAL_DIFF", "GIT_TEMPLATE_DIR"),
    )
    dropped = dict.fromkeys(names, "elsewhere")
    made = git.environment({**kept, **dropped, "GIT_TERMINAL_PROMPT": "1"})
    assert kept.items() <= made.items()
    assert not dropped.keys() & made.keys()
    assert made["GIT_TERMINAL_PROMPT"] == "0"


def test_ssh_asks_nothing() -> None:
    assert git.environment({})["GIT_SSH_COMMAND"] == "ssh -oBatchMode=yes"


def test_an_error_carries_the_last_line_made_safe(tmp_path: Path) -> None:
    with pytest.raises(git.GitError) as error:
        git.list_remote(str(tmp_path / "no\x1b[31mwhere"), ["refs/heads/main"])
    assert error.value.code == 128
    assert str(error.value).startswith("git ls-remote: ")
    assert str(error.value).isprintable()


def test_a_missing_git_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(git.GitError, match="git is not installed"):
        git.init_bare(tmp_path / "x.git")


def test_an_address_is_never_an_option(tmp_path: Path) -> None:
    with pytest.raises(git.GitError):
        git.list_remote(f"--upload-pack=touch {tmp_path}/ran", ["refs/heads/main"])
    assert not (tmp_path / "ran").exists()


def test_whole_names_alone_are_listed(tmp_path: Path) -> None:
    remote = repository(tmp_path / "remote", {"a": "a"})
    first = real_git(remote, "rev-parse", "HEAD")
    real_git(remote, "update-ref", "refs/x/refs/heads/main", commit(remote, {"a": "b"}))
    real_git(remote, "branch", "-f", "other", first)
    real_git(remote, "tag", "-a", "v1", "-m", "one", first)
    listed = git.list_remote(str(remote), ["refs/heads/other", "refs/tags/v1"])
    assert sorted(listed) == ["refs/heads/other", "refs/tags/v1", "refs/tags/v1^{}"]
    assert listed["refs/tags/v1^{}"] == listed["refs/heads/other"] == first != listed["refs/tags/v1"]


def test_strict_settings_of_a_person_do_not_get_in_the_way(
    tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text(
        "[safe]\n\tbareRepository = explicit\n[core]\n\tautocrlf = true\n[submodule]\n\trecurse = true\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    remote = repository(tmp_path / "remote", {"a": "one\ntwo\n"})
    head = real_git(remote, "rev-parse", "HEAD")
    git.fetch(bare, str(remote), head, f"refs/ci/{head}")
    git.add_worktree(bare, tmp_path / "tree", head)
    assert (tmp_path / "tree/a").read_bytes() == b"one\ntwo\n"


def test_a_broken_repository_does_not_lead_git_to_the_one_around_it(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", {"a": "a"})
    head = real_git(outer, "rev-parse", "HEAD")
    broken = outer / "cache/repo.git"
    git.init_bare(broken)
    (broken / "HEAD").unlink()
    with pytest.raises(git.GitError, match="not a git repository"):
        git.fetch(broken, str(outer), head, f"refs/ci/{head}")
    assert "refs/ci" not in real_git(outer, "for-each-ref")
    assert git.ref_commit(broken, "refs/heads/main") is None
    assert git.head_commit(outer / "cache") is None


def test_a_worktree_that_a_killed_git_left_locked_is_made_again(tmp_path: Path, bare: Path) -> None:
    remote = repository(tmp_path / "remote", {"a": "a"})
    head = real_git(remote, "rev-parse", "HEAD")
    git.fetch(bare, str(remote), head, f"refs/ci/{head}")
    git.add_worktree(bare, tmp_path / "tree", head)
    (bare / "worktrees/tree/locked").write_text("initializing")
    (tmp_path / "tree/a").unlink()
    (tmp_path / "tree/.git").unlink()
    (tmp_path / "tree").rmdir()
    git.add_worktree(bare, tmp_path / "tree", head)
    assert git.head_commit(tmp_path / "tree") == head


def test_changed_files_are_whole_names_and_without_what_python_leaves(tmp_path: Path) -> None:
    remote = repository(tmp_path / "remote", {"a b": "a", "gone": "x"})
    (remote / "a b").write_text("changed")
    (remote / "gone").unlink()
    (remote / "größe\r\n::error::").write_text("new")
    for left in ("__pycache__/a.pyc", "sub/__pycache__/b.pyc", "c.pyc", ".pytest_cache/x"):
        (remote / left).parent.mkdir(parents=True, exist_ok=True)
        (remote / left).write_text("")
    assert sorted(git.changed_files(remote)) == ["a b", "gone", "größe\r\n::error::"]


def test_the_same_content_is_the_same_commit(tmp_path: Path, bare: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_text("a")
    (tmp_path / "tree/.gitignore").write_text("a\n")
    made = {
        git.commit_tree(bare, tmp_path / "tree", parent=None, message="m", branch=f"refs/heads/{name}")
        for name in ("x", "y")
    }
    assert len(made) == 1
    assert real_git(bare, "ls-tree", "--name-only", "refs/heads/x").split() == [".gitignore", "a"]


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Takes connections on loopback and never answers; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def helpers_of(port: int) -> list[int]:
    """Processes of git that talk to the server."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"127.0.0.1:{port}".encode() in command and b"remote-http" in command and alive(int(process.name)):
            found.append(int(process.name))
    return found


LISTING = """
import sys
from ci import git
from ci.main import guarded
sys.exit(guarded(lambda: len(git.list_remote(sys.argv[1], ["refs/heads/main"]))))
"""


def test_a_request_to_end_leaves_no_helper_of_git(silent_server: int) -> None:
    url = f"http://127.0.0.1:{silent_server}/x.git"
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with subprocess.Popen(
        [sys.executable, "-c", LISTING, url],
        cwd=REPOSITORY,
        env={**environ, "GIT_ALLOW_PROTOCOL": "http"},
        stderr=subprocess.DEVNULL,
    ) as run:
        wait_for(lambda: helpers_of(silent_server))
        run.terminate()
        assert run.wait(10) == 130
    wait_for(lambda: not helpers_of(silent_server), seconds=5)


def test_a_silent_server_is_given_up(silent_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_LIST_TIMEOUT", 1.0)
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "http")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with pytest.raises(git.GitError, match="no end after 1 s"):
        git.list_remote(f"http://127.0.0.1:{silent_server}/x.git", ["refs/heads/main"])
    wait_for(lambda: not helpers_of(silent_server), seconds=5)
