"""Stages in containers, the whole way: real sessions on both sides, and a stand-in for docker between them."""

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci.container_owner import give_back
from tests.container_runs import container_run
from tests.engine import Engine, running_engine
from tests.processes import alive, pids_in, wait_for
from tests.test_scripts import SMI, tree

REPOSITORY = Path(__file__).parent.parent
STAGE = "stage-c-4-gpu-h200"
CLEAN = "import os, sys\nprint('ran', os.environ.get('WANDB_API_KEY'))\n"
WAITS = """
import os, signal, time
def torn(number, frame):
    open({folder!r} + "/torn", "w").close()
    raise SystemExit(1)
signal.signal(signal.SIGINT, {handler})
open({folder!r} + "/pid.new", "w").write(str(os.getpid()))
os.rename({folder!r} + "/pid.new", {folder!r} + "/pid")
time.sleep(100)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Docker, and an image with four accelerators; this machine has none."""
    with running_engine(tmp_path / "engine") as engine:
        devices = "".join(f"{number}, GPU-{number}, NVIDIA H200, 100\n" for number in range(4))
        (engine.image / "devices").write_text(devices)
        (engine.image / "holders").write_text("")
        engine.program("nvidia-smi", SMI.format(folder=engine.image))
        yield engine


class Run:
    """What a run here is: its workspace, arguments and environment."""

    def __init__(self, tmp_path: Path, engine: Engine, files: dict[str, str]) -> None:
        self.folder, self.results = tmp_path, tmp_path / "r"
        self.environ = {**os.environ, "PATH": engine.path, "CI_CACHE_DIR": str(tmp_path / "cache")}
        sample = REPOSITORY / "sample"
        self.arguments = ["--workspace", str(tree(tmp_path, files)), "--match-all-labels", "--results", "r"]
        self.arguments += ["--sglang", f"path:{sample / 'sglang'}", "--megatron", f"path:{sample / 'Megatron-LM'}"]
        self.arguments += ["--container", "docker"]

    def command(self, *more: str) -> list[str]:
        base = [sys.executable, "-m", "ci.session", STAGE, "--started-in", str(self.folder)]
        return [*base, *self.arguments, *more]

    def ended(self, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*more),
            cwd=REPOSITORY,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def started(self, *more: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                self.command(*more), cwd=REPOSITORY, env=self.environ, stdout=log, stderr=subprocess.STDOUT
            )

    def verdicts(self, folder: str = STAGE) -> list[str]:
        found = json.loads((self.results / folder / "results.json").read_text())
        return [entry["verdict"] for entry in found["files"]]


def waiting(tmp_path: Path, engine: Engine, *more: str, handler: str = "torn") -> tuple[Run, subprocess.Popen[bytes]]:
    """A run whose test waits inside its container."""
    run = Run(tmp_path, engine, {"test_a.py": WAITS.format(folder=str(tmp_path), handler=handler)})
    started = run.started(*more)
    wait_for(lambda: started.poll() is not None or pids_in(tmp_path / "pid"))
    assert started.poll() is None, (tmp_path / "log").read_text()
    return run, started


