"""The registry client against Debian's own registry, with skopeo as a second opinion on bytes and digests."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ci.docker_credentials import PASSWORD as PASSWORD_VARIABLE
from ci.docker_credentials import REGISTRY, Credentials
from ci.docker_credentials import USER as USER_VARIABLE
from ci.image_tags import newest_dev_tag, parse_image_name
from ci.manifests import BadImage
from ci.registry import Registry
from ci.registry_answers import ABSENT, Present, Retagged, Unknown
from ci.registry_errors import AccessDenied, NotThere, OtherDigest
from tests.registries import PASSWORD, USER, Uploads, basic, digest, image_type, index_type, listed, real_registry

LABELS = {"miles.image-inputs": "abc", "other": "1"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_registry(tmp_path_factory.mktemp("registry"), password=False) as host:
        yield host


@pytest.fixture(scope="module")
def locked_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_registry(tmp_path_factory.mktemp("locked"), password=True) as host:
        yield host


@pytest.fixture
def uploads(host: str, request: pytest.FixtureRequest) -> Uploads:
    """An empty repository of the test's own."""
    return Uploads(host, "radixark/" + request.node.originalname.replace("_", "-"))


@pytest.fixture
def registry(uploads: Uploads) -> Registry:
    return registry_of(uploads)


def registry_of(uploads: Uploads) -> Registry:
    return Registry(parse_image_name(f"{uploads.host}/{uploads.repository}"), lambda _: None)


def skopeo(uploads: Uploads, reference: str) -> bytes:
    """The bytes of a tag or digest as skopeo reads them."""
    mark = "@" if reference.startswith("sha256:") else ":"
    name = f"docker://{uploads.host}/{uploads.repository}{mark}{reference}"
    command = ["skopeo", "inspect", "--raw", "--tls-verify=false", "--no-creds", name]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def multi_platform(uploads: Uploads, tag: str, *, docker: bool, arm_labels: dict[str, str] | None = None) -> bytes:
    amd = uploads.image("amd64", LABELS, docker=docker)
    arm = uploads.image("arm64", LABELS if arm_labels is None else arm_labels, docker=docker)
    entries: list[dict[str, Any]] = [
        listed(amd, "amd64", docker=docker),
        listed(arm, "arm64", docker=docker, variant="v8"),
    ]
    if not docker:
        entries = [uploads.attestation(amd), *entries, uploads.attestation(arm)]
    return uploads.index(entries, tag, docker=docker)


def put(uploads: Uploads, kind: str, tag: str) -> tuple[bytes, str]:
    """An image of a kind under a tag: its bytes and media type."""
    if kind == "OCI index with attestations":
        return multi_platform(uploads, tag, docker=False), index_type(docker=False)
    if kind == "docker list":
        return multi_platform(uploads, tag, docker=True), index_type(docker=True)
    docker = kind == "docker image"
    return uploads.image("amd64", LABELS, docker=docker, tag=tag), image_type(docker=docker)


