"""The registry client against servers that misbehave, on loopback."""

import base64
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ci.docker_credentials import Credentials
from ci.errors import CiError, ExitCode
from ci.image_tags import parse_image_name
from ci.manifests import BadImage
from ci.registry import Registry
from ci.registry_answers import ABSENT, Present, Unknown
from ci.registry_errors import (
    AccessDenied,
    BadAnswer,
    NotThere,
    OtherDigest,
    ServerFault,
    TooManyRequests,
    Unreachable,
)
from ci.registry_http import Patience, retry_after
from tests.registries import Asked, Says, StandIn, basic, digest, image_type

QUICK = Patience(pause=0.01, longest_pause=2.0, connect=20.0, read=20.0, total=60.0)
KNOWN = Credentials(user="me", secret="pa55", origin="a test")
TAGS, DEV, NEW = "/v2/a/b/tags/list", "/v2/a/b/manifests/dev", "/v2/a/b/manifests/new"
UNKNOWN_MANIFEST = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
DATA = json.dumps({"schemaVersion": 2, "mediaType": image_type(docker=False), "config": {}, "layers": []}).encode()
IMAGE = Says(body=DATA, headers={"Content-Type": image_type(docker=False), "Docker-Content-Digest": digest(DATA)})
ABSENT_ANSWER = Says(status=404, body=UNKNOWN_MANIFEST)


@pytest.fixture
def start() -> Iterator[Callable[[], StandIn]]:
    servers: list[StandIn] = []

    def begin() -> StandIn:
        servers.append(StandIn())
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


@pytest.fixture
def server(start: Callable[[], StandIn]) -> StandIn:
    return start()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def registry(server: StandIn, told: list[str]) -> Registry:
    return registry_on(server.host, told=told)


def registry_on(
    host: str, known: Credentials | None = None, *, patience: Patience = QUICK, told: list[str] | None = None
) -> Registry:
    tell = (told if told is not None else []).append
    return Registry(parse_image_name(f"{host}/a/b"), lambda _: known, patience=patience, tell=tell)


def page(*tags: str, following: str | None = None) -> Says:
    headers = {} if following is None else {"Link": f'<{following}>; rel="next"'}
    return Says(body=json.dumps({"name": "a/b", "tags": tags}).encode(), headers=headers)


def unknown(registry: Registry, tag: str = "dev") -> CiError:
    answer = registry.digest_of(tag)
    assert isinstance(answer, Unknown)
    return answer.error


# tags


def test_all_pages_of_tags_are_read(server: StandIn, registry: Registry) -> None:
    server.on(
        TAGS,
        page("dev-1", "dev-2", following=f"{TAGS}?n=2&last=dev-2"),
        page("dev-3", following=f"http://{server.host}{TAGS}?n=2&last=dev-3,x"),
        page("dev-3", "dev-4"),
    )
    assert registry.tags() == ("dev-1", "dev-2", "dev-3", "dev-4")
    assert [urlsplit(asked.path).query for asked in server.asked] == ["n=1000", "n=2&last=dev-2", "n=2&last=dev-3,x"]


def test_a_repository_without_tags_has_none(server: StandIn, registry: Registry) -> None:
    server.on(TAGS, Says(body=b'{"name":"a/b","tags":null}'))
    assert registry.tags() == ()


def test_an_empty_page_in_between_ends_nothing(server: StandIn, registry: Registry) -> None:
    server.on(TAGS, page("a", following="?last=a"), page(following="?last=b"), page("c"))
    assert registry.tags() == ("a", "c")


@pytest.mark.parametrize("following", [f"{TAGS}?last=b", f"{TAGS}?n=1000"])
def test_pages_that_go_round_are_refused(server: StandIn, registry: Registry, following: str) -> None:
    server.on(TAGS, page("a", "b", following=following))
    with pytest.raises(BadAnswer, match="a/b: tags: "):
        registry.tags()
    assert len(server.asked) <= 2


