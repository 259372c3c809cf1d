"""Builds workspaces, and hands out the vectors of the live system."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from ci.paths import REPOSITORY

VECTORS = Path(__file__).parent / "vectors"


def vector(name: str) -> Any:
    """The content of one vector file."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def cases(name: str) -> list[dict[str, Any]]:
    """The input/output pairs of one vector file."""
    found: list[dict[str, Any]] = vector(name)["cases"]
    assert found
    return found


def workspace(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A Miles-shaped tree with these files, by path relative to its root."""
    for path, content in {"miles/__init__.py": "", "tests/__init__.py": "", **files}.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def registration_call(entry: Mapping[str, Any]) -> str:
    """The source of one registration, as a person writes it."""
    arguments = [f"est_time={entry['est_time']:g}", f"suite={entry['suite']!r}"]
    if entry["labels"]:
        arguments.append(f"labels={entry['labels']!r}")
    if entry["nightly"]:
        arguments.append("nightly=True")
    if entry["disabled"] is not None:
        arguments.append(f"disabled={entry['disabled']!r}")
    return f"register_{entry['backend']}_ci({', '.join(arguments)})\n"


def registered_workspace(root: Path, entries: Iterable[Mapping[str, Any]]) -> Path:
    """A tree with the registrations of ``vectors/registrations.json``, or others of that shape."""
    files: dict[str, str] = {}
    for entry in entries:
        names = "from tests.ci.ci_register import register_cpu_ci, register_cuda_ci, register_rocm_ci\n\n"
        files.setdefault(entry["file"], "" if entry["implicit"] else names)
        if not entry["implicit"]:
            files[entry["file"]] += registration_call(entry)
    tail = "\n\ndef test_nothing():\n    assert [value for value in range(3)] == [0, 1, 2]\n"
    return workspace(root, {path: source + tail for path, source in files.items()})


def read_results(folder: Path) -> dict[str, Any]:
    """The results.json of a run, which must have the shape that its schema declares; empty when there is none."""
    if not (file := folder / "results.json").exists():
        return {}
    document: dict[str, Any] = json.loads(file.read_text())
    schema = json.loads((REPOSITORY / "ci/results.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    return document
