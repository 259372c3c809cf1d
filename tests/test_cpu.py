"""The CPU runner as a process, on workspaces that do their worst."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.factory import read_results, workspace
from tests.processes import alive, pids_in, wait_for

REPOSITORY = Path(__file__).parent.parent
PASS = "def test_ok():\n    assert 1 + 1 == 2\n"
FAIL = "def test_bad():\n    value = 41\n    assert value == 42\n"
FIXTURE = "import pytest\n@pytest.fixture\ndef broken():\n    raise OSError\ndef test_x(broken): ...\n"
MODULES = {"miles_plugins/__init__.py": ""}


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    results: dict[str, Any]
    folder: Path

    @property
    def verdicts(self) -> dict[str, str]:
        return {entry["file"].removeprefix("tests/fast/"): entry["verdict"] for entry in self.results["files"]}

    def entry(self, file: str) -> dict[str, Any]:
        return next(entry for entry in self.results["files"] if entry["file"] == f"tests/fast/{file}")


def command(root: Path, results: Path, *arguments: str) -> list[str]:
    base = [sys.executable, "-m", "ci.suite", "--workspace", str(root), "--suite", "stage-a-cpu"]
    return [*base, "--results", str(results), *arguments]


def run(tmp_path: Path, files: Mapping[str, str | bytes], *arguments: str, **environ: str) -> Ran:
    tests = {f"tests/fast/{name}": text for name, text in files.items()}
    root = workspace(tmp_path / "w", {**MODULES, **tests})
    results = tmp_path / "results"
    ran = subprocess.run(
        command(root, results, *arguments),
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=90,
        check=False,
    )
    output = ran.stdout.decode(errors="replace")
    assert "Traceback (most recent call last)" not in output.replace(FAIL, "") or "test_" in output
    return Ran(ran.returncode, output, read_results(results), results)


def test_every_verdict(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        {
            "test_a_pass.py": PASS,
            "test_b_fail.py": FAIL,
            "test_c_collect.py": "import no_such_module_anywhere\n",
            "test_d_fixture.py": FIXTURE,
            "test_e_skip.py": "import pytest\n@pytest.mark.skip\ndef test_x(): ...\n",
            "test_f_module_skip.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
            "test_g_empty.py": "x = 1\n",
            "test_h_xfail.py": "import pytest\n@pytest.mark.xfail\ndef test_x():\n    assert 0\n",
            "test_i_syntax.py": "def f(:\n",
        },
        "--bypass-fastfail",
    )
    assert ran.code == 1
    assert ran.verdicts == {
        "test_a_pass.py": "passed",
        "test_b_fail.py": "failed",
        "test_c_collect.py": "error",
        "test_d_fixture.py": "error",
        "test_e_skip.py": "skipped",
        "test_f_module_skip.py": "skipped",
        "test_g_empty.py": "empty",
        "test_h_xfail.py": "passed",
        "test_i_syntax.py": "error",
    }
    assert "assert 41 == 42" in ran.entry("test_b_fail.py")["tail"]
    assert "no_such_module_anywhere" in ran.entry("test_c_collect.py")["tail"]
    assert ran.entry("test_h_xfail.py")["tests"] == {"xfailed": 1}


def test_junit_says_the_same(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": PASS, "test_b.py": FAIL.replace("41", "'\\x07\\x1b[31m'")}, "--bypass-fastfail")
    root = ET.parse(ran.folder / "junit.xml").getroot()  # noqa: S314 - written a moment ago by ourselves
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    case = root.find("testsuite[@name='tests/fast/test_b.py']/testcase")
    assert case is not None
    assert case.get("file") == "tests/fast/test_b.py"
    assert case.find("failure") is not None


def test_fast_fail_stops_at_the_first_failure_and_says_what_did_not_run(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": PASS, "test_b.py": FAIL, "test_c.py": PASS})
    assert ran.code == 1
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "not run"}
    assert ran.entry("test_c.py")["reason"] == "an earlier file failed"
    assert "run one again: python -m ci.suite --suite stage-a-cpu --only tests/fast/test_b.py" in ran.output


@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("os._exit(139)", "exit code 139"),
        ("os.kill(os.getpid(), 11)", "signal SIGSEGV"),
        ("os._exit(0)", "exit code 0"),
    ],
)
def test_the_death_of_the_interpreter_costs_one_file(tmp_path: Path, death: str, how: str) -> None:
    files = {
        "test_a.py": PASS,
        "test_b.py": f"import os\ndef test_first(): ...\ndef test_dies():\n    {death}\n",
        "test_c.py": PASS,
    }
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.code == 1
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "passed"}
    assert ran.entry("test_b.py")["reason"] == (
        f"the interpreter died with {how} while running tests/fast/test_b.py::test_dies"
    )


def test_a_death_while_importing_costs_one_file(tmp_path: Path) -> None:
    ran = run(
        tmp_path, {"test_a.py": PASS, "test_b.py": "import os\nos._exit(7)\n", "test_c.py": PASS}, "--bypass-fastfail"
    )
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "error", "test_c.py": "passed"}
    assert "exit code 7 while importing it" in ran.entry("test_b.py")["reason"]


def test_a_death_with_fast_fail_stops(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_b.py": "import os\ndef test_dies():\n    os._exit(1)\n", "test_c.py": PASS})
    assert ran.code == 1
    assert ran.verdicts == {"test_b.py": "failed", "test_c.py": "not run"}


def test_a_death_under_xdist_costs_one_file_once(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    dies = (
        f"import os\ndef test_dies():\n    open({str(noted)!r}, 'a').write(f'{{os.getpid()}}\\n')\n    os._exit(139)\n"
    )
    files = {"test_a.py": PASS, "test_b.py": dies, "test_c.py": PASS, "test_d.py": PASS}
    ran = run(tmp_path, files, "--bypass-fastfail", "--parallel", "2")
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "passed", "test_d.py": "passed"}
    assert len(pids_in(noted)) == 1


def test_parallel_gives_the_same_verdicts(tmp_path: Path) -> None:
    files = {"test_a.py": PASS, "test_b.py": FAIL, "test_c.py": "x = 1\n", "test_d.py": "import nothing_here\n"}
    ran = run(tmp_path, files, "--bypass-fastfail", "--parallel", "2")
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "empty", "test_d.py": "error"}


def test_a_broken_conftest_costs_its_folder(tmp_path: Path) -> None:
    broken = "raise ValueError('broken conftest')\n"
    files = {"good/test_a.py": PASS, "bad/conftest.py": broken, "bad/deep/test_b.py": PASS, "bad2/conftest.py": broken}
    ran = run(tmp_path, {**files, "bad2/test_c.py": PASS}, "--bypass-fastfail")
    assert ran.code == 1
    assert ran.verdicts == {"good/test_a.py": "passed", "bad/deep/test_b.py": "error", "bad2/test_c.py": "error"}
    assert "broken conftest" in ran.entry("bad/deep/test_b.py")["tail"]


def test_a_broken_configuration_costs_all_and_is_said_once(tmp_path: Path) -> None:
    files = {"a/test_a.py": PASS, "b/test_b.py": PASS, "../../pytest.ini": "[pytest]\naddopts = --no-such-option\n"}
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts == {"a/test_a.py": "error", "b/test_b.py": "error"}
    assert ran.output.count("unrecognized arguments: --no-such-option") == 2


def test_equal_names_in_two_folders_cost_one_file(tmp_path: Path) -> None:
    ran = run(tmp_path, {"a/test_x.py": PASS, "b/test_x.py": PASS, "c/test_y.py": PASS}, "--bypass-fastfail")
    assert ran.verdicts["c/test_y.py"] == "passed"
    assert sorted(ran.verdicts.values()) == ["error", "passed", "passed"]


def test_a_failing_subtest_fails_its_file_and_is_shown(tmp_path: Path) -> None:
    source = """
