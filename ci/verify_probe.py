"""Says where modules would come from, without importing them: run as a script by the session's interpreter.

    python verify_probe.py ANSWER MODULE...     ANSWER: a file that gets the answer as JSON

Each part of a dotted name is looked up through ``sys.meta_path`` in order, as an import would do it, so that
editable installs that hook into imports are seen as well as path entries. It knows nothing of this repository
and takes its own folder off the path first. The answer goes to a file, because a ``.pth`` file may print.
"""

import json
import os
import sys
from typing import Any


def resolve(name: str) -> dict[str, Any]:
    """What ``name`` resolves to: kind, origin, the search folders, the finder, and all candidates by path entry."""
    path = None
    spec: Any = None
    finder = ""
    parts = name.split(".")
    for number in range(len(parts)):
        spec, finder = _find(".".join(parts[: number + 1]), path)
        if spec is None:
            return {"kind": "missing", "missing": ".".join(parts[: number + 1]), **_candidates(parts)}
        path = list(spec.submodule_search_locations or [])
    kind = "package" if spec.submodule_search_locations is not None else "module"
    if spec.origin is None and spec.submodule_search_locations is not None:
        kind = "namespace"
    origin = spec.origin if spec.origin not in {None, "namespace"} else None
    return {"kind": kind, "origin": origin, "locations": path, "finder": finder, **_candidates(parts)}


def _find(name: str, path: Any) -> tuple[Any, str]:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec = find(name, path) if find is not None else None
        except Exception:  # noqa: BLE001 - a broken import hook of some package is not the answer
            spec = None
        if spec is not None:
            kind = finder if isinstance(finder, type) else type(finder)
            return spec, f"{kind.__module__}.{kind.__qualname__}"
    return None, ""


def _candidates(parts: list[str]) -> dict[str, Any]:
    """Every path entry that has something of this name, in order, and whether it is a package with __init__.py."""
    found = []
    for entry in sys.path:
        base = os.path.join(os.path.abspath(entry or os.getcwd()), *parts)
        if os.path.isdir(base) or os.path.isfile(base + ".py"):
            found.append({"entry": entry, "path": base, "regular": os.path.isfile(os.path.join(base, "__init__.py"))})
    return {"candidates": found}


def pth_files() -> list[list[str]]:
    """(file, line) of every .pth file in a folder for packages: they add path entries or run import hooks."""
    lines = []
    for folder in dict.fromkeys(entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".pth"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as stream:
                    lines += [[path, line.strip()] for line in stream if line.strip() and not line.startswith("#")]
    return lines


def main() -> None:
    """Answer for the modules given."""
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # it is not there with PYTHONSAFEPATH
    answer = {"modules": {name: resolve(name) for name in sys.argv[2:]}, "path": sys.path, "pth": pth_files()}
    with open(sys.argv[1], "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
