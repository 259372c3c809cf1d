"""The commands behind the tasks: read the facts, decide, print. Data goes to stdout, everything else to stderr."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.check import findings
from ci.console import warn
from ci.errors import ExitCode, UsageError
from ci.explain import explain as explain_test
from ci.explain import explanation_data, explanation_text
from ci.facts import Facts, Given, for_backend, read_facts
from ci.inventory import Backend, Inventory
from ci.paths import cache_dir
from ci.policy import resolve_policy
from ci.refs import decide_refs
from ci.text import did_you_mean, show
from ci.tree import read_tree
from ci.workspace import Workspace, find_workspace


def policy(given: Mapping[str, Any]) -> int:
    """Print the policy and the origin of each part."""
    _, inventory, facts = read_given(given)
    decided = resolve_policy(for_backend(facts.trigger, _backend(given, inventory)), inventory)
    fields = ("cadence", "raw_labels", "include_labels", "admit_nightly", "bypass_fastfail", "write_baseline")
    values = {name: getattr(decided, name) for name in fields}
    because = dict(decided.because)
    for warning in decided.warnings:
        warn(warning)
    if _json(given):
        print(json.dumps({**values, "because": because, "warnings": decided.warnings}, indent=2))
    else:
        for name, value in values.items():
            shown = ", ".join(value) or "none" if isinstance(value, tuple) else str(value).lower()
            print(f"{name:<16} {show(shown, 2000)}\n{'':<16}   because: {show(because[name], 400)}")
    return ExitCode.OK


def refs(given: Mapping[str, Any]) -> int:
    """Print the ref of each dependency, its origin, and the commit that it resolves to now."""
    from ci.commits import show_url
    from ci.run_sources import resolve_decision

    workspace, inventory, facts = read_given(given)
    decided = decide_refs(facts.refs, inventory, _backend(given, inventory))
    for warning in decided.warnings:
        warn(warning)
    rows = []
    for decision in decided.decisions:
        found = resolve_decision(decision, workspace, environ=os.environ, offline=given["offline"])
        rows.append(
            {
                "name": decision.dependency.name,
                "ref": str(decision.ref) if decision.ref else None,
                "origin": decision.origin,
                "detail": decision.detail,
                "commit": found.commit,
                "repository": show_url(found.url) if found.url else None,
            }
        )
    if _json(given):
        print(json.dumps({"dependencies": rows, "warnings": decided.warnings}, indent=2))
    else:
        for row in rows:
            print(f"{row['name']:<9} {show(row['ref'] or '(in the image)')}  {row['commit'] or 'as it is'}")
            print(
                f"{'':<9}   from: {row['origin']}, {show(row['detail'])}; {show(row['repository'] or 'no repository')}"
            )
    return ExitCode.OK


def explain(given: Mapping[str, Any]) -> int:
    """Print why a test runs or not."""
    workspace, inventory, facts = read_given(given)
    tree = read_tree(workspace.root, inventory, cache=cache_dir())
    file = _relative(given["test_file"], workspace, given["started_in"])
    explanations = explain_test(file, tree, facts, inventory)
    print(
        json.dumps(explanation_data(file, explanations), indent=2)
        if _json(given)
        else explanation_text(file, explanations)
    )
    return ExitCode.OK


def check(given: Mapping[str, Any]) -> int:
    """Print everything that is wrong with the workspace's registrations."""
    workspace = find_workspace(given["workspace"], environ=os.environ, started_in=given["started_in"])
    tree = read_tree(workspace.root, workspace.inventory, cache=cache_dir())
    found = findings(tree, workspace.root, workspace.inventory)
    if _json(given):
        print(json.dumps([{"file": item.file, "line": item.line, "text": item.text} for item in found], indent=2))
    else:
        for finding in found:
            print(finding)
        stages, labels = len(workspace.inventory.stages), len(workspace.inventory.labels)
        print(f"{len(found)} findings in {len(tree.files)} test files; {stages} stages, {labels} labels")
    return ExitCode.USAGE if tree.problems else ExitCode.FAILED if found else ExitCode.OK


def image_inputs(given: Mapping[str, Any]) -> int:
    """Print the hash of what a backend's image is built from, at a revision, and each input's own."""
    from ci.image_inputs import inputs_data, inputs_text, read_inputs

    workspace = find_workspace(given["workspace"], environ=os.environ, started_in=given["started_in"])
    backend, as_json = _backend(given, workspace.inventory), _json(given)
    declared = backend.image.inputs if backend.image else None
    if declared is None:
        able = [each.name for each in workspace.inventory.backends.values() if each.image and each.image.inputs]
        raise UsageError(
            f"{show(workspace.inventory.origin)} declares no image inputs for {backend.name}",
            hint=f"give --backend {able[0]}" if able else "add `inputs` to the `image` of a backend",
        )
    at = read_inputs(workspace.root, given["rev"], declared)
    if at.missing:
        warn(f"{len(at.missing)} of {len(declared.paths)} image inputs are missing in {at.commit[:12]}")
    print(json.dumps(inputs_data(given["rev"], at), indent=2) if as_json else inputs_text(at))
    return ExitCode.OK


def read_given(given: Mapping[str, Any]) -> tuple[Workspace, Inventory, Facts]:
    """Workspace, its inventory, and the facts that the options of a task name."""
    started_in: Path = given["started_in"]
    workspace = find_workspace(given["workspace"], environ=os.environ, started_in=started_in)
    inventory = workspace.inventory
    # the tasks' --backend is not an argument of every command, and refs only of one
    asked = Given(
        event=given["event"],
        event_name=given["event_name"],
        schedule=given["schedule"],
        labels_json=given["labels_json"],
        cadence=given["cadence"],
        labels=tuple(given["labels"]),
        match_all_labels=given["match_all_labels"],
        bypass_fastfail=given["bypass_fastfail"],
        pr_body=given.get("pr_body", ""),
        refs={name: given.get(name, "") for name in inventory.dependencies},
    )
    return workspace, inventory, read_facts(asked, inventory, workspace=workspace.root, started_in=started_in)


def _backend(given: Mapping[str, Any], inventory: Inventory) -> Backend:
    if (name := given["backend"]) not in inventory.backends:
        raise UsageError(f"`{show(name, 60)}` is not a backend", hint=did_you_mean(name, inventory.backends))
    return inventory.backends[name]


def _json(given: Mapping[str, Any]) -> bool:
    if given["format"] not in {"text", "json"}:
        raise UsageError(f"`{show(given['format'], 60)}` is not a format", hint="text or json")
    return bool(given["format"] == "json")


def _relative(file: str, workspace: Workspace, started_in: Path) -> str:
    """The path as discovery names it, whether the person gave it from where they are or from the workspace."""
    for base in (started_in, workspace.root):
        path = (base / file).absolute()
        if os.path.lexists(path) and path.resolve().is_relative_to(workspace.root):
            return path.resolve().relative_to(workspace.root).as_posix()
    return file
