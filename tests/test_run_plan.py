"""Whole runs: one trigger each, on exact output; the vectors of policy, images and stages hold inside a plan too."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.diff import Diff, Unusable, parse_diff
from ci.event import Event
from ci.facts import Facts
from ci.image_decision import OwnImage, Publication, Published
from ci.inventory import Inventory
from ci.policy import Trigger
from ci.refs import RefRequest
from ci.registration import Registration
from ci.run_plan import ImageFacts, RunFacts, RunPlan, plan_run, with_commits
from ci.run_plan_data import run_plan_data, run_plan_json, run_plan_outputs
from ci.run_plan_text import WIDTH, run_plan_text
from ci.stage_selection import Cause

DOCS = b"M\0docs/a.md\0"
CODE = b"M\0miles/a.py\0"


def registration(suite: str, file: str, *labels: str, est_time: float = 60, nightly: bool = False) -> Registration:
    backend = "cpu" if suite.endswith("cpu") else "rocm" if "mi350" in suite else "cuda"
    return Registration(
        file=file,
        line=1,
        backend=backend,
        est_time=est_time,
        suite=suite,
        labels=labels,
        nightly=nightly,
        disabled=None,
        implicit=False,
    )


REGISTRATIONS = (
    registration("stage-a-cpu", "tests/fast/test_a.py"),
    registration("stage-a-cpu", "tests/fast/test_b.py", est_time=30),
    registration("stage-b-2-gpu-h200", "tests/e2e/test_short.py", "short"),
    registration("stage-c-4-gpu-h200", "tests/e2e/test_mega.py", "megatron", est_time=900),
    registration("stage-c-4-gpu-h200", "tests/e2e/test_mega2.py", "megatron", est_time=600),
    registration("stage-c-8-gpu-h200", "tests/e2e/test_long.py", "long", est_time=3600),
    registration("stage-c-8-gpu-h100", "tests/e2e/test_night.py", "megatron", nightly=True),
    registration("stage-c-4-gpu-mi350", "tests/e2e/test_amd.py", "amd"),
)


def made(
    inventory: Inventory,
    trigger: Trigger,
    *,
    workflow: str = "pr-test",
    number: int | None = None,
    body: str = "",
    inputs: dict[str, str] | None = None,
    registrations: Iterable[Registration] = REGISTRATIONS,
    **run: Any,
) -> RunPlan:
    event = Event(name=trigger.event or "", inputs=inputs or {}) if inputs else None
    facts = Facts(trigger=trigger, refs=RefRequest(dispatch={}, body=body), number=number, event=event)
    return plan_run(inventory.workflows[workflow], RunFacts(facts=facts, **run), registrations, inventory)


def pull(*labels: str) -> Trigger:
    return Trigger(event="pull_request", labels=labels)


def started(plan: RunPlan) -> list[str]:
    return [stage.stage.name for stage in plan.started]


def test_a_pull_request_that_touches_code(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-megatron"), number=12, action="labeled", diff=parse_diff(CODE))
    assert started(plan) == ["stage-a-cpu", "stage-b-cpu", "stage-c-4-gpu-h200"]
    assert run_plan_text(plan, ("--event", "e.json")) == TEXT


TEXT = """\
PR Test: pull request 12 (labeled)
  concurrency group pr-test-12: a newer run cancels an older one
  CPU: regular (a pull request without the nightly label), stops at the first failure
    labels in scope: megatron (asked for by run-ci-megatron)
    SGLang: sglang-miles (the head of sglang-miles)
    Megatron-LM: miles-main (the head of miles-main)
  CUDA: regular (a pull request without the nightly label), stops at the first failure
    labels in scope: megatron (asked for by run-ci-megatron)
    SGLang: sglang-miles (the head of sglang-miles)
    Megatron-LM: miles-main (the head of miles-main)
    image: radixark/miles:dev (nothing names another tag)

stage                        part  files     time   after, on
stage-a-cpu                     4      2     90 s   policy; ubuntu-latest
    (0)                                1     60 s
    (1)                                1     30 s
    (2)                                0      0 s
    (3)                                0      0 s
stage-b-cpu                     1      0      0 s   policy; ubuntu-latest
    nothing to run: this is no coverage
stage-b-2-gpu-h200              -  skipped:
    the policy selects none of its enabled tests (regular; labels in scope: megatron)
stage-c-2-gpu-h200              -  skipped:
    it has no enabled test
