"""Names of images: repositories, tags and digests, and which tag a release freezes (spec §8, §11)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ci.errors import UsageError
from ci.text import show

MUTABLE_TAG = "dev"
DOCKER_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", _HUB_HOST})
_LONGEST_NAME = 255
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_DEV = re.compile(r"dev-([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})", re.ASCII)
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_HOST = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)(:(?P<port>[0-9]{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_LOOPBACK = re.compile(r"localhost|\[::1\]|127(\.[0-9]{1,3}){3}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageName:
    """A repository of images. ``host``: what is connected to, with a port where one was given."""

    host: str
    repository: str

    @property
    def registry(self) -> str:
        """The registry as docker's own files name it: ``docker.io``, ``ghcr.io``, ``localhost:5000``."""
        return DOCKER_HUB if self.host == _HUB_HOST else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where docker does without TLS."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return self.repository if self.host == _HUB_HOST else f"{self.host}/{self.repository}"


def is_loopback(host: str) -> bool:
    """Whether a host (with or without a port) can only be this machine."""
    matched = _HOST.fullmatch(host)
    return matched is not None and _LOOPBACK.fullmatch(matched["name"].lower()) is not None


def registry_name(text: str) -> str:
    """A registry as users and docker's files write it (``https://index.docker.io/v1/``), by its one name."""
    host = re.sub(r"^https?://", "", text).partition("/")[0].lower()
    return DOCKER_HUB if host in _HUB_NAMES else host


def parse_image_name(text: str) -> ImageName:
    """A repository as docker reads it: the first part is a host if it has a dot or a port, or is localhost.

    Raises:
        UsageError: no host and repository, or more than that (a tag, a digest, a scheme).
    """
    first, slash, rest = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, repository = first.lower(), rest
    else:
        host, repository = DOCKER_HUB, text
    if host in _HUB_NAMES:
        host, repository = _HUB_HOST, repository if "/" in repository else f"library/{repository}"
    matched = _HOST.fullmatch(host)
    if (
        matched is None
        or int(matched["port"] or 1) not in range(1, 65536)
        or not _REPOSITORY.fullmatch(repository)
        or len(repository) > _LONGEST_NAME
    ):
        raise UsageError(
            f"`{show(text, 100)}` is not the name of an image repository",
            hint="write [host[:port]/]name in lower case, without a tag: `radixark/miles`, `localhost:5000/x/y`",
        )
    return ImageName(host=host, repository=repository)


def is_tag(text: str) -> bool:
    """Whether the text has the form of a bare tag (spec §8)."""
    return _TAG.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether the text is a digest that can be checked here."""
    return _DIGEST.fullmatch(text) is not None


def parse_tag(text: str, where: str = "image tag") -> str:
    """A bare tag; ``where`` says whose it is.

    Raises:
        UsageError: anything else, a full image name above all.
    """
    if not is_tag(text):
        full = "a full image name, " if "/" in text or ":" in text else ""
        raise UsageError(
            f"{where} `{show(text, 100)}` is {full}not a bare tag",
            hint="a tag is up to 128 letters, digits, `_`, `.` and `-`, and begins with neither `.` nor `-`",
        )
    return text


def newest_dev_tag(tags: Iterable[str]) -> str | None:
    """The tag of exactly the series ``dev-<YYYYMMDDHHMM>`` with the latest time; no others, and no false times."""
    stamped = [(time, tag) for tag in tags if (time := _dev_time(tag)) is not None]
    return max(stamped)[1] if stamped else None


def _dev_time(tag: str) -> datetime | None:
    matched = _DEV.fullmatch(tag)
    if matched is None:
        return None
    year, month, day, hour, minute = (int(part) for part in matched.groups())
    try:
        return datetime(year, month, day, hour, minute)  # noqa: DTZ001 - only compared with its like
    except ValueError:
        return None


def tag_to_freeze(tags: Iterable[str], *, allow_mutable: bool) -> str:
    """The tag whose image a release freezes: the newest of the dev series (spec §11).

    Raises:
        UsageError: there is none, and falling back to the mutable ``dev`` was not asked for or it is not there.
    """
    tags = frozenset(tags)
    newest = newest_dev_tag(tags)
    if newest is not None:
        return newest
    if allow_mutable and MUTABLE_TAG in tags:
        return MUTABLE_TAG
    raise UsageError(
        f"no tag `dev-<YYYYMMDDHHMM>` with a real time among {len(tags)} tags"
        + (f", and no `{MUTABLE_TAG}`" if MUTABLE_TAG not in tags else ""),
        hint="wait for the next image build"
        + (f", or give --allow-mutable to freeze what `{MUTABLE_TAG}` is now" if MUTABLE_TAG in tags else ""),
    )
