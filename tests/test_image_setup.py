"""Sessions inside an image: stand-ins for its tools, but a real interpreter, real packages and real checkouts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.inventory_file import OWN_INVENTORY
from tests.factory import workspace
from tests.repositories import commit, git, repository
from tests.wheels import wheel

REPOSITORY = Path(__file__).parent.parent
SMI = """#!/bin/sh
case "$1" in --query-gpu*) for n in 0 1 2 3; do echo "$n, GPU-$n, NVIDIA H200, 1"; done ;; esac
"""
ROCM = json.dumps(
    {f"card{n}": {"Card Series": "AMD Instinct MI350X", "VRAM Total Used Memory (B)": "5"} for n in range(4)}
)
SAYS = """
import importlib.metadata, json, os, sys
import sglang, megatron.core
said = {"sglang": sglang.VERSION, "megatron": megatron.core.VERSION, "path": os.environ["PYTHONPATH"]}
said |= {name: os.environ.get(name) for name in ("SGLANG_SOURCE_ROOT", "MEGATRON_SOURCE_ROOT")}
said |= {"plain": importlib.metadata.version("plain"), "platform": os.environ.get("MILES_HARDWARE_PLATFORM")}
json.dump(said, open(os.environ["SAID"], "w"))
"""
BACKEND = """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    wheel = "NAME-2.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w") as archive:
        archive.writestr("NAME.pth", os.getcwd() + "\\n")
        info = "NAME-2.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: NAME\\nVersion: 2.0\\nRequires-Dist: no\\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


