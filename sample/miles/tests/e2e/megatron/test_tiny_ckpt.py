import sys

import pytest
from miles.rollout import split_batch

from tests.ci.ci_register import register_cuda_ci

register_cuda_ci(est_time=400, suite="stage-c-4-gpu-h200", labels=["ckpt", "megatron"])


def test_one_worker_has_all():
    assert split_batch([1, 2, 3], 1) == [[1, 2, 3]]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
