"""Image manifests and indexes: their exact bytes, what they list, and the labels of their configurations."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ci.errors import InfrastructureError
from ci.image_tags import is_digest
from ci.text import show

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
DEFAULT_PLATFORM = "linux/amd64"
_NO_PLATFORM = "unknown/unknown"
_ATTESTATION = "vnd.docker.reference.type"


class BadImage(InfrastructureError):
    """A registry gave something that is no image manifest, or not the bytes that it names (exit 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or index: exactly the bytes that ``digest`` is the digest of."""

    data: bytes
    media_type: str
    digest: str

    @property
    def is_index(self) -> bool:
        """Whether it lists manifests, one a platform."""
        return self.media_type in INDEXES


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What a manifest points to. ``platform``: ``linux/amd64``, ``linux/arm64/v8``; None where none is said."""

    digest: str
    media_type: str
    platform: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Of an image's configuration, what is asked for here."""

    platform: str
    labels: Mapping[str, str]


def digest_of_bytes(data: bytes, like: str = "sha256:") -> str:
    """The digest of ``data``, by the algorithm of the digest ``like``."""
    algorithm = "sha512" if like.startswith("sha512:") else "sha256"
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def checked_manifest(data: bytes, content_type: str, *, expected: tuple[str, ...], where: str) -> Manifest:
    """What a registry answered, once its bytes have every digest that was ``expected`` of them.

    Raises:
        BadImage: other bytes, or not a manifest of the kind that ``content_type`` says.
    """
    for digest in expected:
        if digest_of_bytes(data, digest) != digest:
            raise BadImage(
                f"{where}: the bytes are {digest_of_bytes(data, digest)}, not {digest}",
                hint="the registry or something before it changes manifests; nothing was taken from it",
            )
    media_type = content_type.partition(";")[0].strip()
    if media_type not in (*INDEXES, *IMAGES):
        raise BadImage(
            f"{where}: `{show(media_type, 100)}` is not an image manifest",
            hint="OCI and Docker schema 2 manifests and indexes are read; push the image anew with a current tool",
        )
    document = _object(data, where)
    named = document.get("mediaType", media_type)
    both = "manifests" in document and ("layers" in document or "config" in document)
    if named != media_type or both or ("manifests" in document) != (media_type in INDEXES):
        raise BadImage(
            f"{where}: sent as `{media_type}`, but reads as something else",
            hint="two tools would see two images in it; have it pushed anew",
        )
    return Manifest(data=data, media_type=media_type, digest=expected[0] if expected else digest_of_bytes(data))


def platform_images(index: Manifest, where: str) -> tuple[Descriptor, ...]:
    """The images that an index lists, without attestations and the like.

    Raises:
        BadImage: an entry that is none, or an index in an index.
    """
    entries = _object(index.data, where)["manifests"]
    if not isinstance(entries, list):
        raise BadImage(f"{where}: `manifests` is not a list")
    images = tuple(_descriptor(entry, where) for entry in entries if not _is_attestation(entry))
    nested = next((image for image in images if image.media_type in INDEXES), None)
    if nested is not None:
        raise BadImage(f"{where}: lists the index {nested.digest}", hint="name one of its images by digest")
    return tuple(image for image in images if image.media_type in IMAGES)


def config_of(manifest: Manifest, where: str) -> Descriptor:
    """Where the configuration of a single image is.

    Raises:
        BadImage: it has none; a Helm chart or another artifact is no image.
    """
    config = _descriptor(_object(manifest.data, where).get("config"), where)
    if config.media_type not in CONFIGS:
        raise BadImage(f"{where}: its configuration is `{show(config.media_type, 100)}`, so it is no container image")
    return config


def parse_config(data: bytes, digest: str, where: str) -> Config:
    """An image's configuration.

    Raises:
        BadImage: other bytes than ``digest`` says, or not a configuration.
    """
    if digest_of_bytes(data, digest) != digest:
        raise BadImage(f"{where}: the configuration's bytes are {digest_of_bytes(data, digest)}, not {digest}")
    document = _object(data, where)
    config = document.get("config") or {}
    labels = (config.get("Labels") or {}) if isinstance(config, dict) else None
    platform = _platform(document)
    if platform is None or not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        raise BadImage(f"{where}: the configuration {digest} has no platform, or labels that are none")
    return Config(platform=platform, labels=MappingProxyType(labels))


def choose_platform(images: tuple[Descriptor, ...], wanted: str, where: str) -> Descriptor:
    """The image of a platform; ``linux/arm64`` also finds ``linux/arm64/v8``.

    Raises:
        BadImage: none, or several.
    """
    exact = [image for image in images if image.platform == wanted]
    close = [image for image in images if (image.platform or "").startswith(f"{wanted}/")]
    found = exact or close
    if len(found) != 1:
        listed = ", ".join(show(image.platform or "none said", 40) for image in images) or "none"
        count = "no image" if not found else f"{len(found)} images"
        raise BadImage(f"{where}: {count} for {show(wanted, 40)}", hint=f"platforms: {listed}")
    return found[0]


def _is_attestation(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    annotations = entry.get("annotations")
    return _platform(entry.get("platform")) == _NO_PLATFORM or (
        isinstance(annotations, dict) and _ATTESTATION in annotations
    )


def _descriptor(entry: Any, where: str) -> Descriptor:
    if isinstance(entry, dict):
        digest, media_type = entry.get("digest"), entry.get("mediaType")
        if isinstance(digest, str) and is_digest(digest) and isinstance(media_type, str):
            return Descriptor(digest=digest, media_type=media_type, platform=_platform(entry.get("platform")))
    raise BadImage(f"{where}: an entry without a digest and a media type")


def _platform(said: Any) -> str | None:
    if not isinstance(said, dict):
        return None
    parts = [said.get("os"), said.get("architecture"), said.get("variant") or None]
    if not all(isinstance(part, str) and part for part in parts[:2]) or not isinstance(parts[2], str | None):
        return None
    return "/".join(part for part in parts if part)


def _object(data: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadImage(f"{where}: not JSON: {show(error, 100)}") from error
    if not isinstance(document, dict):
        raise BadImage(f"{where}: not a JSON object")
    return document
