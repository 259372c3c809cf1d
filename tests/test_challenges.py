import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.challenges import parse_challenges


def parsed(header: str) -> list[tuple[str, dict[str, str]]]:
    return [(challenge.scheme, dict(challenge.parameters)) for challenge in parse_challenges(header)]


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
            [
                (
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        ("BASIC Realm = x", [("basic", {"realm": "x"})]),
        (
            'Negotiate, NTLM abc==, Basic realm="a, Bearer realm=\\"b\\"" , Bearer realm="c"',
            [
                ("negotiate", {}),
                ("ntlm", {}),
                ("basic", {"realm": 'a, Bearer realm="b"'}),
                ("bearer", {"realm": "c"}),
            ],
        ),
        (',, Basic realm="",', [("basic", {"realm": ""})]),
        ("Bearer", [("bearer", {})]),
        ("", []),
    ],
)
def test_every_challenge_of_a_header_is_found(header: str, challenges: list[tuple[str, dict[str, str]]]) -> None:
    assert parsed(header) == challenges


@pytest.mark.parametrize(
    "header",
    [
        'Bearer realm="unterminated',
        'Bearer realm="a" service="b"',
        'Bearer realm="a", realm="b"',
        'Basic realm="a" rest',
        'Basic realm="a\x00"',
        "=",
        'Basic realm="x", ;',
    ],
)
def test_a_malformed_header_gives_nothing(header: str) -> None:
    assert parsed(header) == []


TOKEN = st.text("abcXYZ019!#$%&'*+.^_`|~-", min_size=1)
QUOTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
PARAMETERS = st.dictionaries(TOKEN.map(str.lower), QUOTABLE, min_size=1)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.lists(st.tuples(TOKEN, PARAMETERS)))
def test_what_is_written_by_the_rules_is_read_back(challenges: list[tuple[str, dict[str, str]]]) -> None:
    header = ", ".join(
        f"{scheme} " + ",".join(f"{name}={quoted(value)}" for name, value in parameters.items())
        for scheme, parameters in challenges
    )
    assert parsed(header) == [(scheme.lower(), parameters) for scheme, parameters in challenges]


@given(st.text('ab=," \t\\;', max_size=40) | st.text())
def test_any_text_comes_to_an_end(header: str) -> None:
    for scheme, parameters in parsed(header):
        assert scheme == scheme.lower()
        assert scheme in header.lower()
        assert all(name in header.lower() for name in parameters)
