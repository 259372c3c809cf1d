"""Sessions: one per stage of the inventory, and the checks of this repository itself.

`nox -l` lists them, `nox -s "stage-a-cpu(2)"` runs what the check `stage-a-cpu (2)` runs,
`nox -s stage-a-cpu -- --help` lists a stage's arguments.
"""

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))

from ci.inventory import Stage
from ci.nox_session import ExitCodes, run_stage
from ci.nox_tools import run_tool
from ci.workspace import session_inventory

nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = True

codes = ExitCodes()


def add_stage(stage: Stage) -> None:
    """Register the session of a stage, by partition where it has several."""

    def run(session: nox.Session, partition: int | None = None) -> None:
        run_stage(session, stage, partition, codes)

    run.__doc__ = stage.summary
    if stage.partitions > 1:
        ids = [nox.param(number, id=str(number)) for number in range(stage.partitions)]
        run = nox.parametrize("partition", ids)(run)
    nox.session(name=stage.name, venv_backend="none", tags=[stage.backend])(run)


for declared in session_inventory(sys.argv).stages.values():
    add_stage(declared)


@nox.session(venv_backend="none", tags=["self"])
def tests(session: nox.Session) -> None:
    """This repository's tests; arguments after -- go to pytest."""
    run_tool(session, "pytest", *(session.posargs or ["-n", "2", "-m", "not long"]))


@nox.session(name="tests-long", venv_backend="none", tags=["self"])
def tests_long(session: nox.Session) -> None:
    """The proofs that take minutes."""
    run_tool(session, "pytest", "-m", "long", *session.posargs)


@nox.session(venv_backend="none", tags=["self"])
def lint(session: nox.Session) -> None:
    """Format, ruff, mypy, and the inventory and sample against each other."""
    run_tool(session, "ruff", "format", "--check", ".")
    run_tool(session, "ruff", "check", ".")
    run_tool(session, "mypy")
    run_tool(session, "invoke", "check", "--workspace", "sample/miles")


@nox.session(venv_backend="none", tags=["self"])
def bench(session: nox.Session) -> None:
    """Benchmarks: ratios against a baseline of the same run."""
    run_tool(session, "python", "-m", "bench", *session.posargs)


@nox.session(venv_backend="none", tags=["self"])
def requirements(session: nox.Session) -> None:
    """Pin requirements/*.txt anew from requirements/*.in (needs uv)."""
    for name in ("tools", "dev", "cpu"):
        session.run(
            *("uv", "pip", "compile", "--no-config", "--universal", "--python-version", "3.11", "--generate-hashes"),
            *("--custom-compile-command", "nox -s requirements", "-q", "--upgrade"),
            *(f"requirements/{name}.in", "-o", f"requirements/{name}.txt"),
            external=True,
        )
