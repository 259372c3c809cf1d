import sys

import pytest
from megatron.core.parallel import world_size

from tests.ci.ci_register import register_cuda_ci, register_rocm_ci

register_cuda_ci(est_time=1800, suite="stage-c-8-gpu-h200", labels=["megatron", "long"])
register_cuda_ci(est_time=1200, suite="stage-c-8-gpu-h100", labels=["megatron"])
register_rocm_ci(est_time=1200, suite="nightly-stage-c-8-gpu-mi350", labels=["amd"])


def test_world_size_of_eight():
    assert world_size(tensor=8, pipeline=1, data=1) == 8


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
