"""Every input/output pair that was taken from the live system."""

import json
from pathlib import Path
from typing import Any

import pytest

from ci.diff import Unusable, parse_diff
from ci.errors import UsageError
from ci.image_decision import ImageRequest, decide_image
from ci.inventory import Inventory
from ci.plan import plan_data, plan_stage
from ci.policy import Trigger, parse_labels, resolve_policy
from ci.refs import RefRequest, decide_refs
from ci.registration import Mentions, check_labels, read_registrations
from ci.sharding import Partition
from ci.stage_selection import select_stages
from ci.tree import Tree, read_tree
from tests.factory import cases, registered_workspace, vector


@pytest.fixture(scope="session")
def live_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return registered_workspace(tmp_path_factory.mktemp("live"), cases("registrations"))


@pytest.fixture(scope="session")
def live_tree(live_workspace: Path, inventory: Inventory) -> Tree:
    return read_tree(live_workspace, inventory, cache=None).require()


def test_labels(inventory: Inventory) -> None:
    assert dict(inventory.labels) == vector("labels")


@pytest.mark.parametrize("case", cases("policy"), ids=lambda case: json.dumps(case["in"])[:90])
def test_policy(case: dict[str, Any], inventory: Inventory) -> None:
    given, expected = case["in"], case["out"]

    def decide() -> dict[str, Any]:
        trigger = Trigger(
            event=given["event"],
            schedule=given.get("schedule", ""),
            labels=parse_labels(given["labels_json"]) if "labels_json" in given else (),
            cadence=given.get("override"),
        )
        policy = resolve_policy(trigger, inventory)
        return {
            "cadence": policy.cadence,
            "raw_labels": list(policy.raw_labels),
            "bypass_fastfail": policy.bypass_fastfail,
            "include_labels": list(policy.include_labels),
            "admit_nightly": policy.admit_nightly,
            "write_baseline": policy.write_baseline,
        }

    if "error" in expected:
        with pytest.raises(UsageError):
            decide()
    else:
        assert decide() == expected


@pytest.mark.parametrize("case", cases("refs"), ids=lambda case: json.dumps(case["in"])[:90])
def test_refs(case: dict[str, Any], inventory: Inventory) -> None:
    given, expected = case["in"], case["out"]
    request = RefRequest(
        dispatch={name: given[name] for name in ("sglang", "megatron") if name in given},
        body=given.get("body", ""),
        lock=json.dumps(given["lock"]) if "lock" in given else None,
    )
    refs = decide_refs(request, inventory, inventory.backends["cuda"])
    assert expected["rc"] == 0
    assert {decision.dependency.name: str(decision.ref) for decision in refs.decisions} == {
        "sglang": expected["sglang"],
        "megatron": expected["megatron"],
    }


@pytest.mark.parametrize("case", cases("registration_parse"), ids=lambda case: case["in"].strip()[-70:])
def test_registration_parse(case: dict[str, Any], inventory: Inventory) -> None:
    registers = inventory.backend_of_register()
    scan = read_registrations(case["in"].encode(), "test_x.py", registers, Mentions(registers))
    faults = [*scan.problems, *(fault for found in scan.registrations for fault in check_labels(found, inventory))]
    if "error" in case["out"]:
        assert faults
        return
    assert not faults
    assert [
        {
            "backend": found.backend,
            "est_time": found.est_time,
            "suite": found.suite,
            "labels": list(found.labels),
            "nightly": found.nightly,
            "disabled": found.disabled,
        }
        for found in scan.registrations
    ] == case["out"]


def test_registrations(live_tree: Tree) -> None:
    fields = ("file", "backend", "suite", "est_time", "labels", "nightly", "disabled", "implicit")
    found = [{name: getattr(registration, name) for name in fields} for registration in live_tree.registrations]
    assert [{**entry, "labels": list(entry["labels"])} for entry in found] == cases("registrations")


@pytest.mark.parametrize(
    "case",
    cases("plans"),
    ids=lambda case: f"{case['suite']}-{case['cadence']}-{'+'.join(case['labels'])}{'-all' * case['match_all_labels']}",
)
def test_plans(case: dict[str, Any], live_tree: Tree, inventory: Inventory) -> None:
    policy = resolve_policy(
        Trigger(cadence=case["cadence"], extra_labels=tuple(case["labels"]), match_all_labels=case["match_all_labels"]),
        inventory,
    )
    stage = inventory.stages.get(case["suite"])
    assert stage is not None
    assert stage.backend == case["hw"]
    plan = plan_data(plan_stage(live_tree.registrations, stage, policy, None))
    assert [entry["file"] for entry in plan["enabled"]] == case["plan"]["enabled"]
    assert [entry["file"] for entry in plan["skipped"]] == case["plan"]["skipped"]
    for size, shards in case.get("shards", {}).items():
        parts = [
            [
                found.file
                for found in plan_stage(live_tree.registrations, stage, policy, Partition(number, int(size))).enabled
            ]
            for number in range(int(size))
        ]
        assert parts == shards


@pytest.mark.parametrize("case", cases("stage_selection"), ids=lambda case: json.dumps(case["in"])[:90])
def test_stage_selection(case: dict[str, Any], live_tree: Tree, inventory: Inventory) -> None:
    given = case["in"]
    policy = resolve_policy(Trigger(event="pull_request", labels=tuple(given["labels"])), inventory)
    assert policy.cadence == given["cadence"]
    diff = parse_diff(given["diff_z"].encode())
    decisions = select_stages(
        inventory.stages.values(), live_tree.registrations, policy=policy, diff=diff, inventory=inventory
    )
    assert isinstance(diff, Unusable) == case["out"]["unusable"]
    assert sorted(decision.stage.name for decision in decisions if not decision.starts) == case["out"]["skipped"]


@pytest.mark.parametrize("case", cases("images"), ids=lambda case: json.dumps(case["in"])[:60])
def test_images(case: dict[str, Any], inventory: Inventory) -> None:
    given, expected = case["in"], case["out"]
    assert given.keys() <= {"tag", "body", "pr_image", "number"}
    request = ImageRequest(
        given=given.get("tag", ""),
        own_image=int(given["number"]) if given.get("pr_image") == "true" else None,
        body=given.get("body", ""),
    )
    image = inventory.backends["cuda"].image
    assert image is not None
    if expected["rc"]:
        with pytest.raises(UsageError):
            decide_image(request, image)
    else:
        assert decide_image(request, image).image == expected["image"]