def test_a_page_that_repeats_under_ever_new_addresses_is_refused(server: StandIn, registry: Registry) -> None:
    server.on(TAGS, *(page("a", "b", following=f"?last={number}") for number in range(9)))
    with pytest.raises(BadAnswer, match="page 2 repeats"):
        registry.tags()


def test_a_next_page_on_another_server_is_refused_and_never_asked(
    start: Callable[[], StandIn], server: StandIn
) -> None:
    other = start()
    server.on(
        TAGS,
        Says(status=401, headers={"WWW-Authenticate": "Basic realm=x"}),
        page("a", following=f"http://{other.host}{TAGS}"),
    )
    with pytest.raises(BadAnswer, match=f"on another server, `http://{other.host}"):
        registry_on(server.host, KNOWN).tags()
    assert other.asked == []


@pytest.mark.parametrize(
    "link",
    [
        "</v2/a/b/tags/list?last=a>; rel=nextt; x=next",
        "next",
        "<x; rel=next",
        '<http://[::1>; rel="next"',
        "<http://u:p@{}/>; rel=next",
    ],
)
def test_a_link_that_cannot_be_followed_is_an_error_and_not_the_end(
    server: StandIn, registry: Registry, link: str
) -> None:
    server.on(TAGS, Says(body=b'{"tags":["a"]}', headers={"Link": link.format(server.host)}))
    with pytest.raises(BadAnswer, match="next page"):
        registry.tags()


@pytest.mark.parametrize(
    ("link", "second"),
    [
        ('</x?a=1,2>; rel="prev", <?last=a>; rel="next"', "last=a"),
        ("<?last=a>;rel=next", "last=a"),
        ('<?last=a>; title="one"; REL="Next"; x', "last=a"),
    ],
)
def test_the_next_page_is_found_among_other_links(server: StandIn, registry: Registry, link: str, second: str) -> None:
    server.on(TAGS, Says(body=b'{"tags":["a"]}', headers={"Link": link}), page("b"))
    assert registry.tags() == ("a", "b")
    assert urlsplit(server.asked[1].path).query == second


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"tags":"dev"}', b'{"tags":[1]}', b'{"tags":["a b"]}', b"[" * 99999]
)
def test_something_else_than_a_list_of_tags_is_an_error(server: StandIn, registry: Registry, body: bytes) -> None:
    server.on(TAGS, Says(body=body))
    with pytest.raises(BadAnswer, match="not a list of tags"):
        registry.tags()


# the three answers


def test_a_tag_that_the_registry_knows_is_present(server: StandIn, registry: Registry) -> None:
    server.on(DEV, IMAGE)
    assert registry.digest_of("dev") == Present(
        digest=digest(DATA), media_type=image_type(docker=False), size=len(DATA)
    )


def test_only_a_registrys_own_404_is_absent(server: StandIn, registry: Registry) -> None:
    server.on(DEV, ABSENT_ANSWER, Says(status=404, body=b"<html>not found</html>"))
    assert registry.digest_of("dev") == ABSENT
    assert "404, but not as a registry does" in str(unknown(registry))


@pytest.mark.parametrize("status", [400, 401, 403, 406, 410, 418, 429, 500, 503])
def test_any_other_answer_is_unknown(server: StandIn, registry: Registry, status: int) -> None:
    server.on(DEV, Says(status=status, body=UNKNOWN_MANIFEST, headers={"WWW-Authenticate": "Basic realm=x"}))
    assert f"{server.host} answers {status}" in str(unknown(registry))


