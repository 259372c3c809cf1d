"""The whole run that a trigger starts: every stage, what it runs and where, or why it does not (spec §4–10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.diff import Diff, Unusable
from ci.facts import Facts, for_backend
from ci.image_decision import (
    ImageDecision,
    ImageRequest,
    OwnImage,
    OwnImageDecision,
    OwnImageRequest,
    Published,
    decide_image,
    decide_own_image,
)
from ci.inventory import Backend, Inventory, Stage, Workflow
from ci.plan import StagePlan, plan_partitions
from ci.policy import Policy, resolve_policy
from ci.ref import RefKind
from ci.refs import RefDecision, decide_refs
from ci.registration import Registration
from ci.stage_selection import Cause, StageDecision, is_filtered, select_stages

_SERIAL = "weekly"
_CLOSED = "closed"
_CANCELS = "the pull request was closed: this run only cancels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """Hashes of the image inputs at HEAD and HEAD^1 (None: not to be had), and what the registry says if asked."""

    head: str | None = None
    base: str | None = None
    published: Published | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything that decides a run besides the tests and the inventory.

    ``called_ref``: of a called workflow; ``run_id``: the run's own; ``image_tag``: the one given; ``diff``: None
    where stages are not filtered by it.
    """

    facts: Facts
    action: str = ""
    fork: bool = False
    called_ref: str = ""
    run_id: str = ""
    image_tag: str = ""
    diff: Diff | Unusable | None = None
    images: ImageFacts = ImageFacts()


@dataclass(frozen=True, slots=True)
class PlannedRef:
    """A decision and the commit that it names now; None where that was not looked up, or the image's tree stays."""

    decision: RefDecision
    commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlan:
    """What holds for all stages of a backend. ``image``: None for CPU, or while ``own_image`` is undecided."""

    backend: Backend
    policy: Policy
    refs: tuple[PlannedRef, ...]
    image: ImageDecision | None
    own_image: OwnImageDecision | None
    secrets: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One stage. ``partitions`` is empty iff it is not started; ``max_parallel``: None means all of them at once."""

    decision: StageDecision
    partitions: tuple[StagePlan, ...]
    max_parallel: int | None

    @property
    def stage(self) -> Stage:
        """The stage."""
        return self.decision.stage

    @property
    def est_time(self) -> float:
        """Seconds of all its files, one after the other."""
        return sum(partition.est_time for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The run. ``cancels_only``: it starts nothing, and ends what runs in its ``group``."""

    workflow: Workflow
    run: RunFacts
    group: str
    cancels_only: bool
    backends: Mapping[str, BackendPlan]
    stages: tuple[StageRun, ...]

    @property
    def started(self) -> tuple[StageRun, ...]:
        """The stages that are started."""
        return tuple(stage for stage in self.stages if stage.decision.starts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of all backends, each once."""
        return tuple(dict.fromkeys(text for backend in self.backends.values() for text in backend.warnings))


def plan_run(workflow: Workflow, run: RunFacts, registrations: Iterable[Registration], inventory: Inventory) -> RunPlan:
    """Decide the whole run of one workflow. Commits are not looked up: see ``with_commits``.

    Raises:
        UsageError: a trigger, ref, tag or lock that no run can be made of.
    """
    registrations = tuple(registrations)
    cancels_only = run.action == _CLOSED and is_filtered(run.facts.trigger)
    backends = {name: _backend(inventory.backends[name], run, inventory) for name in workflow.backends}
    stages: list[StageRun] = []
    for name, backend in backends.items():
        own = [stage for stage in inventory.stages.values() if stage.backend == name]
        decisions = select_stages(own, registrations, policy=backend.policy, diff=run.diff, inventory=inventory)
        for decision in decisions:
            decided = StageDecision(decision.stage, Cause.CLOSED, _CANCELS) if cancels_only else decision
            stages.append(_stage(decided, registrations, backend.policy))
    return RunPlan(
        workflow=workflow,
        run=run,
        group=workflow.group + _group(run),
        cancels_only=cancels_only,
        backends=backends,
        stages=tuple(stages),
    )


def with_commits(plan: RunPlan, commits: Mapping[tuple[str, str], str | None]) -> RunPlan:
    """The plan with the commits that its refs name now, by dependency and ref as it was written."""
    backends = {
        name: replace(
            backend,
            refs=tuple(
                PlannedRef(ref.decision, commits.get((ref.decision.dependency.name, str(ref.decision.ref)), ref.commit))
                for ref in backend.refs
            ),
        )
        for name, backend in plan.backends.items()
    }
    return replace(plan, backends=backends)


def own_image_needed(plan: RunPlan) -> OwnImageDecision | None:
    """The decision that waits for the registry's answer on its ``tag``, or None."""
    decisions = [backend.own_image for backend in plan.backends.values() if backend.own_image]
    return next((own for own in decisions if own.action is OwnImage.UNDECIDED), None)


def _group(run: RunFacts) -> str:
    event = run.facts.trigger
    number = run.facts.number if event.event == "pull_request" else None
    return str(number) if number is not None else event.schedule or run.called_ref or run.run_id or "local"


def _backend(backend: Backend, run: RunFacts, inventory: Inventory) -> BackendPlan:
    facts = run.facts
    policy = resolve_policy(for_backend(facts.trigger, backend), inventory)
    refs = decide_refs(facts.refs, inventory, backend)
    image, own = _image(backend, run)
    return BackendPlan(
        backend=backend,
        policy=policy,
        refs=tuple(PlannedRef(decision, _known(decision)) for decision in refs.decisions),
        image=image,
        own_image=own,
        secrets=() if run.fork else backend.secrets,
        warnings=(*policy.warnings, *refs.warnings, *(image.warnings if image else ())),
    )


def _known(decision: RefDecision) -> str | None:
    return decision.ref.value if decision.ref is not None and decision.ref.kind is RefKind.COMMIT else None


def _image(backend: Backend, run: RunFacts) -> tuple[ImageDecision | None, OwnImageDecision | None]:
    if backend.image is None:
        return None, None
    own = None
    images = run.images
    if backend.image.inputs is not None and is_filtered(run.facts.trigger) and images.head is not None:
        own = decide_own_image(
            OwnImageRequest(
                number=run.facts.number,
                fork=run.fork,
                head=images.head,
                base=images.base or "",
                labels=(*run.facts.trigger.labels, *run.facts.trigger.extra_labels),
                published=images.published,
            ),
            backend.image,
        )
    if own is not None and own.action is OwnImage.UNDECIDED and not run.image_tag:
        return None, own
    number = run.facts.number if own is not None and own.action in {OwnImage.BUILD, OwnImage.REUSE} else None
    event = run.facts.event
    given = run.image_tag or (event.inputs.get("ci_image_tag", "") if event else "")
    request = ImageRequest(given=given, own_image=number, body=run.facts.refs.body)
    return decide_image(request, backend.image), own


def _stage(decision: StageDecision, registrations: Sequence[Registration], policy: Policy) -> StageRun:
    if not decision.starts:
        return StageRun(decision=decision, partitions=(), max_parallel=None)
    stage = decision.stage
    serial = policy.cadence == _SERIAL and stage.gpus and stage.partitions > 1
    return StageRun(
        decision=decision,
        partitions=plan_partitions(registrations, stage, policy),
        max_parallel=1 if serial else None,
    )
