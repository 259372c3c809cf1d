import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.ref import Ref, RefKind, parse_ref, ref_name_fault

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("#72", Ref(RefKind.FULL, "refs/pull/72/head")),
        ("#0", Ref(RefKind.FULL, "refs/pull/0/head")),
        ("main", Ref(RefKind.NAME, "main")),
        ("feature/main", Ref(RefKind.NAME, "feature/main")),
        ("refs/heads/x", Ref(RefKind.FULL, "refs/heads/x")),
        (COMMIT, Ref(RefKind.COMMIT, COMMIT)),
        (COMMIT.upper(), Ref(RefKind.COMMIT, COMMIT)),
        ("7f50ee4", Ref(RefKind.NAME, "7f50ee4")),
        ("#٧٢", Ref(RefKind.NAME, "#٧٢")),
        ("#12a", Ref(RefKind.NAME, "#12a")),
        ("v1.2.0", Ref(RefKind.NAME, "v1.2.0")),
    ],
)
def test_what_a_ref_is(text: str, ref: Ref) -> None:
    assert parse_ref(text) == ref


@pytest.mark.parametrize(
    "text",
    [
        *("--upload-pack=touch${IFS}x", "-x", "a..b", "a b~", "refs/heads/../x", "a\x07", "a\x7f", "ma*", "a?", "a[b"),
        *(
            "a\\b",
            "a^",
            "a~1",
            "a:b",
            "@{u}",
            "a@{1}",
            "@",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
        ),
        *("", " ", "a\nb", "a\r", "a\u2028b", "\u202ea", "refs/heads", "x" * 256, "ext::sh", "path:/tmp"),
    ],
)
def test_what_is_no_ref_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a ref: (it|its|a) ") as error:
        parse_ref(text)
    assert all(line.isprintable() for line in str(error.value).splitlines())


def test_a_short_hash_is_recognised() -> None:
    assert parse_ref("7f50ee4").looks_like_short_hash
    assert not parse_ref("main").looks_like_short_hash


def test_a_folder_is_for_the_command_line_alone() -> None:
    assert parse_ref("path:/some/dir", allow_path=True) == Ref(RefKind.PATH, "/some/dir")
    with pytest.raises(UsageError):
        parse_ref("path:", allow_path=True)


@settings(max_examples=150)
@given(st.text(alphabet=st.sampled_from("ab/.-@{}~^:?*[\\ \t\x7f#é.lock"), min_size=1, max_size=12))
def test_our_rules_are_never_laxer_than_gits(name: str) -> None:
    if ref_name_fault(name) is not None:
        return
    full = name if name.startswith("refs/") else f"refs/heads/{name}"
    assert subprocess.run(["git", "check-ref-format", full], check=False).returncode == 0