KINDS = ["OCI index with attestations", "docker list", "OCI image", "docker image"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_tag_has_the_same_bytes_and_digest(uploads: Uploads, registry: Registry, kind: str) -> None:
    data, media_type = put(uploads, kind, "dev-202609151226")
    new = f"release-{KINDS.index(kind)}"

    result = registry.retag("dev-202609151226", new)

    assert result == Retagged(tag=new, digest=digest(data), media_type=media_type, written=True)
    assert skopeo(uploads, new) == skopeo(uploads, "dev-202609151226") == data
    assert skopeo(uploads, digest(data)) == data
    assert registry.digest_of(new) == Present(digest=digest(data), media_type=media_type, size=len(data))


def test_a_digest_can_be_tagged_that_no_tag_is_on_any_more(uploads: Uploads, registry: Registry) -> None:
    old = uploads.image("amd64", {"n": "1"}, tag="dev")
    uploads.image("amd64", {"n": "2"}, tag="dev")

    assert registry.retag(digest(old), "frozen").digest == digest(old)
    assert skopeo(uploads, "frozen") == old


def test_tagging_again_changes_nothing_and_says_so(uploads: Uploads, registry: Registry) -> None:
    uploads.image("amd64", None, tag="dev")
    first = registry.retag("dev", "frozen")

    assert first.written
    assert not registry.retag("dev", "frozen").written
    assert not registry.retag("frozen", "frozen").written


def test_a_tag_on_another_digest_is_refused_and_both_are_named(uploads: Uploads, registry: Registry) -> None:
    frozen = uploads.image("amd64", {"n": "1"}, tag="release-v0.6.0-ci")
    newer = uploads.image("amd64", {"n": "2"}, tag="dev-202609151226")

    with pytest.raises(OtherDigest) as refused:
        registry.retag("dev-202609151226", "release-v0.6.0-ci")

    assert digest(frozen) in refused.value.what
    assert digest(newer) in refused.value.what
    assert skopeo(uploads, "release-v0.6.0-ci") == frozen


def test_a_tag_is_moved_only_where_that_was_asked_for(uploads: Uploads, registry: Registry) -> None:
    old = uploads.image("amd64", {"n": "1"}, tag="moving")
    new = uploads.image("amd64", {"n": "2"}, tag="dev")

    result = registry.retag("dev", "moving", expect_absent_or_same=False)

    assert (result.replaced, result.digest) == (digest(old), digest(new))
    assert skopeo(uploads, "moving") == new


def test_tags_are_listed_and_the_newest_of_the_series_found(uploads: Uploads, registry: Registry) -> None:
    named = ["dev-202609151226", "dev-202613991234", "dev-cu12", "dev-99", "dev-20260915122", "dev-cu12-202609151226"]
    for tag in named:
        uploads.image("amd64", None, tag=tag)

    assert sorted(registry.tags()) == sorted(named)
    assert newest_dev_tag(registry.tags()) == "dev-202609151226"


def test_what_is_not_there_is_absent(uploads: Uploads, registry: Registry) -> None:
    assert registry.digest_of("dev") == ABSENT
    uploads.image("amd64", None, tag="dev")
    assert registry.digest_of("release") == ABSENT
    with pytest.raises(NotThere, match=f"{uploads.repository}:release is not there"):
        registry.manifest("release")
    with pytest.raises(NotThere):
        registry.retag("release", "new")


def test_the_tags_of_no_repository_are_an_error_and_not_none(registry: Registry) -> None:
    with pytest.raises(NotThere, match="tags is not there"):
        registry.tags()


def test_labels_of_an_index_are_those_of_linux_amd64_and_attestations_do_not_count(
    uploads: Uploads, registry: Registry
) -> None:
    multi_platform(uploads, "dev", docker=False)

    found = registry.labels("dev")

    assert (dict(found.labels), found.platform, found.differing) == (LABELS, "linux/amd64", ())
    assert registry.labels("dev", "linux/arm64").platform == "linux/arm64/v8"


@pytest.mark.parametrize("kind", ["OCI", "docker"])
def test_platforms_with_other_labels_are_named(uploads: Uploads, registry: Registry, kind: str) -> None:
    multi_platform(uploads, "dev", docker=kind == "docker", arm_labels={"miles.image-inputs": "older"})

    found = registry.labels("dev")

    assert dict(found.labels) == LABELS
    assert found.differing == ("linux/arm64/v8",)
    assert dict(registry.labels("dev", "linux/arm64/v8").labels) == {"miles.image-inputs": "older"}


@pytest.mark.parametrize("labels", [LABELS, None])
def test_labels_of_a_single_image(uploads: Uploads, registry: Registry, labels: dict[str, str] | None) -> None:
    uploads.image("arm64", labels, tag="pr-7")

    found = registry.labels("pr-7")

    assert (dict(found.labels), found.platform) == (labels or {}, "linux/arm64")
    with pytest.raises(BadImage, match="is for linux/arm64, not for linux/amd64"):
        registry.labels("pr-7", "linux/amd64")


def test_a_platform_that_an_index_lacks_is_an_error_with_those_it_has(uploads: Uploads, registry: Registry) -> None:
    multi_platform(uploads, "dev", docker=False)
    with pytest.raises(BadImage, match=r"no image for linux/s390x\n  platforms: linux/amd64, linux/arm64/v8"):
        registry.labels("dev", "linux/s390x")


def locked(host: str) -> Uploads:
    return Uploads(host, "radixark/locked", {"Authorization": basic(USER, PASSWORD)})


def test_a_registry_with_a_password_is_written_with_credentials_from_the_environment(
    locked_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = locked(locked_host).image("amd64", LABELS, tag="dev")
    monkeypatch.setenv(USER_VARIABLE, USER)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    monkeypatch.setenv(REGISTRY, locked_host)
    registry = Registry(parse_image_name(f"{locked_host}/radixark/locked"))

    assert registry.retag("dev", "frozen").digest == digest(data)
    assert set(registry.tags()) == {"dev", "frozen"}
    assert dict(registry.labels("frozen").labels) == LABELS


@pytest.mark.parametrize("known", [None, Credentials(user=USER, secret="wrong-word", origin="a test")])
def test_without_the_right_password_nothing_is_known_and_nothing_is_shown(
    locked_host: str, known: Credentials | None
) -> None:
    registry = Registry(parse_image_name(f"{locked_host}/radixark/locked"), lambda _: known)

    answer = registry.digest_of("never-there")

    assert isinstance(answer, Unknown)
    assert isinstance(answer.error, AccessDenied)
    assert f"{locked_host} answers 401" in str(answer.error)
    assert "docker login" in str(answer.error)
    assert "wrong-word" not in str(answer.error) + repr(answer)
