"""Which container image a run uses, and whether a pull request gets one of its own (spec §8)."""

import enum
import re
from dataclasses import dataclass

from ci.directives import Directive, read_directives
from ci.errors import UsageError
from ci.inventory import Image
from ci.text import show

# of a manual dispatch; ROCm has the input without the directive
INPUT = "ci_image_tag"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


def parse_tag(text: str) -> str:
    """The text if it is a bare tag.

    Raises:
        UsageError: it is not; says why a full image name is none.
    """
    if _TAG.fullmatch(text):
        return text
    named = "; the repository is fixed, give the tag alone" if re.search(r"[/:@]", text) else ""
    raise UsageError(
        f"`{show(text, 80)}` is not a tag of an image{named}",
        hint="a tag is 1 to 128 letters, digits, `_`, `.` and `-`, and does not begin with `.` or `-`",
    )


def pull_request_tag(number: int) -> str:
    """The tag of a pull request's own image."""
    return f"pr-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """What may name an image. ``given``: the tag of a called workflow or a dispatch input, empty if not given.

    ``own_image``: the number of the pull request whose own image is current (see ``decide_own_image``), or None.
    """

    given: str = ""
    own_image: int | None = None
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDecision:
    """The answer. ``origin``: ``given``, ``own-image``, ``directive`` or ``default``; ``reason`` is a sentence."""

    repository: str
    tag: str
    origin: str
    reason: str
    warnings: tuple[str, ...]

    @property
    def image(self) -> str:
        """The full name, ``repository:tag``."""
        return f"{self.repository}:{self.tag}"


def decide_image(request: ImageRequest, image: Image) -> ImageDecision:
    """The given tag, else the pull request's own image, else its directive, else the backend's default.

    An image without ``inputs`` or ``directive`` in the inventory (ROCm's) knows nothing of the second or third.

    Raises:
        UsageError: the tag that would be used is none; says where it was written.
    """
    directives = read_directives(request.body, [] if image.directive is None else [image.directive])
    directive = None if image.directive is None else directives.get(image.directive)
    own = request.own_image if image.inputs is not None else None
    if request.given:
        tag, origin, reason = image_tag(request.given, "the image tag given"), "given", "the tag was given to this run"
    elif own is not None:
        tag, origin, reason = pull_request_tag(own), "own-image", f"pull request {own} has an image of its own"
    elif directive is not None:
        where = f"line {directive.line} of the pull request's text"
        tag, origin = image_tag(directive.value, f"{directive.name} in {where}"), "directive"
        reason = f"{directive.name} in {where} names it"
    else:
        tag, origin, reason = image.tag, "default", "nothing names another tag"
    unused = _unused(directive, tag, reason) if origin in {"given", "own-image"} else ()
    return ImageDecision(
        repository=image.repository, tag=tag, origin=origin, reason=reason, warnings=(*directives.warnings, *unused)
    )


def image_tag(text: str, where: str) -> str:
    """The text if it is a bare tag; the error says where it was written."""
    try:
        return parse_tag(text)
    except UsageError as error:
        raise UsageError(f"{show(where)}: {error.what}", hint=error.hint) from error


def _unused(directive: Directive | None, tag: str, reason: str) -> tuple[str, ...]:
    """A person who wrote a directive waits for its image."""
    if directive is None or directive.value == tag:
        return ()
    return (f"line {directive.line}: `{directive.name}: {show(directive.value, 60)}` is not used, because {reason}",)


class Publication(enum.StrEnum):
    """What the registry says of a tag. An answer that did not come is no answer."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The registry's answer. ``inputs``: the value of the inputs label, None if the image has none.

    ``detail``: why it is unknown.
    """

    publication: Publication
    inputs: str | None = None
    detail: str = ""


class OwnImage(enum.StrEnum):
    """What a pull request does about an image of its own."""

    NONE = "none"
    REUSE = "reuse"
    BUILD = "build"
    UNDECIDED = "undecided"  # the registry has to be asked, or asked again


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnImageRequest:
    """The facts. ``number``: None outside pull requests. ``head``, ``base``: the inputs' hashes at HEAD and HEAD^1.

    ``labels``: those that the pull request has now. ``published``: None as long as the registry was not asked.
    """

    number: int | None
    fork: bool
    head: str
    base: str
    labels: tuple[str, ...] = ()
    published: Published | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnImageDecision:
    """The answer. ``origin``: ``event``, ``inputs``, ``fork``, ``label`` or ``registry``; ``reason`` is a sentence.

    ``tag``: None without an own image. ``inputs``: the hash that a built image is labelled with.
    ``remove_label``: is taken off the pull request once the build is published, so that it asks for one only.
    """

    action: OwnImage
    origin: str
    reason: str
    tag: str | None = None
    inputs: str | None = None
    remove_label: str | None = None


def decide_own_image(request: OwnImageRequest, image: Image) -> OwnImageDecision:
    """Whether the pull request needs an image of its own, and whether the published one will do.

    ``UNDECIDED`` without ``published`` means: ask the registry for the image ``tag`` and decide again. With an
    unknown answer it stays: to build would take "unknown" for "absent" and move a tag that other runs may be
    using, to reuse could test a stale image. The run ends as infrastructure (exit 3), and a rerun asks again.
    """
    declared = image.inputs
    if declared is None or request.number is None:
        why = "this backend's pull requests have no images of their own" if declared is None else "no pull request"
        return OwnImageDecision(action=OwnImage.NONE, origin="event", reason=why)
    if request.head == request.base:
        why = "the image inputs are those of the base, so its image will do"
        return OwnImageDecision(action=OwnImage.NONE, origin="inputs", reason=why)
    if request.fork:
        why = "the image inputs changed, but a fork cannot publish an image"
        return OwnImageDecision(action=OwnImage.NONE, origin="fork", reason=why)
    tag, published = pull_request_tag(request.number), request.published
    remove = None
    if declared.rebuild_label in request.labels:
        remove = declared.rebuild_label
        action, origin, why = OwnImage.BUILD, "label", f"the label `{remove}` asks for a new build, once"
    else:
        action, why = _by_registry(published, tag, request.head, declared.label)
        origin = "registry"
    return OwnImageDecision(action=action, origin=origin, reason=why, tag=tag, inputs=request.head, remove_label=remove)


def _by_registry(published: Published | None, tag: str, head: str, label: str) -> tuple[OwnImage, str]:
    if published is None:
        return OwnImage.UNDECIDED, f"the label {label} of {tag} decides, and the registry was not asked yet"
    match published.publication:
        case Publication.UNKNOWN:
            detail = show(published.detail or "no reason given", 160)
            return OwnImage.UNDECIDED, f"the registry does not say whether there is a {tag} ({detail})"
        case Publication.ABSENT:
            return OwnImage.BUILD, f"there is no {tag} yet"
    if published.inputs is None:
        return OwnImage.BUILD, f"{tag} has no label {label}"
    if published.inputs == head:
        return OwnImage.REUSE, f"{tag} was built from the same inputs"
    return OwnImage.BUILD, f"{tag} was built from other inputs ({show(published.inputs, 20)})"
