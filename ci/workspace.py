"""Which Miles tree is under test. An edge module: it looks at folders."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.errors import UsageError
from ci.inventory import Inventory, Stage
from ci.inventory_file import OWN_INVENTORY, load_inventory, workspace_inventory
from ci.options import early_value
from ci.paths import SAMPLE
from ci.text import did_you_mean, show

VARIABLE = "MILES_ROOT"
SAMPLE_WORKSPACE = SAMPLE / "miles"
_MARKS = ("miles", "tests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The tree under test. ``origin`` says who chose it; ``sample``: it is the one bundled here."""

    root: Path
    origin: str
    sample: bool
    inventory: Inventory


def find_workspace(chosen: str | None, *, environ: Mapping[str, str], started_in: Path) -> Workspace:
    """``--workspace``, else ``MILES_ROOT``, else the folder started in or one above it, else the bundled sample.

    Raises:
        UsageError: the chosen folder is not there or is not a Miles tree.
    """
    if chosen:
        return _open(started_in / Path(chosen).expanduser(), "--workspace")
    if variable := environ.get(VARIABLE):
        return _open(started_in / Path(variable).expanduser(), VARIABLE)
    for folder in (started_in, *started_in.parents):
        if is_miles_tree(folder):
            return _open(folder, "the folder started in")
    return _open(SAMPLE_WORKSPACE, "the bundled sample; name a Miles checkout with --workspace DIR")


def is_miles_tree(folder: Path) -> bool:
    """A folder with Miles's package and its tests."""
    return all((folder / mark).is_dir() for mark in _MARKS) and (folder / "miles" / "__init__.py").is_file()


def find_stage(name: str, workspace: Workspace) -> Stage:
    """The stage of that name in the workspace's inventory.

    Raises:
        UsageError: it has none; says whether the workspace is older than what asks for the stage.
    """
    inventory = workspace.inventory
    if name in inventory.stages:
        return inventory.stages[name]
    known = ", ".join(inventory.stages)
    if name in load_inventory(OWN_INVENTORY).stages:
        raise UsageError(
            f"this workspace has no stage `{show(name, 80)}`; {show(inventory.origin)} has {known}",
            hint="the workspace is older than the CI that asks for it: merge or rebase onto its base branch",
        )
    raise UsageError(
        f"`{show(name, 80)}` is not a stage of {show(inventory.origin)}",
        hint=f"{did_you_mean(name, inventory.stages)}; a workflow that asks for it is newer than this tree",
    )


def _open(folder: Path, origin: str) -> Workspace:
    root = folder.absolute()
    if not root.is_dir():
        raise UsageError(f"{show(root)} ({origin}) is not a folder", hint="name a Miles checkout with --workspace DIR")
    if not (root / "tests").is_dir():
        raise UsageError(
            f"{show(root)} ({origin}) is not a Miles tree: it has no tests/",
            hint="name the root of a Miles checkout with --workspace DIR",
        )
    sample = SAMPLE_WORKSPACE.exists() and root.resolve() == SAMPLE_WORKSPACE.resolve()
    return Workspace(root=root.resolve(), origin=origin, sample=sample, inventory=workspace_inventory(root))


def session_inventory(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Inventory:
    """The inventory whose stages become sessions: the one of the workspace that the arguments name.

    Nox reads the noxfile before any session sees its arguments, so ``--workspace`` is looked for in the
    command line. A workspace that cannot be opened is reported by the session, not here.
    """
    passed = arguments[arguments.index("--") :] if "--" in arguments else ()
    chosen = early_value(passed, "--workspace")
    # Nox has already changed the folder; the shell's own idea of it is in PWD
    started_in = Path(environ.get("PWD") or Path.cwd())
    try:
        return find_workspace(chosen, environ=environ, started_in=started_in).inventory
    except UsageError:
        return load_inventory(OWN_INVENTORY)
