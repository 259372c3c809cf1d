"""Parallel sizes."""


def world_size(*, tensor: int, pipeline: int, data: int) -> int:
    """GPUs that these sizes need together."""
    return tensor * pipeline * data
