"""Running this repository's own tools from a Nox session, in the environment of requirements/dev.txt."""

import os
from typing import TYPE_CHECKING

from ci.environment import EnvironmentSpec, ensure, program
from ci.errors import CiError, ExitCode
from ci.interpreter import find_interpreter
from ci.nox_session import run_child
from ci.paths import REPOSITORY, cache_dir
from ci.requirement_files import read_requirements

if TYPE_CHECKING:
    import nox


def run_tool(session: "nox.Session", name: str, *arguments: str) -> None:
    """Run a program of the development environment; the session fails with it."""
    try:
        spec = EnvironmentSpec(
            name="dev",
            interpreter=find_interpreter(None),
            files=read_requirements([REPOSITORY / "requirements" / "dev.txt"]),
        )
        programs = ensure(spec, cache=cache_dir(), offline=False)
    except CiError as error:
        session.error(str(error))
    session.log(" ".join((name, *arguments)))
    os.environ["PATH"] = os.pathsep.join((str(programs), os.environ.get("PATH", "")))
    if (code := run_child([program(programs, name), *arguments])) != ExitCode.OK:
        session.error(f"{name} ended with exit code {code}")
