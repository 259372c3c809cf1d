"""Learning-rate schedules."""


def warmup(step: int, *, over: int) -> float:
    """The share of the full rate at ``step``, rising linearly over ``over`` steps."""
    return min(1.0, step / over)
