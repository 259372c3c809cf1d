"""``python -m ci.suite``: the suite runner alone, for people and CI.

It lists or runs one suite, or a partition of it, in a workspace. Sources and interpreter are given (by a
session, or by hand): nothing is fetched or installed here.
"""

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ci.console import say, warn
from ci.errors import ExitCode, UsageError
from ci.inventory import Stage
from ci.options import FORMAT, GPU, POLICY, RUN, WORKSPACE, Option, Parser
from ci.paths import cache_dir
from ci.plan import StagePlan, narrowed, plan_json, plan_stage, plan_text
from ci.policy import Policy, Trigger, resolve_policy
from ci.sharding import Partition, parse_partition
from ci.text import did_you_mean, show
from ci.tree import read_tree
from ci.workspace import Workspace, find_stage, find_workspace

_SUITE = (
    Option(name="hw", value="BACKEND", help="cpu, cuda or rocm: the backend of the suite"),
    Option(name="suite", value="NAME", help="the suite, which is the stage of that name"),
    Option(name="partition", value="ID/SIZE", help="one partition of the suite, as 1/4; ids start at 0"),
)
_TREES = (
    Option(
        name="tree",
        value="NAME=DIR",
        many=True,
        help="a dependency's folder for PYTHONPATH, as sglang=DIR/python; by default what its …_SOURCE_ROOT names",
    ),
)


def main(arguments: Sequence[str]) -> int:
    """List or run one suite; the exit code of its kind."""
    options = _parser().read(arguments)
    workspace = find_workspace(options.workspace, environ=os.environ, started_in=Path.cwd())
    stage = _stage(options, workspace)
    partition = parse_partition(options.partition) if options.partition else None
    trigger = Trigger(
        cadence=options.cadence or None,
        extra_labels=tuple(options.labels),
        match_all_labels=options.match_all_labels,
        bypass_fastfail=options.bypass_fastfail,
    )
    policy = resolve_policy(trigger, workspace.inventory)
    plan = make_plan(workspace, stage, policy, partition, only=options.only)
    if options.list_only:
        print(plan_json(plan) if options.format == "json" else plan_text(plan))
        return ExitCode.OK
    from ci.suite_run import run_given

    return run_given(options, workspace, plan)


def make_plan(
    workspace: Workspace, stage: Stage, policy: Policy, partition: Partition | None, *, only: Sequence[str]
) -> StagePlan:
    """Read the workspace's registrations and plan one stage; warnings go to stderr.

    Raises:
        Problems: the registrations have faults.
        UsageError: one of ``only`` is not in the plan.
    """
    for warning in policy.warnings:
        warn(warning)
    tree = read_tree(workspace.root, workspace.inventory, cache=cache_dir()).require()
    for finding in tree.warnings:
        say(f"warning: {finding}")
    plan = plan_stage(tree.registrations, stage, policy, partition)
    return narrowed(plan, only) if only else plan


def _parser() -> Parser:
    return Parser(
        "python -m ci.suite",
        "List or run one suite of a workspace. Nothing is fetched or installed.",
        *WORKSPACE,
        *_SUITE,
        *POLICY,
        *_TREES,
        *RUN,
        *GPU,
        *FORMAT,
    )


def _stage(options: Namespace, workspace: Workspace) -> Stage:
    if not options.suite:
        raise UsageError("--suite is missing", hint=f"name one of {', '.join(workspace.inventory.stages)}")
    stage = find_stage(options.suite, workspace)
    backends = workspace.inventory.backends
    if options.hw and options.hw not in backends:
        raise UsageError(f"`{show(options.hw, 60)}` is not a backend", hint=did_you_mean(options.hw, backends))
    if options.hw and options.hw != stage.backend:
        raise UsageError(
            f"`{stage.name}` is a suite of {stage.backend}, not of {options.hw}", hint=f"give --hw {stage.backend}"
        )
    return stage