def test_a_partition_runs_through_nox_inside_its_image_with_the_same_arguments(tmp_path: Path, engine: Engine) -> None:
    run = Run(tmp_path, engine, {f"test_{name}.py": CLEAN for name in "abc"})
    body = tmp_path / "body.md"
    body.write_text("A change\r\nci-image-tag: dev-cu12\r\n")
    summary = tmp_path / "summary.md"
    summary.touch()
    nox = [sys.executable, "-m", "nox", "-f", str(REPOSITORY / "noxfile.py"), "-s", f"{STAGE}(1)", "--"]
    ran = subprocess.run(
        [*nox, *run.arguments, "--pr-body", "body.md", "--timeout-per-file", "60.5", "--labels", "a", "b"],
        cwd=tmp_path,
        env={
            **run.environ,
            "PWD": str(tmp_path),
            "WANDB_API_KEY": "s3cret",
            "HF_TOKEN": "not this stage's",
            "GITHUB_STEP_SUMMARY": str(summary),
            "SHELL_JUNK": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert run.verdicts(f"{STAGE}-1") == ["passed"]
    assert f"### {STAGE} (1): 1 passed" in summary.read_text()
    assert "ran s3cret" in ran.stdout
    ((argv,),) = ([call["argv"] for call in engine.runs()],)
    image = argv.index("radixark/miles:dev-cu12")
    assert argv[image + 1 : image + 5] == ["python3", "-m", "ci.session", STAGE]
    assert set(argv[image + 5 :]) == {
        f"--workspace={tmp_path / 'w'}",
        "--match-all-labels",
        f"--results={run.results}",
        f"--sglang=path:{REPOSITORY / 'sample/sglang'}",
        f"--megatron=path:{REPOSITORY / 'sample/Megatron-LM'}",
        f"--pr-body={body}",
        "--labels=a",
        "--labels=b",
        "--timeout-per-file=60.5",
        f"--started-in={tmp_path}",
        "--partition-id=1",
    }
    handed = [value for flag, value in itertools.pairwise(argv) if flag == "--env"]
    assert handed == ["GITHUB_STEP_SUMMARY", "WANDB_API_KEY", f"CI_CACHE_DIR={tmp_path / 'cache'}"]
    assert "s3cret" not in json.dumps(engine.calls)
    assert not engine.containers


def test_a_dry_run_prints_the_command_and_touches_nothing(tmp_path: Path, engine: Engine) -> None:
    run = Run(tmp_path, engine, {"test_a.py": CLEAN})
    dry = run.ended("--dry-run", "--image", "mine", PATH=os.environ["PATH"], WANDB_API_KEY="s3cret")
    assert dry.returncode == 0, dry.stderr
    assert "s3cret" not in dry.stdout + dry.stderr
    assert "--env WANDB_API_KEY " in dry.stdout
    assert not engine.calls
    assert not run.results.exists()
    (line,) = dry.stdout.splitlines()
    assert run.ended("--image", "mine", WANDB_API_KEY="s3cret").returncode == 0
    ((argv,),) = ([["docker", *call["argv"]] for call in engine.runs()],)
    printed = shlex.split(line)
    # but for the run's own name and process, and for data that this machine may not have
    own = [printed.index("--name") + 1, printed.index("--label") + 1]
    kept = [part for number, part in enumerate(printed) if number not in own]
    assert [part for part in argv if part in set(kept) or part.startswith(("miles-ci-", "miles-ci="))] == argv
    assert {part for part in kept if part not in argv} <= {part for part in kept if "source=/data/miles_ci" in part}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--only", "tests/e2e/test_b.py"], 0, "1 passed"),
        ([], 1, "1 failed"),
        (["--python", "/no/python"], 2, "is not a program"),
        (["--image", "absent"], 3, "could not run the stage in radixark/miles:absent: docker: Error response"),
    ],
)
def test_the_exit_code_inside_is_the_exit_code_outside(
    tmp_path: Path, engine: Engine, arguments: list[str], code: int, said: str
) -> None:
    ran = Run(tmp_path, engine, {"test_a.py": "raise AssertionError\n", "test_b.py": ""}).ended(*arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert said in ran.stdout + ran.stderr
    assert not engine.containers


def test_hardware_is_looked_for_inside_alone(tmp_path: Path, engine: Engine) -> None:
    (engine.image / "devices").write_text("0, GPU-0, NVIDIA H200, 100\n")
    ran = Run(tmp_path, engine, {"test_a.py": ""}).ended()
    assert ran.returncode == 3
    assert "of the devices 1 are (NVIDIA H200)" in ran.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'ImportError: StrEnum' >&2; exit 1", "ended before it had results: ImportError: StrEnum"),
        ("exit 42", "ended with 42"),
        ("kill -9 $$", "the container was killed (exit code 137)"),
    ],
)
def test_an_image_that_cannot_run_the_session_is_infrastructure(
    tmp_path: Path, engine: Engine, script: str, said: str
) -> None:
    engine.program("python3", script)
    ran = Run(tmp_path, engine, {"test_a.py": ""}).ended()
    assert (ran.returncode, said in ran.stderr) == (3, True), ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_lets_tests_inside_tear_down(tmp_path: Path, engine: Engine, number: signal.Signals) -> None:
    run, started = waiting(tmp_path, engine)
    started.send_signal(number)
    assert started.wait(40) == 130
    assert (tmp_path / "torn").exists()
    assert run.verdicts() == ["not run"]
    assert not alive(pids_in(tmp_path / "pid")[0])
    assert not engine.containers
    assert "kill" not in [call["argv"][0] for call in engine.calls]


def test_a_second_signal_kills_the_container(tmp_path: Path, engine: Engine) -> None:
    _, started = waiting(tmp_path, engine, handler="signal.SIG_IGN")
    (name,) = engine.containers
    started.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping: tests have" in (tmp_path / "log").read_text())
    assert started.poll() is None
    started.send_signal(signal.SIGINT)
    assert started.wait(40) == 130
    assert ["kill", name] in [call["argv"] for call in engine.calls]
    assert not engine.containers
    wait_for(lambda: not alive(engine.pid(name)))


@pytest.mark.long
def test_a_container_that_does_not_stop_is_killed_when_its_time_is_over(tmp_path: Path, engine: Engine) -> None:
    engine.program("python3", f"trap '' INT; touch {tmp_path}/deaf; while :; do sleep 0.2; done")
    run = Run(tmp_path, engine, {"test_a.py": ""})
    started = run.started("--grace", "1")
    wait_for((tmp_path / "deaf").exists)
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 130
    assert "is killed" in (tmp_path / "log").read_text()
    assert not engine.containers


