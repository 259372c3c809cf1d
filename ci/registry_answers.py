"""What ``ci.registry`` answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from ci.errors import CiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The tag is there. ``size`` of its manifest in bytes."""

    digest: str
    media_type: str
    size: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The registry itself says that there is no such tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody could say; never to be taken for absent. ``error``: why."""

    error: CiError


ABSENT = Absent()
Answer = Present | Absent | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLabels:
    """The labels of an image of one ``platform``; ``differing``: platforms of the same index with other labels."""

    labels: Mapping[str, str]
    platform: str
    digest: str
    differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retagged:
    """A tag that now is on ``digest``. ``written``: it was not before; ``replaced``: the digest it was on, if moved."""

    tag: str
    digest: str
    media_type: str
    written: bool
    replaced: str | None = None
