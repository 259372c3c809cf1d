"""Whether a failed file is run again: rules as data, each with a name (spec §9).

A rule is matched against whole lines of the output's end, in exact case: a word inside another (`bloom`,
`No room left`) is no out-of-memory. A rule that forbids beats one that allows.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """``pattern`` matches one whole line; ``retry``: what a match means."""

    name: str
    retry: bool
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to try again, and the reason for people: the rule and the line that it matched."""

    retry: bool
    reason: str


def _exception(*names: str) -> re.Pattern[str]:
    """The line with which Python or pytest (``E   ``) names an exception, perhaps with its module."""
    return re.compile(rf"(?:E\s+)?(?:[A-Za-z_][\w.]*\.)?(?:{'|'.join(names)})(?::.*)?")


_QUANTITY = r"(?:accuracy|score|reward|latency|throughput|tokens/s|samples/s)"
RULES = (
    Rule("import error", retry=False, pattern=_exception("ImportError", "ModuleNotFoundError")),
    Rule("syntax error", retry=False, pattern=_exception("SyntaxError", "IndentationError", "TabError")),
    Rule("name error", retry=False, pattern=_exception("NameError", "UnboundLocalError")),
    Rule("type error", retry=False, pattern=_exception("TypeError")),
    Rule("attribute error", retry=False, pattern=_exception("AttributeError")),
    Rule("runtime error", retry=False, pattern=_exception("RuntimeError", "NotImplementedError", "RecursionError")),
    Rule("out of memory", retry=False, pattern=_exception("OutOfMemoryError", "MemoryError")),
    Rule("out of accelerator memory", retry=False, pattern=re.compile(r".*\b(?:CUDA|HIP) out of memory\b.*")),
    Rule("refused connection", retry=False, pattern=_exception("ConnectionRefusedError", "ConnectionResetError")),
    Rule("missing file", retry=False, pattern=_exception("FileNotFoundError", "NotADirectoryError")),
    Rule("crash", retry=False, pattern=re.compile(r"Fatal Python error: .*|.*\bcore dumped\b.*|Segmentation fault.*")),
    Rule("assertion", retry=True, pattern=_exception("AssertionError")),
    Rule("assertion shown by pytest", retry=True, pattern=re.compile(r"E\s+assert .*")),
    Rule(
        "measured quantity",
        retry=True,
        pattern=re.compile(
            rf"(?:.*\s)?{_QUANTITY}\b.*\b(?:below|above|under|over|too (?:low|high|slow)|less than)\b.*"
        ),
    ),
)


def decide(tail: str, *, attempt: int, attempts: int, signalled: bool, timed_out: bool) -> Decision:
    """Whether a failed attempt (from 1) of at most ``attempts`` is followed by another.

    ``tail`` is the end of its output. A crash or a time-out is never tried again: it says nothing of chance.
    """
    if attempts <= 1:
        return Decision(retry=False, reason="this backend does not retry")
    if attempt >= attempts:
        return Decision(retry=False, reason=f"it was attempt {attempt} of {attempts}")
    if timed_out or signalled:
        return Decision(retry=False, reason="a time-out is not retried" if timed_out else "a crash is not retried")
    matches = [(rule, line) for line in tail.splitlines() for rule in RULES if rule.pattern.fullmatch(line.rstrip())]
    for wanted in (False, True):
        if found := next(((rule, line) for rule, line in matches if rule.retry is wanted), None):
            rule, line = found
            verb = "is retried" if wanted else "is not retried"
            return Decision(retry=wanted, reason=f"{rule.name} {verb}: {line.strip()[:200]}")
    return Decision(retry=False, reason="nothing in its output says that chance played a part")