def test_a_server_that_is_not_there_is_unknown(told: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen
        registry = registry_on(f"127.0.0.1:{taken.getsockname()[1]}", told=told)
        error = unknown(registry)
    assert isinstance(error, Unreachable)
    assert error.exit_code == ExitCode.INFRASTRUCTURE
    assert "Connection refused (so 4 times)" in str(error)
    assert len(told) == 3


# retries


def test_a_fault_that_passes_is_tried_again_and_said(server: StandIn, registry: Registry, told: list[str]) -> None:
    server.on(DEV, Says(status=503), Says(status=502), IMAGE)
    assert isinstance(registry.digest_of("dev"), Present)
    assert ["2 of 4" in told[0], "3 of 4" in told[1], len(told)] == [True, True, 2]


def test_a_fault_that_stays_is_tried_four_times(server: StandIn, registry: Registry) -> None:
    server.on(DEV, Says(status=500))
    error = unknown(registry)
    assert isinstance(error, ServerFault)
    assert len(server.asked) == 4


def test_a_registry_that_asks_for_time_gets_it(server: StandIn, registry: Registry, told: list[str]) -> None:
    server.on(DEV, Says(status=429, headers={"Retry-After": "1"}), IMAGE)
    started = time.monotonic()
    assert isinstance(registry.digest_of("dev"), Present)
    assert time.monotonic() - started >= 1
    assert "trying again in 1 s, as it asks (2 of 4)" in told[0]


@pytest.mark.parametrize("asked", ["3600", format_datetime(datetime(2199, 1, 1, tzinfo=UTC), usegmt=True)])
def test_a_registry_that_asks_for_more_time_than_there_is_is_left_alone(
    server: StandIn, registry: Registry, asked: str
) -> None:
    server.on(DEV, Says(status=429, headers={"Retry-After": asked}), IMAGE)
    error = unknown(registry)
    assert isinstance(error, TooManyRequests)
    assert "asks to be left alone for" in str(error)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None), ("", None), ("soon", None), ("-5", None), ("٣", None), ("0", 0), (" 7 ", 7), ("9" * 400, 1e9),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thursday, 01-Jan-70 00:01:00 GMT", 50), ("Thu Jan  1 00:01:00 1970", 50),
        ("Thu, 99 Jan 1970 00:01:00 GMT", None),
    ],
)  # fmt: skip
def test_what_a_retry_after_asks_for(text: str | None, seconds: float | None) -> None:
    assert retry_after(text, 10.0) == seconds


def test_a_server_that_is_silent_is_given_up(server: StandIn) -> None:
    server.on(DEV, Says(hangs=True))
    registry = registry_on(server.host, patience=Patience(tries=2, pause=0.01, read=0.2))
    assert "no answer in time (so 2 times)" in str(unknown(registry))


def test_no_try_begins_after_the_time_for_all(server: StandIn) -> None:
    server.on(DEV, Says(status=503))
    registry = registry_on(server.host, patience=Patience(pause=30.0, total=5.0))
    assert "after 1 tries no time is left" in str(unknown(registry))
    assert len(server.asked) == 1


def test_an_answer_that_breaks_off_is_never_taken_for_whole(server: StandIn, registry: Registry) -> None:
    cut = Says(body=DATA[:-5], headers=IMAGE.headers, length=len(DATA))
    server.on(DEV, cut, IMAGE)
    assert isinstance(registry.digest_of("dev"), Present)
    server.on(DEV, cut)
    assert "the answer breaks off (so 4 times)" in str(unknown(registry))


def test_an_answer_that_trickles_does_not_outlast_the_time_for_all(server: StandIn) -> None:
    server.on(DEV, Says(length=len(DATA) << 10, trickles=True))
    assert "sends too slowly" in str(unknown(registry_on(server.host, patience=Patience(total=1.0))))


def test_an_answer_without_end_is_cut_off(server: StandIn, registry: Registry) -> None:
    server.on(DEV, Says(body=b" " * (5 << 20)))
    assert "sends more than 4 MiB" in str(unknown(registry))


# bytes


