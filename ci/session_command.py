"""``python -m ci.session STAGE``: one stage or partition as CI runs it. The Nox sessions call this.

Order (spec §9): source trees, dependencies, verify, print the plan, run. With ``--list-only`` the plan alone.
"""

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ci.console import say, warn
from ci.container import refuse_misplaced
from ci.errors import ExitCode, UsageError
from ci.facts import Facts, Given, for_backend, read_facts
from ci.inventory import Inventory, Stage
from ci.options import (
    CONTAINER,
    ENVIRONMENT,
    EVENT,
    GPU,
    POLICY,
    REFS,
    RUN,
    WORKSPACE,
    Option,
    Parser,
    early_value,
    ref_options,
)
from ci.plan import StagePlan, plan_text
from ci.policy import resolve_policy
from ci.refs import decide_refs
from ci.sharding import Partition
from ci.suite_command import make_plan
from ci.text import show
from ci.workspace import Workspace, find_stage, find_workspace

# given by the noxfile, not by people
_INTERNAL = (
    Option(name="started-in", value="DIR", default=".", help=""),
    Option(name="partition-id", value="N", help=""),
)


def main(arguments: Sequence[str]) -> int:
    """Run one stage; the exit code of its kind."""
    stage_name, *rest = arguments
    if {"--help", "-h"} & set(rest):
        print(_help(stage_name))
        return ExitCode.OK
    started_in = Path(early_value(rest, "--started-in") or ".").absolute()
    workspace = find_workspace(early_value(rest, "--workspace"), environ=os.environ, started_in=started_in)
    options = _parser(stage_name, workspace.inventory, *_INTERNAL).read(rest)
    stage = find_stage(stage_name, workspace)
    refuse_misplaced(
        stage,
        container=options.container,
        image=options.image,
        dry_run=options.dry_run,
        list_only=options.list_only,
    )
    say(f"workspace: {show(workspace.root)} ({workspace.origin})")
    facts = read_facts(
        _given(options, workspace.inventory), workspace.inventory, workspace=workspace.root, started_in=started_in
    )
    policy = resolve_policy(
        for_backend(facts.trigger, workspace.inventory.backends[stage.backend]), workspace.inventory
    )
    plan = make_plan(workspace, stage, policy, _partition(options, stage), only=options.only)
    if options.list_only:
        print(plan_text(plan))
        return ExitCode.OK
    if options.container:
        from ci.container_run import run_in_container

        declared = (*_declared(workspace.inventory), *_INTERNAL)
        return run_in_container(options, workspace, plan, facts, declared=declared, started_in=started_in)
    return _run(options, workspace, plan, facts, started_in)


def _run(options: Namespace, workspace: Workspace, plan: StagePlan, facts: Facts, started_in: Path) -> int:
    from ci.suite_run import run_session

    backend = workspace.inventory.backends[plan.stage.backend]
    refs = decide_refs(facts.refs, workspace.inventory, backend)
    for warning in refs.warnings:
        warn(f"PR text, {warning}")
    return run_session(options, workspace, plan, facts, refs, started_in=started_in)


def _given(options: Namespace, inventory: Inventory) -> Given:
    return Given(
        event=options.event,
        event_name=options.event_name,
        schedule=options.schedule,
        labels_json=options.labels_json,
        cadence=options.cadence,
        labels=tuple(options.labels),
        match_all_labels=options.match_all_labels,
        bypass_fastfail=options.bypass_fastfail,
        pr_body=options.pr_body,
        refs={name: getattr(options, name) for name in inventory.dependencies},
    )


def _partition(options: Namespace, stage: Stage) -> Partition | None:
    if not options.partition_id:
        return None
    partition = Partition(int(options.partition_id), stage.partitions)
    if partition.id >= partition.size:
        raise UsageError(
            f"{stage.name} has no partition {partition.id} in this workspace",
            hint=f"its inventory says {stage.partitions}: the ids are 0 to {stage.partitions - 1}",
        )
    return partition


def _declared(inventory: Inventory) -> tuple[Option, ...]:
    """The options that decide what is run, wherever that is."""
    refs = ref_options(inventory)
    return (*WORKSPACE, *EVENT, *POLICY, *refs, *REFS, *RUN, *GPU, *ENVIRONMENT)


def _parser(stage: str, inventory: Inventory, *internal: Option) -> Parser:
    return Parser(
        f"nox -s {stage} --",
        "Run this stage as CI does, or list what it would run.",
        *_declared(inventory),
        *CONTAINER,
        *internal,
    )


def _help(stage: str) -> str:
    from ci.inventory_file import OWN_INVENTORY, load_inventory

    return _parser(stage, load_inventory(OWN_INVENTORY)).format_help()
