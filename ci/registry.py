"""The images of one repository in a registry: its tags, manifests and labels, and second tags on what is there.

Speaks the distribution protocol with the exact bytes of manifests, so that a tag put on an image keeps its
digest and all its platforms, and nothing is pulled.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from ci.console import say
from ci.docker_credentials import find_credentials
from ci.errors import CiError
from ci.image_tags import ImageName, is_digest, parse_tag
from ci.manifests import (
    DEFAULT_PLATFORM,
    IMAGES,
    INDEXES,
    BadImage,
    Config,
    Manifest,
    checked_manifest,
    choose_platform,
    config_of,
    parse_config,
    platform_images,
)
from ci.registry_addresses import host_of
from ci.registry_answers import ABSENT, Answer, ImageLabels, Present, Retagged, Unknown
from ci.registry_auth import Authorizer, Lookup
from ci.registry_errors import BadAnswer, NotThere, OtherDigest, said_by, shown_errors
from ci.registry_http import Http, Patience, Request, Response
from ci.tag_pages import next_page, tags_of
from ci.text import show

_OK = 200
_NOT_FOUND = 404
_CREATED = frozenset({200, 201})
_MANIFEST_LIMIT = 4 << 20  # what registries take at most
_CONFIG_LIMIT = 8 << 20
_PAGE_LIMIT = 16 << 20
_PAGE = 1000
_MOST_PAGES = 1000
_ABSENT_CODES = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"})


class Registry:
    """One repository. ``insecure``: registries that are spoken to without TLS, as those on this machine are."""

    def __init__(
        self,
        image: ImageName,
        credentials: Lookup = find_credentials,
        *,
        insecure: Iterable[str] = (),
        patience: Patience | None = None,
        tell: Callable[[str], None] = say,
    ) -> None:
        self.image = image
        self._patience = patience or Patience()
        plain = image.is_loopback or image.registry in frozenset(insecure)
        self._base = f"{'http' if plain else 'https'}://{image.host}/v2/{image.repository}"
        self._authorizer = Authorizer(Http(self._patience, tell), image, self._base, credentials)

    def tags(self) -> tuple[str, ...]:
        """All tags, over all pages, in the registry's order.

        Raises:
            NotThere: no such repository.
            BadAnswer: a page that is none, pages that go round, or a next page on another server.
            CiError: the registry could not be asked, see ``ci.registry_errors``.
        """
        found: dict[str, None] = {}
        url, asked, where, until = f"{self._base}/tags/list?n={_PAGE}", set[str](), f"{self.image}: tags", self._until()
        while url not in asked and len(asked) < _MOST_PAGES:
            asked.add(url)
            response = self._get(url, where, until, _PAGE_LIMIT)
            page = tags_of(response.body, where)
            following = next_page(response.url, response.headers.get("link"), where)
            repeated = bool(page) and found.keys() >= set(page)
            found.update(dict.fromkeys(page))
            if following is None:
                return tuple(found)
            if repeated:
                raise BadAnswer(f"{where}: page {len(asked)} repeats what came before, and yet another is to follow")
            url = following
        raise BadAnswer(f"{where}: after {len(asked)} pages the next one is one that was read, or one too many")

    def digest_of(self, tag: str) -> Answer:
        """Whether a tag is there, and on what: present, absent or unknown."""
        try:
            manifest = self.manifest(tag)
        except NotThere:
            return ABSENT
        except CiError as error:
            return Unknown(error=error)
        return Present(digest=manifest.digest, media_type=manifest.media_type, size=len(manifest.data))

    def manifest(self, reference: str) -> Manifest:
        """The manifest or index of a tag or digest: the exact bytes, which are what its digest says.

        Raises:
            UsageError: ``reference`` is neither a tag nor a digest.
            NotThere: the registry says that it is absent.
            BadImage: other bytes, or no image.
            CiError: the registry could not be asked.
        """
        return self._manifest(reference, self._until())

    def labels(self, reference: str, platform: str | None = None) -> ImageLabels:
        """The labels in the configuration of an image; of an index, those for ``platform`` (else linux/amd64).

        Without ``platform`` the other platforms are read as well, to say which of them differ.

        Raises:
            as ``manifest``, and BadImage where the platform is not there.
        """
        where, until = self.named(reference), self._until()
        manifest = self._manifest(reference, until)
        if not manifest.is_index:
            config = self._config(manifest, where, until)
            if platform is not None and not f"{config.platform}/".startswith(f"{platform}/"):
                raise BadImage(f"{where}: is for {show(config.platform, 60)}, not for {show(platform, 60)}")
            return ImageLabels(labels=config.labels, platform=config.platform, digest=manifest.digest)
        images = platform_images(manifest, where)
        chosen = choose_platform(images, platform or DEFAULT_PLATFORM, where)
        read = {
            image: self._config(self._part(image.digest, where, until), where, until)
            for image in (images if platform is None else (chosen,))
        }
        labels = read[chosen].labels
        return ImageLabels(
            labels=labels,
            platform=chosen.platform or read[chosen].platform,
            digest=chosen.digest,
            differing=tuple(
                image.platform or config.platform for image, config in read.items() if config.labels != labels
            ),
        )

    def retag(self, source: str, tag: str, *, expect_absent_or_same: bool = True) -> Retagged:
        """Put ``tag`` on what the tag or digest ``source`` is now: the same bytes, read back and compared.

        The protocol cannot compare and set, so somebody else's write between looking and putting is only seen
        by the reading back. Safe to repeat. With ``expect_absent_or_same`` a tag on another digest is not moved.

        Raises:
            OtherDigest: the tag is on another digest, before or after.
            as ``manifest``; nothing is written where it is not known what the tag is on.
        """
        until, where = self._until(), self.named(parse_tag(tag))
        manifest = self._manifest(source, until)
        before = self._present(tag, until)
        if before is not None and before.data == manifest.data:
            return Retagged(tag=tag, digest=manifest.digest, media_type=manifest.media_type, written=False)
        if before is not None and expect_absent_or_same:
            raise OtherDigest(
                f"{where} is there already, on {before.digest}; {self.named(source)} is {manifest.digest}",
                hint="a frozen tag never moves: use the image that it has, or another tag",
            )
        self._put(manifest, tag, where, until)
        after = self._manifest(tag, until)
        if after.data != manifest.data or after.digest != manifest.digest:
            raise OtherDigest(
                f"{where} was put on {manifest.digest}, but reads back as {after.digest}",
                hint="somebody else writes this tag too; find out who before trying again",
            )
        return Retagged(
            tag=tag,
            digest=manifest.digest,
            media_type=manifest.media_type,
            written=True,
            replaced=before.digest if before else None,
        )

    def named(self, reference: str) -> str:
        """The full name of a tag or digest, safe to show."""
        return f"{self.image}{'@' if is_digest(reference) else ':'}{show(reference, 150)}"

    def _until(self) -> float:
        return time.monotonic() + self._patience.total

    def _present(self, tag: str, until: float) -> Manifest | None:
        """What a tag is on, None only where the registry says that it is absent."""
        try:
            return self._manifest(tag, until)
        except NotThere:
            return None

    def _part(self, digest: str, where: str, until: float) -> Manifest:
        """A manifest that an index lists; that it is not there does not make the index absent."""
        try:
            return self._manifest(digest, until)
        except NotThere as error:
            raise BadImage(f"{where}: lists {digest}, which is not there", hint="have it pushed anew") from error

    def _manifest(self, reference: str, until: float) -> Manifest:
        if not is_digest(reference):
            parse_tag(reference, "image tag or digest")
        where = self.named(reference)
        accept = {"Accept": ", ".join((*INDEXES, *IMAGES))}
        response = self._get(f"{self._base}/manifests/{reference}", where, until, _MANIFEST_LIMIT, accept)
        digests = [reference] if is_digest(reference) else []
        said = response.headers.get("docker-content-digest")
        if said is not None:
            if not is_digest(said):
                raise BadImage(f"{where}: the registry says its digest is `{show(said, 100)}`, which is none")
            digests.append(said)
        return checked_manifest(
            response.body, response.headers.get("content-type", ""), expected=tuple(digests), where=where
        )

    def _config(self, manifest: Manifest, where: str, until: float) -> Config:
        descriptor = config_of(manifest, where)
        response = self._get(f"{self._base}/blobs/{descriptor.digest}", where, until, _CONFIG_LIMIT)
        return parse_config(response.body, descriptor.digest, where)

    def _put(self, manifest: Manifest, tag: str, where: str, until: float) -> None:
        request = Request(
            method="PUT",
            url=f"{self._base}/manifests/{tag}",
            where=where,
            until=until,
            limit=_MANIFEST_LIMIT,
            headers={"Content-Type": manifest.media_type},
            body=manifest.data,
        )
        response = self._authorizer.send(request)
        said = response.headers.get("docker-content-digest", manifest.digest)
        if response.status not in _CREATED:
            raise BadAnswer(
                f"{where}: {self.image.host} answers {response.status} to the manifest{shown_errors(response.body)}",
                hint="the registry did not take the tag; its rules or quota may say why",
            )
        if said != manifest.digest and said.partition(":")[0] == manifest.digest.partition(":")[0]:
            raise OtherDigest(f"{where}: put as {manifest.digest}, but taken as {show(said, 150)}")

    def _get(
        self, url: str, where: str, until: float, limit: int, headers: Mapping[str, str] | None = None
    ) -> Response:
        request = Request(method="GET", url=url, where=where, until=until, limit=limit, headers=headers or {})
        response = self._authorizer.send(request)
        if response.status == _OK:
            return response
        host, said = host_of(response.url), shown_errors(response.body)
        if response.status == _NOT_FOUND and _ABSENT_CODES & {code for code, _ in said_by(response.body)}:
            raise NotThere(f"{where} is not there{said}", hint=f"{host} knows no such name; check its spelling")
        what = "404, but not as a registry does" if response.status == _NOT_FOUND else str(response.status)
        raise BadAnswer(
            f"{where}: {host} answers {what}{said}", hint=f"is {host} the registry, and not something before it?"
        )
