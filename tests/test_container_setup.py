"""What a dry run says of this machine's paths: real folders, links and repositories."""

import json
import shlex
from pathlib import Path

import pytest

from ci.session_command import main
from tests.factory import workspace
from tests.repositories import git

STAGE = "stage-c-4-gpu-h200"


class Dry:
    """A dry run's command."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        base = ["--workspace", "w", "--container", "docker", "--dry-run", "--started-in", str(tmp_path)]
        assert main([STAGE, *base, *arguments]) == 0
        captured = capsys.readouterr()
        self.said, self.command = captured.err, shlex.split(captured.out)
        given = [part.split(",") for part in self.command if part.startswith("type=bind,")]
        # target → source and whether it is read-only
        self.mounts = {
            fields[2].removeprefix("target="): (fields[1].removeprefix("source="), fields[-1] == "readonly")
            for fields in given
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """A folder with a workspace in `w`; the cache is in `cache`."""
    workspace(tmp_path / "w", {"tests/fast/test_x.py": ""})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache == tmp_path / "cache"
    return tmp_path


def test_files_that_arguments_name_are_mounted_where_they_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "real.json").write_text(json.dumps({"inputs": {"ci_image_tag": "mine"}}))
    (home / "event.json").symlink_to("real.json")
    (home / "w/body.md").write_text("ci-image-tag: theirs\n")
    (home / "sglang").mkdir()
    dry = Dry(home, capsys, "--event", "event.json", "--pr-body", "w/body.md", "--sglang", "path:~/sglang")
    real = str(home / "real.json")
    assert dry.mounts[real] == (real, True)
    assert f"--event={real}" in dry.command
    # the workspace shows it already
    assert str(home / "w/body.md") not in dry.mounts
    assert f"--pr-body={home / 'w/body.md'}" in dry.command
    assert dry.mounts[str(home / "sglang")] == (str(home / "sglang"), False)
    assert f"--sglang=path:{home / 'sglang'}" in dry.command
    assert "radixark/miles:mine" in dry.command
    assert f"--workspace={home / 'w'}" in dry.command


def test_what_the_event_says_is_warned_of_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "body.md").write_text(" ci-image-tag: theirs\n ci-sglang-pr: #1\n")
    dry = Dry(home, capsys, "--pr-body", "body.md")
    assert dry.said.count("warning: PR text") == 1
    assert "image: radixark/miles:dev (nothing names another tag)" in dry.said


def test_a_linked_cache_keeps_its_name(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "disk").mkdir()
    (home / "linked").symlink_to("disk")
    monkeypatch.setenv("CI_CACHE_DIR", str(home / "linked"))
    dry = Dry(home, capsys)
    assert dry.mounts[str(home / "linked")] == (str(home / "disk"), False)
    assert f"CI_CACHE_DIR={home / 'linked'}" in dry.command


def test_a_worktree_brings_its_repository(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(home / "w", "init", "-q")
    git(home / "w", "add", "-A")
    git(home / "w", "commit", "-q", "-m", "x")
    git(home / "w", "worktree", "add", "-q", str(home / "tree"))
    assert str(home / "w/.git") not in Dry(home, capsys).mounts
    dry = Dry(home, capsys, "--workspace", "tree")
    assert dry.mounts[str(home / "w/.git")] == (str(home / "w/.git"), True)


def test_mirrors_and_step_files_are_mounted_and_their_variables_go_by_name(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sglang.git", "megatron.git"):
        (home / name).mkdir()
    (home / "summary").touch()
    monkeypatch.setenv("CI_SGLANG_REPO", str(home / "sglang.git"))
    monkeypatch.setenv("CI_MEGATRON_REPO", f"file://{home / 'megatron.git'}")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(home / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(home / "nothing"))
    dry = Dry(home, capsys)
    assert dry.mounts[str(home / "sglang.git")] == (str(home / "sglang.git"), True)
    assert dry.mounts[str(home / "megatron.git")] == (str(home / "megatron.git"), True)
    assert dry.mounts[str(home / "summary")] == (str(home / "summary"), False)
    assert str(home / "nothing") not in dry.mounts
    environ = [dry.command[number + 1] for number, part in enumerate(dry.command) if part == "--env"]
    assert environ == [
        *("CI_MEGATRON_REPO", "CI_SGLANG_REPO", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"),
        f"CI_CACHE_DIR={home / 'cache'}",
    ]


def test_an_address_with_a_token_stands_nowhere(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_SGLANG_REPO", "https://x:s3cret@mirror.example/sglang.git")
    dry = Dry(home, capsys)
    assert "CI_SGLANG_REPO" in dry.command
    assert "s3cret" not in dry.said + shlex.join(dry.command)


def test_offline_fetches_no_image(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--pull=never" in Dry(home, capsys, "--offline").command
    assert "--pull=never" not in Dry(home, capsys).command


def test_data_that_this_machine_does_not_have_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = (home / "w/ci/inventory.yml", Path(__file__).parent.parent / "ci/inventory.yml")
    own[0].parent.mkdir()
    own[0].write_text(own[1].read_text().replace("/data/miles_ci", "/no/such/data"))
    said = "not on this machine, so a run here goes without: /no/such/data, /no/such/data/models"
    assert said in Dry(home, capsys).said
