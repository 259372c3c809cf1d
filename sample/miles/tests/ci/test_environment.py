import os

from tests.ci.ci_register import register_cpu_ci

register_cpu_ci(est_time=2, suite="stage-b-cpu")


def test_the_run_names_its_commit():
    assert os.environ["GITHUB_COMMIT_NAME"].count("_") >= 1


def test_the_source_roots_are_handed_over():
    assert os.path.isdir(os.environ["SGLANG_SOURCE_ROOT"])
    assert os.path.isdir(os.environ["MEGATRON_SOURCE_ROOT"])
