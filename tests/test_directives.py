import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.directives import Directives, read_directives

NAMES = ("ci-sglang-pr", "ci-megatron-pr", "ci-image-tag")


def read(body: str) -> Directives:
    return read_directives(body, NAMES)


def values(body: str) -> dict[str, str]:
    return {name: directive.value for name, directive in read(body).found.items()}


def test_a_carriage_return_is_never_part_of_the_value() -> None:
    assert values("ci-sglang-pr: #30421\r\nci-megatron-pr: x\r\n") == {"ci-sglang-pr": "#30421", "ci-megatron-pr": "x"}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    assert values(f"text{separator}ci-sglang-pr: x") == {}


def test_an_empty_directive_is_a_warning_and_swallows_nothing() -> None:
    found = read("ci-sglang-pr:\nci-megatron-pr: #72")
    assert values("ci-sglang-pr:\nci-megatron-pr: #72") == {"ci-megatron-pr": "#72"}
    assert found.warnings == ("line 1: `ci-sglang-pr:` is not read, because no value follows on its line",)


@pytest.mark.parametrize("value", ["#٧٢", "#12a", "#", "#-1"])
def test_what_is_no_pull_request_number_is_said(value: str) -> None:
    found = read(f"ci-megatron-pr: {value}")
    assert found.found["ci-megatron-pr"].value == value
    assert "is not a pull request" in found.warnings[0]


@pytest.mark.parametrize(
    ("body", "line", "place"),
    [
        ("```\nci-sglang-pr: x\n```", 2, "a code block"),
        ("~~~~\n~~~\nci-sglang-pr: x\n~~~~\n", 3, "a code block"),
        ("```python\ncode\n``` not an end\nci-sglang-pr: x", 4, "a code block"),
        ("<!-- note\nci-sglang-pr: x\n-->", 2, "an HTML comment"),
    ],
)
def test_hidden_directives_count_and_a_warning_says_so(body: str, line: int, place: str) -> None:
    found = read(body)
    assert found.found["ci-sglang-pr"].line == line
    assert found.warnings == (f"line {line}: `ci-sglang-pr: x` counts although it stands in {place}",)


@pytest.mark.parametrize(
    "body", ["```\ncode\n```\nci-sglang-pr: x", "<!-- a --> b\nci-sglang-pr: x", "<!--\n-->\nci-sglang-pr: x"]
)
def test_after_a_block_nothing_is_hidden(body: str) -> None:
    assert read(body).warnings == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (" ci-sglang-pr: x", "indented"),
        ("CI-SGLANG-PR: x", "not in lower case"),
        ("ci-sglang-pr:x", "no blank follows the colon"),
        ("> ci-sglang-pr: x", "quoted or marked up"),
        ("- `ci-sglang-pr: x`", "quoted or marked up"),
        ("**ci-sglang-pr: x**", "quoted or marked up"),
        ("ci-sglang-pr : x", "a blank stands before the colon"),
        ("ci-sglang-pr:   ", "no value follows"),
    ],
)
def test_near_misses_are_said_with_their_line(line: str, why: str) -> None:
    found = read(f"intro\n{line}\n")
    assert found.found == {}
    assert found.warnings[0].startswith("line 2: ")
    assert why in found.warnings[0]


def test_prose_about_a_directive_is_no_near_miss() -> None:
    assert read("see ci-sglang-pr: inline\nwe use ci-sglang-pr in the text").warnings == ()


def test_a_second_directive_is_said_and_the_first_wins() -> None:
    found = read("ci-sglang-pr: a\nci-sglang-pr: b")
    assert found.found["ci-sglang-pr"].value == "a"
    assert found.warnings == ("line 2: `ci-sglang-pr: b` is not read, because line 1 came first",)


@given(st.text(alphabet=st.sampled_from("ci-sglang-pr: #72\n\r\t`>x<!--"), max_size=200) | st.text(max_size=200))
def test_the_value_is_what_an_independent_reading_finds(body: str) -> None:
    expected = None
    for line in body.split("\n"):
        if line.startswith(("ci-sglang-pr: ", "ci-sglang-pr:\t")):
            words = [
                word
                for word in line[13:]
                .replace("\t", " ")
                .replace("\v", " ")
                .replace("\f", " ")
                .replace("\r", " ")
                .split(" ")
                if word
            ]
            if words:
                expected = words[0]
                break
    assert values(body).get("ci-sglang-pr") == expected


@given(st.text(max_size=300))
def test_warnings_are_safe_to_print(body: str) -> None:
    for warning in read("ci-sglang-pr: a\nci-sglang-pr: " + body + "\n" + body).warnings:
        assert warning.isprintable()
