from miles.rollout import split_batch


def test_every_sample_is_dealt_once():
    dealt = split_batch(list(range(10)), 3)
    assert sorted(sum(dealt, [])) == list(range(10))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
