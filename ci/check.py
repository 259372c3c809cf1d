"""``python -m ci.check``: this repository's own declarations against each other, for lint."""

from ci.console import say
from ci.errors import ExitCode
from ci.inventory_file import OWN_INVENTORY, load_inventory
from ci.main import guarded
from ci.tree import read_tree
from ci.workspace import SAMPLE_WORKSPACE


def main() -> int:
    """Validate the inventory, and the sample's registrations against it; a warning counts as a fault here."""
    inventory = load_inventory(OWN_INVENTORY)
    tree = read_tree(SAMPLE_WORKSPACE, inventory, cache=None).require()
    for warning in tree.warnings:
        say(f"sample: {warning}")
    if tree.warnings:
        return ExitCode.FAILED
    stages, labels, files = len(inventory.stages), len(inventory.labels), len(tree.files)
    say(f"inventory: {stages} stages, {labels} labels; sample: {files} test files, nothing wrong")
    return ExitCode.OK


if __name__ == "__main__":
    raise SystemExit(guarded(main))
