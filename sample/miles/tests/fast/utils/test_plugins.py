from miles_plugins import OPTIMIZERS


def test_optimizers_have_distinct_names():
    assert len(set(OPTIMIZERS)) == len(OPTIMIZERS) > 0
