import sys

import pytest
from megatron.training.schedule import warmup

from tests.ci.ci_register import register_cuda_ci, register_rocm_ci

register_cuda_ci(est_time=600, suite="stage-c-4-gpu-h200", labels=["megatron"])
register_rocm_ci(est_time=900, suite="stage-c-4-gpu-mi350", labels=["megatron", "amd"], nightly=True)


def test_first_step_is_cold():
    assert warmup(0, over=10) == 0.0


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
