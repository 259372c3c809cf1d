import os
import time
from pathlib import Path
from typing import Any

import pytest

import ci.scan_cache
import ci.tree
from ci.inventory import Inventory
from ci.registration import FileScan
from ci.tree import read_tree
from tests.factory import cases, registered_workspace, workspace

CPU = 'register_cpu_ci(est_time=5, suite="stage-b-cpu")\n'
LONG_AGO = time.time_ns() - 3600 * 10**9


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets files written a moment ago be kept."""
    monkeypatch.setattr(ci.scan_cache, "_GRAIN_NS", -(10**12))


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened from now on."""
    scanned: list[str] = []
    scan = ci.tree._scan

    def noted(entry: "os.DirEntry[str]", file: str, *arguments: Any, **more: Any) -> FileScan:
        scanned.append(file)
        return scan(entry, file, *arguments, **more)

    monkeypatch.setattr(ci.tree, "_scan", noted)
    return scanned


@pytest.mark.usefixtures("settled")
def test_a_second_reading_is_equal_and_opens_nothing(
    tmp_path: Path, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = registered_workspace(tmp_path / "w", cases("registrations"))
    (root / "tests/ci/test_bad.py").write_text("register_cpu_ci(0)\nif 1: register_cpu_ci\n")
    cold = read_tree(root, inventory, cache=tmp_path / "cache")
    scanned = opened(monkeypatch)
    assert read_tree(root, inventory, cache=tmp_path / "cache") == cold
    assert scanned == []


@pytest.mark.usefixtures("settled")
def test_a_changed_file_is_read_again_even_with_its_old_times(
    tmp_path: Path, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace(tmp_path / "w", {"tests/ci/test_x.py": CPU, "tests/ci/test_y.py": CPU})
    file = root / "tests/ci/test_x.py"
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    read_tree(root, inventory, cache=tmp_path / "cache")
    scanned = opened(monkeypatch)
    file.write_text(CPU.replace("5", "6"))
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    tree = read_tree(root, inventory, cache=tmp_path / "cache")
    assert scanned == ["tests/ci/test_x.py"]
    assert [found.est_time for found in tree.registrations] == [6, 5]


def test_a_file_written_a_moment_ago_is_not_kept(
    tmp_path: Path, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace(tmp_path / "w", {"tests/ci/test_x.py": CPU})
    read_tree(root, inventory, cache=tmp_path / "cache")
    scanned = opened(monkeypatch)
    read_tree(root, inventory, cache=tmp_path / "cache")
    assert scanned == ["tests/ci/test_x.py"]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"tests/ci/test_x.py": 1}', b'{"tests/ci/test_x.py": [[1], 2]}']
)
def test_a_broken_store_is_an_empty_one(tmp_path: Path, inventory: Inventory, content: bytes) -> None:
    root = workspace(tmp_path / "w", {"tests/ci/test_x.py": CPU})
    fresh = read_tree(root, inventory, cache=tmp_path / "cache")
    (store,) = (tmp_path / "cache/scans").iterdir()
    store.write_bytes(content)
    assert read_tree(root, inventory, cache=tmp_path / "cache") == fresh


@pytest.mark.usefixtures("settled")
def test_a_removed_file_is_forgotten(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path / "w", {"tests/ci/test_x.py": CPU, "tests/ci/test_y.py": CPU})
    read_tree(root, inventory, cache=tmp_path / "cache")
    (root / "tests/ci/test_x.py").unlink()
    assert read_tree(root, inventory, cache=tmp_path / "cache").files == ("tests/ci/test_y.py",)
    (store,) = (tmp_path / "cache/scans").iterdir()
    assert "test_x.py" not in store.read_text()


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, inventory: Inventory) -> None:
    root = workspace(tmp_path / "w", {"tests/ci/test_x.py": CPU})
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert len(read_tree(root, inventory, cache=tmp_path / "cache").registrations) == 1
