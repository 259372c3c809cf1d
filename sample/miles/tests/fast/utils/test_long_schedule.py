from megatron.training.schedule import warmup

from tests.ci.ci_register import register_cpu_ci

register_cpu_ci(est_time=20, suite="stage-a-cpu", labels=["long"])


def test_warmup_never_falls():
    rates = [warmup(step, over=100_000) for step in range(100_001)]
    assert rates == sorted(rates)
