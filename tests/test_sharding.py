import random as randomness

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.registration import Registration
from ci.sharding import Partition, parse_partition, shard


def registration(number: int, est_time: float) -> Registration:
    return Registration(file=f"test_{number}.py", line=1, backend="cpu", suite="stage-a-cpu", est_time=est_time)


@pytest.mark.parametrize(
    "text", ["4/4", "-1/4", "1/0", "1", "a/b", "", "1/4/2", "1 / 4", "٣/٤", "0/0", "1/4\n", "99999999/9999999"]
)
def test_a_partition_that_does_not_exist_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_partition(text)
    assert error.value.exit_code == 2
    assert "0 to" in str(error.value)


def test_partition_reads_id_and_size() -> None:
    assert parse_partition("3/4") == Partition(3, 4)


def test_more_partitions_than_files_leaves_some_empty() -> None:
    parts = shard([registration(number, 1.0) for number in range(3)], 4)
    assert [len(part) for part in parts] == [1, 1, 1, 0]


@given(st.lists(st.floats(0.001, 1e6), max_size=40), st.integers(1, 9))
def test_every_file_is_in_exactly_one_partition_and_the_loads_are_close(times: list[float], size: int) -> None:
    registrations = [registration(number, seconds) for number, seconds in enumerate(times)]
    parts = shard(registrations, size)
    assert len(parts) == size
    assert sorted(found.file for part in parts for found in part) == sorted(found.file for found in registrations)
    totals = [sum(found.est_time for found in part) for part in parts]
    # a partition got its last file while it had the least, so no two differ by more than the longest file
    assert max(totals) - min(totals) <= max(times, default=0) * (1 + 1e-9)


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), max_size=30), st.integers(1, 5), st.randoms())
def test_the_order_of_discovery_does_not_matter(times: list[float], size: int, random: randomness.Random) -> None:
    registrations = [registration(number, seconds) for number, seconds in enumerate(times)]
    shuffled = list(registrations)
    random.shuffle(shuffled)
    assert shard(shuffled, size) == shard(registrations, size)
