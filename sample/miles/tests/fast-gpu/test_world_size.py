import sys

import pytest
from megatron.core.parallel import world_size

from tests.ci.ci_register import register_cuda_ci, register_rocm_ci

register_cuda_ci(est_time=60, suite="stage-b-2-gpu-h200", labels=["short"])
register_rocm_ci(est_time=60, suite="stage-c-4-gpu-mi350", labels=["short", "amd"])


def test_world_size_of_one():
    assert world_size(tensor=1, pipeline=1, data=1) == 1


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