def test_x(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert number != 1
"""
    ran = run(tmp_path, {"test_a.py": source})
    assert ran.verdicts == {"test_a.py": "failed"}
    assert "assert 1 != 1" in ran.entry("test_a.py")["tail"]


def test_a_name_that_is_not_utf_8_runs_alone_and_is_named_in_parallel(tmp_path: Path) -> None:
    files = {os.fsdecode(b"test_\xff.py"): PASS, "test_a.py": PASS}
    assert sorted(run(tmp_path, files).verdicts.values()) == ["passed", "passed"]
    ran = run(tmp_path, files, "--bypass-fastfail", "--parallel", "2")
    assert ran.verdicts[os.fsdecode(b"test_\xff.py")] == "error"
    assert ran.verdicts["test_a.py"] == "passed"


def test_odd_file_names_run_or_get_their_own_verdict(tmp_path: Path) -> None:
    files = {"test_a b.py": PASS, "test_é.py": PASS, "test_[x].py": PASS, "test_a::b.py": PASS, "test_'q\".py": PASS}
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts["test_a b.py"] == "passed"
    assert ran.verdicts["test_é.py"] == "passed"
    assert ran.verdicts["test_'q\".py"] == "passed"
    assert ran.verdicts["test_[x].py"] == ran.verdicts["test_a::b.py"] == "error"


def test_what_tests_start_is_ended_and_named(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    daemon = f"""
import os, time
def test_starts_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open({str(noted)!r}, "w").write(str(os.getpid()))
            os.execve("/bin/sleep", ["sleep", "61"], {{}})
        os._exit(0)
    os.wait()
    while not os.path.exists({str(noted)!r}):
        time.sleep(0.01)
"""
    ran = run(tmp_path, {"test_a.py": daemon})
    assert ran.code == 0
    (daemon_pid,) = pids_in(noted)
    assert not alive(daemon_pid)
    assert [(found["pid"], found["command"]) for found in ran.results["reaped"]] == [(daemon_pid, "sleep 61")]
    assert "tests left processes behind" in ran.output


def test_a_grandchild_that_keeps_stdout_open_does_not_hang_the_run(tmp_path: Path) -> None:
    holder = "import subprocess\ndef test_x():\n    subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    started = time.monotonic()
    ran = run(tmp_path, {"test_a.py": holder})
    assert ran.code == 0
    assert time.monotonic() - started < 15


def test_output_of_any_kind_is_kept_and_bounded(tmp_path: Path) -> None:
    loud = """
import os, sys
def test_loud(capfd):
    with capfd.disabled():
        os.write(1, b"\\xff\\xfe invalid\\n")
        for _ in range(400):
            os.write(1, b"x" * 131072)
        os.write(1, b"\\n::error::not a command\\n")
"""
    ran = run(tmp_path, {"test_a.py": loud}, GITHUB_ACTIONS="true")
    assert ran.code == 0
    assert len(ran.output) < 50_000
    assert (ran.folder / "pytest.log").stat().st_size > 50_000_000
    assert b"\xff\xfe invalid" in (ran.folder / "pytest.log").read_bytes()[:5000]
    lines = ran.output.splitlines()
    stop = next(number for number, line in enumerate(lines) if line.startswith("::stop-commands::"))
    assert lines.index("::error::not a command") > stop
    assert f"::{lines[stop].removeprefix('::stop-commands::')}::" in lines


def test_a_test_that_deletes_the_results_folder_loses_nothing_that_counts(tmp_path: Path) -> None:
    deletes = f"import shutil\ndef test_x():\n    shutil.rmtree({str(tmp_path / 'results')!r})\n"
    ran = run(tmp_path, {"test_a.py": deletes, "test_b.py": PASS})
    assert ran.code == 0
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "passed"}


def test_an_empty_stage_exits_0_and_is_no_coverage(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": PASS}, "--partition", "3/4")
    assert ran.code == 0
    assert "nothing ran: this is no coverage" in ran.output
    assert ran.results["covers_nothing"] is True


def test_only_skipped_files_are_no_coverage(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": "import pytest\npytest.skip(allow_module_level=True)\n"})
    assert (ran.code, ran.results["covers_nothing"]) == (0, True)


def test_only_runs_what_is_asked_for(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": FAIL, "test_b.py": PASS}, "--only", "tests/fast/test_b.py")
    assert ran.verdicts == {"test_b.py": "passed"}
    assert run(tmp_path, {"test_a.py": PASS}, "--only", "tests/fast/test_bb.py").code == 2


def test_the_child_sees_the_trees_alone(tmp_path: Path) -> None:
    source = f"""
import os, sys
def test_path():
    own = {str(REPOSITORY)!r}
    assert not [entry for entry in sys.path if entry == own or entry == own + "/ci"]
    assert os.environ["PYTHONPATH"] == {str(tmp_path / "w")!r}
    assert "PYTEST_ADDOPTS" not in os.environ
"""
    ran = run(tmp_path, {"test_a.py": source}, PYTEST_ADDOPTS="--collect-only", PYTHONPATH="/other:")
    assert ran.code == 0, ran.output
    (said,) = [line for line in ran.output.splitlines() if line.startswith("not handed to the tests: ")]
    assert {"PYTEST_ADDOPTS", "PYTHONPATH"} <= set(said.partition(": ")[2].split(", "))


def test_an_interpreter_without_pytest_is_infrastructure(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    ran = run(tmp_path, {"test_a.py": PASS}, "--python", str(tmp_path / "bare/bin/python"))
    assert ran.code == 3
    assert "cannot run the tests: No module named 'pytest'" in ran.output


def test_a_step_summary_is_appended(tmp_path: Path) -> None:
    page = tmp_path / "summary.md"
    run(tmp_path, {"test_a.py": FAIL, "test_b.py": PASS}, "--bypass-fastfail", GITHUB_STEP_SUMMARY=str(page))
    assert "### stage-a-cpu: 1 passed, 1 failed" in page.read_text()
    assert "| `tests/fast/test_a.py` | failed |" in page.read_text()


def test_leaving_the_interpreter_or_pytest_costs_one_file(tmp_path: Path) -> None:
    files = {
        "test_a.py": PASS,
        "test_b_import.py": "import sys\nsys.exit(0)\n",
        "test_c_exit.py": "import pytest\ndef test_x():\n    pytest.exit('bye', returncode=0)\n",
        "test_d_interrupt.py": "def test_x():\n    raise KeyboardInterrupt\n",
        "test_e_signal.py": "import os\ndef test_x():\n    os.kill(os.getpid(), 40)\n",
        "test_f.py": PASS,
    }
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts == {
        "test_a.py": "passed",
        "test_b_import.py": "error",
        "test_c_exit.py": "failed",
        "test_d_interrupt.py": "failed",
        "test_e_signal.py": "failed",
        "test_f.py": "passed",
    }
    assert "calls sys.exit() while it is imported" in ran.entry("test_b_import.py")["tail"]
    assert ran.entry("test_c_exit.py")["reason"] == (
        "it ended the whole pytest (exit code 0) while running tests/fast/test_c_exit.py::test_x"
    )
    assert "the interpreter died with signal 40" in ran.entry("test_e_signal.py")["reason"]


@pytest.mark.parametrize("leaves", ["import sys\nsys.exit(0)\n", "import os\nos._exit(7)\n"])
@pytest.mark.parametrize("bypass", [("--bypass-fastfail",), ()])
def test_a_collection_that_is_cut_short_in_a_worker_is_never_taken_for_empty_files(
    tmp_path: Path, leaves: str, bypass: tuple[str, ...]
) -> None:
    ran = run(tmp_path, {"test_a.py": PASS, "test_b.py": leaves, "test_c.py": PASS}, "--parallel", "2", *bypass)
    assert ran.code == 1
    assert ran.verdicts["test_b.py"] == "error"
    if bypass:
        assert (ran.verdicts["test_a.py"], ran.verdicts["test_c.py"]) == ("passed", "passed")


def test_inherited_tests_count_for_the_file_that_runs_them(tmp_path: Path) -> None:
    files = {
        "conftest.py": "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n",
        "base.py": "class Base:\n    value = 1\n    def test_value(self):\n        assert self.value == 1\n",
        "test_a.py": "from base import Base\nclass TestA(Base): ...\n",
        "test_b.py": "from base import Base\nclass TestB(Base):\n    value = 2\ndef test_own(): ...\n",
    }
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "failed"}
    assert ran.entry("test_b.py")["tests"] == {"failed": 1, "passed": 1}


def test_bypass_goes_on_where_the_workspace_asks_to_stop(tmp_path: Path) -> None:
    files = {"test_a.py": FAIL, "test_b.py": PASS, "../../pytest.ini": "[pytest]\naddopts = -x\n"}
    assert run(tmp_path, files, "--bypass-fastfail").verdicts == {"test_a.py": "failed", "test_b.py": "passed"}


def test_a_fork_that_goes_on_as_a_second_pytest_has_no_say(tmp_path: Path) -> None:
    forks = """
import os
def test_forks():
    if (pid := os.fork()) == 0:
        raise ValueError
    os.waitpid(pid, 0)
"""
    ran = run(tmp_path, {"test_a.py": forks, "test_b.py": PASS}, "--bypass-fastfail")
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "passed"}


AGAIN = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if item.name == "test_odd" and call.when == "call":
        report.outcome = "odd"
def pytest_runtest_protocol(item, nextitem):
    # as pytest-rerunfailures does: the phases up to the failure, then all of them again
    if item.name != "test_flaky":
        return None
    from _pytest.runner import runtestprotocol
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(2):
        item._initrequest()
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
            if report.outcome == "rerun":
                break
    return True
"""


def test_a_test_that_a_plugin_runs_again_has_its_last_outcome_and_an_unknown_word_is_no_pass(tmp_path: Path) -> None:
    flaky = "tries = []\ndef test_flaky():\n    tries.append(1)\n    assert len(tries) == 2\n"
    files = {"conftest.py": AGAIN, "test_a.py": flaky, "test_b.py": "def test_odd(): ...\n"}
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts == {"test_a.py": "passed", "test_b.py": "error"}
    assert ran.entry("test_a.py")["tests"] == {"passed": 1}


@pytest.mark.parametrize(
    ("ends", "how"),
    [
        ("import atexit, os\ndef pytest_sessionfinish():\n    atexit.register(os.kill, os.getpid(), 11)\n", "SIGSEGV"),
        ("def pytest_sessionfinish(session):\n    session.exitstatus = 1\n", "exit code 1"),
        ("def pytest_sessionfinish():\n    raise ValueError('at the end')\n", "ValueError: at the end"),
    ],
    ids=["crash at exit", "exit status of a plugin", "hook raises"],
)
def test_a_pytest_that_fails_after_its_tests_is_not_green(tmp_path: Path, ends: str, how: str) -> None:
    ran = run(tmp_path, {"conftest.py": ends, "test_a.py": PASS})
    assert (ran.code, ran.verdicts) == (1, {"test_a.py": "passed"})
    assert how in ran.results["fault"]
    assert "error: no test failed, but pytest ended with" in ran.output
    root = ET.parse(ran.folder / "junit.xml").getroot()  # noqa: S314 - written a moment ago by ourselves
    assert root.get("errors") == "1"


def test_a_conftest_that_leaves_the_interpreter_costs_its_folder(tmp_path: Path) -> None:
    files = {"good/test_a.py": PASS, "bad/conftest.py": "import os\nos._exit(9)\n", "bad/test_b.py": PASS}
    ran = run(tmp_path, files, "--bypass-fastfail")
    assert ran.verdicts == {"bad/test_b.py": "error", "good/test_a.py": "passed"}
    assert ran.entry("bad/test_b.py")["reason"] == "pytest died with exit code 9 before it ran a test"


def test_every_file_that_did_not_run_says_why(tmp_path: Path) -> None:
    files = {"bad/conftest.py": "raise ValueError\n", "bad/test_a.py": PASS, "good/test_b.py": PASS}
    ran = run(tmp_path, files)
    assert ran.verdicts == {"bad/test_a.py": "error", "good/test_b.py": "not run"}
    assert ran.entry("good/test_b.py")["reason"] == "an earlier file failed"


def test_parallel_runs_where_warnings_are_errors(tmp_path: Path) -> None:
    files = {"test_a.py": PASS, "test_b.py": PASS, "../../pytest.ini": "[pytest]\nfilterwarnings = error\n"}
    ran = run(tmp_path, files, "--parallel", "2")
    assert (ran.code, set(ran.verdicts.values())) == (0, {"passed"})
    assert "PytestAssertRewriteWarning" not in ran.output


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    log: Path
    tmp_path: Path

    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.tmp_path / "results/results.json").read_text())
        return found


