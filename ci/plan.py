"""What one stage or partition runs, as a value, as JSON and as text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ci.errors import UsageError
from ci.inventory import Stage
from ci.policy import Policy
from ci.registration import Registration
from ci.selection import Selection, select
from ci.sharding import Partition, shard
from ci.text import did_you_mean, nearest, show


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """``selection`` is the whole stage's; ``enabled`` this partition's, in the order in which it runs."""

    stage: Stage
    partition: Partition | None
    policy: Policy
    selection: Selection
    enabled: tuple[Registration, ...]

    @property
    def title(self) -> str:
        """The check's name, ``stage-a-cpu (1)``, whole stages without a number."""
        return self.stage.name if self.partition is None else f"{self.stage.name} ({self.partition.id})"

    @property
    def folder(self) -> str:
        """The name of its folder of results; a partition has its own, because one call of Nox runs several."""
        return self.stage.name if self.partition is None else f"{self.stage.name}-{self.partition.id}"

    @property
    def est_time(self) -> float:
        """Seconds that the enabled files are expected to take, one after the other."""
        return sum(registration.est_time for registration in self.enabled)


def plan_stage(
    registrations: Iterable[Registration], stage: Stage, policy: Policy, partition: Partition | None
) -> StagePlan:
    """Select the stage's tests and take one partition of them (spec §4, §6)."""
    selection = select(registrations, backend=stage.backend, suite=stage.name, policy=policy)
    enabled = selection.enabled if partition is None else shard(selection.enabled, partition.size)[partition.id]
    return StagePlan(stage=stage, partition=partition, policy=policy, selection=selection, enabled=enabled)


def plan_partitions(registrations: Iterable[Registration], stage: Stage, policy: Policy) -> tuple[StagePlan, ...]:
    """Every partition of the stage, by id; a stage that has one is whole, without a number."""
    selection = select(registrations, backend=stage.backend, suite=stage.name, policy=policy)
    size = stage.partitions
    return tuple(
        StagePlan(
            stage=stage,
            partition=Partition(number, size) if size > 1 else None,
            policy=policy,
            selection=selection,
            # a whole stage runs in the order of its files, as it does by itself
            enabled=part if size > 1 else selection.enabled,
        )
        for number, part in enumerate(shard(selection.enabled, size))
    )


def narrowed(plan: StagePlan, files: Sequence[str]) -> StagePlan:
    """The plan with these of its files alone.

    Raises:
        UsageError: a file is not in the plan.
    """
    planned = [registration.file for registration in plan.enabled]
    for file in files:
        if file not in planned:
            near = f"{did_you_mean(file, planned)}; " if nearest(file, planned) else ""
            raise UsageError(
                f"{show(file)} is not in the plan of {plan.title}",
                hint=f"{near}`invoke explain {show(file)}` says where it runs",
            )
    return replace(plan, enabled=tuple(found for found in plan.enabled if found.file in files))


def plan_json(plan: StagePlan) -> str:
    """The plan as one JSON document; any file name survives, non-ASCII is escaped."""
    return json.dumps(plan_data(plan), indent=2)


def plan_data(plan: StagePlan) -> dict[str, Any]:
    """The plan as plain data, the shape that ``--list-only --format json`` prints."""
    policy, partition = plan.policy, plan.partition
    return {
        "suite": plan.stage.name,
        "backend": plan.stage.backend,
        "cadence": policy.cadence,
        "partition": None if partition is None else {"id": partition.id, "size": partition.size},
        "policy": {
            "cadence": policy.cadence,
            "include_labels": list(policy.include_labels),
            "admit_nightly": policy.admit_nightly,
            "bypass_fastfail": policy.bypass_fastfail,
            "write_baseline": policy.write_baseline,
        },
        "enabled": [
            {
                "file": registration.file,
                "est_time": registration.est_time,
                "labels": list(registration.labels),
                "nightly": registration.nightly,
                "implicit": registration.implicit,
            }
            for registration in plan.enabled
        ],
        "skipped": [
            {"file": registration.file, "reason": registration.disabled} for registration in plan.selection.skipped
        ],
    }


def plan_text(plan: StagePlan) -> str:
    """The plan for a person: a headline, the files in order, what is disabled, and what an empty plan means."""
    policy = plan.policy
    count = len(plan.enabled)
    of_all = f" of the stage's {len(plan.selection.enabled)}" if plan.partition else ""
    after_failure = "goes on after a failure" if policy.bypass_fastfail else "stops at the first failure"
    lines = [
        f"{plan.title}: {count} file{'s' * (count != 1)}{of_all}, about {duration(plan.est_time)}",
        f"  {policy.cadence}; labels in scope: {_scope(policy)}; {after_failure}",
    ]
    lines += [f"  {duration(item.est_time):>8}  {show(item.file)}{_marks(item)}" for item in plan.enabled]
    lines += [f"  disabled  {show(item.file)}: {show(item.disabled)}" for item in plan.selection.skipped]
    if not plan.enabled:
        lines.append(f"  nothing to run: this is no coverage{_empty_hint(plan)}")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.2 h``."""
    if seconds < 120:  # noqa: PLR2004 - short times are read best in seconds
        return f"{seconds:.3g} s"
    if seconds < 7200:  # noqa: PLR2004 - two hours
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _scope(policy: Policy) -> str:
    if policy.match_all_labels:
        return "all"
    return ", ".join(policy.include_labels) or "none"


def _marks(registration: Registration) -> str:
    marks = [f"[{', '.join(registration.labels)}]"] if registration.labels else []
    marks += ["nightly"] if registration.nightly else []
    return "  " + " ".join(marks) if marks else ""


def _empty_hint(plan: StagePlan) -> str:
    if plan.selection.enabled:
        return f" (the stage's {len(plan.selection.enabled)} files are all in its other partitions)"
    if plan.policy.include_labels or plan.policy.match_all_labels:
        return " (no enabled test of this stage is admitted)"
    return " (no labels in scope: ask with --labels run-ci-<label>, or --match-all-labels)"
