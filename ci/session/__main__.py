"""The entry of ``python -m ci.session``; everything else is imported inside the frame that turns Ctrl-C into a line."""

import sys

from ci.main import guarded
from ci.process import become_reaper, end_descendants


def command() -> int:
    """Run the command line."""
    from ci.session_command import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    become_reaper()
    code = guarded(command)
    # an installer that was interrupted may leave builds behind
    end_descendants(frozenset())
    raise SystemExit(code)
