"""What can go wrong with a registry, and what it says itself."""

import json

from ci.errors import InfrastructureError, UsageError
from ci.text import show


class Unreachable(InfrastructureError):
    """No whole answer: refused, no such host, TLS, a time-out, cut off (exit 3)."""


class TooManyRequests(InfrastructureError):
    """The registry limits requests, for longer than is waited here (exit 3)."""


class ServerFault(InfrastructureError):
    """The registry answers with a fault of its own, again and again (exit 3)."""


class BadAnswer(InfrastructureError):
    """An answer that the protocol does not allow, or that is not safe to follow (exit 3)."""


class AccessDenied(UsageError):
    """401 or 403: no credentials, wrong ones, or not enough for this (exit 2)."""


class NotThere(UsageError):
    """The registry knows no such tag, digest or repository (exit 2)."""


class OtherDigest(UsageError):
    """A tag that must not move is there with another digest (exit 2)."""


def said_by(body: bytes) -> tuple[tuple[str, str], ...]:
    """Code and message of the errors that a registry lists in an answer; none where it is no such answer."""
    try:
        listed = json.loads(body.decode("utf-8"))["errors"]
        return tuple((str(error["code"]), str(error.get("message") or "")) for error in listed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def shown_errors(body: bytes) -> str:
    """The same for a message: a blank, and the first error in brackets; empty where there is none."""
    first = next(iter(said_by(body)), None)
    return "" if first is None else f" ({show(': '.join(part for part in first if part), 150)})"
