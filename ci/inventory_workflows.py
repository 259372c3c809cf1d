"""The workflows of an inventory: which backends run together, and how their runs are grouped (spec §10)."""

import re
from collections.abc import Mapping

import yaml

from ci.inventory import Stage, Workflow
from ci.text import show
from ci.yaml_reader import Reader

_GROUP = re.compile(r"[a-z0-9-]+-")


def read_workflow(reader: Reader, name: str, node: yaml.Node, backends: tuple[str, ...]) -> Workflow:
    """One entry of ``workflows``."""
    what = f"workflows.{show(name)}"
    record = reader.record(node, what, required=("title", "backends", "group", "closed"))
    return Workflow(
        name=name,
        title=record.get("title", reader.text),
        backends=record.get("backends", lambda node, what: reader.subset(node, what, backends)),
        group=record.get("group", lambda node, what: reader.matching(node, what, _GROUP, "a prefix that ends in `-`")),
        closed=record.get("closed", reader.boolean),
    )


def check_workflows(
    reader: Reader, node: yaml.Node, workflows: Mapping[str, Workflow], stages: Mapping[str, Stage]
) -> None:
    """Every backend with stages of ours is run by one workflow; two with one group would cancel each other."""
    for backend in dict.fromkeys(stage.backend for stage in stages.values() if not stage.external):
        running = [workflow.name for workflow in workflows.values() if backend in workflow.backends]
        if len(running) != 1:
            many = f"by {' and '.join(running)}" if running else "by none"
            reader.fault(node, f"workflows: stages of {backend} are run {many}; exactly one has to run them")
    for workflow in workflows.values():
        others = [
            other.name
            for other in workflows.values()
            if other is not workflow and re.fullmatch(rf"{re.escape(workflow.group)}(\d.*)?", other.group)
        ]
        if others:
            reader.fault(node, f"workflows: runs of {workflow.name} and {others[0]} would cancel each other")
