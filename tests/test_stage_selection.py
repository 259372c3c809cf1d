"""Which GPU stages a pull request starts; the pairs of the live system are in test_vectors."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.diff import Diff, Unusable, parse_diff
from ci.inventory import Inventory
from ci.inventory_file import OWN_INVENTORY, load_inventory
from ci.policy import Trigger, resolve_policy
from ci.registration import Registration
from ci.stage_selection import Cause, StageDecision, is_filtered, select_stages

OWN = load_inventory(OWN_INVENTORY)
GPU_STAGES = [stage for stage in OWN.stages.values() if stage.gpus and not stage.external]
E2E, FAST, OTHER = "tests/e2e/test_a.py", "tests/fast/test_b.py", "tests/e2e/test_c.py"


def registration(suite: str, file: str = E2E, **fields: object) -> Registration:
    base = {"line": 1, "backend": OWN.stages[suite].backend, "est_time": 60.0, "labels": ("short",)}
    return Registration(file=file, suite=suite, **{**base, **fields})  # type: ignore[arg-type]


def diff_of(*paths: str) -> Diff:
    parsed = parse_diff("".join(f"M\0{path}\0" for path in paths).encode())
    assert isinstance(parsed, Diff)
    return parsed


def decide(
    registrations: Iterable[Registration],
    diff: Diff | Unusable | None,
    labels: Iterable[str] = (),
    **trigger: bool,
) -> dict[str, StageDecision]:
    asked = Trigger(event="pull_request", labels=tuple(labels), **trigger)  # type: ignore[arg-type]
    policy = resolve_policy(asked, OWN)
    decided = select_stages(OWN.stages.values(), registrations, policy=policy, diff=diff, inventory=OWN)
    for decision in decided:
        assert decision.reason
        assert decision.reason.isprintable()
    return {decision.stage.name: decision for decision in decided}


TESTS = (
    registration("stage-c-4-gpu-h200"),
    registration("stage-c-8-gpu-h100", OTHER, labels=("short", "megatron")),
    registration("stage-c-4-gpu-mi350", OTHER, labels=("amd",)),
    registration("stage-a-cpu", FAST, labels=()),
)


def test_a_changed_test_starts_its_own_stages_alone() -> None:
    # without labels, so that they can run and nothing adds them
    tests = (registration("stage-c-4-gpu-h200", labels=()), registration("stage-c-8-gpu-h100", OTHER, labels=()))
    decided = decide(tests, diff_of(E2E))
    assert decided["stage-c-4-gpu-h200"].cause is Cause.AFFECTED
    assert decided["stage-c-4-gpu-h200"].reason == f"its test {E2E} changed"
    assert decided["stage-c-8-gpu-h100"].cause is Cause.UNREACHED
    assert decided["stage-c-8-gpu-h100"].reason == "no changed path can reach it, and no label adds it"


def test_a_path_that_is_no_registered_test_affects_all_that_can_run() -> None:
    decided = decide(TESTS, diff_of("docs/a.md", "miles/x.py"), ["run-ci-short", "run-ci-amd"])
    started = {name for name, each in decided.items() if each.cause is Cause.AFFECTED}
    assert started == {"stage-c-4-gpu-h200", "stage-c-8-gpu-h100", "stage-c-4-gpu-mi350"}
    assert decided["stage-c-4-gpu-h200"].reason == "miles/x.py changed, which can affect every stage"


@pytest.mark.parametrize(
    "path",
    ["docs/a.py", "docs/x/y", "README.md", "a/b.mdx", ".pre-commit-config.yaml", "scripts/tools/sync_example_docs.py"],
)
def test_a_path_that_cannot_touch_a_gpu_affects_none(path: str) -> None:
    tests = (*TESTS, registration("stage-c-8-gpu-h200", E2E, labels=("ckpt", "short")))
    decided = decide(tests, diff_of(path), ["run-ci-ckpt"])
    assert decided["stage-c-8-gpu-h200"].cause is Cause.ADDED
    assert decided["stage-c-8-gpu-h200"].reason == "no change reaches it, but the label `run-ci-ckpt` adds it"
    assert decided["stage-c-4-gpu-h200"].cause is Cause.NOT_RUNNABLE


@pytest.mark.parametrize(
    "path", ["docs", "docsx/a.py", "a/docs/b.py", "README.MD", "x/.pre-commit-config.yaml", "a.md/b"]
)
def test_a_path_that_only_looks_like_one_affects_all(path: str) -> None:
    assert decide(TESTS, diff_of(path), ["run-ci-short"])["stage-c-4-gpu-h200"].cause is Cause.AFFECTED


def test_both_paths_of_a_rename_count() -> None:
    for old, new in (("docs/a.md", "miles/a.py"), ("miles/a.py", "docs/a.md")):
        diff = parse_diff(f"R100\0{old}\0{new}\0".encode())
        assert decide(TESTS, diff, ["run-ci-short"])["stage-c-4-gpu-h200"].cause is Cause.AFFECTED


def test_a_cpu_test_reaches_no_gpu_stage() -> None:
    tests = (registration("stage-c-2-gpu-h200", labels=()), registration("stage-a-cpu", FAST, labels=()))
    assert decide(tests, diff_of(FAST))["stage-c-2-gpu-h200"].cause is Cause.UNREACHED


@pytest.mark.parametrize(
    ("tests", "labels", "reason"),
    [
        ((), ["run-ci-all"], "it has no enabled test"),
        ((registration("stage-c-4-gpu-h200", disabled="flaky"),), ["run-ci-all"], "it has no enabled test"),
        (
            (registration("stage-c-4-gpu-h200"),),
            [],
            "selects none of its enabled tests (regular; labels in scope: none)",
        ),
        ((registration("stage-c-4-gpu-h200", nightly=True),), ["run-ci-short"], "labels in scope: short)"),
        (
            (
                registration("stage-c-4-gpu-h200", disabled="flaky"),
                registration("stage-c-4-gpu-h200", OTHER, labels=("lora",)),
            ),
            ["run-ci-short"],
            "what it selects is disabled",
        ),
    ],
)
def test_a_stage_that_has_nothing_to_run_says_why(
    tests: tuple[Registration, ...], labels: list[str], reason: str
) -> None:
    decided = decide(tests, diff_of("miles/x.py"), labels)["stage-c-4-gpu-h200"]
    assert decided.cause is Cause.NOT_RUNNABLE
    assert not decided.starts
    assert reason in decided.reason


@pytest.mark.parametrize("label", ["nightly", "run-ci-all", "run-ci-image"])
def test_a_wide_label_adds_what_can_run(label: str) -> None:
    decided = decide(TESTS, diff_of("docs/a.md"), [label])
    added = {name for name, each in decided.items() if each.cause is Cause.ADDED}
    assert added == {"stage-c-4-gpu-h200", "stage-c-8-gpu-h100", "stage-c-4-gpu-mi350"}
    assert label in decided["stage-c-4-gpu-h200"].reason


def test_all_labels_matching_adds_as_run_ci_all_does() -> None:
    assert decide(TESTS, diff_of("docs/a.md"), match_all_labels=True)["stage-c-4-gpu-h200"].cause is Cause.ADDED


def test_an_unusable_diff_skips_nothing_and_says_why() -> None:
    decided = decide((), parse_diff(b"M\0docs/a"))
    assert all(each.starts for each in decided.values())
    assert decided["stage-c-4-gpu-h200"].reason.startswith("the diff does not end in NUL")
    assert decided["stage-c-4-gpu-h200"].reason.endswith("nothing is skipped")


def test_cpu_stages_and_other_events_are_never_filtered() -> None:
    decided = decide((), diff_of("docs/a.md"))
    assert {name for name, each in decided.items() if each.starts} == {"stage-a-cpu", "stage-b-cpu"}
    assert all(each.cause is Cause.NOT_FILTERED for each in decide((), None).values())


def test_stages_that_another_repository_runs_are_left_out(inventory: Inventory) -> None:
    assert set(decide(TESTS, None)) == {name for name, stage in inventory.stages.items() if not stage.external}


@pytest.mark.parametrize(
    ("trigger", "filtered"),
    [
        (Trigger(event="pull_request"), True),
        (Trigger(event="pull_request", cadence="release"), False),
        (Trigger(event="schedule", schedule="0 15 * * 6"), False),
        (Trigger(event="workflow_dispatch"), False),
        (Trigger(), False),
    ],
)
def test_only_a_pull_requests_own_run_is_filtered(trigger: Trigger, filtered: bool) -> None:  # noqa: FBT001
    assert is_filtered(trigger) == filtered


def test_a_hostile_path_is_shown_on_one_line() -> None:
    decided = decide(TESTS, diff_of("miles/x\n::error::y.py"), ["run-ci-short"])
    assert "\\n" in decided["stage-c-4-gpu-h200"].reason


REGISTRATIONS = st.lists(
    st.builds(
        registration,
        st.sampled_from([*(stage.name for stage in GPU_STAGES), "stage-a-cpu"]),
        st.sampled_from([E2E, OTHER, FAST, "tests/e2e/test_d.py"]),
        labels=st.lists(st.sampled_from(["short", "long", "ft-short", "ft-long", "megatron"]), unique=True).map(tuple),
        nightly=st.booleans(),
        disabled=st.sampled_from([None, None, "flaky"]),
    ),
    max_size=8,
)
LABELS = st.lists(
    st.sampled_from(
        [
            "nightly",
            "run-ci-all",
            "run-ci-image",
            "run-ci-short",
            "run-ci-long",
            "run-ci-ft-long",
            "run-ci-x",
            "bypass-fastfail",
        ]
    ),
    unique=True,
)
PATHS = st.lists(st.sampled_from([E2E, OTHER, FAST, "docs/a.md", "docs/b.py", "miles/x.py"]), min_size=1, unique=True)


def started(decided: dict[str, StageDecision]) -> set[str]:
    return {name for name, each in decided.items() if each.starts}


@given(REGISTRATIONS, PATHS, LABELS)
def test_a_stage_whose_own_test_changed_is_never_skipped_when_it_can_run(
    tests: list[Registration], paths: list[str], labels: list[str]
) -> None:
    decided = decide(tests, diff_of(*paths), labels)
    for name, each in decided.items():
        changed = any(test.suite == name and test.file in paths for test in tests)
        assert not (changed and each.cause is Cause.UNREACHED)


@given(REGISTRATIONS, PATHS, LABELS, LABELS)
def test_more_labels_never_start_fewer_stages(
    tests: list[Registration], paths: list[str], labels: list[str], more: list[str]
) -> None:
    assert started(decide(tests, diff_of(*paths), labels)) <= started(decide(tests, diff_of(*paths), [*labels, *more]))


@given(REGISTRATIONS, PATHS, PATHS, LABELS)
def test_more_changes_never_start_fewer_stages(
    tests: list[Registration], paths: list[str], more: list[str], labels: list[str]
) -> None:
    assert started(decide(tests, diff_of(*paths), labels)) <= started(decide(tests, diff_of(*paths, *more), labels))


@given(REGISTRATIONS, LABELS)
def test_an_unusable_diff_starts_every_stage(tests: list[Registration], labels: list[str]) -> None:
    assert started(decide(tests, Unusable("cut"), labels)) == set(decide(tests, None, labels))