def test_a_killed_client_leaves_no_container(tmp_path: Path, engine: Engine) -> None:
    _, started = waiting(tmp_path, engine)
    (name,) = engine.containers
    os.kill(engine.runs()[0]["pid"], signal.SIGKILL)
    assert started.wait(40) == 3
    assert "the docker client was ended by SIGKILL; its container is removed" in (tmp_path / "log").read_text()
    assert not engine.containers
    wait_for(lambda: not alive(engine.pid(name)))


def test_a_killed_run_stops_its_container_through_the_client(tmp_path: Path, engine: Engine) -> None:
    run, started = waiting(tmp_path, engine)
    (name,) = engine.containers
    (client,) = engine.runs()
    started.kill()
    started.wait()
    wait_for(lambda: not alive(client["pid"]), 40)
    assert not alive(engine.pid(name))
    assert (tmp_path / "torn").exists()
    assert run.verdicts() == ["not run"]


def test_what_dead_runs_left_is_listed_and_removed_when_asked(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "living").mkdir()
    _, dead = waiting(tmp_path / "dead", engine)
    (left,) = engine.containers
    # a machine that loses power asks nobody
    os.kill(engine.runs()[0]["pid"], signal.SIGSTOP)
    dead.kill()
    dead.wait()
    os.kill(engine.runs()[0]["pid"], signal.SIGKILL)
    _, living = waiting(tmp_path / "living", engine)
    (used,) = set(engine.containers) - {left}
    run = Run(tmp_path, engine, {"test_a.py": ""})
    listed = run.ended()
    assert listed.returncode == 0
    said = f"container {left}, left by a run that is dead (process {dead.pid})"
    assert f"warning: {said}; --clean-host removes it" in listed.stderr
    assert used not in listed.stderr
    assert set(engine.containers) == {left, used}
    cleaned = run.ended("--clean-host")
    assert f"removed: {said}" in cleaned.stderr
    assert engine.containers == [used]
    assert not alive(engine.pid(left))
    living.send_signal(signal.SIGINT)
    assert living.wait(40) == 130


@pytest.mark.parametrize(("there", "hint"), [("podman", "--container podman is here"), ("", "install docker or")])
def test_an_engine_that_is_not_there_is_infrastructure(tmp_path: Path, engine: Engine, there: str, hint: str) -> None:
    (engine.bin / "docker").unlink()
    if there:
        engine.install(there)
    ran = Run(tmp_path, engine, {"test_a.py": ""}).ended(PATH=str(engine.bin))
    assert ran.returncode == 3
    assert "error: --container docker: this machine has no docker" in ran.stderr
    assert hint in ran.stderr


@pytest.mark.parametrize(
    ("stage", "arguments", "said"),
    [
        (STAGE, ["--image", "dev"], "--image has no meaning without --container"),
        (STAGE, ["--dry-run"], "--dry-run has no meaning without --container"),
        ("stage-a-cpu", ["--container", "docker"], "stage-a-cpu is a CPU stage"),
        (STAGE, ["--container", "runc"], "`runc` is not docker or podman"),
        (
            STAGE,
            ["--container", "docker", "--image", "radixark/miles:dev"],
            "the repository is fixed, give the tag alone",
        ),
        (STAGE, ["--container", "docker", "--dry-run", "--list-only"], "give one of them"),
        (STAGE, ["--container", "docker", "--dry-run", "--results", "a,b"], "--results: "),
        (STAGE, ["--container", "docker", "--dry-run", "--sglang", "path:nowhere"], "nowhere is not a folder"),
    ],
)
def test_options_without_a_meaning_are_refused(stage: str, arguments: list[str], said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ci.session", stage, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert said in ran.stderr
    assert sum(line.startswith(("error:", "  ")) for line in ran.stderr.splitlines()) == 2


def test_a_listing_lists_here(tmp_path: Path, engine: Engine) -> None:
    ran = Run(tmp_path, engine, {"test_a.py": ""}).ended("--list-only")
    assert (ran.returncode, "tests/e2e/test_a.py" in ran.stdout) == (0, True)
    assert not engine.calls


def test_a_machine_without_the_hardware_is_offered_the_container(tmp_path: Path, engine: Engine) -> None:
    command = [sys.executable, "-m", "ci.session", STAGE, "--match-all-labels"]
    environ = {**os.environ, "PATH": engine.path, "CUDA_VISIBLE_DEVICES": "", "CI_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    assert "; --container docker runs it in its image" in ran.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of two owners")
def test_what_root_wrote_inside_is_given_back(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", engine.path)
    mine, others = tmp_path / "mine", tmp_path / "others"
    for folder in (mine, others):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").write_text("")
        (folder / "deep/link").symlink_to("/nowhere")
    os.chown(mine, 12345, 12345)
    run = container_run(mounts=(str(mine), str(others)))
    give_back(run, uid=12345, gid=12345)
    assert (mine / "deep/file").stat().st_uid == 12345
    assert (mine / "deep/link").lstat().st_uid == 12345
    assert (others / "deep/file").stat().st_uid == 0
    assert "is yours now" in capsys.readouterr().err
    give_back(run, uid=12345, gid=12345)
    assert len(engine.runs()) == 1
