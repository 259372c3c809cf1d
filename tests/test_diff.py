import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.diff import Change, Diff, Unusable, parse_diff

PATHS = st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()) | st.sampled_from(
    ["a\nb", "größe", "::error::", "R100", "M", " ", "a\rb", "\u2028"]
)
CHANGES = st.builds(lambda status, path: Change(status, (path,)), st.sampled_from("ADMT"), PATHS) | st.builds(
    lambda letter, score, old, new: Change(f"{letter}{score:03}", (old, new)),
    st.sampled_from("RC"),
    st.integers(0, 100),
    PATHS,
    PATHS,
)


def written(changes: list[Change]) -> bytes:
    return "".join(f"{field}\0" for change in changes for field in (change.status, *change.paths)).encode()


def reason(source: bytes | None) -> str:
    parsed = parse_diff(source)
    assert isinstance(parsed, Unusable)
    assert parsed.reason.isprintable()
    return parsed.reason


@given(st.lists(CHANGES, min_size=1))
def test_what_git_writes_is_read(changes: list[Change]) -> None:
    parsed = parse_diff(written(changes))
    assert parsed == Diff(changes=tuple(changes))
    assert set(parsed.paths) == {path for change in changes for path in change.paths}


@given(st.binary() | st.lists(st.sampled_from([b"M", b"R100", b"C", b"a", b"", b"\xff", b"\n"])).map(b"\0".join))
def test_no_bytes_raise(source: bytes) -> None:
    for each in (source, source + b"\0"):
        parsed = parse_diff(each)
        if isinstance(parsed, Diff):
            assert written(list(parsed.changes)) == each
        else:
            assert parsed.reason.isprintable()


@given(st.lists(CHANGES, min_size=1), st.data())
def test_a_diff_that_is_cut_inside_an_entry_is_unusable(changes: list[Change], data: st.DataObject) -> None:
    last = written(changes[-1:])
    cut = data.draw(st.integers(1, len(last) - 1))
    assert isinstance(parse_diff(written(changes)[:-cut]), Unusable)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "no diff"),
        (b"", "empty"),
        (b"M\0a", "does not end in NUL"),
        (b"M\0a\0M", "does not end in NUL"),
        (b"M\0\xff\xfe\0", "not UTF-8 (byte 2)"),
        (b"M\0", "is missing"),
        (b"R100\0a\0", "is missing"),
        (b"M\0\0", "is empty"),
        (b"R100\0a\0\0", "is empty"),
        (b"\0", "field 1 of the diff, ``, is not a status"),
        (b"Q\0a\0", "`Q`, is not a status"),
        (b"m\0a\0", "not a status"),
        (b"M100\0a\0", "not a status"),
        (b"R\0a\0b\0", "not a status"),
        (b"R101\0a\0b\0", "not a status"),
        (b"C1000\0a\0b\0", "not a status"),
        ("R٤\0a\0b\0".encode(), "not a status"),
        (b"U\0a\0", "not a status"),
        (b"M\n\0a\0", "not a status"),
        (b"M\0a\0\x1b[31m\0b\0", "field 3 of the diff, `\\x1b[31m`"),
    ],
)
def test_an_unusable_diff_says_why(source: bytes | None, why: str) -> None:
    assert why in reason(source)


def test_a_rename_counts_both_paths_and_each_path_once() -> None:
    parsed = parse_diff(b"R087\0docs/a\0src/b\0C100\0docs/a\0docs/c\0")
    assert isinstance(parsed, Diff)
    assert parsed.paths == ("docs/a", "src/b", "docs/c")
