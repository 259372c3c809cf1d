from sglang.srt.arguments import ServerArguments


def test_tensor_parallel_size_is_handed_on():
    assert ServerArguments(model="tiny", tp_size=4).command() == ["--model", "tiny", "--tp-size", "4"]
