"""Everything that is wrong with a workspace's registrations, in one list."""

from collections.abc import Sequence
from pathlib import Path

from ci.exit_codes_lost import lost_exit_codes
from ci.inventory import Inventory
from ci.registration import Finding
from ci.tree import Tree


def findings(tree: Tree, workspace: Path, inventory: Inventory) -> tuple[Finding, ...]:
    """Problems, warnings, and files run by Python alone whose failures would not be seen; by file and line."""
    found = [*tree.problems, *tree.warnings, *_lost(tree, workspace, inventory)]
    return tuple(sorted(found, key=lambda finding: (finding.file, finding.line)))


def _lost(tree: Tree, workspace: Path, inventory: Inventory) -> Sequence[Finding]:
    """Pytest runs CPU files and sees to their codes; those of a backend with an image are run as scripts."""
    scripts = {found.file for found in tree.registrations if inventory.backends[found.backend].image is not None}
    return [finding for file in sorted(scripts) for finding in lost_exit_codes((workspace / file).read_bytes(), file)]