def start(tmp_path: Path, files: Mapping[str, str], *arguments: str) -> Started:
    root = workspace(tmp_path / "w", {**MODULES, **{f"tests/fast/{name}": text for name, text in files.items()}})
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(root, tmp_path / "results", *arguments), cwd=REPOSITORY, stdout=stream, stderr=subprocess.STDOUT
        )
    return Started(process, log, tmp_path)


def slow(noted: Path, torn_down: Path, teardown: float) -> str:
    return f"""
import os, pytest, time
@pytest.fixture
def server():
    open({str(noted)!r}, "w").write(str(os.getpid()))
    yield
    time.sleep({teardown})
    open({str(torn_down)!r}, "w").write("1")
def test_waits(server):
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_tests_tear_down_and_keeps_what_is_known(tmp_path: Path, number: signal.Signals) -> None:
    noted, torn_down = tmp_path / "pid", tmp_path / "torn"
    ran = start(tmp_path, {"test_a.py": PASS, "test_b.py": slow(noted, torn_down, 2), "test_c.py": PASS})
    wait_for(lambda: pids_in(noted))
    ran.process.send_signal(number)
    assert ran.process.wait(30) == 130
    assert torn_down.exists()
    assert not alive(pids_in(noted)[0])
    assert [entry["verdict"] for entry in ran.results()["files"]] == ["passed", "not run", "not run"]
    assert ran.results()["interrupted"] is True
    assert "stopping: tests have 30 s to tear down" in ran.log.read_text()


def test_a_second_signal_stops_now(tmp_path: Path) -> None:
    noted, torn_down = tmp_path / "pid", tmp_path / "torn"
    ran = start(tmp_path, {"test_b.py": slow(noted, torn_down, 50)})
    wait_for(lambda: pids_in(noted))
    ran.process.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping:" in ran.log.read_text())
    ran.process.send_signal(signal.SIGINT)
    assert ran.process.wait(15) == 130
    assert not torn_down.exists()
    assert not alive(pids_in(noted)[0])


def test_the_end_of_the_grace_stops_too(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    ran = start(tmp_path, {"test_b.py": slow(noted, tmp_path / "torn", 50)}, "--grace", "0.5")
    wait_for(lambda: pids_in(noted))
    ran.process.send_signal(signal.SIGTERM)
    assert ran.process.wait(15) == 130
    assert not alive(pids_in(noted)[0])


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.35, 0.5])
def test_a_signal_at_any_moment_is_no_traceback_and_leaves_nobody(tmp_path: Path, delay: float) -> None:
    noted = tmp_path / "pids"
    source = (
        f"import os, time\nopen({str(noted)!r}, 'a').write(f'{{os.getpid()}}\\n')\ndef test_x():\n    time.sleep(0.2)\n"
    )
    ran = start(tmp_path, {"test_a.py": source})
    time.sleep(delay)
    ran.process.send_signal(signal.SIGINT)
    assert ran.process.wait(20) in {0, 130, -signal.SIGINT}
    # while the interpreter itself starts, Python says what it says; from our first line on there is no traceback
    ours = re.findall(r'File ".*/ci/([a-z_/]+)\.py"', ran.log.read_text())
    assert set(ours) <= {"suite/__main__", "main", "console", "errors", "text"}
    assert not [pid for pid in pids_in(noted) if alive(pid)]


def test_a_killed_runner_takes_pytest_along(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    ran = start(tmp_path, {"test_b.py": slow(noted, tmp_path / "torn", 0)})
    wait_for(lambda: pids_in(noted))
    ran.process.kill()
    ran.process.wait()
    wait_for(lambda: not alive(pids_in(noted)[0]))


def test_trees_can_be_given_by_hand(tmp_path: Path) -> None:
    sglang = workspace(tmp_path / "s", {"sglang/__init__.py": ""})
    megatron = workspace(tmp_path / "m", {"megatron/core/__init__.py": "", "megatron/training/__init__.py": ""})
    source = f"""
import os, sglang, megatron.core
def test_trees():
    assert sglang.__file__.startswith({str(sglang)!r})
    assert os.environ["MEGATRON_SOURCE_ROOT"] == {str(megatron)!r}
"""
    ran = run(tmp_path, {"test_a.py": source}, "--tree", f"sglang={sglang}", MEGATRON_SOURCE_ROOT=str(megatron))
    assert ran.code == 0, ran.output
    for wrong, said in ((f"sglnag={sglang}", "did you mean `sglang`"), ("sglang=/nowhere", "is not a folder")):
        refused = run(tmp_path, {"test_a.py": source}, "--tree", wrong)
        assert refused.code == 2
        assert said in refused.output


def test_a_wrong_tree_is_refused_before_any_test_runs(tmp_path: Path) -> None:
    ran = run(tmp_path, {"test_a.py": PASS}, "--tree", f"megatron={tmp_path}")
    assert ran.code == 2
    assert "megatron.core should come from Megatron-LM" in ran.output
    assert ran.results == {}
