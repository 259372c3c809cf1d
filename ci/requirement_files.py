"""Requirement files as values: their whole content, nested files included, and one requirement left out."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from ci.errors import UsageError
from ci.text import show

_NESTED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)(?:\s+|=|(?<=-[rc]))\s*(\S.*?)\s*(?:\s#.*)?$")
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementFile:
    """One file as it was read. ``top``: given by itself, not through another file."""

    path: str
    content: str
    top: bool


def read_requirements(paths: Sequence[Path]) -> tuple[RequirementFile, ...]:
    """Read the files and those that they name with ``-r`` or ``-c``, each once.

    Raises:
        UsageError: a file cannot be read; it says who names it.
    """
    found: dict[str, RequirementFile] = {}
    pending = [(os.path.abspath(path), "", True) for path in paths]
    while pending:
        path, named_by, top = pending.pop(0)
        if path in found:
            continue
        try:
            content = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            by = f" (named by {named_by})" if named_by else ""
            raise UsageError(
                f"{show(path)}{by} cannot be read: {show(error, 120)}", hint="mend the file or the line that names it"
            ) from error
        found[path] = RequirementFile(path=path, content=content, top=top)
        for number, line in enumerate(content.split("\n"), start=1):
            if nested := _NESTED.match(line):
                target = os.path.normpath(os.path.join(os.path.dirname(path), nested[1]))
                pending.append((target, f"{show(path)}:{number}", False))
    return tuple(found.values())


def requirement_names(files: Sequence[RequirementFile]) -> dict[str, str]:
    """Canonical name → the line that asks for it, over all files."""
    names: dict[str, str] = {}
    for file in files:
        for line in _logical_lines(file.content):
            if name := _name(line):
                names.setdefault(name, line.split("\\")[0].strip())
    return names


def without(content: str, names: Sequence[str]) -> str:
    """The file without the requirements of these canonical names, with their continuation lines."""
    kept = [line for line in _logical_lines(content) if _name(line) not in names]
    return "\n".join(kept)


def all_pinned(files: Sequence[RequirementFile]) -> bool:
    """Whether every requirement is an exact version, so that nothing else need be looked up."""
    return all("==" in line.split("#")[0] for line in requirement_names(files).values())


def content_hash(files: Sequence[RequirementFile], *more: str) -> str:
    """A hash of all contents, in order, and of whatever else decides what gets installed."""
    digest = hashlib.sha256()
    for part in (*(file.content for file in files), *more):
        data = part.encode()
        digest.update(f"{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _logical_lines(content: str) -> list[str]:
    """Lines with their continuations: a pin and its hashes are one."""
    lines: list[str] = []
    joined: list[str] = []
    for line in content.split("\n"):
        joined.append(line)
        if not line.rstrip("\r").endswith("\\"):
            lines.append("\n".join(joined))
            joined = []
    return [*lines, "\n".join(joined)] if joined else lines


def _name(line: str) -> str | None:
    read = _NAME.match(line)
    if read is None or "://" in line.split("@", maxsplit=1)[0]:
        return None
    return str(canonicalize_name(read[1].rstrip(".-_")))
