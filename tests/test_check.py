from pathlib import Path

import pytest

from ci.check import findings
from ci.exit_codes_lost import lost_exit_codes
from ci.inventory import Inventory
from ci.tree import read_tree
from tests.factory import workspace

CUDA = 'register_cuda_ci(est_time=1, suite="stage-c-4-gpu-h200", labels=["short"])\n'


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import pytest\nif __name__ == '__main__':\n    pytest.main([__file__])\n", [3]),
        ("from pytest import main as run\nrun([__file__])\n", [2]),
        ("import pytest, sys\nsys.exit(pytest.main([__file__]))\n", []),
        ("import pytest\nraise SystemExit(pytest.main([__file__]))\n", []),
        ("import pytest\ncode = pytest.main([__file__])\n", []),
        ("def main(): ...\nmain()\n", []),
        ("# pytest.main([__file__])\n", []),
        ("def broken(:\n", []),
    ],
)
def test_a_dropped_exit_code_is_found(source: str, lines: list[int]) -> None:
    assert [finding.line for finding in lost_exit_codes(source.encode(), "test_x.py")] == lines


def test_all_findings_come_in_one_list_by_file_and_line(tmp_path: Path, inventory: Inventory) -> None:
    bare = "import pytest\npytest.main([__file__])\n"
    root = workspace(
        tmp_path,
        {
            "tests/e2e/test_b.py": CUDA + bare,
            "tests/e2e/test_a.py": "x = 1\n",
            "tests/fast/test_cpu.py": bare,  # pytest runs it, so its code does not matter
            "tests/ci/test_c.py": "register_cpu_ci(1, 'stage-b-cpu')\nif 1:\n    register_cpu_ci(1, 'x')\n",
        },
    )
    found = findings(read_tree(root, inventory, cache=None), root, inventory)
    assert [(finding.file, finding.line) for finding in found] == [
        ("tests/ci/test_c.py", 3),
        ("tests/e2e/test_a.py", 0),
        ("tests/e2e/test_b.py", 3),
    ]
