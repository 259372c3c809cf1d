"""Says where modules would come from, without importing them: run as a script by the session's interpreter.

    python verify_probe.py ANSWER MODULE...     ANSWER: a file that gets the answer as JSON

Each part of a dotted name is looked up through ``sys.meta_path`` in order, as an import would do it, so that
editable installs that hook into imports are seen as well as path entries. It knows nothing of this repository
and takes its own folder off the path first. The answer goes to a file, because a ``.pth`` file may print.
"""

from __future__ import annotations  # an interpreter given with --python may be older than this repository's

import json
import os
import sys
from typing import Any


def resolve(name: str) -> dict[str, Any]:
    """What ``name`` resolves to, or what of it is missing, with its parent if there is one; and all candidates."""
    path = None
    parts = name.split(".")
    found: dict[str, Any] | None = None
    for number in range(len(parts)):
        part = ".".join(parts[: number + 1])
        spec, finder = _find(part, path)
        if spec is None:
            return {"kind": "missing", "missing": part, "parent": found, "candidates": _candidates(parts)}
        found = {"name": part, "finder": finder, **_described(spec)}
        path = found["locations"]
        _stand_in(part, path)
    return {**(found or {}), "candidates": _candidates(parts)}


def _stand_in(name: str, locations: list[str]) -> None:
    """A namespace package below another one asks sys.modules for its parent's path: an empty module has it."""
    if name not in sys.modules:
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__path__ = locations


def _described(spec: Any) -> dict[str, Any]:
    """Kind, origin (a file, or None) and the search folders, absolute: the reader has another working directory."""
    locations = [os.path.abspath(folder) for folder in spec.submodule_search_locations or []]
    if not spec.has_location:
        # a namespace package; or built in, or frozen, where origin is only a word
        kind = "namespace" if spec.submodule_search_locations is not None else "built in"
        return {"kind": kind, "origin": None, "locations": locations}
    kind = "package" if spec.submodule_search_locations is not None else "module"
    return {"kind": kind, "origin": os.path.abspath(spec.origin), "locations": locations}


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


def _candidates(parts: list[str]) -> list[str]:
    """Every folder or file of this name below a path entry, in order."""
    bases = [os.path.join(os.path.abspath(entry), *parts) for entry in sys.path]
    return [path for base in bases for path in (base, base + ".py") if os.path.exists(path)]


def pth_files() -> list[list[str]]:
    """(file, line) of every .pth file in a folder for packages: they add path entries or run import hooks."""
    lines = []
    for folder in dict.fromkeys(entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if name.endswith(".pth") and os.access(path, os.R_OK) and os.path.isfile(path):
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
