from tests.ci import ci_register
from tests.ci.ci_register import register_cpu_ci

register_cpu_ci(est_time=1, suite="stage-a-cpu")


def test_registering_does_nothing():
    functions = [function for name, function in vars(ci_register).items() if name.startswith("register_")]
    assert len(functions) == 3
    assert all(function(est_time=1, suite="any", labels=["short"]) is None for function in functions)
