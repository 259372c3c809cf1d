"""What a person reads while a command works. Everything goes to stderr, so that stdout stays data."""

import sys

from ci.text import show


def say(text: str) -> None:
    """One plain line; the caller has passed foreign text through ``show``."""
    print(text, file=sys.stderr, flush=True)


def warn(text: object) -> None:
    """One line that begins with ``warning:``."""
    say(f"warning: {show(text, 2000)}")


def fail(text: object) -> None:
    """The lines of an error, each made safe; the first begins with ``error:``."""
    first, *rest = str(text).split("\n")
    say("\n".join([f"error: {show(first, 2000)}", *(show(line, 2000) for line in rest)]))
