"""A whole run's plan as plain data, and as lines for a workflow's outputs.

JSON, schema 1: ``schema``, ``workflow``, ``event``, ``group``, ``cancels_only``, ``backends`` by name (``policy``,
``refs``, ``image``, ``own_image``, ``secrets``), ``stages`` (``name``, ``backend``, ``starts``, ``cause``, ``reason``,
``runs_on``, ``image``, ``needs``, ``max_parallel``, ``est_time`` in seconds, ``partitions``), ``warnings``. A partition
has ``id`` (null: the whole stage), ``check``, ``est_time``, ``files`` and the ``command`` that it executes.
"""

import json
from collections.abc import Sequence
from typing import Any

from ci.plan import StagePlan
from ci.run_plan import BackendPlan, RunPlan, StageRun

SCHEMA = 1


def session_command(partition: StagePlan, arguments: Sequence[str]) -> tuple[str, ...]:
    """What a partition executes: its Nox session, with these arguments after ``--``."""
    number = partition.partition
    session = partition.stage.name if number is None else f"{partition.stage.name}({number.id})"
    return ("nox", "-s", session, *(("--", *arguments) if arguments else ()))


def run_plan_data(plan: RunPlan, arguments: Sequence[str]) -> dict[str, Any]:
    """The plan; ``arguments``: of the sessions, as this run was given them."""
    trigger = plan.run.facts.trigger
    return {
        "schema": SCHEMA,
        "workflow": plan.workflow.name,
        "event": {
            "name": trigger.event,
            "action": plan.run.action or None,
            "number": plan.run.facts.number,
            "schedule": trigger.schedule or None,
            "called_ref": plan.run.called_ref or None,
            "fork": plan.run.fork,
        },
        "group": plan.group,
        "cancels_only": plan.cancels_only,
        "backends": {name: _backend(backend) for name, backend in plan.backends.items()},
        "stages": [_stage(stage, plan, arguments) for stage in plan.stages],
        "warnings": list(plan.warnings),
    }


def run_plan_json(plan: RunPlan, arguments: Sequence[str]) -> str:
    """The same as one JSON document; any file name survives, non-ASCII is escaped."""
    return json.dumps(run_plan_data(plan, arguments), indent=2)


def run_plan_outputs(plan: RunPlan) -> str:
    """``key=value`` lines for ``GITHUB_OUTPUT``: what the jobs of the workflow ask for in their conditions.

    Values are JSON on one line, so that nothing in them can begin another output.
    """
    started = plan.started
    outputs: dict[str, object] = {
        "stages": [stage.stage.name for stage in started],
        "partitions": {stage.stage.name: [_id(part) for part in stage.partitions] for stage in started},
        "max_parallel": {stage.stage.name: stage.max_parallel or len(stage.partitions) for stage in started},
        "bypass_fastfail": any(backend.policy.bypass_fastfail for backend in plan.backends.values()),
        "cadence": next(iter(plan.backends.values())).policy.cadence,
    }
    return "\n".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in outputs.items())


def _backend(plan: BackendPlan) -> dict[str, Any]:
    policy, image, own = plan.policy, plan.image, plan.own_image
    fields = ("cadence", "raw_labels", "include_labels", "admit_nightly", "bypass_fastfail", "write_baseline")
    return {
        "policy": {**{field: getattr(policy, field) for field in fields}, "because": dict(policy.because)},
        "refs": {
            ref.decision.dependency.name: {
                "ref": str(ref.decision.ref) if ref.decision.ref else None,
                "origin": ref.decision.origin,
                "detail": ref.decision.detail,
                "commit": ref.commit,
            }
            for ref in plan.refs
        },
        "image": {"name": image.image, "origin": image.origin, "reason": image.reason} if image else None,
        "own_image": {"action": own.action, "tag": own.tag, "inputs": own.inputs, "reason": own.reason}
        if own
        else None,
        "secrets": list(plan.secrets),
    }


def _stage(run: StageRun, plan: RunPlan, arguments: Sequence[str]) -> dict[str, Any]:
    image = plan.backends[run.stage.backend].image
    return {
        "name": run.stage.name,
        "backend": run.stage.backend,
        "starts": run.decision.starts,
        "cause": run.decision.cause,
        "reason": run.decision.reason,
        "runs_on": list(run.stage.runs_on),
        "image": image.image if image else None,
        "needs": list(run.stage.needs),
        "max_parallel": run.max_parallel,
        "est_time": run.est_time,
        "partitions": [
            {
                "id": part.partition.id if part.partition else None,
                "check": part.title,
                "est_time": part.est_time,
                "files": [{"file": found.file, "est_time": found.est_time} for found in part.enabled],
                "command": list(session_command(part, arguments)),
            }
            for part in run.partitions
        ],
        "skipped": [
            {"file": found.file, "reason": found.disabled}
            for found in (run.partitions[0].selection.skipped if run.partitions else ())
        ],
    }


def _id(part: StagePlan) -> int:
    return part.partition.id if part.partition else 0
