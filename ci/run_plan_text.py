"""A whole run's plan as a table for people, at most 100 columns wide."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from ci.plan import duration
from ci.run_plan import BackendPlan, RunPlan, StageRun
from ci.run_plan_data import session_command
from ci.stage_selection import Cause
from ci.text import show

WIDTH = 100
_NAME = 28
_INDENT = " " * 4


def run_plan_text(plan: RunPlan, arguments: Sequence[str], *, files: bool = False) -> str:
    """What starts, what not and why; ``files``: with every file and command."""
    lines = [_headline(plan), f"  concurrency group {plan.group}: {_cancelling(plan)}"]
    for backend in plan.backends.values():
        lines += _backend(backend)
    lines.append("")
    lines.append(f"{'stage':<{_NAME}}{'part':>5}{'files':>7}{'time':>9}   after, on")
    for stage in plan.stages:
        lines += _stage(stage, arguments, files=files)
    lines.append("")
    lines.append(_total(plan))
    lines += [line for warning in plan.warnings for line in _wrapped(f"warning: {warning}", "")]
    return "\n".join(line.rstrip() for line in lines)


def _headline(plan: RunPlan) -> str:
    trigger, run = plan.run.facts.trigger, plan.run
    if trigger.cadence is not None:
        why = f"a run that was called with the cadence {trigger.cadence}"
    elif trigger.event == "pull_request":
        what = f" ({run.action})" if run.action else ""
        why = f"pull request {run.facts.number or ''}{what}{', from a fork' if run.fork else ''}".replace("  ", " ")
    elif trigger.event == "schedule":
        why = f"the schedule {trigger.schedule}"
    else:
        why = {"workflow_dispatch": "a manual dispatch"}.get(trigger.event or "", "a run by hand")
    return show(f"{plan.workflow.title}: {why}{f', of {run.called_ref}' if run.called_ref else ''}", WIDTH)


def _cancelling(plan: RunPlan) -> str:
    return "this run only cancels what runs in it" if plan.cancels_only else "a newer run cancels an older one"


def _backend(plan: BackendPlan) -> Iterator[str]:
    policy = plan.policy
    because = dict(policy.because)
    labels = ", ".join(policy.include_labels) or "none"
    after = "goes on after a failure" if policy.bypass_fastfail else "stops at the first failure"
    yield f"  {plan.backend.title}: {policy.cadence} ({show(because['cadence'], 60)}), {after}"
    yield from _wrapped(f"labels in scope: {labels} ({show(because['include_labels'], 200)})", _INDENT)
    for ref in plan.refs:
        name = show(ref.decision.ref, 60) if ref.decision.ref else "the image's own tree"
        at = (
            f" at {ref.commit[:12]}" if ref.commit and ref.decision.ref and ref.commit != ref.decision.ref.value else ""
        )
        yield from _wrapped(f"{ref.decision.dependency.title}: {name}{at} ({show(ref.decision.detail)})", _INDENT)
    if plan.image:
        yield from _wrapped(f"image: {plan.image.image} ({plan.image.reason})", _INDENT)
    if plan.own_image and (plan.image is None or plan.image.origin != "own-image" or plan.own_image.tag):
        yield from _wrapped(f"own image: {plan.own_image.action} ({plan.own_image.reason})", _INDENT)


def _stage(run: StageRun, arguments: Sequence[str], *, files: bool) -> Iterator[str]:
    stage = run.stage
    if not run.decision.starts:
        yield f"{stage.name:<{_NAME}}{'-':>5}  skipped:"
        yield from _wrapped(run.decision.reason, _INDENT)
        return
    count = sum(len(part.enabled) for part in run.partitions)
    where = f"{', '.join(stage.needs)}; {', '.join(stage.runs_on)}"
    serial = ", one at a time" if run.max_parallel == 1 else ""
    head = f"{stage.name:<{_NAME}}{len(run.partitions):>5}{count:>7}{duration(run.est_time):>9}   "
    first, *rest = textwrap.wrap(f"{where}{serial}", WIDTH - len(head)) or [""]
    yield head + first
    yield from (" " * len(head) + line for line in rest)
    if run.decision.cause is not Cause.NOT_FILTERED:
        yield from _wrapped(f"because {run.decision.reason}", _INDENT)
    if not count:
        yield f"{_INDENT}nothing to run: this is no coverage"
    for part in run.partitions if len(run.partitions) > 1 or files else ():
        number = f"({part.partition.id})" if part.partition else "(all)"
        yield f"{_INDENT}{number:<{_NAME - 4}}{'':>5}{len(part.enabled):>7}{duration(part.est_time):>9}"
        if files:
            yield from (f"{_INDENT}  {duration(item.est_time):>8}  {show(item.file)}" for item in part.enabled)
            yield f"{_INDENT}  {show(shlex.join(session_command(part, arguments)), 2000)}"


def _total(plan: RunPlan) -> str:
    started, parts = plan.started, sum(len(stage.partitions) for stage in plan.started)
    files = sum(len(part.enabled) for stage in started for part in stage.partitions)
    time = duration(sum(stage.est_time for stage in started))
    skipped = len(plan.stages) - len(started)
    return f"{len(started)} stages, {parts} jobs, {files} files, about {time} of tests; {skipped} stages skipped"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