stage-c-4-gpu-h200              3      2   25 min   policy, image, stage-a-cpu; h200, 4gpu
    because miles/a.py changed, which can affect every stage
    (0)                                1   15 min
    (1)                                1   10 min
    (2)                                0      0 s
stage-c-8-gpu-h100              -  skipped:
    the policy selects none of its enabled tests (regular; labels in scope: megatron)
stage-c-8-gpu-h200              -  skipped:
    the policy selects none of its enabled tests (regular; labels in scope: megatron)

3 stages, 8 jobs, 4 files, about 26 min of tests; 4 stages skipped"""


def test_documentation_alone_starts_a_stage_only_by_its_label(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-megatron"), number=12, diff=parse_diff(DOCS))
    (stage,) = [stage for stage in plan.started if stage.stage.gpus]
    assert (stage.stage.name, stage.decision.cause) == ("stage-c-4-gpu-h200", Cause.ADDED)


def test_a_diff_that_cannot_be_used_skips_nothing_and_says_why(inventory: Inventory) -> None:
    plan = made(inventory, pull(), number=12, diff=Unusable("there is no diff"))
    assert not [stage for stage in plan.stages if not stage.decision.starts]
    assert plan.stages[2].decision.reason == "there is no diff, so nothing is skipped"


def test_a_closed_pull_request_only_cancels(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-all"), number=12, action="closed", diff=parse_diff(CODE))
    assert (plan.cancels_only, plan.group, started(plan)) == (True, "pr-test-12", [])
    assert "this run only cancels what runs in it" in run_plan_text(plan, ())
    assert json.loads(run_plan_outputs(plan).splitlines()[0].partition("=")[2]) == []


@pytest.mark.parametrize(
    ("cron", "cadence", "group", "parallel"),
    [("0 15 * * 0-5", "nightly", "pr-test-0 15 * * 0-5", None), ("0 15 * * 6", "weekly", "pr-test-0 15 * * 6", 1)],
)
def test_a_schedule(inventory: Inventory, cron: str, cadence: str, group: str, parallel: int | None) -> None:
    plan = made(inventory, Trigger(event="schedule", schedule=cron))
    assert (plan.backends["cuda"].policy.cadence, plan.group) == (cadence, group)
    by_name = {stage.stage.name: stage for stage in plan.stages}
    assert len(by_name) == len(started(plan)) == 7
    assert by_name["stage-c-4-gpu-h200"].max_parallel == parallel
    # never of a stage that has one partition, nor of the CPU's
    assert by_name["stage-b-2-gpu-h200"].max_parallel is by_name["stage-a-cpu"].max_parallel is None
    assert by_name["stage-c-8-gpu-h100"].partitions[0].enabled


def test_a_manual_dispatch_matches_all_labels_on_gpus(inventory: Inventory) -> None:
    trigger = Trigger(event="workflow_dispatch")
    plan = made(inventory, trigger, run_id="77", inputs={"ci_image_tag": "dev-x"})
    assert plan.group == "pr-test-77"
    assert plan.backends["cuda"].image is not None
    assert plan.backends["cuda"].image.image == "radixark/miles:dev-x"
    by_name = {stage.stage.name: stage for stage in plan.stages}
    assert by_name["stage-c-8-gpu-h200"].est_time == 3600
    assert by_name["stage-c-8-gpu-h100"].est_time == 0  # nightly ones stay out


def test_a_called_release_run_is_grouped_by_its_ref_and_takes_its_image(inventory: Inventory) -> None:
    # the event is the caller's, and its labels and diff count for nothing
    trigger = Trigger(event="pull_request", labels=("run-ci-short",), cadence="release")
    plan = made(inventory, trigger, called_ref="release/v1.2.0", image_tag="release-v1.2.0-ci")
    assert plan.group == "pr-test-release/v1.2.0"
    assert plan.backends["cuda"].image is not None
    assert plan.backends["cuda"].image.tag == "release-v1.2.0-ci"
    assert plan.backends["cuda"].policy.bypass_fastfail
    assert {stage.decision.cause for stage in plan.stages} == {Cause.NOT_FILTERED}


def test_rocm_is_a_run_of_its_own_and_keeps_its_trees(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-amd"), workflow="pr-test-rocm", number=9, diff=parse_diff(CODE))
    assert (plan.group, started(plan)) == ("pr-test-rocm-9", ["stage-c-4-gpu-mi350"])
    assert [ref.decision.ref for ref in plan.backends["rocm"].refs] == [None, None]
    assert plan.backends["rocm"].secrets == ("WANDB_API_KEY",)


def test_a_fork_gets_no_secrets(inventory: Inventory) -> None:
    plan = made(inventory, pull(), number=9, fork=True, diff=parse_diff(CODE))
    assert {backend.secrets for backend in plan.backends.values()} == {()}


@pytest.mark.parametrize(
    ("published", "action", "image"),
    [
        (None, OwnImage.UNDECIDED, None),
        (Published(publication=Publication.UNKNOWN), OwnImage.UNDECIDED, None),
        (Published(publication=Publication.ABSENT), OwnImage.BUILD, "radixark/miles:pr-9"),
        (Published(publication=Publication.PRESENT, inputs="h"), OwnImage.REUSE, "radixark/miles:pr-9"),
    ],
)
def test_a_pull_request_that_changes_image_inputs(
    inventory: Inventory, published: Published | None, action: OwnImage, image: str | None
) -> None:
    images = ImageFacts(head="h", base="b", published=published)
    plan = made(inventory, pull(), number=9, images=images, diff=parse_diff(CODE))
    cuda = plan.backends["cuda"]
    assert cuda.own_image is not None
    assert (cuda.own_image.action, cuda.image.image if cuda.image else None) == (action, image)


def test_commits_are_filled_in_by_dependency_and_ref(inventory: Inventory) -> None:
    plan = with_commits(made(inventory, pull(), diff=parse_diff(CODE)), {("sglang", "sglang-miles"): "c" * 40})
    commits = [[ref.commit for ref in backend.refs] for backend in plan.backends.values()]
    assert commits == [["c" * 40, None], ["c" * 40, None]]


def test_outputs_are_one_line_each_whatever_is_in_them(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-megatron"), number=12, diff=parse_diff(CODE))
    outputs = dict(line.split("=", 1) for line in run_plan_outputs(plan).splitlines())
    assert json.loads(outputs["stages"]) == ["stage-a-cpu", "stage-b-cpu", "stage-c-4-gpu-h200"]
    assert json.loads(outputs["partitions"])["stage-c-4-gpu-h200"] == [0, 1, 2]
    assert (outputs["bypass_fastfail"], outputs["cadence"]) == ("false", '"regular"')


def test_a_partition_says_the_command_that_it_executes(inventory: Inventory) -> None:
    plan = made(inventory, pull("run-ci-megatron"), number=12, diff=parse_diff(CODE))
    data = json.loads(run_plan_json(plan, ("--event", "e.json")))
    parts = {part["check"]: part["command"] for stage in data["stages"] for part in stage["partitions"]}
    assert parts["stage-c-4-gpu-h200 (1)"] == ["nox", "-s", "stage-c-4-gpu-h200(1)", "--", "--event", "e.json"]
    assert parts["stage-b-cpu"] == ["nox", "-s", "stage-b-cpu", "--", "--event", "e.json"]


paths = st.sampled_from([found.file for found in REGISTRATIONS] + ["docs/a.md", "README.md", "miles/x.py", "a b\nc.md"])
entries = st.lists(st.tuples(st.sampled_from(["A", "M", "D"]), paths), min_size=1, max_size=5)
labels = st.lists(st.sampled_from(["nightly", "run-ci-all", "run-ci-megatron", "run-ci-short", "bug"]), max_size=3)


@given(entries=entries, labels=labels)
def test_a_stage_whose_own_test_changed_is_never_skipped(
    inventory: Inventory, entries: list[tuple[str, str]], labels: list[str]
) -> None:
    diff = parse_diff("".join(f"{status}\0{path}\0" for status, path in entries).encode())
    assert isinstance(diff, Diff)
    plan = made(inventory, pull(*labels), number=1, diff=diff)
    changed = {path for _, path in entries}
    for stage in plan.stages:
        if stage.decision.cause is Cause.UNREACHED:
            own = {found.file for found in REGISTRATIONS if found.suite == stage.stage.name}
            assert not own & changed


@given(noise=st.binary(max_size=60), labels=labels)
def test_any_bytes_give_a_plan_and_what_cannot_be_read_skips_nothing(
    inventory: Inventory, noise: bytes, labels: list[str]
) -> None:
    diff = parse_diff(noise)
    plan = made(inventory, pull(*labels), number=1, diff=diff)
    if isinstance(diff, Unusable):
        assert len(plan.started) == len(plan.stages)
    text = run_plan_text(plan, ())
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert text.isprintable() or set(text) - {"\n"} == {char for char in text if char.isprintable()}
    json.dumps(run_plan_data(plan, ()))
