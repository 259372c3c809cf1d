"""Verification in a real interpreter with everything that can shadow a package."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.errors import InfrastructureError, Problems
from ci.verify import Expected, verify


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An environment of its own, whose site-packages may be spoiled."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin/python")


def site_packages(python: str) -> Path:
    return next(Path(python).parent.parent.glob("lib/python*/site-packages"))


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, Path]:
    return {
        "miles": write(tmp_path / "miles tree", {"miles/__init__.py": "", "miles_plugins/__init__.py": ""}),
        "sglang": write(tmp_path / "sglang/python", {"sglang/__init__.py": ""}),
        # as in the real repository, megatron itself is a namespace package
        "megatron": write(
            tmp_path / "mégatron", {"megatron/core/__init__.py": "", "megatron/training/__init__.py": ""}
        ),
    }


def check(python: str, trees: Mapping[str, Path], *before: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(map(str, (*before, *trees.values())))
    owners = {"miles": "the workspace", "sglang": "SGLang", "megatron": "Megatron-LM"}
    modules = {
        "miles": ("miles", "miles_plugins"),
        "sglang": ("sglang",),
        "megatron": ("megatron.core", "megatron.training"),
    }
    expected = [
        Expected(module=module, root=str(trees[name]), owner=owners[name])
        for name in modules
        for module in modules[name]
    ]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **more}
    return verify(python, expected, env=env, cwd=str(trees["miles"]))


def faults(python: str, trees: Mapping[str, Path], *before: Path) -> list[str]:
    with pytest.raises(Problems) as error:
        check(python, trees, *before)
    assert error.value.exit_code == 2
    return list(error.value.problems)


def test_all_modules_come_from_their_trees(python: str, trees: dict[str, Path]) -> None:
    found = check(python, trees)
    assert found["megatron.core"] == str(trees["megatron"] / "megatron/core/__init__.py")
    assert found["sglang"] == str(trees["sglang"] / "sglang/__init__.py")


def test_nothing_is_imported(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    source = f"open({str(tmp_path / 'imported')!r}, 'w')\nraise RuntimeError\n"
    write(trees["sglang"], {"sglang/__init__.py": source})
    write(trees["megatron"], {"megatron/core/__init__.py": "def broken(:\n"})
    check(python, trees)
    assert not (tmp_path / "imported").exists()


def test_a_linked_tree_is_its_target(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trees["sglang"])
    assert check(python, {**trees, "sglang": tmp_path / "link"})


def test_a_package_earlier_on_the_path_is_named(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"sglang/__init__.py": ""})
    (fault,) = faults(python, trees, other)
    assert fault.startswith(f"sglang should come from SGLang, {trees['sglang']}, but resolves to {other}/sglang")
    assert f"the path entry {other} comes first: rename or remove what it has of that name" in fault


def test_a_folder_without_init_earlier_on_the_path_is_named(
    python: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    other = write(tmp_path / "other", {"megatron/core/parallel.py": "", "megatron/core/__init__.py": ""})
    (fault,) = faults(python, trees, other)
    assert fault.startswith("megatron.core should come from Megatron-LM")
    assert f"resolves to {other}/megatron/core/__init__.py; the path entry" in fault
    assert "megatron.training" not in fault


def test_core_and_training_from_two_trees_are_found(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"megatron/training/__init__.py": ""})
    (fault,) = faults(python, trees, other)
    assert fault.startswith("megatron.training should come from Megatron-LM")


def test_a_regular_package_beats_the_namespace(python: str, trees: dict[str, Path]) -> None:
    write(site_packages(python), {"megatron/__init__.py": "", "megatron/core/__init__.py": ""})
    found = faults(python, trees)
    assert len(found) == 2
    assert "a package of that name is installed: uninstall it" in found[0]
    assert "but megatron hides it: it resolves to" in found[1]
    assert "there is no" not in found[1]


def test_a_pth_file_that_puts_a_tree_first_is_named(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "editable", {"sglang/__init__.py": ""})
    pth = site_packages(python) / "__editable__.sglang.pth"
    pth.write_text(f"{other}\n")
    assert check(python, trees)  # PYTHONPATH comes first
    (trees["sglang"] / "sglang/__init__.py").unlink()
    (trees["sglang"] / "sglang").rmdir()
    (fault,) = faults(python, trees)
    assert f"{pth} puts it on the path: uninstall that editable package, or delete the line" in fault


def test_an_import_hook_of_an_editable_install_is_named(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "hooked", {"sglang/__init__.py": ""})
    hook = f"""
