import os
from pathlib import Path

import pytest

from ci.errors import Problems, UsageError
from ci.inventory import Inventory
from ci.tree import Tree, read_tree
from tests.factory import workspace

IMPORT = "from tests.ci.ci_register import register_cpu_ci, register_cuda_ci\n"
CPU = f'{IMPORT}register_cpu_ci(est_time=5, suite="stage-b-cpu")\n'


def read(root: Path, inventory: Inventory) -> Tree:
    return read_tree(root, inventory, cache=None)


def test_files_are_found_in_all_roots_and_sorted(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(
        tmp_path,
        {
            "tests/fast/b/test_z.py": "",
            "tests/fast-gpu/test_a.py": CPU,
            "tests/e2e/deep/er/test_b.py": CPU,
            "tests/ci/test_c.py": CPU,
            "tests/fast/helper.py": "",
            "tests/manual/test_d.py": "",
            "tests/fast/test_notes.txt": "",
        },
    )
    tree = read(root, inventory).require()
    assert tree.files == (
        "tests/ci/test_c.py",
        "tests/e2e/deep/er/test_b.py",
        "tests/fast-gpu/test_a.py",
        "tests/fast/b/test_z.py",
    )
    assert [(found.suite, found.implicit) for found in tree.registrations][-1] == ("stage-a-cpu", True)


def test_every_problem_of_a_tree_is_reported_at_once(tmp_path: Path, inventory: Inventory) -> None:
    cuda = 'register_cuda_ci(est_time=1, suite="stage-c-4-gpu-h200", labels=["short"])\n'
    root = workspace(
        tmp_path,
        {
            "tests/e2e/test_none.py": "x = 1\n",
            "tests/e2e/test_syntax.py": "def broken(:\n",
            "tests/fast/test_gpu.py": IMPORT + cuda,
            "tests/fast/test_alias.py": "from a import register_cpu_ci as r\nr(1, 'stage-a-cpu')\n",
            "tests/fast/test_import.py": IMPORT,
            "tests/ci/test_suite.py": f'{IMPORT}register_cpu_ci(1, "stage-z-cpu")\n',
            "tests/ci/test_ok.py": CPU,
        },
    )
    (root / "tests/ci/test_folder.py").mkdir()
    (root / "tests/ci/test_dangling.py").symlink_to("nowhere")
    os.mkfifo(root / "tests/ci/test_pipe.py")
    tree = read(root, inventory)
    assert [(problem.file, problem.line) for problem in tree.problems] == [
        ("tests/ci/test_dangling.py", 0),
        ("tests/ci/test_folder.py", 0),
        ("tests/ci/test_pipe.py", 0),
        ("tests/ci/test_suite.py", 2),
        ("tests/e2e/test_none.py", 0),
        ("tests/e2e/test_syntax.py", 1),
        ("tests/fast/test_alias.py", 1),
        ("tests/fast/test_gpu.py", 2),
        ("tests/fast/test_import.py", 0),
    ]
    assert "tests/ci/test_ok.py" in [found.file for found in tree.registrations]
    with pytest.raises(Problems, match="9 problems in the registrations"):
        tree.require()


def test_a_disabled_registration_for_an_unknown_suite_is_a_warning(tmp_path: Path, inventory: Inventory) -> None:
    call = 'register_cuda_ci(est_time=1, suite="stage-c-8-gpu-b200", labels=["short"], disabled="no b200 yet")\n'
    tree = read(workspace(tmp_path, {"tests/e2e/test_x.py": IMPORT + call}), inventory).require()
    assert "stage-c-8-gpu-b200" in str(tree.warnings[0])


def test_a_stray_beside_a_registration_is_a_warning(tmp_path: Path, inventory: Inventory) -> None:
    source = f"{CPU}if True:\n    register_cuda_ci(1, 'x')\n"
    tree = read(workspace(tmp_path, {"tests/ci/test_x.py": source}), inventory).require()
    assert [warning.line for warning in tree.warnings] == [4]


def test_two_registrations_for_one_suite_are_a_warning(tmp_path: Path, inventory: Inventory) -> None:
    source = f'{CPU}register_cpu_ci(est_time=9, suite="stage-b-cpu")\n'
    tree = read(workspace(tmp_path, {"tests/ci/test_x.py": source}), inventory).require()
    assert "registered twice" in str(tree.warnings[0])


def test_hostile_file_names_are_shown_safe(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path, {"tests/ci/test_ok.py": CPU})
    for name in ("test_a\n::error::x.py", "test_'\"é.py", "test_\x1b[31m.py"):
        (root / "tests/ci" / name).write_text("")
    (Path(os.fsdecode(os.fsencode(root) + b"/tests/ci/test_\xff.py"))).write_text("")
    tree = read(root, inventory)
    assert len(tree.problems) == 4
    for problem in tree.problems:
        assert str(problem).isprintable()
        assert not str(problem).startswith("::")


def test_linked_folders_are_not_followed(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path, {"tests/ci/test_ok.py": CPU})
    (root / "tests/ci/loop").symlink_to(root / "tests")
    assert read(root, inventory).files == ("tests/ci/test_ok.py",)


def test_a_folder_without_roots_is_refused(tmp_path: Path, inventory: Inventory) -> None:
    with pytest.raises(UsageError, match="has none of tests/fast"):
        read(tmp_path, inventory)


def test_unreadable_names_the_file(tmp_path: Path, inventory: Inventory) -> None:
    source = b"register_cpu_ci(1, 'stage-a-cpu')\nx = " + b"(" * 500 + b")" * 500
    tree = read(workspace(tmp_path, {"tests/ci/test_x.py": source, "tests/ci/test_ok.py": CPU}), inventory)
    assert [problem.file for problem in tree.problems] == ["tests/ci/test_x.py"]
    assert len(tree.registrations) == 1
