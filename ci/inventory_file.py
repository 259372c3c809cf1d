"""Read ``inventory.yml`` into the frozen types, every fault at once and with its line (spec §2)."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import yaml

from ci.errors import Problems, UsageError
from ci.inventory import (
    Backend,
    Dependency,
    Discovery,
    Inventory,
    NoGpuPaths,
    Scope,
    Stage,
    StageName,
)
from ci.inventory_backends import read_backend
from ci.inventory_workflows import check_workflows, read_workflow
from ci.policy import CADENCES
from ci.ref import ref_name_fault
from ci.text import did_you_mean, show
from ci.yaml_reader import Fault, Reader, compose, is_inner

T = TypeVar("T")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

OWN_INVENTORY = Path(__file__).with_name("inventory.yml")
WORKSPACE_INVENTORY = "ci/inventory.yml"


def load_inventory(path: Path, *, origin: str | None = None) -> Inventory:
    """Read and check an inventory file.

    Raises:
        Problems: faults of the content, each ``file:line: what``.
        UsageError: the file cannot be read, or is not YAML.
    """
    origin = origin or path.name
    try:
        source = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{show(path)}: cannot be read: {show(error)}", hint="an inventory is a UTF-8 YAML file"
        ) from error
    return parse_inventory(source, origin=origin)


def workspace_inventory(workspace: Path) -> Inventory:
    """The workspace's own inventory if it carries one, else the one of this repository."""
    own = workspace / WORKSPACE_INVENTORY
    if own.is_file() and not own.samefile(OWN_INVENTORY):
        return load_inventory(own, origin=f"the workspace's {WORKSPACE_INVENTORY}")
    return load_inventory(OWN_INVENTORY, origin="ci/inventory.yml")


def parse_inventory(source: str, *, origin: str) -> Inventory:
    """Read the text of an inventory; errors as in ``load_inventory``."""
    root = compose(source, origin)
    reader = Reader(origin)
    try:
        inventory = _inventory(reader, root)
    except Fault:
        inventory = None
    if inventory is None or reader.faults:
        raise Problems("the inventory has faults:", tuple(reader.faults), hint="mend these lines; nothing was run")
    return inventory


_SECTIONS = (
    "workspace", "dependencies", "backends", "stages", "workflows", "labels", "scope", "crons", "discovery",
    "no_gpu_paths",
)  # fmt: skip


def _inventory(reader: Reader, root: yaml.Node) -> Inventory | None:
    top = reader.record(root, "inventory", required=_SECTIONS)
    labels = reader.each(top.node("labels"), "labels", lambda name, node: _label(reader, name, node))
    dependencies = reader.each(
        top.node("dependencies"), "dependencies", lambda name, node: _dependency(reader, name, node)
    )
    # also those with a fault of their own, which is said once
    declared = tuple(reader.mapping(top.node("dependencies"), "dependencies"))
    backends = reader.each(
        top.node("backends"), "backends", lambda name, node: read_backend(reader, name, node, declared)
    )
    stages = reader.each(top.node("stages"), "stages", lambda name, node: _stage(reader, name, node, backends))
    workflows = reader.each(
        top.node("workflows"), "workflows", lambda name, node: read_workflow(reader, name, node, tuple(backends))
    )
    crons = reader.each(top.node("crons"), "crons", lambda name, node: reader.one_of(node, f"crons.{name}", CADENCES))
    _check_needs(reader, top.node("stages"), stages)
    check_workflows(reader, top.node("workflows"), workflows, stages)
    _check_unique(reader, top.node("backends"), "register", {name: entry.register for name, entry in backends.items()})
    for field in ("directive", "lock_key", "repository_variable", "root_variable"):
        values = {name: getattr(entry, field) for name, entry in dependencies.items()}
        _check_unique(reader, top.node("dependencies"), field, values)
    workspace = reader.record(top.node("workspace"), "workspace", required=("modules",))
    known = tuple(labels)
    parts = (
        workspace.get("modules", reader.texts),
        _scope(reader, top.node("scope"), known),
        _discovery(reader, top.node("discovery"), stages),
        _no_gpu_paths(reader, top.node("no_gpu_paths")),
    )
    return Inventory(
        origin=reader.origin,
        workspace_modules=parts[0],
        dependencies=_frozen(dependencies),
        backends=_frozen(backends),
        stages=_frozen(stages),
        workflows=_frozen(workflows),
        labels=_frozen(labels),
        scope=parts[1],
        crons=_frozen(crons),
        discovery=parts[2],
        no_gpu_paths=parts[3],
    )


def _frozen(values: dict[str, T]) -> Mapping[str, T]:
    return MappingProxyType(values)


def _label(reader: Reader, name: str, node: yaml.Node) -> str:
    if not _WORD.fullmatch(name):
        raise reader.fault(node, f"labels: `{show(name)}` cannot be asked for; use letters, digits, `_`, `.`, `-`")
    return reader.text(node, f"labels.{name}")


