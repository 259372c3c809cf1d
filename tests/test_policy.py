import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.inventory import Inventory
from ci.policy import Trigger, parse_labels, resolve_policy


def test_an_unknown_label_selects_nothing_and_is_said(inventory: Inventory) -> None:
    policy = resolve_policy(Trigger(event="pull_request", labels=("run-ci-megatorn",)), inventory)
    assert policy.include_labels == ()
    assert policy.warnings == ("label `run-ci-megatorn` selects nothing; did you mean `run-ci-megatron`?",)


def test_a_typed_label_that_is_not_read_is_said(inventory: Inventory) -> None:
    policy = resolve_policy(Trigger(extra_labels=("megatron",)), inventory)
    assert "did you mean `run-ci-megatron`?" in policy.warnings[0]


def test_typed_labels_count_beside_an_explicit_cadence_and_the_events_do_not(inventory: Inventory) -> None:
    trigger = Trigger(
        event="pull_request", labels=("run-ci-long",), cadence="regular", extra_labels=("run-ci-megatron",)
    )
    assert resolve_policy(trigger, inventory).include_labels == ("megatron",)


@pytest.mark.parametrize(("wrong", "nearest"), [("nightl", "nightly"), ("Weekly", "weekly"), ("realease", "release")])
def test_a_wrong_cadence_suggests_the_nearest(inventory: Inventory, wrong: str, nearest: str) -> None:
    with pytest.raises(UsageError, match="is not a cadence") as error:
        resolve_policy(Trigger(cadence=wrong), inventory)
    assert f"`{nearest}`" in str(error.value)


def test_an_unknown_cron_lists_the_known_ones(inventory: Inventory) -> None:
    with pytest.raises(UsageError) as error:
        resolve_policy(Trigger(event="schedule", schedule="0 15 * * 0-5\n"), inventory)
    assert "`0 15 * * 0-5`, `0 15 * * 6`" in str(error.value)
    assert "\\n" in str(error.value)


@pytest.mark.parametrize("text", ["", "null", "{}", '"a"', "[1]", "[", '[["a"]]', "[NaN]", "[" * 5000])
def test_labels_are_a_json_array_of_strings(text: str) -> None:
    with pytest.raises(UsageError, match="the labels are"):
        parse_labels(text)


def test_each_part_of_the_decision_says_where_it_came_from(inventory: Inventory) -> None:
    policy = resolve_policy(Trigger(event="pull_request", labels=("nightly", "run-ci-long", "bug")), inventory)
    because = dict(policy.because)
    assert because["cadence"] == "label nightly"
    assert because["include_labels"] == "cadence nightly, without ft-long, long, and asked for by run-ci-long"
    assert because["bypass_fastfail"] == "cadence nightly"


def test_a_persons_own_run_is_regular_or_nightly_by_its_labels(inventory: Inventory) -> None:
    assert resolve_policy(Trigger(), inventory).cadence == "regular"
    assert resolve_policy(Trigger(extra_labels=("nightly",)), inventory).cadence == "nightly"


@given(
    labels=st.lists(st.text(max_size=20) | st.sampled_from(["nightly", "run-ci-all", "run-ci-image", "run-ci-long"]))
)
def test_asking_for_more_never_selects_less(inventory: Inventory, labels: list[str]) -> None:
    before = resolve_policy(Trigger(event="pull_request", labels=tuple(labels)), inventory)
    after = resolve_policy(Trigger(event="pull_request", labels=(*labels, "run-ci-megatron")), inventory)
    assert set(before.include_labels) <= set(after.include_labels)
    assert "megatron" in after.include_labels
