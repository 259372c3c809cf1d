"""What a run takes from its image: source trees that are there, packages that have to fit (spec §7, §9)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.checkouts import bring_checkout, checkout_as_it_is, image_checkouts, patch_checkout
from ci.console import say
from ci.errors import InfrastructureError, UsageError
from ci.image_packages import install_tree, reconcile
from ci.inventory import Backend
from ci.paths import cache_dir
from ci.ref import RefKind
from ci.refs import RefDecision
from ci.requirement_files import read_requirements
from ci.run_sources import obtain_trees
from ci.sources import SourceTree, local_tree
from ci.text import show
from ci.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Source trees by dependency. ``on_path``: through PYTHONPATH; ``installed``: through the interpreter.

    ``named``: of the installed ones those that a ref was named for; the others are the image's own, as they are.
    """

    on_path: Mapping[str, SourceTree]
    installed: Mapping[str, SourceTree]
    named: frozenset[str]

    @property
    def all(self) -> dict[str, SourceTree]:
        """Both kinds."""
        return {**self.on_path, **self.installed}


def session_trees(
    decisions: Sequence[RefDecision], workspace: Workspace, backend: Backend, *, installs: bool, offline: bool
) -> Trees:
    """The trees of a run: the image's own checkouts in place where they are there, else those of the cache.

    ``installs``: whether this run may install into its interpreter. The sample has repositories of its own,
    which an image's checkouts know nothing of.

    Raises:
        UsageError: a named ref that could not be used here.
    """
    checkouts = {} if workspace.sample else image_checkouts(backend.image)
    if backend.baked_sources:
        return _baked_trees(decisions, workspace, backend, checkouts, installs=installs, offline=offline)
    in_place = [
        decision
        for decision in decisions
        if decision.ref is not None and decision.ref.kind is not RefKind.PATH and decision.dependency.name in checkouts
    ]
    names = {decision.dependency.name for decision in in_place}
    others = tuple(decision for decision in decisions if decision.dependency.name not in names)
    found = obtain_trees(others, workspace, environ=os.environ, offline=offline)
    for decision in in_place:
        folder = checkouts[decision.dependency.name]
        found[decision.dependency.name] = _brought(decision, folder, from_origin=False, offline=offline)
    ordered = {name: found[name] for name in workspace.inventory.dependencies if name in found}
    return Trees(on_path=ordered, installed={}, named=frozenset())


def _baked_trees(
    decisions: Sequence[RefDecision],
    workspace: Workspace,
    backend: Backend,
    checkouts: Mapping[str, Path],
    *,
    installs: bool,
    offline: bool,
) -> Trees:
    """The image's own trees; that of a named ref is fetched from its own origin, patched, and installed later.

    A local folder goes on PYTHONPATH, as everywhere: installing would write into what is somebody's.
    """
    found: dict[str, SourceTree] = {}
    local: dict[str, SourceTree] = {}
    named: set[str] = set()
    for decision in decisions:
        dependency, folder = decision.dependency, checkouts.get(decision.dependency.name)
        if decision.ref is None:
            if folder is not None:
                found[dependency.name] = checkout_as_it_is(dependency, folder)
            continue
        if decision.ref.kind is RefKind.PATH:
            local[dependency.name] = local_tree(dependency, decision.ref)
            continue
        if not installs:
            raise UsageError(
                f"{dependency.title} {show(decision.ref, 60)}: {backend.title} runs install the tree of a ref, "
                "and --python installs nothing",
                hint=f"leave out --python, or give a tree: --{dependency.name} path:DIR",
            )
        if folder is None:
            raise InfrastructureError(
                f"{dependency.title} {show(decision.ref, 60)}: there is no checkout here to bring to it, as "
                f"{backend.title} images have",
                hint=f"run inside the image (--container docker), or give a tree: --{dependency.name} path:DIR",
            )
        tree = _brought(decision, folder, from_origin=True, offline=offline)
        if backend.image and (patch := backend.image.patches.get(dependency.name)):
            patch_checkout(dependency, tree, workspace.root / patch)
        found[dependency.name] = tree
        named.add(dependency.name)
    return Trees(on_path=local, installed=found, named=frozenset(named))


def _brought(decision: RefDecision, folder: Path, *, from_origin: bool, offline: bool) -> SourceTree:
    if decision.ref is None:
        raise ValueError("a checkout is brought to a ref")
    return bring_checkout(
        decision.dependency,
        decision.ref,
        folder,
        from_origin=from_origin,
        environ=os.environ,
        cache=cache_dir(),
        offline=offline,
    )


def fit_image(
    python: str,
    trees: Trees,
    workspace: Workspace,
    backend: Backend,
    *,
    leave_out: Sequence[str],
    results: Path,
    offline: bool,
) -> dict[str, object]:
    """Bring the image's packages in line, and install trees of named refs; facts for the results.

    Outside the image nothing is installed: the machine's Python is its owner's.

    Raises:
        InfrastructureError: something cannot be installed.
    """
    log = results / "packages.log"
    facts: dict[str, object] = {}
    installed = [tree for name, tree in trees.installed.items() if name in trees.named]
    wanted = [workspace.root / name for name in backend.requirements if (workspace.root / name).is_file()]
    if not (inside := bool(image_checkouts(backend.image))):
        say(f"environment: not inside the {backend.title} image, so the packages of {show(python)} stay as they are")
    if (inside and wanted) or installed:
        try:
            results.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        except OSError as error:
            raise InfrastructureError(
                f"results cannot be written to {show(results)}: {show(error.strerror)}",
                hint="give another folder with --results DIR",
            ) from error
    if inside and wanted and backend.image:
        moved = reconcile(
            python,
            read_requirements(wanted),
            protected=backend.image.protected,
            leave_out=leave_out,
            log=log,
            offline=offline,
        )
        facts["packages"] = [asdict(entry) for entry in moved]
    for tree in installed:
        title = workspace.inventory.dependencies[tree.dependency].title
        install_tree(python, tree.root, title=title, log=log, offline=offline)
    return facts