@pytest.mark.parametrize("said", [digest(b"other"), "sha256:0", "md5:d41d8cd98f00b204e9800998ecf8427e"])
def test_bytes_that_are_not_what_the_registry_says_are_refused(server: StandIn, registry: Registry, said: str) -> None:
    server.on(DEV, Says(body=DATA, headers={**IMAGE.headers, "Docker-Content-Digest": said}))
    error = unknown(registry)
    assert isinstance(error, BadImage)
    assert said in str(error)


def test_bytes_that_are_not_what_was_asked_for_are_refused(server: StandIn, registry: Registry) -> None:
    wanted = digest(b"other")
    server.on(f"/v2/a/b/manifests/{wanted}", IMAGE)
    with pytest.raises(BadImage, match=f"the bytes are {digest(DATA)}, not {wanted}"):
        registry.manifest(wanted)


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(DATA) | fields).encode()


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (DATA, "text/html"),
        (DATA, "application/vnd.docker.distribution.manifest.v1+prettyjws"),
        (DATA, image_type(docker=True)),
        (changed(manifests=[]), image_type(docker=False)),
        (changed(mediaType="application/vnd.oci.image.index.v1+json"), "application/vnd.oci.image.index.v1+json"),
        (b"[]", image_type(docker=False)),
        (b"\xff", image_type(docker=False)),
    ],
)
def test_what_is_no_manifest_or_two_in_one_is_refused(
    server: StandIn, registry: Registry, body: bytes, media_type: str
) -> None:
    server.on(DEV, Says(body=body, headers={"Content-Type": media_type}))
    with pytest.raises(BadImage):
        registry.manifest("dev")


def test_nothing_is_written_where_it_is_unknown_what_is_there(server: StandIn, registry: Registry) -> None:
    server.on(DEV, IMAGE)
    server.on(NEW, Says(status=503))
    server.on(NEW, Says(status=201), method="PUT")
    with pytest.raises(ServerFault):
        registry.retag("dev", "new")
    assert {asked.method for asked in server.asked} == {"GET"}


def test_a_write_that_another_one_follows_is_seen_by_reading_back(server: StandIn, registry: Registry) -> None:
    other = changed(annotations={"x": "y"})
    server.on(DEV, IMAGE)
    server.on(NEW, ABSENT_ANSWER, Says(body=other, headers={"Content-Type": image_type(docker=False)}))
    server.on(NEW, Says(status=201), method="PUT")
    with pytest.raises(OtherDigest, match=f"was put on {digest(DATA)}, but reads back as {digest(other)}"):
        registry.retag("dev", "new")


def test_a_write_goes_through_a_fault_with_the_same_bytes(server: StandIn, registry: Registry) -> None:
    server.on(DEV, IMAGE)
    server.on(NEW, ABSENT_ANSWER, IMAGE)
    server.on(NEW, Says(status=503), Says(status=201, headers={"Docker-Content-Digest": digest(DATA)}), method="PUT")
    assert registry.retag("dev", "new").written
    assert [asked.body for asked in server.asked if asked.method == "PUT"] == [DATA, DATA]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Says(status=400, body=b'{"errors":[{"code":"MANIFEST_INVALID","message":"x\\u001b[31m"}]}'), BadAnswer),
        (Says(status=307, headers={"Location": "/elsewhere"}), BadAnswer),
        (Says(status=403, body=b'{"errors":[{"code":"DENIED"}]}'), AccessDenied),
        (Says(status=201, headers={"Docker-Content-Digest": digest(b"other")}), OtherDigest),
    ],
)
def test_a_write_that_is_not_taken_is_an_error(
    server: StandIn, registry: Registry, answer: Says, error: type[CiError]
) -> None:
    server.on(DEV, IMAGE)
    server.on(NEW, ABSENT_ANSWER)
    server.on(NEW, answer, method="PUT")
    with pytest.raises(error) as raised:
        registry.retag("dev", "new")
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("reference", ["a b", "../../x", "", "sha256:abc", "dev?n=1", "x/y:dev", ".."])
def test_what_is_neither_tag_nor_digest_is_not_sent(server: StandIn, registry: Registry, reference: str) -> None:
    assert unknown(registry, reference).exit_code == ExitCode.USAGE
    assert server.asked == []


