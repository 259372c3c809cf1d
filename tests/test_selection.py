from ci.inventory import Inventory
from ci.policy import Trigger, resolve_policy
from ci.registration import Registration
from ci.selection import reasons_against, select


def registration(**fields: object) -> Registration:
    base = {
        "file": "tests/e2e/test_x.py",
        "line": 3,
        "backend": "cuda",
        "suite": "stage-c-4-gpu-h200",
        "est_time": 60.0,
    }
    return Registration(**{**base, **fields})  # type: ignore[arg-type]


def test_every_reason_is_given_with_its_remedy(inventory: Inventory) -> None:
    policy = resolve_policy(Trigger(event="pull_request"), inventory)
    found = registration(labels=("megatron",), nightly=True, disabled="flaky\n::error::x")
    reasons = reasons_against(found, policy, inventory.scope)
    assert [reason.text for reason in reasons] == [
        "it is disabled: flaky\\n::error::x",
        "it runs nightly, and this run is regular",
        "none of its labels (megatron) is in scope",
    ]
    assert "`run-ci-megatron`" in reasons[2].remedy


def test_disabled_is_skipped_only_where_it_would_have_run(inventory: Inventory) -> None:
    policy = resolve_policy(Trigger(extra_labels=("run-ci-megatron",)), inventory)
    registrations = [
        registration(labels=("megatron",), disabled="a"),
        registration(labels=("ckpt",), disabled="b"),
        registration(labels=("megatron",)),
    ]
    selection = select(registrations, backend="cuda", suite="stage-c-4-gpu-h200", policy=policy)
    assert [found.disabled for found in selection.skipped] == ["a"]
    assert len(selection.enabled) == 1
