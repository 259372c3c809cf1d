"""Which container image a GPU stage runs in, and who said so (spec §8)."""

import re
from dataclasses import dataclass

from ci.directives import read_directives
from ci.errors import UsageError
from ci.inventory import Image
from ci.text import show

# of a manual dispatch; ROCm has the input without the directive
INPUT = "ci_image_tag"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenImage:
    """``name`` is what an engine is given, ``origin`` who chose its tag; ``warnings`` are of the PR's text."""

    name: str
    origin: str
    warnings: tuple[str, ...] = ()


def parse_tag(text: str, origin: str) -> str:
    """A bare tag, as ``dev``; ``origin`` says where it stands.

    Raises:
        UsageError: a full image name, or no tag at all.
    """
    if _TAG.fullmatch(text):
        return text
    if re.search(r"[/:@]", text):
        raise UsageError(
            f"{origin}: `{show(text, 80)}` is an image's full name, not a tag",
            hint="give the tag alone, as `dev`; the repository is the inventory's",
        )
    raise UsageError(
        f"{origin}: `{show(text, 80)}` is not an image tag",
        hint="a tag has 1 to 128 letters, digits, `_`, `.`, `-`, and does not begin with `.` or `-`",
    )


def choose_image(image: Image, *, given: str, dispatched: str, body: str) -> ChosenImage:
    """The tag given to this run, else the dispatch input, else the PR's directive, else the inventory's.

    Empty means not given.

    Raises:
        UsageError: what was chosen is not a bare tag; says where it stands.
    """
    directives = read_directives(body, [image.directive] if image.directive else [])
    written = directives.get(image.directive) if image.directive else None
    if given:
        tag, origin = parse_tag(given, "--image"), "--image"
    elif dispatched:
        tag, origin = parse_tag(dispatched, f"the dispatch input {INPUT}"), "the dispatch input"
    elif written is not None:
        origin = f"line {written.line} of the PR's text"
        tag = parse_tag(written.value, f"{written.name} in {origin}")
    else:
        tag, origin = image.tag, "the inventory"
    return ChosenImage(name=f"{image.repository}:{tag}", origin=origin, warnings=directives.warnings)
