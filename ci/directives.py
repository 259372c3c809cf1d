"""Directives in the body of a pull request: ``ci-sglang-pr: #123`` (spec §7)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ci.text import show

_BLANKS = " \t\v\f\r"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_QUOTING = re.compile(r"[\s>*_`\"'\-+]*")


@dataclass(frozen=True, slots=True)
class Directive:
    """The value that counts, and its line (from 1)."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """``found`` by name; ``warnings`` say what was written but not meant, or meant but not read."""

    found: dict[str, Directive]
    warnings: tuple[str, ...]

    def get(self, name: str) -> Directive | None:
        """The directive of that name that counts."""
        return self.found.get(name)


def read_directives(body: str, names: Iterable[str]) -> Directives:
    """Read the directives that count and warn of near misses.

    A directive stands at the very start of a line, in its exact case, with at least one blank after the
    colon; its value is the next run of non-blank characters; the first such line wins. Lines end at LF, and
    a CR before it belongs to the ending; no other character ends a line.
    """
    found: dict[str, Directive] = {}
    warned: list[str] = []
    names = tuple(names)
    hidden = _hidden_lines(body)
    for number, line in enumerate(_lines(body), start=1):
        for name in names:
            value = _value(line, name)
            if value:
                warned.extend(_doubts(name, value, number, found.get(name), hidden.get(number)))
                found.setdefault(name, Directive(name, value, number))
            elif near := _near_miss(line, name):
                warned.append(f"line {number}: `{name}:` is not read, because {near}")
    return Directives(found=found, warnings=tuple(warned))


def _lines(body: str) -> list[str]:
    return [line.removesuffix("\r") for line in body.split("\n")]


def _value(line: str, name: str) -> str:
    """The directive's value on this line, or nothing."""
    head, colon, rest = line.partition(":")
    if head != name or not colon or rest[:1] not in {" ", "\t"}:
        return ""
    return re.split(r"[ \t\v\f\r]+", rest.strip(_BLANKS), maxsplit=1)[0]


def _doubts(name: str, value: str, number: int, earlier: Directive | None, hidden: str | None) -> list[str]:
    """What a reader of the page would not expect of a directive that counts."""
    doubts = []
    if earlier is not None:
        doubts.append(f"line {number}: `{name}: {show(value, 60)}` is not read, because line {earlier.line} came first")
    elif hidden is not None:
        doubts.append(f"line {number}: `{name}: {show(value, 60)}` counts although it stands in {hidden}")
    if earlier is None and re.fullmatch(r"#.*", value, re.DOTALL) and not re.fullmatch(r"#[0-9]+", value, re.ASCII):
        doubts.append(f"line {number}: `{show(value, 60)}` is not a pull request (# and ASCII digits); read as a name")
    return doubts


def _near_miss(line: str, name: str) -> str | None:
    """Why a line that looks like the directive is none."""
    position = line.lower().find(name)
    if position < 0:
        return None
    before, written, after = line[:position], line[position : position + len(name)], line[position + len(name) :]
    if not after.lstrip(_BLANKS).startswith(":") or not _QUOTING.fullmatch(before):
        return None
    value = after.lstrip(_BLANKS).removeprefix(":")
    checks = (
        (bool(before.strip()), "it is quoted or marked up; put it at the very start of the line"),
        (bool(before), "it is indented; put it at the very start of the line"),
        (written != name, "it is not in lower case"),
        (not after.startswith(":"), "a blank stands before the colon"),
        (not value.strip(_BLANKS), "no value follows on its line"),
    )
    return next((why for wrong, why in checks if wrong), "no blank follows the colon")


def _hidden_lines(body: str) -> dict[int, str]:
    """Lines that the rendered page shows as code or not at all; line → where it stands."""
    hidden: dict[int, str] = {}
    fence, commented = "", False
    for number, line in enumerate(_lines(body), start=1):
        if fence:
            hidden[number] = "a code block"
            mark = _FENCE.match(line)
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif commented:
            hidden[number] = "an HTML comment"
            commented = "-->" not in line
        elif mark := _FENCE.match(line):
            fence = mark[1]
        elif "<!--" in line:
            commented = "-->" not in line.rpartition("<!--")[2]
    return hidden
