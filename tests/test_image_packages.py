"""An interpreter with packages of its own, as an image has it, and requirements that move some of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from ci.errors import InfrastructureError
from ci.image_packages import Moved, install_tree, moves, reconcile
from ci.requirement_files import read_requirements
from tests.wheels import wheel

CUDNN = "nvidia_cudnn_cu13"
PROTECTED = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    for name, version in ((CUDNN, "9.1"), (CUDNN, "9.9"), ("plain", "1.0"), ("plain", "2.0")):
        wheel(folder, name, version)
    wheel(folder, "moving", "1.0", requires=("nvidia-cudnn-cu13>=9.5",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def image(wheels: Path, tmp_path: Path) -> str:
    """The path of an interpreter that has the older versions."""
    folder = tmp_path / "image"
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", "--no-download", str(folder)], check=True)
    python = str(folder / "bin/python")
    assert wheels.is_dir()
    install(python, f"{CUDNN}==9.1", "plain==1.0")
    return python


def install(python: str, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", *arguments], check=True)


def version(python: str, name: str) -> str:
    asked = f"import importlib.metadata as m; print(m.version({name!r}))"
    ran = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "none"


def bring(python: str, tmp_path: Path, text: str, *, leave_out: tuple[str, ...] = ()) -> tuple[Moved, ...]:
    (tmp_path / "requirements.txt").write_text(text)
    files = read_requirements([tmp_path / "requirements.txt"])
    return reconcile(python, files, protected=PROTECTED, leave_out=leave_out, log=tmp_path / "pip.log", offline=False)


def test_requirements_move_packages_and_it_is_said(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(image, tmp_path, "plain==2.0\n") == (Moved(name="plain", before="1.0", after="2.0", put_back=False),)
    assert version(image, "plain") == "2.0"
    assert "plain 1.0 → 2.0" in capsys.readouterr().err


def test_protected_packages_get_the_images_version_back(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bring(image, tmp_path, "moving==1.0\n")
    assert Moved(name="nvidia-cudnn-cu13", before="9.1", after="9.9", put_back=True) in found
    assert (version(image, "nvidia-cudnn-cu13"), version(image, "moving")) == ("9.1", "1.0")
    assert "nvidia-cudnn-cu13 9.1 → 9.9, put back" in capsys.readouterr().err


def test_a_protected_package_that_the_image_does_not_have_is_just_installed(image: str, tmp_path: Path) -> None:
    subprocess.run([image, "-m", "pip", "uninstall", "-qy", CUDNN], check=True)
    (found, _) = bring(image, tmp_path, "moving==1.0\n")[::-1]
    assert found == Moved(name="nvidia-cudnn-cu13", before=None, after="9.9", put_back=False)
    assert version(image, "nvidia-cudnn-cu13") == "9.9"


def test_a_run_that_was_killed_before_it_put_back_is_made_good_by_the_next(image: str, tmp_path: Path) -> None:
    # a pip that kills the run once it has moved the package
    pip = Path(subprocess.check_output([image, "-c", "import pip; print(pip.__path__[0])"], text=True).strip())
    main = (pip / "__main__.py").read_text()
    (pip / "__main__.py").write_text(
        "import os, signal, subprocess, sys\n"
        "if '-r' in sys.argv:\n"
        "    subprocess.run([sys.executable, '-c', 'from pip._internal.cli.main import main; import sys;"
        " sys.exit(main(sys.argv[1:]))', *sys.argv[1:]], check=True)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    code = (
        "from pathlib import Path; from ci.image_packages import reconcile;"
        "from ci.requirement_files import read_requirements;"
        f"reconcile({image!r}, read_requirements([Path('r.txt')]), protected={PROTECTED!r}, leave_out=(),"
        " log=Path('pip.log'), offline=False)"
    )
    (tmp_path / "r.txt").write_text("moving==1.0\n")
    repository = Path(__file__).parent.parent
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(repository)!r}); {code}"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == -9
    assert version(image, "nvidia-cudnn-cu13") == "9.9"
    (pip / "__main__.py").write_text(main)
    bring(image, tmp_path, "moving==1.0\n")
    assert version(image, "nvidia-cudnn-cu13") == "9.1"


def test_what_is_left_out_is_not_installed(image: str, tmp_path: Path) -> None:
    bring(image, tmp_path, "plain==2.0\nmoving==1.0\n", leave_out=("moving",))
    assert (version(image, "plain"), version(image, "moving")) == ("2.0", "none")


def test_a_requirement_that_cannot_be_had_is_named(image: str, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"the requirement `nowhere` cannot be installed into the image"):
        bring(image, tmp_path, "nowhere==1.0\n")


def test_a_version_that_cannot_be_had_again_is_an_error(image: str, wheels: Path, tmp_path: Path) -> None:
    next(wheels.glob(f"{CUDNN}-9.1-*")).unlink()
    with pytest.raises(InfrastructureError, match="nvidia-cudnn-cu13"):
        bring(image, tmp_path, "moving==1.0\n")


def test_an_interpreter_without_pip_says_so(image: str, tmp_path: Path) -> None:
    subprocess.run([image, "-m", "pip", "uninstall", "-qy", "pip"], check=True)
    with pytest.raises(InfrastructureError, match="No module named pip"):
        bring(image, tmp_path, "plain==2.0\n")


def test_something_that_is_no_python_says_so(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="does not say what packages it has"):
        bring("/bin/false", tmp_path, "plain==2.0\n")


def test_a_tree_is_installed_in_place_without_what_it_needs(image: str, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "intree").mkdir(parents=True)
    (root / "intree/__init__.py").write_text("")
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    install_tree(image, str(root), title="Tree", log=tmp_path / "pip.log", offline=True)
    asked = subprocess.check_output([image, "-I", "-c", "import intree; print(intree.__file__)"], text=True)
    assert asked.strip() == str(root / "intree/__init__.py")


def test_moves_are_what_differs() -> None:
    found = moves({"a": "1", "gone": "1", "same": "1"}, {"a": "2", "new": "1", "same": "1"}, ["gone"])
    assert [(moved.name, moved.before, moved.after, moved.put_back) for moved in found] == [
        ("a", "1", "2", False),
        ("gone", "1", None, True),
        ("new", None, "1", False),
    ]


BACKEND = """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "intree-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        archive.writestr("intree.pth", os.getcwd() + "\\n")
        info = "intree-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\\nName: intree\\nVersion: 1.0\\nRequires-Dist: nowhere\\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return name
"""
