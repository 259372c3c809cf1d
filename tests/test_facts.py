import json
from pathlib import Path

import pytest

from ci.errors import UsageError
from ci.facts import Facts, Given, for_backend, read_facts
from ci.inventory import Inventory


def read(tmp_path: Path, inventory: Inventory, payload: object = None, **given: object) -> Facts:
    if payload is not None:
        (tmp_path / "event.json").write_text(json.dumps(payload))
        given["event"] = "event.json"
    given.setdefault("refs", {})
    return read_facts(Given(**given), inventory, workspace=tmp_path, started_in=tmp_path)  # type: ignore[arg-type]


def test_everything_of_a_pull_request_is_read_from_its_event(tmp_path: Path, inventory: Inventory) -> None:
    facts = read(
        tmp_path,
        inventory,
        {"pull_request": {"number": 7, "labels": [{"name": "nightly"}], "body": "ci-sglang-pr: #1"}},
    )
    assert (facts.trigger.event, facts.trigger.labels, facts.number) == ("pull_request", ("nightly",), 7)
    assert facts.refs.body == "ci-sglang-pr: #1"


def test_what_is_given_beats_the_event(tmp_path: Path, inventory: Inventory) -> None:
    (tmp_path / "body.md").write_bytes(b"ci-sglang-pr: mine\xff\r\n")
    payload = {"pull_request": {"number": 7, "labels": [{"name": "nightly"}], "body": "ci-sglang-pr: #1"}}
    facts = read(
        tmp_path, inventory, payload, labels_json='["run-ci-all"]', pr_body="body.md", event_name="pull_request"
    )
    assert facts.trigger.labels == ("run-ci-all",)
    assert facts.refs.body.startswith("ci-sglang-pr: mine\ufffd")


def test_dispatch_inputs_name_refs_and_typed_ones_beat_them(tmp_path: Path, inventory: Inventory) -> None:
    payload = {"inputs": {"ci_sglang_pr": "#9", "ci_megatron_pr": ""}}
    facts = read(tmp_path, inventory, payload, refs={"sglang": "", "megatron": "x"})
    assert facts.refs.dispatch == {"sglang": "#9", "megatron": "x"}
    assert facts.refs.local == {"megatron"}


def test_a_typed_folder_is_meant_from_where_the_person_is(tmp_path: Path, inventory: Inventory) -> None:
    facts = read(tmp_path, inventory, refs={"sglang": "path:../sglang"})
    assert facts.refs.dispatch["sglang"] == f"path:{tmp_path}/../sglang"


def test_a_manual_dispatch_matches_all_labels_on_gpus_alone(tmp_path: Path, inventory: Inventory) -> None:
    trigger = read(tmp_path, inventory, {"inputs": {}}).trigger
    assert for_backend(trigger, inventory.backends["cuda"]).match_all_labels
    assert not for_backend(trigger, inventory.backends["cpu"]).match_all_labels
    called = read(tmp_path, inventory, {"inputs": {}}, cadence="release").trigger
    assert not for_backend(called, inventory.backends["cuda"]).match_all_labels


def test_a_file_that_is_not_there_is_named(tmp_path: Path, inventory: Inventory) -> None:
    with pytest.raises(UsageError, match="--pr-body"):
        read(tmp_path, inventory, pr_body="nothing.md")
