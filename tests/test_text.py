import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import ExitCode, combine
from ci.text import did_you_mean, show


@given(st.text(max_size=400))
def test_what_is_shown_is_one_bounded_line_and_no_workflow_command(text: str) -> None:
    shown = show(text, 100)
    assert len(shown) <= 100
    assert shown.isprintable() or not shown
    assert not shown.lstrip().startswith("::")
    assert "##[" not in shown


@pytest.mark.parametrize("text", ["::error::x", "  ::stop-commands::y", "\n::add-mask::z", "##[error]x", "a##[group]b"])
def test_workflow_commands_are_inert(text: str) -> None:
    shown = show(text)
    assert not shown.lstrip().startswith("::")
    assert "##[" not in shown


def test_surrogates_of_file_names_are_shown() -> None:
    assert show("test_\udcff.py") == "test_\\udcff.py"


def test_nothing_close_lists_what_is_known() -> None:
    assert did_you_mean("zzz", ["alpha", "beta"]) == "known: alpha, beta"


@pytest.mark.parametrize(
    ("codes", "together"),
    [
        ([], ExitCode.OK),
        ([ExitCode.OK, ExitCode.OK], ExitCode.OK),
        ([ExitCode.INFRASTRUCTURE, ExitCode.FAILED], ExitCode.FAILED),
        ([ExitCode.OK, ExitCode.INFRASTRUCTURE], ExitCode.INFRASTRUCTURE),
        ([ExitCode.FAILED, ExitCode.USAGE], ExitCode.USAGE),
        ([ExitCode.USAGE, ExitCode.INTERRUPTED], ExitCode.INTERRUPTED),
    ],
)
def test_exit_codes_combine_by_what_a_rerun_could_mend(codes: list[ExitCode], together: ExitCode) -> None:
    assert combine(codes) is together
