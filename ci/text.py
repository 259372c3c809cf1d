"""Text from outside, made safe to show; and the nearest known name to a wrong one."""

import difflib
import re
from collections.abc import Iterable

_SHOWN = 200


def show(text: object, limit: int = _SHOWN) -> str:
    r"""``text`` on one line: control and unprintable characters escaped, long text cut in the middle.

    A file name or ref from a stranger cannot break a line, colour a terminal or start a GitHub
    workflow command (``::error::`` and ``##[error]`` only count as commands when bare).
    """
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in str(text)
    )
    shown = re.sub(r"^(\s*):(?=:)", r"\1\\:", shown).replace("##[", "#\\#[")
    if len(shown) > limit:
        half = (limit - 1) // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return shown


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be, or None."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean X?``, or the list of what is known."""
    known = list(known)
    close = nearest(name, known)
    return f"did you mean `{close}`?" if close else f"known: {', '.join(known) or 'none'}"
