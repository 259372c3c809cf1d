import sys

import pytest
from miles.rollout import group_advantages

from tests.ci.ci_register import register_cuda_ci

register_cuda_ci(
    est_time=300,
    suite="stage-c-4-gpu-h200",
    labels=["short"],
    disabled="shows how a disabled test is listed",
)


def test_single_sample_has_no_advantage():
    assert group_advantages([5.0]) == [0.0]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
