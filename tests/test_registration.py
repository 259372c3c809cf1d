import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.inventory import Inventory
from ci.registration import FileScan, Mentions, check_labels, check_suite, read_registrations

IMPORT = "from tests.ci.ci_register import register_cpu_ci, register_cuda_ci\n"
REGISTERS = {"register_cpu_ci": "cpu", "register_cuda_ci": "cuda", "register_rocm_ci": "rocm"}
MENTIONS = Mentions(REGISTERS)


def scan(source: str | bytes) -> FileScan:
    data = source if isinstance(source, bytes) else source.encode()
    return read_registrations(data, "tests/ci/test_x.py", REGISTERS, MENTIONS)


def problems(source: str | bytes) -> list[str]:
    return [str(problem) for problem in scan(source).problems]


@pytest.mark.parametrize(
    "value", ["0", "-5", "True", "float('nan')", "1e309", "10**3", '"60"', "0.0", "None", "1j", "9" * 400, "N", "[1]"]
)
def test_est_time_is_a_finite_positive_literal(value: str) -> None:
    assert problems(f'{IMPORT}\nregister_cpu_ci(est_time={value}, suite="x")\n') == [
        "tests/ci/test_x.py:3: register_cpu_ci: est_time must be a finite number of seconds above 0, written out"
    ]


@pytest.mark.parametrize(
    "argument", ["disabled=REASON", "nightly=FLAG", "labels=LABELS", "labels=('short',)", "labels=[NAME]", "nightly=0"]
)
def test_arguments_are_literals(argument: str) -> None:
    found = scan(f'{IMPORT}register_cpu_ci(est_time=1, suite="x", {argument})\n')
    assert found.registrations == ()
    assert argument.partition("=")[0] in str(found.problems[0])
    assert "written out" in str(found.problems[0])


def test_every_fault_of_a_call_is_said_at_once() -> None:
    found = problems(f'{IMPORT}register_cpu_ci(0, suite=S, color="red", **more)\n')
    assert len(found) == 4
    assert any("did you mean" in problem or "known:" in problem for problem in found)


def test_misspelt_argument_suggests_the_nearest() -> None:
    assert "did you mean `est_time`?" in problems(f'{IMPORT}register_cpu_ci(est_tim=1, suite="x")\n')[0]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("from a import register_cuda_ci as r\nr(est_time=1, suite='x', labels=['short'])\n", "imported as `r`"),
        ("import a as m\nm.register_cuda_ci(est_time=1, suite='x')\n", "reached through another name"),
        ("_ = register_cuda_ci(est_time=1, suite='x')\n", "not as a statement of its own"),
        ("if True:\n    register_cuda_ci(est_time=1, suite='x')\n", "not as a statement of its own"),
        ("try:\n    register_cuda_ci(est_time=1, suite='x')\nfinally:\n    pass\n", "not as a statement of its own"),
        ("def f():\n    register_cuda_ci(est_time=1, suite='x')\n", "not as a statement of its own"),
        ("(x := register_cuda_ci(est_time=1, suite='x'))\n", "not as a statement of its own"),
        ("[register_cuda_ci]\n", "named without a call"),
        ("r = register_cuda_ci\nr(est_time=1, suite='x')\n", "named without a call"),
    ],
)
def test_mentions_that_do_not_count_are_said_with_their_reason(source: str, why: str) -> None:
    found = scan(source)
    assert found.registrations == ()
    assert found.mentioned
    assert why in str(found.strays[0])


@pytest.mark.parametrize(
    "source", ["# register_cuda_ci(est_time=1)\n", "'register_cuda_ci'\n", '"""\nregister_cuda_ci(\n"""\n']
)
def test_comments_and_strings_are_nothing(source: str) -> None:
    assert scan(source) == FileScan()


def test_a_call_inside_a_string_at_column_zero_is_nothing() -> None:
    source = f'{IMPORT}register_cpu_ci(1, "x")\nTEXT = """\nregister_cuda_ci(est_time=0)\n"""\nprint(TEXT)\n'
    assert [found.backend for found in scan(source).registrations] == ["cpu"]


def test_a_fault_after_the_last_registration_is_still_a_problem() -> None:
    source = f'{IMPORT}register_cpu_ci(1, "x")\n\ndef test_a():\n    assert 1 ==\n'
    assert problems(source)[0].startswith("tests/ci/test_x.py:5: Python cannot read it: ")


