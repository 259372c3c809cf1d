"""Which GPU stages a pull request starts, and why not the others (spec §5)."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ci.diff import Diff, Unusable
from ci.inventory import Inventory, NoGpuPaths, Scope, Stage
from ci.policy import Policy, Trigger
from ci.registration import Registration
from ci.selection import Selection, select
from ci.text import show


class Cause(enum.StrEnum):
    """The rule that decided."""

    NOT_FILTERED = "not-filtered"  # a CPU stage, or no pull request
    UNUSABLE_DIFF = "unusable-diff"
    AFFECTED = "affected"
    ADDED = "added"
    NOT_RUNNABLE = "not-runnable"
    UNREACHED = "unreached"
    CLOSED = "closed"  # the run only cancels


_STARTS = frozenset({Cause.NOT_FILTERED, Cause.UNUSABLE_DIFF, Cause.AFFECTED, Cause.ADDED})


@dataclass(frozen=True, slots=True)
class StageDecision:
    """The answer for one stage; ``reason`` is one sentence, safe to show."""

    stage: Stage
    cause: Cause
    reason: str

    @property
    def starts(self) -> bool:
        """Whether the stage is started."""
        return self.cause in _STARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """What the changed paths affect: ``tests`` by stage, and ``everything``, the first path that affects all."""

    tests: Mapping[str, str]
    everything: str | None


def is_filtered(trigger: Trigger) -> bool:
    """Whether the run is a pull request's own: a called workflow inherits the event but not the filter."""
    return trigger.event == "pull_request" and trigger.cadence is None


def select_stages(
    stages: Iterable[Stage],
    registrations: Iterable[Registration],
    *,
    policy: Policy,
    diff: Diff | Unusable | None,
    inventory: Inventory,
) -> tuple[StageDecision, ...]:
    """Decide for each of the stages. Those that another repository runs are never started, and left out.

    ``diff`` is None where stages are not filtered (``is_filtered``). Then, and with an unusable diff, every stage
    is started: it costs a runner that finds no tests, never a test that should have run.
    """
    registrations = tuple(registrations)
    reach = _reach(diff, registrations, inventory.no_gpu_paths) if isinstance(diff, Diff) else None
    return tuple(
        _unfiltered(stage, diff)
        if reach is None or stage.gpus == 0
        else _filtered(stage, registrations, policy, reach, inventory.scope)
        for stage in stages
        if not stage.external
    )


def _unfiltered(stage: Stage, diff: Diff | Unusable | None) -> StageDecision:
    if stage.gpus == 0:
        return StageDecision(stage, Cause.NOT_FILTERED, "CPU stages always run")
    if isinstance(diff, Unusable):
        return StageDecision(stage, Cause.UNUSABLE_DIFF, f"{diff.reason}, so nothing is skipped")
    return StageDecision(stage, Cause.NOT_FILTERED, "only the stages of a pull request are filtered")


def _filtered(
    stage: Stage, registrations: tuple[Registration, ...], policy: Policy, reach: _Reach, scope: Scope
) -> StageDecision:
    selection = select(registrations, backend=stage.backend, suite=stage.name, policy=policy)
    if not selection.enabled:
        return StageDecision(stage, Cause.NOT_RUNNABLE, _not_runnable(stage, registrations, selection, policy))
    if path := reach.tests.get(stage.name):
        return StageDecision(stage, Cause.AFFECTED, f"its test {show(path)} changed")
    if reach.everything is not None:
        return StageDecision(stage, Cause.AFFECTED, f"{show(reach.everything)} changed, which can affect every stage")
    if adds := _adds(selection, policy, scope):
        return StageDecision(stage, Cause.ADDED, f"no change reaches it, but {adds}")
    return StageDecision(stage, Cause.UNREACHED, "no changed path can reach it, and no label adds it")


def _reach(diff: Diff, registrations: tuple[Registration, ...], no_gpu: NoGpuPaths) -> _Reach:
    """A registered test affects its own stages, disabled or not; what cannot touch a GPU none; the rest all."""
    suites: dict[str, list[str]] = {}
    for registration in registrations:
        suites.setdefault(registration.file, []).append(registration.suite)
    tests: dict[str, str] = {}
    everything = None
    for path in diff.paths:
        if path in suites:
            for suite in suites[path]:
                tests.setdefault(suite, path)
        elif everything is None and not _cannot_touch_gpus(path, no_gpu):
            everything = path
    return _Reach(tests=tests, everything=everything)


def _cannot_touch_gpus(path: str, no_gpu: NoGpuPaths) -> bool:
    return path.startswith(no_gpu.folders) or path.endswith(no_gpu.suffixes) or path in no_gpu.files


def _adds(selection: Selection, policy: Policy, scope: Scope) -> str | None:
    """What adds a runnable stage whatever changed, or None."""
    if policy.match_all_labels:
        return "all labels match"
    for label in policy.raw_labels:
        if label in {scope.nightly_label, scope.all, scope.image}:
            return f"the label `{label}` adds every stage that has tests to run"
    for label in policy.raw_labels:
        asked = label.removeprefix(scope.prefix)
        if label.startswith(scope.prefix) and any(asked in found.labels for found in selection.enabled):
            return f"the label `{show(label, 80)}` adds it"
    return None


def _not_runnable(stage: Stage, registrations: tuple[Registration, ...], selection: Selection, policy: Policy) -> str:
    enabled = [
        found
        for found in registrations
        if (found.backend, found.suite, found.disabled) == (stage.backend, stage.name, None)
    ]
    if not enabled:
        return "it has no enabled test"
    labels = ", ".join(policy.include_labels) or "none"
    disabled = "; what it selects is disabled" if selection.skipped else ""
    return f"the policy selects none of its enabled tests ({policy.cadence}; labels in scope: {labels}){disabled}"
