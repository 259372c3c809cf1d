"""Sources on real repositories; the network is denied."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ci.commits import repository_url, resolve_commit
from ci.errors import CiError, InfrastructureError, UsageError
from ci.inventory import Dependency
from ci.ref import Ref, RefKind, parse_ref
from ci.sources import SourceTree, obtain
from tests.processes import wait_for
from tests.repositories import commit, dependency, git, repository

REPOSITORY = Path(__file__).parent.parent
FILES = {"python/sglang/__init__.py": "VERSION = 1\n"}


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return repository(tmp_path / "remote", FILES)


def get(remote: Path, cache: Path, ref: str, *, offline: bool = False, dep: Dependency | None = None) -> SourceTree:
    environ = {"CI_SGLANG_REPO": str(remote)}
    return obtain(dep or dependency(), parse_ref(ref, allow_path=True), environ=environ, cache=cache, offline=offline)


def resolved(remote: Path, cache: Path, ref: str) -> str:
    return resolve_commit(dependency(), parse_ref(ref), url=str(remote), cache=cache, offline=False)


def test_a_branch_becomes_a_worktree_of_its_commit(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    assert tree.commit == git(remote, "rev-parse", "main")
    assert tree.root == f"{tree.repository}/python"
    assert (Path(tree.root) / "sglang/__init__.py").read_text() == "VERSION = 1\n"


def test_only_the_one_commit_is_fetched(remote: Path, cache: Path) -> None:
    for number in range(5):
        commit(remote, {"python/sglang/__init__.py": f"VERSION = {number}\n"})
    get(remote, cache, "main")
    bare = cache / "sources/sglang/repo.git"
    assert git(bare, "rev-list", "--all", "--count") == "1"
    assert git(bare, "for-each-ref", "--format=%(refname)") == f"refs/ci/{git(remote, 'rev-parse', 'main')}"


def test_a_known_commit_does_not_touch_the_network(remote: Path, cache: Path) -> None:
    known = get(remote, cache, "main").commit
    assert known is not None
    remote.rename(remote.with_name("gone"))
    assert get(remote, cache, known).commit == known


def test_names_match_exactly(remote: Path, cache: Path) -> None:
    first = git(remote, "rev-parse", "HEAD")
    git(remote, "checkout", "-q", "-b", "feature/main")
    second = commit(remote, {"a": "a"})
    git(remote, "update-ref", "refs/x/refs/heads/main", second)
    assert resolved(remote, cache, "main") == first
    assert resolved(remote, cache, "feature/main") == second
    assert resolved(remote, cache, "refs/heads/main") == first


def test_a_branch_and_a_tag_of_one_name_are_told_apart(remote: Path, cache: Path) -> None:
    first = git(remote, "rev-parse", "HEAD")
    git(remote, "tag", "same")
    git(remote, "branch", "same")
    with pytest.raises(UsageError) as error:
        resolved(remote, cache, "same")
    assert "write refs/heads/same or refs/tags/same" in str(error.value)
    assert resolved(remote, cache, "refs/tags/same") == first


def test_an_annotated_tag_is_its_commit(remote: Path, cache: Path) -> None:
    git(remote, "tag", "-a", "v1", "-m", "one")
    assert resolved(remote, cache, "v1") == git(remote, "rev-parse", "HEAD")
    assert get(remote, cache, "v1").commit == git(remote, "rev-parse", "HEAD")


def test_a_pull_request(remote: Path, cache: Path) -> None:
    git(remote, "checkout", "-q", "-b", "work")
    pulled = commit(remote, {"python/sglang/__init__.py": "VERSION = 2\n"})
    git(remote, "update-ref", "refs/pull/72/head", pulled)
    git(remote, "checkout", "-q", "main")
    git(remote, "branch", "-D", "work")
    tree = get(remote, cache, "#72")
    assert tree.commit == pulled
    assert (Path(tree.root) / "sglang/__init__.py").read_text() == "VERSION = 2\n"


def test_a_branch_with_letters_of_any_script(remote: Path, cache: Path) -> None:
    git(remote, "branch", "größe/分支")
    assert resolved(remote, cache, "größe/分支") == git(remote, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("nothing", "has no branch or tag `nothing`"),
        ("7f50ee4", "all of its 40 hex digits are needed"),
        ("#9", "has no `refs/pull/9/head`"),
        ("a" * 40, "has no commit aaaa"),
    ],
)
def test_what_the_repository_does_not_have_is_wrong_input(remote: Path, cache: Path, ref: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        get(remote, cache, ref)
    assert said in str(error.value)


def test_a_repository_that_does_not_answer_is_infrastructure(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(InfrastructureError) as error:
        get(tmp_path / "nowhere", cache, "main")
    assert "CI_SGLANG_REPO" in str(error.value)
    with pytest.raises(InfrastructureError, match="does not answer"):
        obtain(dependency(), Ref(RefKind.NAME, "main"), environ={}, cache=cache)


def test_a_server_that_hands_out_tips_alone(
    remote: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    older = git(remote, "rev-parse", "HEAD")
    commit(remote, {"a": "a"})
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[protocol]\n\tversion = 0\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert get(remote, cache, "main").commit == git(remote, "rev-parse", "HEAD")
    with pytest.raises(UsageError, match="some only their tips"):
        get(remote, cache, older)


def test_offline_takes_what_was_last_seen(
    remote: Path, cache: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = get(remote, cache, "main").commit
    commit(remote, {"a": "a"})
    assert get(remote, cache, "main", offline=True).commit == first
    assert "as last seen 0.0 h ago" in capsys.readouterr().err
    with pytest.raises(InfrastructureError, match="not known offline"):
        get(remote, cache, "other", offline=True)
    with pytest.raises(InfrastructureError, match="not in the cache"):
        get(remote, tmp_path / "empty", "b" * 40, offline=True)


def test_a_moved_branch_is_followed(remote: Path, cache: Path) -> None:
    get(remote, cache, "main")
    moved = commit(remote, {"python/sglang/__init__.py": "VERSION = 3\n"})
    tree = get(remote, cache, "main")
    assert tree.commit == moved
    assert (Path(tree.root) / "sglang/__init__.py").read_text() == "VERSION = 3\n"


def test_a_local_tree_is_used_as_it_is(remote: Path, cache: Path) -> None:
    (remote / "python/sglang/extra.py").write_text("x = 1\n")
    tree = get(remote, cache, f"path:{remote}")
    assert (tree.commit, tree.changed) == (git(remote, "rev-parse", "HEAD"), True)
    assert tree.root == str(remote / "python")
    with pytest.raises(UsageError, match="has no python/sglang/"):
        get(remote, cache, f"path:{remote}/python")


def test_an_edited_tree_in_the_cache_is_refused_and_kept(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    edited = Path(tree.root) / "sglang/__init__.py"
    edited.write_text("VERSION = 'mine'\n")
    with pytest.raises(UsageError) as error:
        get(remote, cache, "main")
    assert "python/sglang/__init__.py" in str(error.value)
    assert "--sglang path:DIR" in str(error.value)
    assert edited.read_text() == "VERSION = 'mine'\n"


def test_what_python_leaves_in_a_tree_is_no_edit(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    (Path(tree.root) / "sglang/__pycache__").mkdir()
    (Path(tree.root) / "sglang/__pycache__/a.cpython-311.pyc").write_bytes(b"x")
    assert get(remote, cache, "main") == tree


def test_a_tree_removed_by_hand_is_made_again(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    shutil.rmtree(tree.repository)
    assert get(remote, cache, "main") == tree
    assert Path(tree.root).is_dir()


def test_half_a_tree_is_made_anew(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    (cache / f"sources/sglang/trees/{tree.commit}.complete").unlink()
    (Path(tree.root) / "sglang/__init__.py").unlink()
    assert get(remote, cache, "main") == tree
    assert (Path(tree.root) / "sglang/__init__.py").exists()


def test_a_damaged_repository_is_fetched_anew(remote: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    get(remote, cache, "main")
    newer = commit(remote, {"python/sglang/__init__.py": "VERSION = 4\n"})
    bare = cache / "sources/sglang/repo.git"
    truncate_objects(bare)
    tree = get(remote, cache, "main")
    assert tree.commit == newer
    assert (Path(tree.root) / "sglang/__init__.py").read_text() == "VERSION = 4\n"
    assert "damaged" in capsys.readouterr().err


def test_a_stale_lock_is_named_and_mended(remote: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    get(remote, cache, "main")
    lock = cache / "sources/sglang/repo.git/shallow.lock"
    lock.write_text("")
    os.utime(lock, (time.time() - 500, time.time() - 500))
    commit(remote, {"a": "a"})
    get(remote, cache, "main")
    said = capsys.readouterr().err
    assert "shallow.lock (50" in said
    assert not lock.exists()


def test_a_lock_that_somebody_holds_is_left_alone(remote: Path, cache: Path) -> None:
    get(remote, cache, "main")
    bare = cache / "sources/sglang/repo.git"
    (bare / "shallow.lock").write_text("")
    commit(remote, {"a": "a"})
    with subprocess.Popen(["sleep", "30"], cwd=bare) as worker:
        with pytest.raises(InfrastructureError, match=f"process {worker.pid} \\(sleep 30\\) works in this repository"):
            get(remote, cache, "main")
        worker.kill()
    assert (bare / "shallow.lock").exists()


def test_git_is_not_led_elsewhere_by_the_environment(
    remote: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap = repository(tmp_path / "trap", {"a": "a"})
    monkeypatch.setenv("GIT_DIR", str(trap / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(trap))
    monkeypatch.setenv("GIT_INDEX_FILE", str(trap / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap))
    assert (Path(get(remote, cache, "main").root) / "sglang").is_dir()


def test_hooks_and_global_configuration_have_no_say(
    remote: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    configuration = f"[core]\n\thooksPath = {hooks}\n[fetch]\n\tprune = true\n"
    (home / ".gitconfig").write_text(configuration)
    monkeypatch.setenv("HOME", str(home))
    get(remote, cache, "main")
    assert not (tmp_path / "ran").exists()
    assert (home / ".gitconfig").read_text() == configuration


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_works(remote: Path, cache: Path) -> None:
    for path in (remote, *remote.rglob("*")):
        os.chown(path, 12345, 12345)
    tree = get(remote, cache, "main")
    for path in (cache, *cache.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    commit_hash = tree.commit
    assert commit_hash is not None
    assert get(remote, cache, commit_hash).root == tree.root


@pytest.mark.parametrize("url", ["--upload-pack=touch x", "ext::sh -c touch", "a\nb"])
def test_a_hostile_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        repository_url(dependency(), {"CI_SGLANG_REPO": url})


OBTAIN = """
import os, sys
from pathlib import Path
from ci.main import guarded
from ci.ref import parse_ref
from ci.sources import obtain
from tests.repositories import dependency
def main():
    print(obtain(dependency(), parse_ref(sys.argv[1]), environ=os.environ, cache=Path(sys.argv[2])).root)
    return 0
