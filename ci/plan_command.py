"""The edge of ``invoke plan``: facts from options, files, git and the environment; then decide, then print."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ci.commands import read_given
from ci.console import say, warn
from ci.diff import Diff, Unusable
from ci.errors import CiError, ExitCode, UsageError
from ci.git_read import diff_of_checkout, diff_of_file, is_merge
from ci.image_inputs import read_inputs
from ci.inventory import Inventory, Workflow
from ci.paths import cache_dir
from ci.refs import RefDecision
from ci.run_plan import ImageFacts, RunFacts, RunPlan, plan_run, with_commits
from ci.run_plan_data import run_plan_json, run_plan_outputs
from ci.run_plan_text import run_plan_text
from ci.stage_selection import is_filtered
from ci.text import did_you_mean, show
from ci.tree import read_tree
from ci.workspace import Workspace

FORMATS = ("text", "json", "github")


def plan(given: Mapping[str, Any]) -> int:
    """Print the plan of one or all workflows."""
    if given["format"] not in FORMATS:
        raise UsageError(f"`{show(given['format'], 60)}` is not a format", hint=", ".join(FORMATS))
    workspace, plans = make_plans(given)
    arguments = session_arguments(given, workspace)
    if given["format"] == "github" and len(plans) > 1:
        raise UsageError("--format github is for one workflow", hint="name it with --workflow")
    for number, each in enumerate(plans):
        if given["format"] == "json":
            print(run_plan_json(each, arguments))
        elif given["format"] == "github":
            print(run_plan_outputs(each))
        else:
            print(f"{os.linesep if number else ''}{run_plan_text(each, arguments, files=given['files'])}")
        if given["format"] != "text":
            for warning in each.warnings:
                warn(warning)
    return ExitCode.OK


def make_plans(given: Mapping[str, Any]) -> tuple[Workspace, list[RunPlan]]:
    """The plans of the workflow that was named, or of all.

    Raises:
        UsageError: a fact that no run can be made of.
        Problems: the workspace's registrations have faults.
    """
    workspace, inventory, facts = read_given(given)
    event = facts.event
    if given["number"]:
        facts = dataclasses.replace(facts, number=given["number"])
    run = RunFacts(
        facts=facts,
        action=event.action if event else "",
        fork=given["fork"] or (event.fork if event else False),
        called_ref=given["called_ref"],
        run_id=os.environ.get("GITHUB_RUN_ID", ""),
        image_tag=given["image"],
    )
    if is_filtered(facts.trigger):
        run = dataclasses.replace(run, diff=_diff(given, workspace), images=_image_facts(workspace, inventory))
    tree = read_tree(workspace.root, inventory, cache=cache_dir()).require()
    for finding in tree.warnings:
        say(f"warning: {finding}")
    plans = [plan_run(each, run, tree.registrations, inventory) for each in _workflows(given["workflow"], inventory)]
    return workspace, _looked_up(plans, workspace, offline=given["offline"])


def session_arguments(given: Mapping[str, Any], workspace: Workspace) -> tuple[str, ...]:
    """The arguments that decided this plan, as a session takes them."""
    arguments = [] if workspace.sample else ["--workspace", str(workspace.root)]
    started_in: Path = given["started_in"]
    for name in ("event", "pr_body"):
        if given[name]:
            arguments += [f"--{name.replace('_', '-')}", str(started_in / given[name])]
    for name in ("event_name", "schedule", "labels_json", "cadence", *workspace.inventory.dependencies):
        if given.get(name):
            arguments += [f"--{name.replace('_', '-')}", given[name]]
    for label in given["labels"]:
        arguments += ["--labels", label]
    for flag in ("match_all_labels", "bypass_fastfail"):
        arguments += [f"--{flag.replace('_', '-')}"] if given[flag] else []
    return tuple(arguments)


def _diff(given: Mapping[str, Any], workspace: Workspace) -> Diff | Unusable:
    if given["diff"]:
        return diff_of_file(given["started_in"] / given["diff"])
    diff = diff_of_checkout(workspace.root)
    if isinstance(diff, Diff) and not is_merge(workspace.root):
        warn("HEAD is no merge commit: the diff is that of the last commit alone; give the whole one with --diff FILE")
    return diff


def _workflows(name: str, inventory: Inventory) -> list[Workflow]:
    if not name:
        return list(inventory.workflows.values())
    if name not in inventory.workflows:
        raise UsageError(f"`{show(name, 60)}` is not a workflow", hint=did_you_mean(name, inventory.workflows))
    return [inventory.workflows[name]]


def _image_facts(workspace: Workspace, inventory: Inventory) -> ImageFacts:
    """Hashes of the inputs; a tree that is no checkout, or has no parent, has none, and no image of its own."""
    declared = next((b.image.inputs for b in inventory.backends.values() if b.image and b.image.inputs), None)
    if declared is None:
        return ImageFacts()
    try:
        head, base = (read_inputs(workspace.root, revision, declared).hash for revision in ("HEAD", "HEAD^1"))
    except CiError as error:
        warn(f"whether the pull request needs an image of its own is not known: {error.what}")
        return ImageFacts()
    return ImageFacts(head=head, base=base)


def _looked_up(plans: Sequence[RunPlan], workspace: Workspace, *, offline: bool) -> list[RunPlan]:
    """The plans with the commits of their refs, each asked for once; one that is not to be had is said, left open."""
    from ci.run_sources import resolve_decision

    def look(decision: RefDecision) -> str | None:
        try:
            return resolve_decision(decision, workspace, environ=os.environ, offline=offline).commit
        except CiError as error:
            warn(f"{error.what}; its commit stays open")
            return None

    wanted = {
        (ref.decision.dependency.name, str(ref.decision.ref)): ref.decision
        for plan in plans
        for backend in plan.backends.values()
        for ref in backend.refs
        if ref.commit is None and ref.decision.ref is not None
    }
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = dict(zip(wanted, pool.map(look, wanted.values()), strict=True))
    return [with_commits(plan, found) for plan in plans]
