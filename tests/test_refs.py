import json

import pytest

from ci.errors import UsageError
from ci.inventory import Inventory
from ci.ref import RefKind
from ci.refs import RefRequest, decide_refs

COMMIT = "c" * 40


def origins(request: RefRequest, inventory: Inventory, backend: str = "cpu") -> dict[str, tuple[str, str | None]]:
    refs = decide_refs(request, inventory, inventory.backends[backend])
    return {
        decision.dependency.name: (decision.origin, str(decision.ref) if decision.ref else None)
        for decision in refs.decisions
    }


def test_every_answer_carries_its_origin(inventory: Inventory) -> None:
    request = RefRequest(
        dispatch={"sglang": ""}, body="x\nci-sglang-pr: #7\n", lock=json.dumps({"megatron_commit": COMMIT})
    )
    refs = decide_refs(request, inventory, inventory.backends["cpu"])
    assert [(found.origin, found.detail) for found in refs.decisions] == [
        ("directive", "line 2 of the PR's text"),
        ("lock", "megatron_commit in release-lock.json"),
    ]


def test_a_lock_on_main_pins_nothing(inventory: Inventory) -> None:
    lock = json.dumps({"sglang_commit": None, "megatron_commit": None})
    assert origins(RefRequest(dispatch={}, lock=lock), inventory)["sglang"] == ("branch", "sglang-miles")


def test_rocm_keeps_what_is_baked_and_never_reads_the_lock(inventory: Inventory) -> None:
    request = RefRequest(dispatch={}, body="ci-megatron-pr: #72", lock="{ half a lock")
    assert origins(request, inventory, "rocm") == {
        "sglang": ("image", None),
        "megatron": ("directive", "refs/pull/72/head"),
    }


def test_a_folder_may_be_typed_but_never_come_from_a_pull_request(inventory: Inventory) -> None:
    typed = RefRequest(dispatch={"sglang": "path:/some/dir"}, local=frozenset({"sglang"}))
    refs = decide_refs(typed, inventory, inventory.backends["cpu"])
    assert refs.decisions[0].ref is not None
    assert refs.decisions[0].ref.kind is RefKind.PATH
    for request in (
        RefRequest(dispatch={"sglang": "path:/some/dir"}),
        RefRequest(dispatch={}, body="ci-sglang-pr: path:/some/dir"),
    ):
        with pytest.raises(UsageError, match="is not a ref"):
            decide_refs(request, inventory, inventory.backends["cpu"])


@pytest.mark.parametrize(
    "value",
    ["--upload-pack=touch${IFS}x", "-x", "a..b", "x~", "refs/heads/../x", "a\x07b", "a\u2028b", "ma*", "a^", "a:b"],
)
def test_a_hostile_directive_is_refused_with_its_origin(inventory: Inventory, value: str) -> None:
    with pytest.raises(UsageError) as error:
        decide_refs(RefRequest(dispatch={}, body=f"ci-sglang-pr: {value}"), inventory, inventory.backends["cpu"])
    assert "ci-sglang-pr in line 1 of the PR's text" in str(error.value)
    assert all(line.isprintable() for line in str(error.value).splitlines())
