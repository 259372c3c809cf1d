from megatron.training.schedule import warmup

from tests.ci.ci_register import register_cpu_ci

register_cpu_ci(est_time=3, suite="stage-a-cpu")


def test_warmup_reaches_the_full_rate():
    assert [warmup(step, over=4) for step in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