def test_several_statements_on_a_line_and_parentheses_count() -> None:
    source = 'x = 1; register_cpu_ci(1, "a")\n(register_cpu_ci(2, "b"))\nregister_cpu_ci(\n    3,\n    "c",\n)\ny = 2\n'
    assert [(found.suite, found.line) for found in scan(source).registrations] == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("source", "readable"),
    [
        (b'\xef\xbb\xbfregister_cpu_ci(1, "x")\n', True),
        (b'# -*- coding: latin-1 -*-\nNAME = "\xe9"\nregister_cpu_ci(1, "x")\n', True),
        (b'NAME = "\xe9"\nregister_cpu_ci(1, "x")\n', False),
        (b'register_cpu_ci(1, "x")\n\x00', False),
        (b'register_cpu_ci(1, "x")\nx = ' + b"(" * 500 + b")" * 500 + b"\n", False),
        (b'# coding: no-such-codec\nregister_cpu_ci(1, "x")\n', False),
        (b'register_cpu_ci(1, "x")\r\ny = 1\r\n', True),
        (b'register_cpu_ci(1, "x")', True),
    ],
)
def test_files_are_read_as_python_reads_them(source: bytes, readable: bool) -> None:  # noqa: FBT001
    found = scan(source)
    assert (len(found.registrations), len(found.problems)) == ((1, 0) if readable else (0, 1))


def test_labels_and_suites_are_checked_against_the_inventory(inventory: Inventory) -> None:
    source = f'{IMPORT}register_cuda_ci(est_time=1, suite="stage-c-4-gpu-h20", labels=["megatorn"])\n'
    (found,) = scan(source).registrations
    assert "did you mean `megatron`?" in str(check_labels(found, inventory)[0])
    assert "did you mean `stage-c-4-gpu-h200`?" in str(check_suite(found, inventory))


def test_a_suite_of_another_backend_is_told_apart(inventory: Inventory) -> None:
    (found,) = scan(f'{IMPORT}register_cpu_ci(1, "stage-c-4-gpu-h200")\n').registrations
    assert "is a cuda suite, not one of cpu" in str(check_suite(found, inventory))


literals = st.one_of(
    st.integers(-3, 10**6),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=6),
    st.lists(st.text(max_size=4), max_size=3),
)


@given(st.dictionaries(st.sampled_from(["est_time", "suite", "labels", "nightly", "disabled", "other"]), literals))
def test_whatever_is_accepted_is_what_was_written(arguments: dict[str, object]) -> None:
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    found = scan(f"{IMPORT}register_cpu_ci({written})\n")
    assert bool(found.registrations) != bool(found.problems)
    for registration in found.registrations:
        assert registration.est_time == arguments["est_time"]
        assert math.isfinite(registration.est_time)
        assert registration.est_time > 0
        assert registration.suite == arguments["suite"]
        assert list(registration.labels) == (arguments.get("labels") or [])
        assert registration.nightly is arguments.get("nightly", False)
        assert registration.disabled == arguments.get("disabled")


lines = st.sampled_from(
    [
        'register_cpu_ci(1, "x")\n',
        'register_cpu_ci(\n    est_time=2,\n    suite="y",\n)\n',
        "x = 1\n",
        "# register_cuda_ci\n",
        'TEXT = """\n',
        '"""\n',
        "if x:\n    register_cuda_ci\n",
        "else:\n    pass\n",
        "def test_a():\n    return (\n",
        ")\n",
        "    y = 2\n",
        "x = [\n",
        "]\n",
        "z = 3 \\\n",
        "\n",
        "import m; register_cpu_ci(3, 'z')\n",
    ]
)


@given(st.lists(lines, max_size=9).map("".join))
def test_reading_the_head_alone_never_differs_from_reading_the_whole(source: str) -> None:
    """The saving in ``_tree`` must not be visible: compared with a plain walk over the whole AST."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        assert scan(source).problems
        return
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    names = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in REGISTERS]
    found = scan(source)
    assert not found.problems
    assert [registration.line for registration in found.registrations] == [call.lineno for call in names]


@given(st.binary(max_size=80))
def test_any_bytes_give_an_answer(source: bytes) -> None:
    found = scan(b"register_cpu_ci" + source)
    assert found.mentioned or not found.registrations
