from megatron.core.parallel import world_size


def test_world_size_is_the_product():
    assert world_size(tensor=2, pipeline=2, data=2) == 8