class Image:
    """A machine inside an image: ``python3``, accelerators' tools, checkouts, wheels, a workspace."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path
        self.sglang = self._source("sglang", {f"python/{name}": text for name, text in files("sglang").items()})
        self.megatron = self._source("megatron", files("megatron", "megatron/core", "megatron/training"))
        for name in ("sglang", "megatron"):
            git(tmp_path, "clone", "-q", f"file://{tmp_path}/origin/{name}", str(tmp_path / "image" / name))
        wheels = tmp_path / "wheels"
        for version in ("1.0", "2.0"):
            wheel(wheels, "plain", version)
        self.python = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "virtualenv", "-q", "--no-download", str(self.python)], check=True)
        self.environ = {
            **os.environ,
            "CI_CACHE_DIR": str(tmp_path / "cache"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "SAID": str(tmp_path / "said.json"),
            "PATH": f"{tmp_path / 'bin'}:{self.python / 'bin'}:{os.environ['PATH']}",
        }
        self.pip("install", "-q", "plain==1.0")
        (tmp_path / "bin").mkdir()
        for name, text in (("nvidia-smi", SMI), ("rocm-smi", f"#!/bin/sh\necho '{ROCM}'\n")):
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        self.workspace = self._workspace()

    def _source(self, name: str, content: dict[str, str]) -> Path:
        return repository(self.home / "origin" / name, content)

    def _workspace(self) -> Path:
        inventory = OWN_INVENTORY.read_text()
        for path, name in (("/sgl-workspace/sglang", "sglang"), ("/root/Megatron-LM", "megatron")):
            inventory = inventory.replace(path, str(self.home / "image" / name))
        register = "def register_cuda_ci(*a, **k): ...\nregister_rocm_ci = register_cuda_ci\n"
        calls = "".join(
            f'register_{backend}_ci(est_time=1, suite="{suite}", labels=["short"])\n'
            for backend, suite in (("cuda", "stage-c-4-gpu-h200"), ("rocm", "stage-c-4-gpu-mi350"))
        )
        source = f"from tests.ci.ci_register import register_cuda_ci, register_rocm_ci\n{calls}{SAYS}"
        return workspace(
            self.home / "w",
            {
                "ci/inventory.yml": inventory,
                "requirements.txt": "plain==2.0\n",
                "miles_plugins/__init__.py": "",
                "tests/ci/__init__.py": "",
                "tests/ci/ci_register.py": register,
                "tests/e2e/test_says.py": source,
            },
        )

    def pip(self, *arguments: str) -> None:
        subprocess.run([self.python / "bin/python", "-m", "pip", *arguments], env=self.environ, check=True)

    def install_baked(self) -> None:
        """As the ROCm image has them: installed in place from its checkouts."""
        for root in (self.home / "image/sglang/python", self.home / "image/megatron"):
            self.pip("install", "-q", "--no-deps", "--no-build-isolation", "-e", str(root))

    def run(self, stage: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        (self.home / "said.json").unlink(missing_ok=True)
        base = [sys.executable, "-m", "ci.session", stage, "--workspace", str(self.workspace), "--match-all-labels"]
        return subprocess.run(
            [*base, "--results", str(self.home / "r"), *arguments],
            cwd=REPOSITORY,
            env={**self.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    @property
    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "said.json").read_text())
        return found

    def facts(self, stage: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "r" / stage / "results.json").read_text())["facts"]
        return found


def files(name: str, *packages: str) -> dict[str, str]:
    found = {f"{package}/__init__.py": "VERSION = 1\n" for package in packages or (name,)}
    return {**found, "backend.py": BACKEND.replace("NAME", name), "pyproject.toml": PYPROJECT}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


CUDA, ROCM_STAGE = "stage-c-4-gpu-h200", "stage-c-4-gpu-mi350"


def mirrors(image: Image) -> dict[str, str]:
    return {"CI_SGLANG_REPO": str(image.sglang), "CI_MEGATRON_REPO": str(image.megatron)}


def test_a_cuda_run_brings_the_images_checkouts_and_packages_up_to_date(image: Image) -> None:
    commit(image.sglang, {"python/sglang/__init__.py": "VERSION = 7\n"})
    ran = image.run(CUDA, "--sglang", "main", "--megatron", "main", **mirrors(image))
    assert ran.returncode == 0, ran.stdout
    root, megatron = f"{image.home}/image/sglang/python", f"{image.home}/image/megatron"
    assert image.said == {
        "sglang": 7,
        "megatron": 1,
        "path": f"{image.workspace}:{root}:{megatron}",
        "SGLANG_SOURCE_ROOT": root,
        "MEGATRON_SOURCE_ROOT": megatron,
        "plain": "2.0",
        "platform": None,
    }
    assert {"name": "plain", "before": "1.0", "after": "2.0", "put_back": False} in image.facts(CUDA)["packages"]
    assert "plain 1.0 → 2.0" in ran.stdout
    assert not (image.home / "cache/sources/sglang/trees").exists()


def test_a_cuda_run_with_a_local_tree_leaves_the_checkout_alone(image: Image) -> None:
    before = git(image.home / "image/sglang", "rev-parse", "HEAD")
    commit(image.sglang, {"python/sglang/__init__.py": "VERSION = 7\n"})
    ran = image.run(CUDA, "--sglang", f"path:{image.sglang}", "--megatron", "main", **mirrors(image))
    assert ran.returncode == 0, ran.stdout
    assert image.said["SGLANG_SOURCE_ROOT"] == f"{image.sglang}/python"
    assert git(image.home / "image/sglang", "rev-parse", "HEAD") == before


def test_an_interpreter_that_was_named_is_used_as_it_is(image: Image) -> None:
    python = str(image.python / "bin/python")
    ran = image.run(CUDA, "--sglang", "main", "--megatron", "main", "--python", python, **mirrors(image))
    assert ran.returncode == 0, ran.stdout
    assert image.said["plain"] == "1.0"


def test_a_requirement_can_be_left_out_of_the_image(image: Image) -> None:
    (image.workspace / "requirements.txt").write_text("plain==2.0\nnowhere==1.0\n")
    refused = image.run(CUDA, "--sglang", "main", "--megatron", "main", **mirrors(image))
    assert refused.returncode == 3
    assert "`nowhere` cannot be installed into the image" in refused.stdout
    ran = image.run(CUDA, "--sglang", "main", "--megatron", "main", "--leave-out", "nowhere", **mirrors(image))
    assert ran.returncode == 0, ran.stdout
    assert image.facts(CUDA)["left_out"] == ["nowhere"]


def test_outside_the_image_packages_stay_as_they_are(image: Image) -> None:
    for name in ("sglang", "megatron"):
        (image.home / "image" / name / ".git").rename(image.home / "image" / name / "no-git")
    ran = image.run(CUDA, "--sglang", "main", "--megatron", "main", **mirrors(image))
    assert ran.returncode == 0, ran.stdout
    assert image.said["plain"] == "1.0"
    assert "not inside the CUDA image, so the packages" in ran.stdout
    assert image.said["SGLANG_SOURCE_ROOT"].startswith(f"{image.home}/cache/sources/sglang/trees/")


def test_a_rocm_run_keeps_the_images_own_trees(image: Image) -> None:
    image.install_baked()
    commit(image.sglang, {"python/sglang/__init__.py": "VERSION = 7\n"})
    ran = image.run(ROCM_STAGE)
    assert ran.returncode == 0, ran.stdout
    assert image.said == {
        "sglang": 1,
        "megatron": 1,
        "path": str(image.workspace),
        "SGLANG_SOURCE_ROOT": f"{image.home}/image/sglang/python",
        "MEGATRON_SOURCE_ROOT": f"{image.home}/image/megatron",
        "plain": "2.0",
        "platform": "rocm",
    }
    refs = {ref["name"]: ref["commit"] for ref in image.facts(ROCM_STAGE)["refs"]}
    assert refs["sglang"] == git(image.home / "image/sglang", "rev-parse", "HEAD")


def test_a_rocm_run_with_a_ref_fetches_patches_and_installs_it(image: Image) -> None:
    image.install_baked()
    new = commit(image.megatron, {"megatron/core/__init__.py": "VERSION = 2\n"})
    patch = image.workspace / "docker/amd_patch/latest/megatron.patch"
    patch.parent.mkdir(parents=True)
    (image.megatron / "megatron/core/__init__.py").write_text("VERSION = 'patched'\n")
    patch.write_text(f"{git(image.megatron, 'diff')}\n")
    git(image.megatron, "checkout", "-q", "--", ".")
    ran = image.run(ROCM_STAGE, "--megatron", new)
    assert ran.returncode == 0, ran.stdout
    assert (image.said["megatron"], image.said["sglang"], image.said["path"]) == ("patched", 1, str(image.workspace))
    assert "megatron.patch applied" in ran.stdout
    assert "Megatron-LM is installed from" in ran.stdout
    again = image.run(ROCM_STAGE, "--megatron", "main")
    assert again.returncode == 0, again.stdout
    assert image.said["megatron"] == "patched"
    (image.megatron / "megatron/core/__init__.py").write_text("VERSION = 99\n")
    commit(image.megatron, {})
    refused = image.run(ROCM_STAGE, "--megatron", "main")
    assert refused.returncode == 2
    assert "megatron.patch does not apply to main: " in refused.stdout


def test_a_rocm_run_that_could_not_install_a_ref_says_so(image: Image) -> None:
    ran = image.run(ROCM_STAGE, "--megatron", "main", "--python", str(image.python / "bin/python"))
    assert ran.returncode == 2
    assert "--python installs nothing" in ran.stdout
    (image.home / "image/megatron/.git").rename(image.home / "image/megatron/no-git")
    ran = image.run(ROCM_STAGE, "--megatron", "main")
    assert ran.returncode == 3
    assert "there is no checkout here to bring to it" in ran.stdout


def test_a_rocm_run_takes_a_local_tree_through_pythonpath(image: Image) -> None:
    image.install_baked()
    commit(image.megatron, {"megatron/core/__init__.py": "VERSION = 5\n"})
    ran = image.run(ROCM_STAGE, "--megatron", f"path:{image.megatron}")
    assert ran.returncode == 0, ran.stdout
    assert (image.said["megatron"], image.said["path"]) == (5, f"{image.workspace}:{image.megatron}")
    # nothing is installed from it, or into it; what Python compiles is no change
    assert git(image.megatron, "status", "--porcelain", "--", ":!*__pycache__*") == ""


def test_a_tree_that_another_one_shadows_is_refused(image: Image) -> None:
    image.install_baked()
    new = commit(image.megatron, {"megatron/core/__init__.py": "VERSION = 2\n"})
    workspace(image.workspace, {"megatron/core/__init__.py": "VERSION = 0\n"})
    ran = image.run(ROCM_STAGE, "--megatron", new)
    assert ran.returncode == 2
    assert "megatron.core should come from Megatron-LM" in ran.stdout
