"""The entry of ``python -m ci.suite``; everything else is imported inside the frame that turns Ctrl-C into a line."""

import sys

from ci.main import guarded


def command() -> int:
    """Run the command line."""
    from ci.suite_command import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(guarded(command))
