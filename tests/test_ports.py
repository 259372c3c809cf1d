import itertools
import socket
from pathlib import Path

import pytest

import ci.ports
from ci.errors import InfrastructureError
from ci.ports import FIRST, SIZE, port_range


def test_ranges_of_one_host_never_overlap_and_lie_between_ray_and_the_kernel(tmp_path: Path) -> None:
    with port_range(tmp_path) as first, port_range(tmp_path) as second, port_range(tmp_path) as third:
        bases = sorted((first, second, third))
        assert all(later - earlier >= SIZE for earlier, later in itertools.pairwise(bases))
        assert bases[0] >= FIRST
        assert bases[-1] + SIZE <= 32768
    with port_range(tmp_path) as again:
        assert again == first


def test_a_range_with_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    with port_range(tmp_path) as base:
        pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 7))
        taken.listen()
        with port_range(tmp_path) as other:
            assert other != base


def test_when_all_are_taken_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = tmp_path / "range"
    narrow.write_text(f"{FIRST + SIZE} 60999\n")
    monkeypatch.setattr(ci.ports, "_EPHEMERAL", narrow)
    with port_range(tmp_path), pytest.raises(InfrastructureError, match="free ports in a row"), port_range(tmp_path):
        pass
