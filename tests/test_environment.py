"""Environments from local wheels, with uv and with pip."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ci.environment
from ci.environment import EnvironmentSpec, ensure
from ci.errors import InfrastructureError
from ci.installer import Installer
from ci.interpreter import Interpreter, find_interpreter, find_uv, interpreter_at
from ci.requirement_files import read_requirements
from tests.processes import wait_for
from tests.wheels import broken_source, wheel

REPOSITORY = Path(__file__).parent.parent
UV = find_uv()


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return find_interpreter(None)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that an installer may use."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    # uv knows no variable for "no index": an empty one on the disk keeps it off the network
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture(params=["pip", pytest.param("uv", marks=pytest.mark.skipif(UV is None, reason="uv is not installed"))])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """The only one that may be used."""
    only = Installer(UV if request.param == "uv" else None)
    monkeypatch.setattr(ci.environment, "choose_installers", lambda: (only,))
    return only


def spec(tmp_path: Path, interpreter: Interpreter, content: str, *leave_out: str) -> EnvironmentSpec:
    file = tmp_path / "requirements.txt"
    file.write_text(content)
    return EnvironmentSpec(
        name="stage-a-cpu", interpreter=interpreter, files=read_requirements([file]), leave_out=leave_out
    )


def installed(programs: Path) -> set[str]:
    code = "import importlib.metadata as m; print(*(d.metadata['Name'] + '=' + d.version for d in m.distributions()))"
    found = subprocess.run([programs / "python", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return {name for name in found if not name.startswith(("pip=", "setuptools=", "wheel="))}


def folders(cache: Path) -> list[str]:
    home = cache / "environments"
    return sorted(path.name for path in home.iterdir() if path.is_dir()) if home.exists() else []


@pytest.mark.usefixtures("installer")
def test_it_holds_exactly_the_pins_and_is_reused(
    wheels: Path, tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = wheel(wheels, "alpha", "1.0") + wheel(wheels, "beta", "2.0")
    programs = ensure(spec(tmp_path, interpreter, content), cache=tmp_path / "c", offline=False)
    assert installed(programs) == {"alpha=1.0", "beta=2.0"}
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing may be started for what is there
    assert ensure(spec(tmp_path, interpreter, content), cache=tmp_path / "c", offline=True) == programs


def test_changed_pins_are_another_environment_without_the_old_packages(
    wheels: Path, tmp_path: Path, interpreter: Interpreter
) -> None:
    alpha, beta = wheel(wheels, "alpha", "1.0"), wheel(wheels, "beta", "2.0")
    first = ensure(spec(tmp_path, interpreter, alpha + beta), cache=tmp_path / "c", offline=False)
    second = ensure(spec(tmp_path, interpreter, beta), cache=tmp_path / "c", offline=False)
    assert first != second
    assert installed(second) == {"beta=2.0"}


def test_a_change_in_a_nested_file_counts(tmp_path: Path, interpreter: Interpreter) -> None:
    (tmp_path / "nested.txt").write_text("alpha==1.0\n")
    first = spec(tmp_path, interpreter, "-r nested.txt\n").key
    (tmp_path / "nested.txt").write_text("alpha==1.1\n")
    assert spec(tmp_path, interpreter, "-r nested.txt\n").key != first
    assert (
        spec(tmp_path, interpreter, "-r nested.txt\n", "alpha").key
        != spec(tmp_path, interpreter, "-r nested.txt\n").key
    )


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("missing", "`no-such-thing`"),
        ("hash", "`alpha` cannot be installed: its hash is not the pinned one"),
        ("build", "`gamma` cannot be installed: it could not be built"),
    ],
)
@pytest.mark.usefixtures("installer")
def test_a_failed_install_names_the_requirement_and_leaves_nothing(
    wheels: Path, tmp_path: Path, interpreter: Interpreter, fault: str, named: str
) -> None:
    alpha = wheel(wheels, "alpha", "1.0")
    content = {
        "missing": f"{alpha}no-such-thing==1.0 --hash=sha256:{'0' * 64}\n",
        "hash": f"alpha==1.0 --hash=sha256:{'0' * 64}\n",
        "build": alpha + broken_source(wheels, "gamma", "3.0"),
    }[fault]
    with pytest.raises(InfrastructureError) as error:
        ensure(spec(tmp_path, interpreter, content), cache=tmp_path / "c", offline=False)
    assert named in str(error.value)
    assert "--leave-out" in str(error.value)
    assert len(str(error.value).splitlines()) == 2
    assert folders(tmp_path / "c") == []
    log = Path(str(error.value).rpartition(": ")[2])
    assert log.exists()


@pytest.mark.usefixtures("installer")
def test_leaving_a_requirement_out_goes_on_without_it(wheels: Path, tmp_path: Path, interpreter: Interpreter) -> None:
    content = wheel(wheels, "alpha", "1.0", requires=("heavy",)) + "heavy==9.9 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    programs = ensure(spec(tmp_path, interpreter, content, "heavy"), cache=tmp_path / "c", offline=False)
    assert installed(programs) == {"alpha=1.0"}


def test_a_leave_out_that_names_nothing_is_said(
    wheels: Path, tmp_path: Path, interpreter: Interpreter, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure(spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0"), "alpah"), cache=tmp_path / "c", offline=False)
    assert "did you mean `alpha`?" in capsys.readouterr().err


@pytest.mark.usefixtures("installer")
def test_what_another_environment_set_has_no_say(
    wheels: Path, tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "UV_PYTHON": "3.7",
        "UV_SYSTEM_PYTHON": "1",
        "VIRTUAL_ENV": "/nowhere",
        "PYTHONHOME": "/nowhere",
        "PYTHONPATH": "/nowhere",
        "PIP_TARGET": str(tmp_path / "target"),
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_DRY_RUN": "1",
        "PIP_CONSTRAINT": "/nowhere",
        "UV_CONSTRAINT": "/nowhere",
        "UV_EXCLUDE": "/nowhere",
        "UV_CONFIG_FILE": "/nowhere",
        "VIRTUALENV_SYSTEM_SITE_PACKAGES": "1",
    }.items():
        monkeypatch.setenv(name, value)
    made = ensure(spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0")), cache=tmp_path / "c", offline=False)
    for name in ("PYTHONHOME", "PYTHONPATH"):
        monkeypatch.delenv(name)
    assert installed(made) == {"alpha=1.0"}
    assert not (tmp_path / "target").exists()
    assert "include-system-site-packages = false" in (made.parent / "pyvenv.cfg").read_text()


def test_offline_without_an_environment_says_what_to_do(tmp_path: Path, interpreter: Interpreter) -> None:
    with pytest.raises(InfrastructureError, match="run once without --offline"):
        ensure(spec(tmp_path, interpreter, "alpha==1.0\n"), cache=tmp_path / "c", offline=True)
    assert folders(tmp_path / "c") == []


def test_an_environment_whose_interpreter_is_gone_is_made_anew(
    wheels: Path, tmp_path: Path, interpreter: Interpreter
) -> None:
    wanted = spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0"))
    programs = ensure(wanted, cache=tmp_path / "c", offline=False)
    (programs / "python").unlink()
    (programs / "python").symlink_to("/nowhere/python3")
    assert installed(ensure(wanted, cache=tmp_path / "c", offline=False)) == {"alpha=1.0"}


def test_what_uv_does_not_find_pip_is_asked_for(
    wheels: Path,
    tmp_path: Path,
    interpreter: Interpreter,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A mirror that only pip's configuration names; and a `uv` on PATH that is a shim for nothing."""
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\necho 'uv: command not found' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("UV_FIND_LINKS", "")
    wanted = spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0"))
    for number, uv in enumerate(filter(None, (UV, str(broken)))):
        monkeypatch.setattr(ci.environment, "choose_installers", lambda uv=uv: (Installer(uv), Installer(None)))
        programs = ensure(wanted, cache=tmp_path / f"c{number}", offline=False)
        assert installed(programs) == {"alpha=1.0"}
        assert "; trying pip" in capfd.readouterr().err


