import pytest

from ci.retry import RULES, Decision, decide


def decided(tail: str, **more: bool) -> Decision:
    return decide(
        tail, attempt=1, attempts=2, signalled=more.get("signalled", False), timed_out=more.get("timed_out", False)
    )


@pytest.mark.parametrize(
    "tail",
    [
        "Traceback (most recent call last):\n  File\nAssertionError: accuracy 0.61 is below 0.64\n",
        "AssertionError\n",
        "E       AssertionError: assert 3 == 4\n",
        "E       assert 0.1 < 0.05\n",
        "step 40: throughput 812 tokens/s is below the floor of 900\n",
        "gsm8k score 0.41 under 0.45\n",
        "bloom filter built\nNo room left\nAssertionError: x\n",
    ],
)
def test_what_may_be_chance_is_retried(tail: str) -> None:
    assert decided(tail).retry


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'x'",
        "SyntaxError: invalid syntax",
        "NameError: name 'x' is not defined",
        "TypeError: f() takes 0",
        "AttributeError: 'x'",
        "RuntimeError: NCCL error",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.cuda.OutOfMemoryError: x",
        "HIP out of memory. Tried to allocate",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "FileNotFoundError: [Errno 2] No such file",
        "Fatal Python error: Segmentation fault",
        "E   ImportError: cannot import name",
    ],
)
def test_what_is_no_chance_is_never_retried_whatever_else_is_there(line: str) -> None:
    decision = decided(f"AssertionError: accuracy\n{line}\nAssertionError: score\n")
    assert not decision.retry
    assert line[:40].strip() in decision.reason


@pytest.mark.parametrize(
    "tail", ["", "all good\n", "assertionerror: x\n", "see AssertionError in the docs\n", "myRuntimeError\n"]
)
def test_rules_are_anchored_and_case_exact(tail: str) -> None:
    assert decided(tail) == Decision(retry=False, reason="nothing in its output says that chance played a part")


def test_a_crash_a_time_out_and_the_last_attempt_are_not_retried() -> None:
    assert decided("AssertionError\n", signalled=True).reason == "a crash is not retried"
    assert decided("AssertionError\n", timed_out=True).reason == "a time-out is not retried"
    last = decide("AssertionError\n", attempt=2, attempts=2, signalled=False, timed_out=False)
    assert last == Decision(retry=False, reason="it was attempt 2 of 2")


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
