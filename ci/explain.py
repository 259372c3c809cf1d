"""Why a test would run here, or why not, and what would make it run."""

from collections.abc import Sequence
from dataclasses import dataclass

from ci.facts import Facts, for_backend
from ci.inventory import Inventory
from ci.plan import plan_stage
from ci.policy import Policy, resolve_policy
from ci.registration import Finding, Registration
from ci.selection import Reason, reasons_against
from ci.sharding import Partition
from ci.text import nearest, show
from ci.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One registration of the test, or None when the file has none that counts.

    ``partition`` of ``partitions`` in the stage (None when it does not run); ``reasons`` is empty iff it runs.
    """

    registration: Registration | None
    policy: Policy | None
    partition: int | None
    partitions: int
    reasons: tuple[Reason, ...]

    @property
    def runs(self) -> bool:
        """Whether the test would run."""
        return not self.reasons


def explain(file: str, tree: Tree, facts: Facts, inventory: Inventory) -> tuple[Explanation, ...]:
    """One explanation for each registration of ``file``, a path relative to the workspace."""
    registrations = [registration for registration in tree.registrations if registration.file == file]
    faults = [problem for problem in tree.problems if problem.file == file]
    if not registrations or faults:
        reasons = [Reason(_without_file(fault), "mend the file") for fault in faults]
        reasons = reasons or [_undiscovered(file, tree, inventory)]
        return (Explanation(registration=None, policy=None, partition=None, partitions=0, reasons=tuple(reasons)),)
    return tuple(_explain(registration, tree, facts, inventory) for registration in registrations)


def explanation_text(file: str, explanations: Sequence[Explanation]) -> str:
    """The explanations for a person."""
    lines = [show(file)]
    for explanation in explanations:
        registration = explanation.registration
        if registration is None:
            lines.append("  does not run anywhere:")
        else:
            stage = _check_name(registration, explanation)
            verdict = "runs" if explanation.runs else "does not run"
            implicit = (
                ", which every file under tests/fast without a registration gets" if registration.implicit else ""
            )
            lines.append(f"  {verdict} in {show(stage)}, {registration.backend}{implicit}")
            if explanation.runs:
                lines.append(f'    reproduce: nox -s "{show(stage.replace(" ", ""))}"')
        lines += [f"    - {reason.text}\n      to run it: {reason.remedy}" for reason in explanation.reasons]
    return "\n".join(lines)


def explanation_data(file: str, explanations: Sequence[Explanation]) -> dict[str, object]:
    """The same as plain data."""
    return {
        "file": file,
        "registrations": [
            {
                "suite": item.registration.suite if item.registration else None,
                "backend": item.registration.backend if item.registration else None,
                "line": item.registration.line if item.registration else None,
                "implicit": item.registration.implicit if item.registration else None,
                "runs": item.runs,
                "partition": None if item.partition is None else {"id": item.partition, "size": item.partitions},
                "reasons": [{"text": reason.text, "remedy": reason.remedy} for reason in item.reasons],
            }
            for item in explanations
        ],
    }


def _explain(registration: Registration, tree: Tree, facts: Facts, inventory: Inventory) -> Explanation:
    policy = resolve_policy(for_backend(facts.trigger, inventory.backends[registration.backend]), inventory)
    stage = inventory.stages.get(registration.suite)
    reasons = list(reasons_against(registration, policy, inventory.scope))
    if stage is None:
        unknown = f"`{show(registration.suite)}` is not a suite of {show(inventory.origin)}"
        reasons.append(Reason(unknown, "register it for one that is"))
    elif stage.external:
        reasons.append(
            Reason("its stage is run by another repository's nightly, not here", f"reproduce it: nox -s {stage.name}")
        )
    partition = None
    if stage is not None and not reasons_against(registration, policy, inventory.scope):
        parts = (Partition(number, stage.partitions) for number in range(stage.partitions))
        partition = next(
            part.id for part in parts if registration in plan_stage(tree.registrations, stage, policy, part).enabled
        )
    return Explanation(
        registration=registration,
        policy=policy,
        partition=partition,
        partitions=stage.partitions if stage else 0,
        reasons=tuple(reasons),
    )


def _check_name(registration: Registration, explanation: Explanation) -> str:
    if explanation.partition is None or explanation.partitions == 1:
        return registration.suite
    return f"{registration.suite} ({explanation.partition})"


def _without_file(fault: Finding) -> str:
    return f"line {fault.line}: {fault.text}" if fault.line else fault.text


def _undiscovered(file: str, tree: Tree, inventory: Inventory) -> Reason:
    roots = inventory.discovery.roots
    name = file.rpartition("/")[2]
    if file not in tree.files and (close := nearest(file, tree.files)):
        return Reason("no such test file was found", f"did you mean `{show(close)}`?")
    if not file.startswith(tuple(f"{root}/" for root in roots)):
        return Reason(f"it is not under {', '.join(roots)}, where tests are looked for", "move it to one of them")
    if not (name.startswith("test_") and name.endswith(".py")):
        return Reason("its name is not test_*.py", "rename it")
    return Reason("there is no such file", "check the path; it is relative to the workspace")
