"""The environment of the tests, composed from scratch (spec §9)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci.errors import UsageError
from ci.inventory import Dependency
from ci.text import show

# what another job, shell or virtual environment left behind would change what Python or pytest does
_DROPPED = frozenset(
    {
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSAFEPATH",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "PYTHONPLATLIBDIR",
        "PYTHONEXECUTABLE",
        "PYTHONINSPECT",
        "PYTHONOPTIMIZE",
        "PYTHONWARNINGS",
        "__PYVENV_LAUNCHER__",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "UV_PYTHON",
        "UV_SYSTEM_PYTHON",
        "PYTEST_ADDOPTS",
        "PYTEST_PLUGINS",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
        "PYTEST_CURRENT_TEST",
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_WORKER_COUNT",
        "PYTEST_XDIST_TESTRUNUID",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnvironment:
    """``variables`` is complete; ``dropped`` names what was inherited and left out."""

    variables: Mapping[str, str]
    dropped: tuple[str, ...]


def compose(
    inherited: Mapping[str, str],
    *,
    workspace: str,
    sources: Sequence[tuple[Dependency, str]],
    installed: Sequence[tuple[Dependency, str]] = (),
    programs: str,
    commit_name: str,
    extra: Mapping[str, str],
) -> ChildEnvironment:
    """Everything that the tests see.

    ``workspace`` and the roots in ``sources`` are absolute folders and become PYTHONPATH in that order;
    the roots in ``installed``, which the interpreter knows, are handed over by their variables alone.
    ``programs`` is the folder of the session's interpreter, first on PATH.

    Raises:
        UsageError: a folder cannot stand on PYTHONPATH.
    """
    kept = {name: value for name, value in inherited.items() if name not in _DROPPED and not name.startswith("NOX_")}
    trees = [workspace, *(root for _, root in sources)]
    for tree in trees:
        if ":" in tree:
            raise UsageError(
                f"{show(tree)} has a colon, which PYTHONPATH cannot hold", hint="move or link it elsewhere"
            )
    return ChildEnvironment(
        variables={
            **kept,
            "PATH": ":".join(part for part in (programs, kept.get("PATH", "")) if part),
            "PYTHONPATH": ":".join(trees),
            **{dependency.root_variable: root for dependency, root in (*sources, *installed)},
            "GITHUB_COMMIT_NAME": commit_name,
            **extra,
        },
        dropped=tuple(sorted(name for name in inherited if name in _DROPPED)),
    )


def commit_name(commit: str, number: int | None) -> str:
    """``<ref or commit>_<PR number or non-pr>``, under which tests report to outside services."""
    return f"{commit}_{'non-pr' if number is None else number}"
