"""Advantages of a group of rollouts."""


def group_advantages(rewards: list[float]) -> list[float]:
    """Rewards of one prompt's samples, centred on their mean."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def split_batch(samples: list[int], workers: int) -> list[list[int]]:
    """Deal samples to workers, round and round."""
    return [samples[worker::workers] for worker in range(workers)]