import importlib.util, sys
class EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "sglang":
            return importlib.util.spec_from_file_location(
                name, {str(other / "sglang/__init__.py")!r}, submodule_search_locations=[{str(other / "sglang")!r}]
            )
def install():
    sys.meta_path.insert(0, EditableFinder)
"""
    pth = "import __editable___sglang_finder; __editable___sglang_finder.install(); print('noise')\n"
    write(site_packages(python), {"__editable___sglang_finder.py": hook, "__editable__.sglang.pth": pth})
    (fault,) = faults(python, trees)
    assert "the import hook of an editable install (__editable___sglang_finder.EditableFinder), which " in fault
    assert "__editable__.sglang.pth installs" in fault
    assert "uninstall that package" in fault


def test_a_module_that_is_nowhere_says_so_and_all_faults_come_together(python: str, trees: dict[str, Path]) -> None:
    (trees["sglang"] / "sglang/__init__.py").unlink()
    (trees["sglang"] / "sglang").rmdir()
    (trees["miles"] / "miles_plugins/__init__.py").unlink()
    (trees["miles"] / "miles_plugins").rmdir()
    found = faults(python, trees)
    assert [fault.partition(" ")[0] for fault in found] == ["miles_plugins", "sglang"]
    assert "there is no `sglang` anywhere; the ref may lack it" in found[1]


def test_hostile_folder_names_are_shown_safe(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "a\n##[error]b", {"sglang/__init__.py": ""})
    (fault,) = faults(python, trees, other)
    assert fault.isprintable()


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\necho broken >&2\nexit 3\n", "#!/bin/sh\nkill -11 $$\n", "#!/bin/sh\nexit 0\n"]
)
def test_an_interpreter_that_does_not_answer_is_infrastructure(
    tmp_path: Path, trees: dict[str, Path], script: str
) -> None:
    fake = tmp_path / "python"
    fake.write_text(script)
    fake.chmod(0o755)
    with pytest.raises(InfrastructureError, match="cannot look for modules"):
        check(str(fake), trees)


def test_safe_path_of_the_environment_does_not_matter(python: str, trees: dict[str, Path]) -> None:
    assert check(python, trees, PYTHONSAFEPATH="1")


def test_a_bare_folder_counts_as_one_where_the_tree_has_no_init_either(
    python: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    (trees["megatron"] / "megatron/core/__init__.py").unlink()
    assert check(python, trees)["megatron.core"] == str(trees["megatron"] / "megatron/core")
    other = write(tmp_path / "other", {"megatron/core/parallel.py": ""})
    (fault,) = faults(python, trees, other)
    assert f"resolves to {other}/megatron/core (a folder without __init__.py); the path entry" in fault


def test_what_a_shadow_hides_is_not_said_to_be_missing(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"megatron/__init__.py": ""})
    found = faults(python, trees, other)
    assert [fault.partition(" ")[0] for fault in found] == ["megatron.core", "megatron.training"]
    for fault in found:
        assert f"but megatron hides it: it resolves to {other}/megatron/__init__.py; the path entry" in fault


def test_what_is_built_in_is_not_the_tree(python: str, trees: dict[str, Path]) -> None:
    wanted = Expected(module="sys", root=str(trees["miles"]), owner="the workspace")
    with pytest.raises(Problems, match=r"sys should come from the workspace.*\(built in\)"):
        verify(python, [wanted], env={}, cwd=str(trees["miles"]))


def test_files_that_cannot_be_read_as_pth_do_not_matter(python: str, trees: dict[str, Path], tmp_path: Path) -> None:
    (site_packages(python) / "folder.pth").mkdir()
    (site_packages(python) / "dangling.pth").symlink_to(tmp_path / "nowhere")
    assert check(python, trees)


def test_the_path_of_the_answer_is_not_relative_to_us(
    python: str, trees: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = Expected(module="sglang", root=str(trees["sglang"]), owner="SGLang")
    relative = os.path.relpath(trees["sglang"], trees["miles"])
    answer = verify(python, [wanted], env={"PYTHONPATH": relative}, cwd=str(trees["miles"]))
    assert answer["sglang"] == str(trees["sglang"] / "sglang/__init__.py")