def test_a_listed_image_that_is_missing_does_not_make_its_index_absent(server: StandIn, registry: Registry) -> None:
    media_type = "application/vnd.oci.image.index.v1+json"
    entry = {
        "mediaType": image_type(docker=False),
        "digest": digest(DATA),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    server.on(DEV, Says(body=json.dumps({"manifests": [entry]}).encode(), headers={"Content-Type": media_type}))
    server.on(f"/v2/a/b/manifests/{digest(DATA)}", ABSENT_ANSWER)
    with pytest.raises(BadImage, match="which is not there"):
        registry.labels("dev")


# credentials and where they go


def challenge(realm: str, scope: str = "repository:a/b:pull") -> Says:
    return Says(
        status=401, headers={"WWW-Authenticate": f'Bearer realm="{realm}",service="the registry",scope="{scope}"'}
    )


def authorizations(asked: list[Asked], path: str) -> list[str | None]:
    return [one.authorization for one in asked if one.path.partition("?")[0] == path]


@pytest.mark.parametrize("name", ["token", "access_token"])
@pytest.mark.parametrize("known", [KNOWN, None])
def test_a_bearer_token_is_fetched_where_the_registry_says(
    start: Callable[[], StandIn], server: StandIn, known: Credentials | None, name: str
) -> None:
    tokens = start()
    tokens.on("/token", Says(body=json.dumps({name: "t0k.en"}).encode()))
    server.on(DEV, challenge(f"http://{tokens.host}/token?x=1"), IMAGE)

    assert isinstance(registry_on(server.host, known).digest_of("dev"), Present)

    assert authorizations(server.asked, DEV) == [None, "Bearer t0k.en"]
    assert authorizations(tokens.asked, "/token") == [None if known is None else basic("me", "pa55")]
    query = parse_qs(urlsplit(tokens.asked[0].path).query)
    assert query == {"x": ["1"], "service": ["the registry"], "scope": ["repository:a/b:pull"]}


def test_an_identity_token_is_exchanged_for_a_bearer_token(server: StandIn) -> None:
    server.on("/token", Says(body=b'{"access_token":"t0k"}'), method="POST")
    server.on(DEV, challenge(f"http://{server.host}/token"), IMAGE)
    known = Credentials(user="<token>", secret="id=&", is_identity_token=True, origin="a test")

    assert isinstance(registry_on(server.host, known).digest_of("dev"), Present)

    form = parse_qs(next(asked.body.decode() for asked in server.asked if asked.method == "POST"))
    assert form["grant_type"] == ["refresh_token"]
    assert form["refresh_token"] == ["id=&"]
    assert form["scope"] == ["repository:a/b:pull"]


def test_for_writing_a_token_is_asked_for_that_may_write_whatever_the_registry_says(server: StandIn) -> None:
    realm = f"http://{server.host}/token"
    server.on("/token", Says(body=b'{"token":"t"}'))
    server.on(DEV, challenge(realm), IMAGE)
    server.on(NEW, ABSENT_ANSWER, IMAGE)
    server.on(NEW, challenge(realm), Says(status=201), method="PUT")

    registry_on(server.host, KNOWN).retag("dev", "new")

    scopes = [
        parse_qs(urlsplit(asked.path).query)["scope"] for asked in server.asked if asked.path.startswith("/token")
    ]
    assert scopes == [["repository:a/b:pull"], ["repository:a/b:pull", "repository:a/b:pull,push"]]


def test_a_token_is_kept_and_fetched_anew_when_it_is_no_longer_taken(server: StandIn) -> None:
    realm = f"http://{server.host}/token"
    server.on("/token", Says(body=b'{"token":"one"}'), Says(body=b'{"token":"two"}'))
    server.on(DEV, challenge(realm), IMAGE, IMAGE, challenge(realm), IMAGE)
    registry = registry_on(server.host)
    for _ in range(3):
        registry.manifest("dev")
    assert authorizations(server.asked, DEV) == [None, "Bearer one", "Bearer one", "Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    "realm",
    [
        "",
        "http://example.com/token",
        "ftp://127.0.0.1/",
        "http://me:pa55@127.0.0.1/",
        "http://127.0.0.1:x/",
        "https://",
    ],
)
def test_credentials_do_not_go_to_a_token_server_in_plain_text_or_of_no_address(server: StandIn, realm: str) -> None:
    server.on(DEV, challenge(realm))
    error = unknown(registry_on(server.host, KNOWN))
    assert isinstance(error, BadAnswer)
    assert server.paths() == [DEV]


@pytest.mark.parametrize(
    "answer",
    [
        Says(body=b""), Says(body=b"[]"), Says(body=b'{"token":""}'), Says(body=b'{"token":"a\\r\\nX: y"}'),
        Says(body=b'{"token":1}'), Says(status=404), Says(body=json.dumps({"token": "x" * 99999}).encode()),
    ],
)  # fmt: skip
def test_what_is_no_token_is_an_error_of_the_token_server(server: StandIn, answer: Says) -> None:
    server.on("/token", answer)
    server.on(DEV, challenge(f"http://{server.host}/token"))
    assert "token" in str(unknown(registry_on(server.host, KNOWN)))


def test_a_token_server_that_refuses_is_named_with_the_origin_of_the_credentials(
    start: Callable[[], StandIn], server: StandIn
) -> None:
    tokens = start()
    tokens.on("/token", Says(status=401, body=b'{"details":"incorrect username or password"}'))
    server.on(DEV, challenge(f"http://{tokens.host}/token"))
    error = unknown(registry_on(server.host, KNOWN))
    assert isinstance(error, AccessDenied)
    assert error.exit_code == ExitCode.USAGE
    assert f"{tokens.host} answers 401" in str(error)
    assert "the credentials of a test" in str(error)
    assert "pa55" not in str(error)


@pytest.mark.parametrize("trusted", ["trusted", "not trusted"])
def test_a_token_server_with_tls_is_asked_only_if_its_certificate_is_trusted(
    server: StandIn, trusted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    if trusted == "trusted":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    tokens = StandIn(certificate)
    try:
        tokens.on("/token", Says(body=b'{"token":"t"}'))
        server.on(DEV, challenge(f"https://{tokens.host}/token"), IMAGE)
        answer = registry_on(server.host, KNOWN).digest_of("dev")
    finally:
        tokens.end()
    if trusted == "trusted":
        assert isinstance(answer, Present)
    else:
        assert isinstance(answer, Unknown)
        assert f"the certificate of {tokens.host} is not trusted" in str(answer.error)
        assert tokens.asked == []


def self_signed(folder: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return file


def test_a_password_goes_to_a_registry_that_asks_for_it_and_only_then(server: StandIn) -> None:
    server.on(DEV, Says(status=401, headers={"WWW-Authenticate": 'Negotiate, basic realm="x"'}), IMAGE)
    assert isinstance(registry_on(server.host, KNOWN).digest_of("dev"), Present)
    assert authorizations(server.asked, DEV) == [None, basic("me", "pa55")]


@pytest.mark.parametrize("header", ["", "Negotiate", "Bearer realm=a b", "Digest realm=x"])
def test_a_challenge_that_is_not_understood_is_an_error(server: StandIn, header: str) -> None:
    server.on(DEV, Says(status=401, headers={"WWW-Authenticate": header}))
    assert "neither basic nor bearer" in str(unknown(registry_on(server.host, KNOWN)))


def labelled(server: StandIn, config: Says) -> None:
    """An image whose configuration comes by the answer ``config``."""
    descriptor = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(CONFIG)}
    body = changed(config=descriptor)
    first = Says(status=401, headers={"WWW-Authenticate": "Basic realm=x"})
    server.on(DEV, first, Says(body=body, headers={"Content-Type": image_type(docker=False)}))
    server.on(f"/v2/a/b/blobs/{digest(CONFIG)}", config)


CONFIG = b'{"os":"linux","architecture":"amd64","config":{"Labels":{"k":"v"}}}'


def test_a_blob_on_another_server_is_fetched_without_credentials(start: Callable[[], StandIn], server: StandIn) -> None:
    store = start()
    store.on("/blob", Says(status=302, headers={"Location": f"http://{server.host}/back"}))
    server.on("/back", Says(body=CONFIG))
    labelled(server, Says(status=307, headers={"Location": f"http://{store.host}/blob?signed"}))

    assert dict(registry_on(server.host, KNOWN).labels("dev").labels) == {"k": "v"}

    assert authorizations(store.asked, "/blob") == [None]
    assert authorizations(server.asked, "/back") == [None]


def test_another_server_cannot_ask_for_the_registrys_credentials(start: Callable[[], StandIn], server: StandIn) -> None:
    store = start()
    store.on("/blob", challenge(f"http://{store.host}/token"))
    labelled(server, Says(status=307, headers={"Location": f"http://{store.host}/blob"}))
    with pytest.raises(AccessDenied, match=f"{store.host} answers 401"):
        registry_on(server.host, KNOWN).labels("dev")
    assert store.paths() == ["/blob"]


@pytest.mark.parametrize("target", ["http://example.com/x", "file:///etc/passwd", "http://a:b@127.0.0.1/", "//[", ""])
def test_a_redirect_off_this_machine_without_tls_is_not_followed(server: StandIn, target: str) -> None:
    server.on(DEV, Says(status=302, headers={"Location": target}))
    assert isinstance(unknown(registry_on(server.host)), BadAnswer)


def test_a_blob_with_other_bytes_is_refused(server: StandIn) -> None:
    labelled(server, Says(body=CONFIG + b" "))
    with pytest.raises(BadImage, match="the configuration's bytes are"):
        registry_on(server.host, KNOWN).labels("dev")


def test_a_password_from_netrc_and_a_proxy_are_not_used_on_this_machine(
    server: StandIn, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("netrc") / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pa55\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.on(DEV, IMAGE)
    registry.manifest("dev")
    assert authorizations(server.asked, DEV) == [None]


def test_a_registry_that_is_not_on_this_machine_is_spoken_to_with_tls_unless_named_insecure() -> None:
    def base(name: str, *insecure: str) -> str:
        return Registry(parse_image_name(name), insecure=insecure)._base

    assert base("radixark/miles") == "https://registry-1.docker.io/v2/radixark/miles"
    assert base("mirror.lan:5000/x") == "https://mirror.lan:5000/v2/x"
    assert base("mirror.lan:5000/x", "mirror.lan:5000") == "http://mirror.lan:5000/v2/x"
    assert base("localhost:5000/x") == "http://localhost:5000/v2/x"


def test_credentials_can_be_kept_out_of_what_is_shown() -> None:
    shown = repr(KNOWN)
    assert "pa55" not in shown
    assert base64.b64encode(b"me:pa55").decode() not in shown


def test_a_404_is_an_error_that_a_person_can_mend(server: StandIn, registry: Registry) -> None:
    server.on(DEV, ABSENT_ANSWER)
    with pytest.raises(NotThere) as raised:
        registry.manifest("dev")
    assert raised.value.exit_code == ExitCode.USAGE
    assert str(raised.value).splitlines() == [
        f"{server.host}/a/b:dev is not there (MANIFEST_UNKNOWN: manifest unknown)",
        f"  {server.host} knows no such name; check its spelling",
    ]
