"""What a registry asks for in ``WWW-Authenticate``, as RFC 9110 writes it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the RFC's word
_BLANK = r"[ \t]*"
_PARAMETER = re.compile(
    rf"({_TOKEN}){_BLANK}={_BLANK}(?:({_TOKEN})|\"((?:[^\"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*)\")",
    re.ASCII,
)
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t]|,|$)", re.ASCII)
_TOKEN68 = re.compile(rf"[A-Za-z0-9._~+/-]+=*(?={_BLANK}(?:,|$))", re.ASCII)
_SEPARATOR = re.compile(r"[ \t]*(?:,[ \t]*)+")
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to authenticate. ``scheme`` and the names of ``parameters`` are in lower case."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """All challenges of a header, in its order; none where it is malformed, for a half-read one would mislead."""
    found: list[Challenge] = []
    at = _skip(_SEPARATOR, header, _skip(_BLANKS, header, 0))
    while at < len(header):
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            return ()
        parameters, at = _parameters(header, _skip(_BLANKS, header, scheme.end()))
        if parameters is None:
            return ()
        found.append(Challenge(scheme=scheme[1].lower(), parameters=MappingProxyType(parameters)))
    return tuple(found)


def _parameters(header: str, at: int) -> tuple[dict[str, str] | None, int]:
    """The parameters from ``at`` up to the next challenge, and where that begins; None for what cannot be read."""
    parameters: dict[str, str] = {}
    token68 = _TOKEN68.match(header, at)
    if token68 is not None:
        return parameters, _skip(_SEPARATOR, header, token68.end())
    while (parameter := _PARAMETER.match(header, at)) is not None:
        name, plain, quoted = parameter.groups()
        if name.lower() in parameters:
            return None, at
        parameters[name.lower()] = plain if plain is not None else re.sub(r"\\(.)", r"\1", quoted)
        after = _skip(_BLANKS, header, parameter.end())
        at = _skip(_SEPARATOR, header, after)
        if at == after:
            return (parameters, at) if at == len(header) else (None, at)
    if not parameters:
        # a scheme on its own: the end, or a comma before the next one
        after = _skip(_SEPARATOR, header, at)
        return (parameters, after) if after > at or at == len(header) else (None, at)
    return parameters, at


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    matched = pattern.match(text, at)
    return at if matched is None else matched.end()