def _dependency(reader: Reader, name: str, node: yaml.Node) -> Dependency:
    what = f"dependencies.{show(name)}"
    fields = (
        "title", "repository", "repository_variable", "branch", "directive", "lock_key", "source", "root_variable",
        "modules",
    )  # fmt: skip
    record = reader.record(node, what, required=fields)
    branch = record.get("branch", reader.text)
    if fault := ref_name_fault(branch):
        raise reader.fault(record.node("branch"), f"{what}.branch: not a branch name: {fault}")
    variables = tuple(record.get(field, reader.variable) for field in ("repository_variable", "root_variable"))
    return Dependency(
        name=name,
        title=record.get("title", reader.text),
        repository=record.get("repository", reader.text),
        repository_variable=variables[0],
        branch=branch,
        directive=record.get("directive", lambda node, what: reader.matching(node, what, _WORD, "a directive's name")),
        lock_key=record.get("lock_key", reader.text),
        source=record.get("source", reader.inner_path),
        root_variable=variables[1],
        modules=record.get("modules", reader.texts),
    )


def _stage(reader: Reader, name: str, node: yaml.Node, backends: Mapping[str, Backend]) -> Stage:
    what = f"stages.{show(name)}"
    record = reader.record(
        node,
        what,
        required=("backend", "gpus", "hardware", "runs_on", "partitions", "needs"),
        optional=("external",),
    )
    stage = Stage(
        name=name,
        backend=record.get("backend", lambda node, what: reader.one_of(node, what, tuple(backends))),
        gpus=record.get("gpus", lambda node, what: reader.integer(node, what, 0)),
        hardware=record.get("hardware", reader.text),
        runs_on=record.get("runs_on", reader.texts),
        partitions=record.get("partitions", lambda node, what: reader.integer(node, what, 1)),
        needs=record.get("needs", reader.texts),
        external=record.get("external", reader.boolean) if "external" in record else False,
    )
    try:
        said = StageName.parse(name)
    except UsageError as error:
        raise reader.fault(node, f"{error.what}; {error.hint}") from error
    if (said.gpus, said.hardware) != (stage.gpus, stage.hardware):
        raise reader.fault(
            node,
            f"{what}: the name says {said.gpus}×{said.hardware}, the fields {stage.gpus}×{stage.hardware}",
        )
    if stage.hardware not in backends[stage.backend].hardware:
        hardware = ", ".join(backends[stage.backend].hardware)
        raise reader.fault(node, f"{what}: {stage.hardware} is not hardware of {stage.backend} ({hardware})")
    return stage


def _check_needs(reader: Reader, node: yaml.Node, stages: Mapping[str, Stage]) -> None:
    entries = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
    for stage in stages.values():
        for need in stage.needs:
            if need == stage.name or need not in ("policy", "image", *stages):
                known = ("policy", "image", *stages)
                reader.fault(
                    entries[stage.name],
                    f"stages.{stage.name}: needs `{show(need)}`; {did_you_mean(need, known)}",
                )


def _check_unique(reader: Reader, node: yaml.Node, field: str, values: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for name, value in values.items():
        if value in seen:
            entry = reader.mapping(node, field)[name]
            reader.fault(
                entry, f"{field} `{show(value)}` is used twice, by {seen[value]} and {name}; each needs its own"
            )
        seen.setdefault(value, name)


def _scope(reader: Reader, node: yaml.Node, labels: tuple[str, ...]) -> Scope:
    names = ("nightly_label", "bypass_label", "prefix", "all", "image")
    record = reader.record(node, "scope", required=(*names, "without_nightly", "without_image"))
    texts = {name: record.get(name, reader.text) for name in names}
    without = [
        frozenset(record.get(name, lambda node, what: reader.subset(node, what, labels)))
        for name in ("without_nightly", "without_image")
    ]
    return Scope(
        nightly_label=texts["nightly_label"],
        bypass_label=texts["bypass_label"],
        prefix=texts["prefix"],
        all=texts["all"],
        image=texts["image"],
        without_nightly=without[0],
        without_image=without[1],
    )


def _discovery(reader: Reader, node: yaml.Node, stages: Mapping[str, Stage]) -> Discovery:
    record = reader.record(node, "discovery", required=("roots", "implicit"))
    roots = record.get("roots", reader.texts)
    for root in roots:
        if not is_inner(root):
            raise reader.fault(record.node("roots"), f"discovery.roots: `{show(root)}` leaves the workspace")
    implicit = reader.record(record.node("implicit"), "discovery.implicit", required=("root", "suite", "est_time"))
    number = implicit.get("est_time", lambda node, what: reader.matching(node, what, _NUMBER, "a number of seconds"))
    return Discovery(
        roots=roots,
        implicit_root=implicit.get("root", lambda node, what: reader.one_of(node, what, roots)),
        implicit_suite=implicit.get("suite", lambda node, what: reader.one_of(node, what, tuple(stages))),
        implicit_est_time=float(number),
    )


def _no_gpu_paths(reader: Reader, node: yaml.Node) -> NoGpuPaths:
    record = reader.record(node, "no_gpu_paths", required=("folders", "suffixes", "files"))
    folders = record.get("folders", reader.texts)
    if odd := [folder for folder in folders if not folder.endswith("/")]:
        raise reader.fault(record.node("folders"), f"no_gpu_paths.folders: `{show(odd[0])}` must end in a slash")
    return NoGpuPaths(
        folders=folders,
        suffixes=record.get("suffixes", reader.texts),
        files=record.get("files", reader.texts),
    )
