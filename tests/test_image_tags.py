from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.image_tags import (
    ImageName,
    is_digest,
    newest_dev_tag,
    parse_image_name,
    parse_tag,
    registry_name,
    tag_to_freeze,
)

HUB = "registry-1.docker.io"
TIMES = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("tags", "newest"),
    [
        (["dev-202609151226", "dev-202613991234", "dev-cu12", "dev-99", "dev-20260915122", "dev-cu12-202609151226"], 0),
        (["dev-202602290000", "dev-202402290000", "dev-202401012460", "dev-202401012400", "dev-000001010000"], 1),
        (
            ["dev-202609151226", "dev-2026091512260", "xdev-202709151226", "dev-202709151226-cu12", "DEV-202709151226"],
            0,
        ),
        (["dev-202609151226", "dev-٢٠٢٧٠٩١٥١٢٢٦", "dev-202709151226\n", "dev-+02709151226", "dev-2027 9151226"], 0),
        (["dev", "latest", "release-v0.6.0-ci"], None),
        ([], None),
    ],
)
def test_only_real_times_of_exactly_the_series_count(tags: list[str], newest: int | None) -> None:
    expected = None if newest is None else tags[newest]
    assert newest_dev_tag(tags) == expected
    assert newest_dev_tag(reversed(tags)) == expected


@given(st.lists(TIMES), st.lists(st.text() | st.from_regex(r"dev-[0-9]{9,13}(-cu12)?", fullmatch=True)))
def test_the_newest_is_that_of_the_latest_time(times: list[datetime], others: list[str]) -> None:
    stamped = [f"dev-{time.year:04}{time:%m%d%H%M}" for time in times]
    found = newest_dev_tag([*others, *stamped])
    if stamped:
        assert found is not None
        assert found >= max(stamped)
    if found is not None:
        assert found in {*others, *stamped}
        datetime.strptime(found, "dev-%Y%m%d%H%M")  # noqa: DTZ007


def test_the_mutable_tag_is_frozen_only_where_nothing_newer_is_and_it_was_asked_for() -> None:
    assert tag_to_freeze(["dev", "dev-202609151226"], allow_mutable=True) == "dev-202609151226"
    assert tag_to_freeze(["dev", "dev-cu12"], allow_mutable=True) == "dev"
    with pytest.raises(UsageError, match="--allow-mutable"):
        tag_to_freeze(["dev", "dev-cu12"], allow_mutable=False)
    with pytest.raises(UsageError, match="and no `dev`"):
        tag_to_freeze(["dev-cu12"], allow_mutable=True)


@pytest.mark.parametrize(
    ("text", "host", "repository", "shown"),
    [
        ("radixark/miles", HUB, "radixark/miles", "radixark/miles"),
        ("ubuntu", HUB, "library/ubuntu", "library/ubuntu"),
        ("docker.io/rocm/sgl-dev", HUB, "rocm/sgl-dev", "rocm/sgl-dev"),
        ("index.docker.io/ubuntu", HUB, "library/ubuntu", "library/ubuntu"),
        ("localhost:5000/x/y", "localhost:5000", "x/y", "localhost:5000/x/y"),
        ("localhost/x", "localhost", "x", "localhost/x"),
        ("ghcr.io/a/b", "ghcr.io", "a/b", "ghcr.io/a/b"),
        ("GHCR.io/a/b_c/d__e/f--g.h", "ghcr.io", "a/b_c/d__e/f--g.h", "ghcr.io/a/b_c/d__e/f--g.h"),
        ("[::1]:5000/x", "[::1]:5000", "x", "[::1]:5000/x"),
    ],
)
def test_an_image_name_is_read_as_docker_reads_it(text: str, host: str, repository: str, shown: str) -> None:
    name = parse_image_name(text)
    assert name == ImageName(host=host, repository=repository)
    assert str(name) == shown
    assert parse_image_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "a/", "/a", "a//b", "A/b", "a/b:dev", "a/b@sha256:" + "0" * 64, "https://ghcr.io/a/b", "ghcr.io/"),
        *("a/../b", "a b", "a/b\n", "-a/b", "a.b:x/c", "a.b:0/c", "a.b:65536/c", "u:p@a.b/c", "localhost:5000", "a/é"),
        "a/" + "b" * 255,
    ],
)
def test_what_is_no_repository_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the name of an image repository"):
        parse_image_name(text)


@given(st.text() | st.text("aA./:@-_[]0"))
def test_a_name_is_refused_or_safe_to_put_in_an_address(text: str) -> None:
    try:
        name = parse_image_name(text)
    except UsageError:
        return
    assert not set(name.repository) & set("?#@:% \n\\")
    assert ".." not in name.repository.split("/")
    assert not set(name.host) & set("/?#@% \n\\")
    assert parse_image_name(str(name)) == name


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("localhost", True), ("localhost:5000", True), ("127.0.0.1:5", True), ("127.9.9.9", True), ("[::1]:5", True)),
        *(("127.0.0.1.example.com", False), ("localhost.example.com", False), ("10.0.0.1:5000", False), (HUB, False)),
    ],
)
def test_which_registries_are_on_this_machine(host: str, loopback: object) -> None:
    assert ImageName(host=host, repository="x").is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("http://localhost:5000/v2/", "localhost:5000"),
        ("GHCR.io/org", "ghcr.io"),
    ],
)
def test_a_registry_has_one_name_however_it_is_written(text: str, name: str) -> None:
    assert registry_name(text) == name


@pytest.mark.parametrize("text", ["dev", "pr-7", "_x", "v0.6.0rc1", "A" * 128])
def test_a_bare_tag_is_a_tag(text: str) -> None:
    assert parse_tag(text) == text


@pytest.mark.parametrize("text", ["", ".x", "-x", "a b", "dev\n", "A" * 129, "dév", "x/y"])
def test_other_text_is_no_tag(text: str) -> None:
    with pytest.raises(UsageError, match="not a bare tag"):
        parse_tag(text)


def test_a_full_image_name_is_no_tag_and_named_so() -> None:
    with pytest.raises(UsageError, match="ci-image-tag `radixark/miles:dev` is a full image name"):
        parse_tag("radixark/miles:dev", "ci-image-tag")


@pytest.mark.parametrize("text", ["sha256:" + "0" * 63, "sha256:" + "A" * 64, "sha1:" + "0" * 40, "0" * 64])
def test_a_digest_that_cannot_be_checked_is_none(text: str) -> None:
    assert not is_digest(text)
    assert is_digest("sha256:" + "0" * 64)
    assert is_digest("sha512:" + "0" * 128)
