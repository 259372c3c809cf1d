"""Do the packages come from the trees that the run chose? Told without importing them (spec §9)."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.errors import InfrastructureError, Problems
from ci.text import show

_PROBE = Path(__file__).with_name("verify_probe.py")
_TIMEOUT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A module and the folder that it must come from; ``owner`` is that tree's name for people."""

    module: str
    root: str
    owner: str


def verify(python: str, expected: Sequence[Expected], *, env: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Module → where it resolves to, in the interpreter that will run the tests.

    Raises:
        Problems: a module is missing or shadowed: by what, and how to mend it; all of them together.
        InfrastructureError: the interpreter does not answer.
    """
    answer = _ask(python, [wanted.module for wanted in expected], env=env, cwd=cwd)
    faults = [fault for wanted in expected if (fault := _fault(wanted, answer))]
    if faults:
        raise Problems("packages do not come from the trees of this run:", tuple(faults), hint="nothing was run")
    return {wanted.module: _place(answer["modules"][wanted.module]) for wanted in expected}


def _ask(python: str, modules: Sequence[str], *, env: Mapping[str, str], cwd: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ci-verify-") as folder:
        answer = Path(folder) / "answer.json"
        ran = None
        try:
            ran = subprocess.run(
                [python, str(_PROBE), str(answer), *modules],
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
            read: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(
                f"{show(python)} does not start within {_TIMEOUT} s", hint="give another interpreter with --python"
            ) from error
        except (OSError, ValueError) as error:
            said = ran.stderr.decode(errors="replace").strip().splitlines()[-1:] if ran else [str(error)]
            raise InfrastructureError(
                f"{show(python)} cannot look for modules: {show(said[0] if said else 'no answer', 200)}",
                hint="give another interpreter with --python",
            ) from error
        return read


def _fault(wanted: Expected, answer: Mapping[str, Any]) -> str | None:
    """Why a module does not come from its tree, and what to do about it."""
    found = answer["modules"][wanted.module]
    where = f"{wanted.module} should come from {wanted.owner}, {show(wanted.root)}"
    if found["kind"] != "missing":
        if _is_under(_place(found), wanted.root):
            return None
        return f"{where}, but {_shadow(found, answer)}"
    parent = found["parent"]
    in_tree = any(_is_under(path, wanted.root) for path in found["candidates"])
    if parent and in_tree:
        return f"{where}, but {parent['name']} hides it: it {_shadow(parent, answer)}"
    others = [path for path in found["candidates"] if not in_tree]
    hidden = f" (hidden ones: {', '.join(map(show, others))})" if others else ""
    return f"{where}, but there is no `{found['missing']}` anywhere{hidden}; the ref may lack it, try another"


def _shadow(found: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Where a module that is not the tree's comes from, what put it there, and how to mend that."""
    place = _place(found)
    if not found["finder"].endswith("PathFinder"):
        return _hooked(found["finder"], place, answer)
    resolves = f"resolves to {show(place)}"
    for file, line in answer["pth"]:
        if not line.startswith(("import ", "import\t")) and _is_under(place, os.path.join(os.path.dirname(file), line)):
            return f"{resolves}; {show(file)} puts it on the path: uninstall that editable package, or delete the line"
    if "site-packages" in place or "dist-packages" in place:
        return f"{resolves}; a package of that name is installed: uninstall it from this interpreter"
    entry = next((entry for entry in answer["path"] if _is_under(place, entry)), "")
    bare = " (a folder without __init__.py)" if found["kind"] == "namespace" else ""
    return f"{resolves}{bare}; the path entry {show(entry)} comes first: rename or remove what it has of that name"


def _hooked(finder: str, place: str, answer: Mapping[str, Any]) -> str:
    """An import hook answered before the path was looked at."""
    module = finder.partition(".")[0]
    installed_by = next((file for file, line in answer["pth"] if line.startswith("import") and module in line), None)
    by = f", which {show(installed_by)} installs," if installed_by else ""
    return (
        f"the import hook of an editable install ({show(finder)}){by} answers {show(place)}; "
        "uninstall that package from this interpreter (`pip list --editable` names it)"
    )


def _place(found: Mapping[str, Any]) -> str:
    """The file or folder that a module resolves to."""
    return found["origin"] or next(iter(found["locations"]), "") or "(built in)"


def _is_under(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
