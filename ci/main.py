"""The outermost frame of every command: errors become lines and exit codes, never a traceback."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from ci.console import fail
from ci.errors import CiError, ExitCode
from ci.text import show

_FOLDERS = "CI_CACHE_DIR chooses the cache, --results the results"


def guarded(command: Callable[[], int]) -> int:
    """Run a command; the exit code of what it raised, with its lines said.

    A request to end is taken as Ctrl-C is, so that what was begun is cleared away and children are ended.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return command()
    except CiError as error:
        fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        fail("interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            where = f"{show(error.filename)}: " if error.filename else ""
            fail(f"{where}{show(error.strerror or error)}\n  is the disk full, or the folder not yours? {_FOLDERS}")
            return ExitCode.INFRASTRUCTURE
        # the reader of our output went away (`| head`): not an error worth a line; keep the interpreter's
        # own flush at exit from complaining
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    finally:
        # all is said and done; a signal while the interpreter shuts down would only change the exit code
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
