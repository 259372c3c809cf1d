import pytest

from miles.rollout import group_advantages


@pytest.mark.parametrize("rewards", [[1.0, 0.0], [3.0, 3.0, 3.0], [0.5, -0.5, 2.0]])
def test_advantages_of_a_group_cancel(rewards):
    assert sum(group_advantages(rewards)) == pytest.approx(0)
