"""Data flows one way: a module knows its left neighbours and never a right one; decisions touch no edge."""

import ast
from pathlib import Path

import pytest

CI = Path(__file__).parent.parent / "ci"

# facts → policy → plan → refs, sources, environment → run → results → commands
LAYERS = (
    {"errors", "text", "paths"},
    {"console", "ref", "yaml_reader", "mark", "proc"},
    {"inventory", "directives", "diff", "lock", "event", "policy", "process"},
    {"inventory_file", "registration", "refs", "selection", "exit_codes_lost"},
    {"scan_cache", "sharding", "facts", "options", "stage_selection", "image_decision"},
    {"tree", "workspace", "plan", "container"},
    {"explain", "check", "main", "nox_session", "commands"},
)
DECISIONS = (
    *("directives", "event", "explain", "inventory", "plan", "policy", "ref", "refs", "registration"),
    *(
        "accelerators",
        "retry",
        "selection",
        "sharding",
        "text",
        "errors",
        "verdicts",
        "child_environment",
        "exit_codes_lost",
        "diff",
        "stage_selection",
        "image_decision",
        "container",
        "run_plan",
        "run_plan_data",
        "run_plan_text",
        "leftovers",
        "limits",
        "mark",
    ),
    *(
        "challenges",
        "image_tags",
        "manifests",
        "registry_addresses",
        "registry_answers",
        "registry_errors",
        "tag_pages",
    ),
)
EDGES = {
    "os",
    "subprocess",
    "socket",
    "shutil",
    "pathlib",
    "tempfile",
    "sys",
    "signal",
    "io",
    "time",
    "yaml",
    "requests",
}


def imported(module: str) -> set[str]:
    tree = ast.parse((CI / f"{module}.py").read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("level", range(len(LAYERS)))
def test_no_module_imports_one_of_a_later_layer(level: int) -> None:
    later = {name for layer in LAYERS[level + 1 :] for name in layer}
    for module in LAYERS[level]:
        assert not {name.removeprefix("ci.") for name in imported(module) if name.startswith("ci.")} & later, module


@pytest.mark.parametrize("module", DECISIONS)
def test_decisions_import_no_edge(module: str) -> None:
    assert not {name.partition(".")[0] for name in imported(module)} & EDGES