sys.exit(guarded(main))
"""


def obtaining(remote: Path, cache: Path, ref: str = "main", **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OBTAIN, ref, str(cache)],
        cwd=REPOSITORY,
        env={**os.environ, "CI_SGLANG_REPO": str(remote), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_four_runs_at_once_on_an_empty_cache(remote: Path, cache: Path) -> None:
    runs = [obtaining(remote, cache) for _ in range(4)]
    answers = [run.communicate(timeout=60) for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, answers
    assert len({out for out, _ in answers}) == 1


def slow_git(tmp_path: Path, subcommand: str) -> str:
    """A PATH on which one git subcommand notes that it began and then takes its time."""
    real = shutil.which("git")
    folder = tmp_path / "slow"
    folder.mkdir()
    script = f"""#!/bin/sh
for argument in "$@"; do
    if [ "$argument" = {subcommand} ]; then {real} "$@"; touch {tmp_path}/began; sleep 3; exit 1; fi
done
exec {real} "$@"
"""
    (folder / "git").write_text(script)
    (folder / "git").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("subcommand", ["init", "fetch", "worktree"])
def test_a_killed_run_leaves_nothing_half_made(remote: Path, cache: Path, tmp_path: Path, subcommand: str) -> None:
    run = obtaining(remote, cache, PATH=slow_git(tmp_path, subcommand))
    wait_for((tmp_path / "began").exists)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    tree = get(remote, cache, "main")
    assert (Path(tree.root) / "sglang/__init__.py").exists()
    assert sorted(path.name for path in (cache / "sources/sglang").iterdir()) == ["repo.git", "resolved.json", "trees"]


def test_a_waiting_run_says_for_whom_it_waits(remote: Path, cache: Path, tmp_path: Path) -> None:
    first = obtaining(remote, cache, PATH=slow_git(tmp_path, "fetch"))
    wait_for((tmp_path / "began").exists)
    second = obtaining(remote, cache)
    time.sleep(1.6)
    first.kill()
    first.communicate()
    _, said = second.communicate(timeout=30)
    assert second.returncode == 0
    assert f"waiting for another run that uses the SGLang cache (process {first.pid})" in said


def test_an_interrupt_ends_git_too(remote: Path, cache: Path, tmp_path: Path) -> None:
    run = obtaining(remote, cache, PATH=slow_git(tmp_path, "fetch"))
    wait_for((tmp_path / "began").exists)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=10)
    assert run.returncode == 130
    assert said.splitlines()[-1] == "error: interrupted"


@pytest.mark.parametrize("ref", ["nothing", "7f50ee4", "a" * 40])
def test_errors_are_two_lines_at_most(remote: Path, cache: Path, ref: str) -> None:
    with pytest.raises(CiError) as error:
        get(remote, cache, ref)
    assert len(str(error.value).splitlines()) == 2


def truncate_objects(repository: Path) -> None:
    for file in (repository / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def descendants(pid: int) -> list[int]:
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def kill_all(run: subprocess.Popen[str]) -> None:
    """As a machine that loses power: the run, its git and git's helpers, without a word."""
    for pid in [run.pid, *descendants(run.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.communicate()


@pytest.fixture
def slow_checkout(remote: Path, tmp_path: Path) -> dict[str, str]:
    """Checking out ``remote`` takes long after its first files; what a run needs to see that."""
    home = tmp_path / "slow-home"
    home.mkdir()
    smudge = f"touch {tmp_path}/began; sleep 30; cat"
    (home / ".gitconfig").write_text(f'[filter "slow"]\n\tsmudge = "{smudge}"\n')
    commit(remote, {".gitattributes": "z filter=slow\n", "z": "z"})
    return {"HOME": str(home)}


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_a_checkout_that_was_ended_midway_is_made_again(
    remote: Path, cache: Path, tmp_path: Path, slow_checkout: dict[str, str], end: str
) -> None:
    run = obtaining(remote, cache, **slow_checkout)
    wait_for((tmp_path / "began").exists)
    if end == "kill":
        kill_all(run)
    else:
        run.terminate()
        run.communicate(timeout=10)
    tree = get(remote, cache, "main")
    assert (Path(tree.repository) / "z").read_text() == "z"


def test_a_fetch_that_was_killed_midway_leaves_no_half_pack(remote: Path, cache: Path, tmp_path: Path) -> None:
    home = tmp_path / "slow-home"
    home.mkdir()
    hook = home / "hook"
    hook.write_text(f'#!/bin/sh\n"$@" | head -c 20000; touch {tmp_path}/began; sleep 30\n')
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(f"[uploadpack]\n\tpackObjectsHook = {hook}\n")
    commit(remote, {f"many/{number}": os.urandom(200).hex() for number in range(200)})
    run = obtaining(remote, cache, HOME=str(home))
    wait_for(lambda: (tmp_path / "began").exists() and list((cache / "sources/sglang").rglob("tmp_pack_*")))
    kill_all(run)
    get(remote, cache, "main")
    assert list((cache / "sources").rglob("tmp_*")) == []


def test_objects_without_their_ref_are_no_fetched_commit(
    remote: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get(remote, cache, "main")
    newer = commit(remote, {"a": "a"})
    for thing in (newer, git(remote, "rev-parse", f"{newer}^{{tree}}")):
        part = Path("objects", thing[:2], thing[2:])
        (cache / "sources/sglang/repo.git" / part).parent.mkdir(exist_ok=True)
        shutil.copy(remote / ".git" / part, cache / "sources/sglang/repo.git" / part)
    assert get(remote, cache, "main").commit == newer
    assert "damaged" not in capsys.readouterr().err


def test_a_damaged_repository_costs_no_run_of_a_commit_fetched_before(remote: Path, cache: Path) -> None:
    first = get(remote, cache, "main")
    assert first.commit is not None
    shutil.rmtree(cache / "sources/sglang/repo.git")
    (Path(first.root) / "mine.py").write_text("x = 1\n")
    assert get(remote, cache, first.commit).root == first.root
    # git could not say what was edited in it, so it is kept
    (kept,) = (cache / "sources/sglang/aside").iterdir()
    assert (kept / "python/mine.py").exists()


def test_a_tree_moved_to_another_commit_is_not_taken_for_its_own(remote: Path, cache: Path) -> None:
    tree = get(remote, cache, "main")
    commit(Path(tree.repository), {"python/sglang/__init__.py": "VERSION = 'mine'\n"})
    assert (Path(get(remote, cache, "main").root) / "sglang/__init__.py").read_text() == "VERSION = 1\n"
    (kept,) = (cache / "sources/sglang/aside").iterdir()
    assert (kept / "python/sglang/__init__.py").read_text() == "VERSION = 'mine'\n"


def test_damage_at_the_other_end_leaves_our_repository_alone(remote: Path, cache: Path) -> None:
    known = get(remote, cache, "main").commit
    commit(remote, {"z": "zz"})
    blob = git(remote, "rev-parse", "HEAD:z")
    (remote / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(InfrastructureError, match="does not answer"):
        get(remote, cache, "main")
    bare = cache / "sources/sglang/repo.git"
    assert git(bare, "for-each-ref", "--format=%(refname)") == f"refs/ci/{known}"


@pytest.mark.parametrize("thing", ["v1", "HEAD^{tree}", "HEAD:python/sglang/__init__.py"])
def test_a_hash_of_something_else_is_no_commit(remote: Path, cache: Path, thing: str) -> None:
    git(remote, "tag", "-a", "v1", "-m", "one")
    with pytest.raises(UsageError, match="is not a commit of"):
        get(remote, cache, git(remote, "rev-parse", thing))


def test_a_token_in_an_address_is_not_shown_or_kept(cache: Path) -> None:
    environ = {"CI_SGLANG_REPO": "https://user:s3cret@localhost.invalid/x.git"}
    with pytest.raises(InfrastructureError) as error:
        obtain(dependency(), parse_ref("main"), environ=environ, cache=cache)
    assert "https://localhost.invalid/x.git" in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("folder", ["~nobody-of-this-name/x", "/" + "x" * 5000])
def test_a_folder_that_cannot_be_is_wrong_input(remote: Path, cache: Path, folder: str) -> None:
    with pytest.raises(UsageError, match="has no python/sglang/"):
        get(remote, cache, f"path:{folder}")


def test_a_cache_that_cannot_be_used_is_said(remote: Path, cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(InfrastructureError, match="cannot be used"):
        get(remote, cache, "main")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_address_of_another_users_repository_works(remote: Path, cache: Path) -> None:
    for path in (remote, *remote.rglob("*")):
        os.chown(path, 12345, 12345)
    environ = {"CI_SGLANG_REPO": f"file://{remote}"}
    assert obtain(dependency(), parse_ref("main"), environ=environ, cache=cache).commit
