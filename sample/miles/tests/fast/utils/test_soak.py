from miles.rollout import group_advantages

from tests.ci.ci_register import register_cpu_ci

register_cpu_ci(est_time=5, suite="stage-a-cpu", nightly=True)


def test_large_groups_cancel():
    assert abs(sum(group_advantages([float(n % 7) for n in range(200_000)]))) < 1e-3
