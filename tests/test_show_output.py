import io
import time
import tracemalloc

import pytest

from ci.show_output import Output


def shown(*chunks: bytes, **environ: str) -> str:
    stream = io.BytesIO()
    output = Output(stream, environ=environ)
    output.begin("stage-a-cpu (1)")
    for chunk in chunks:
        output.feed(chunk)
    output.end()
    return stream.getvalue().decode()


def test_lines_are_passed_on_whatever_the_pieces() -> None:
    assert shown(b"a", b"b\nc", b"\n\nd") == "ab\nc\n\nd\n"


def test_invalid_bytes_and_terminal_escapes_are_harmless() -> None:
    assert shown(b"\xff\xfe ok \x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07end\x00\n") == "\ufffd\ufffd ok red end\n"


def test_controls_that_are_one_character_are_taken_out_too() -> None:
    assert shown("\x9b2Jé\x85\n".encode()) == "2Jé\n"


def test_of_a_progress_bar_the_last_state_is_shown() -> None:
    assert shown(b" 10%\r 20%", b"\r100%\n") == "100%\n"
    assert shown(b"10%\r", b"20%\r", b"30%", b"\r", b"\n") == "30%\n"
    assert shown(b"windows line\r\n") == "windows line\n"


def test_a_long_line_is_cut_and_costs_no_memory() -> None:
    stream = io.BytesIO()
    output = Output(stream, environ={})
    chunk = b"x" * 65536
    tracemalloc.start()
    for _ in range(800):
        output.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    output.feed(b"\n")
    assert peak < 2_000_000
    assert stream.getvalue().decode().endswith(f"… ({800 * 65536 - 4000} bytes more in the log)\n")


@pytest.mark.parametrize(
    "hostile", ["::endgroup::", "::stop-commands::x", "::add-mask::y", "::error::z", "##[endgroup]"]
)
def test_workflow_commands_of_a_test_are_inert(hostile: str) -> None:
    lines = shown(f"{hostile}\n".encode(), GITHUB_ACTIONS="true").splitlines()
    assert lines[0] == "::group::stage-a-cpu (1)"
    token = lines[1].removeprefix("::stop-commands::")
    assert len(token) == 32
    assert lines[3:] == [f"::{token}::", "::endgroup::"]
    assert "##[" not in lines[2]


def test_each_run_has_a_token_of_its_own() -> None:
    first, second = (shown(b"", GITHUB_ACTIONS="true") for _ in range(2))
    assert first != second


def test_elsewhere_there_is_no_live_line() -> None:
    stream = io.BytesIO()
    output = Output(stream, environ={"TERM": "xterm"})
    output.live("[1/2] x")
    output.line("done")
    assert stream.getvalue() == b"done\n"


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_live_line_is_taken_away_before_other_output() -> None:
    stream = Terminal()
    output = Output(stream, environ={"TERM": "xterm"})
    output.live("[1/2] x")
    output.feed(b"\x1b[31mred\x1b[0m\n")
    time.sleep(0.11)
    output.live("[2/2] y")
    output.clear()
    assert stream.getvalue().startswith(b"\r\x1b[K[1/2] x\r\x1b[K\x1b[31mred\x1b[0m\n")
    assert stream.getvalue().endswith(b"\r\x1b[K")


def test_no_color_is_respected() -> None:
    stream = Terminal()
    Output(stream, environ={"TERM": "xterm", "NO_COLOR": "1"}).feed(b"\x1b[31mred\x1b[0m\n")
    assert b"\x1b[31m" not in stream.getvalue()


class Closed(io.BytesIO):
    def write(self, _data: object) -> int:
        raise BrokenPipeError


def test_a_closed_output_does_not_end_the_run() -> None:
    output = Output(Closed(), environ={})
    output.feed(b"a\nb\n")
    output.line("c")
    output.clear()
