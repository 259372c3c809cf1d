"""The outermost frame of every command: errors become lines and exit codes, never a traceback."""

import os
import sys
from collections.abc import Callable

from ci.console import fail
from ci.errors import CiError, ExitCode


def guarded(command: Callable[[], int]) -> int:
    """Run a command; the exit code of what it raised, with its lines said."""
    try:
        return command()
    except CiError as error:
        fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        fail("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # the reader of our output went away (`| head`): not an error worth a line; keep the interpreter's
        # own flush at exit from complaining
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
