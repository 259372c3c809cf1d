import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.event import parse_event

PULL: dict[str, Any] = {
    "action": "labeled",
    "number": 12,
    "pull_request": {
        "number": 12,
        "body": "ci-sglang-pr: #7\r\n",
        "labels": [{"id": 1, "name": "run-ci-megatron"}, {"id": 2, "name": "bug"}],
        "head": {"sha": "a" * 40, "ref": "x"},
    },
}


def read(payload: object, name: str | None = None) -> Any:
    return parse_event(json.dumps(payload).encode(), name=name, origin="event.json")


def test_a_pull_request_is_read() -> None:
    event = read(PULL)
    assert (event.name, event.number, event.labels) == ("pull_request", 12, ("run-ci-megatron", "bug"))
    assert event.body == "ci-sglang-pr: #7\r\n"
    assert event.head == "a" * 40


def test_a_null_body_is_an_empty_one() -> None:
    assert read({"pull_request": {"body": None, "labels": None}}).body == ""


def test_a_schedule_and_a_dispatch_are_told_by_their_shape() -> None:
    assert (read({"schedule": "0 15 * * 6"}).name, read({"schedule": "0 15 * * 6"}).schedule) == (
        "schedule",
        "0 15 * * 6",
    )
    dispatch = read(
        {"inputs": {"ci_sglang_pr": "#9", "ci_image_tag": "", "infinite_run": True}, "ref": "refs/heads/main"}
    )
    assert dispatch.name == "workflow_dispatch"
    assert dict(dispatch.inputs) == {"ci_sglang_pr": "#9", "infinite_run": "true"}


def test_the_given_name_wins_over_the_shape() -> None:
    assert read(PULL, "pull_request_target").name == "pull_request_target"


@pytest.mark.parametrize(
    "payload",
    [
        [],
        5,
        {"pull_request": []},
        {"pull_request": {"labels": {}}},
        {"pull_request": {"labels": ["x"]}},
        {"pull_request": {"labels": [{"name": 5}]}},
        {"pull_request": {"number": "12"}},
        {"pull_request": {"number": True}},
        {"pull_request": {"body": ["x"]}},
        {"schedule": 5},
        {"inputs": {"x": {"y": 1}}},
        {},
    ],
)
def test_a_payload_of_another_shape_is_refused(payload: object) -> None:
    with pytest.raises(UsageError, match=r"event\.json"):
        read(payload)


@pytest.mark.parametrize("source", [b"", b"{", b"\xff", b"[" * 100000])
def test_what_is_not_json_is_refused(source: bytes) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        parse_event(source, name=None, origin="event.json")


payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pull_request", "labels", "name", "number", "body", "inputs", "schedule"]), inner
        )
    ),
    max_leaves=12,
)


@given(payloads)
def test_any_payload_is_read_or_refused(payload: object) -> None:
    try:
        event = read(payload)
    except UsageError:
        return
    assert all(isinstance(label, str) for label in event.labels)
