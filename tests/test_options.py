import pytest

from ci.errors import UsageError
from ci.inventory import Inventory
from ci.options import ENVIRONMENT, POLICY, RUN, WORKSPACE, Parser, early_value, ref_options


@pytest.fixture
def parser(inventory: Inventory) -> Parser:
    return Parser("ci.session", "", *WORKSPACE, *POLICY, *ref_options(inventory), *RUN, *ENVIRONMENT)


@pytest.mark.parametrize(
    ("wrong", "near"), [("--worskpace", "--workspace"), ("--list_only", "--list-only"), ("--sgalng=x", "--sglang")]
)
def test_a_wrong_argument_says_which_and_what_is_close(parser: Parser, wrong: str, near: str) -> None:
    with pytest.raises(UsageError) as error:
        parser.read([wrong])
    assert wrong in str(error.value)
    assert f"did you mean `{near}`?" in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--parallel", "two"],
        ["--parallel", "-1"],
        ["--workspace"],
        ["--leave-out", "--x"],
        ["--leave-out", "a b"],
        ["--grace", "1e9"],
    ],
)
def test_a_value_that_cannot_be_read_is_refused(parser: Parser, arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parser.read(arguments)


def test_an_abbreviation_is_not_taken_for_an_argument(parser: Parser) -> None:
    with pytest.raises(UsageError, match="`--list`"):
        parser.read(["--list"])


def test_labels_add_up_and_an_empty_ref_is_as_if_not_given(parser: Parser) -> None:
    read = parser.read(["--labels", "a", "b", "--sglang", "", "--labels", "c"])
    assert read.labels == ["a", "b", "c"]
    assert read.sglang == ""
    assert read.megatron == ""


def test_the_workspace_is_found_before_the_real_parse() -> None:
    assert early_value(["--x", "--workspace", "a"], "--workspace") == "a"
    assert early_value(["--workspace=b"], "--workspace") == "b"
    assert early_value(["--workspace"], "--workspace") is None
