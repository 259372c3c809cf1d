import sys

import pytest
from sglang.srt.arguments import ServerArguments

from tests.ci.ci_register import register_cuda_ci

register_cuda_ci(est_time=30, suite="stage-c-2-gpu-h200", labels=["sglang"])


def test_default_is_one_gpu():
    assert ServerArguments(model="tiny").command()[-1] == "1"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