def test_a_wrong_hash_is_not_taken_to_another_installer(
    installer: Installer, wheels: Path, tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(wheels, "alpha", "1.0")
    monkeypatch.setattr(ci.environment, "choose_installers", lambda: (installer, Installer("/nowhere/uv")))
    with pytest.raises(InfrastructureError, match="`alpha` cannot be installed: its hash is not the pinned one"):
        ensure(
            spec(tmp_path, interpreter, f"alpha==1.0 --hash=sha256:{'0' * 64}\n"), cache=tmp_path / "c", offline=False
        )


def test_requirements_that_change_under_the_installer_leave_nothing(
    wheels: Path, tmp_path: Path, interpreter: Interpreter
) -> None:
    wanted = spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0"))
    (tmp_path / "requirements.txt").write_text(wheel(wheels, "beta", "1.0"))
    with pytest.raises(InfrastructureError, match="changed while they were installed"):
        ensure(wanted, cache=tmp_path / "c", offline=False)
    assert folders(tmp_path / "c") == []


ENSURE = """
import sys
from pathlib import Path
from ci.environment import EnvironmentSpec, ensure
from ci.interpreter import find_interpreter
from ci.requirement_files import read_requirements
spec = EnvironmentSpec(
    name="x", interpreter=find_interpreter(None), files=read_requirements([Path(sys.argv[1])])
)
print(ensure(spec, cache=Path(sys.argv[2]), offline=False))
"""


def ensuring(tmp_path: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENSURE, str(tmp_path / "requirements.txt"), str(tmp_path / "c")],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_runs_at_once_build_it_once(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(wheel(wheels, "alpha", "1.0"))
    runs = [ensuring(tmp_path) for _ in range(2)]
    answers = [run.communicate(timeout=90) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], answers
    assert sum("ready in" in said for _, said in answers) == 1
    assert installed(Path(answers[0][0].strip())) == {"alpha=1.0"}


def test_a_killed_build_is_made_anew(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(wheel(wheels, "alpha", "1.0"))
    run = ensuring(tmp_path)
    wait_for(lambda: folders(tmp_path / "c"))
    run.send_signal(signal.SIGKILL)
    run.communicate()
    time.sleep(0.3)
    again = ensuring(tmp_path)
    out, said = again.communicate(timeout=90)
    assert again.returncode == 0, said
    assert installed(Path(out.strip())) == {"alpha=1.0"}


def test_an_interpreter_is_asked_and_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho not a python\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InfrastructureError) as error:
        find_interpreter("3.99")
    assert "--python INTERPRETER" in str(error.value)
    assert interpreter_at(sys.executable).version == ".".join(map(str, sys.version_info[:3]))


def test_a_build_log_is_kept_beside_the_environments(wheels: Path, tmp_path: Path, interpreter: Interpreter) -> None:
    programs = ensure(spec(tmp_path, interpreter, wheel(wheels, "alpha", "1.0")), cache=tmp_path / "c", offline=False)
    assert programs.parent.with_name(f"{programs.parent.name}.log").read_text().count("$ ") == 2
    shutil.rmtree(tmp_path / "c")
