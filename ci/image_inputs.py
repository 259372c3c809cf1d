"""The content hash of what an image is built from, at a revision (spec §8).

Only bytes and names count, and only of committed files: neither when a file was changed nor who checked it out
moves the hash. Published images carry it as a label, so its form cannot change without a rebuild of them all.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.git_read import content_at, files_at, resolve_commit
from ci.inventory import ImageInputs
from ci.text import show

_BELOW = "/*"


@dataclass(frozen=True, slots=True)
class Input:
    """One file: its path in the workspace, and the SHA-256 of its bytes in hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsAt:
    """The inputs at one commit, sorted; ``missing``: paths of the inventory that the commit has no file for."""

    commit: str
    inputs: tuple[Input, ...]
    missing: tuple[str, ...]

    @property
    def hash(self) -> str:
        """The hash of all of them, in hex."""
        return content_hash(self.inputs)


def content_hash(inputs: Iterable[Input]) -> str:
    """SHA-256 over each file's path, a NUL and the digest of its bytes, in the order of the paths.

    The same as that of the workspace's ``docker/image_inputs.py``, which labels the images when they are built.
    """
    digest = hashlib.sha256()
    for each in sorted(inputs, key=lambda each: os.fsencode(each.path)):
        digest.update(os.fsencode(each.path) + b"\0" + bytes.fromhex(each.sha256))
    return digest.hexdigest()


def read_inputs(workspace: Path, revision: str, declared: ImageInputs) -> InputsAt:
    """The inputs of the workspace as the revision has them.

    Raises:
        UsageError: the workspace is in no checkout, or the revision is not a commit of it.
        GitError: an object of the commit is not to be had.
    """
    top, commit = resolve_commit(workspace, revision)
    found = [
        file for file in files_at(top, commit, workspace) if any(_covers(path, file.path) for path in declared.paths)
    ]
    inputs = tuple(Input(file.path, hashlib.sha256(content_at(top, file)).hexdigest()) for file in found)
    missing = tuple(path for path in declared.paths if not any(_covers(path, each.path) for each in inputs))
    return InputsAt(commit=commit, inputs=inputs, missing=missing)


def inputs_data(revision: str, at: InputsAt) -> dict[str, Any]:
    """The inputs as plain data, the shape that ``--format json`` prints."""
    return {
        "revision": revision,
        "commit": at.commit,
        "hash": at.hash,
        "inputs": [{"path": each.path, "sha256": each.sha256} for each in at.inputs],
        "missing": list(at.missing),
    }


def inputs_text(at: InputsAt) -> str:
    """The hash, then each input with its own, then what is missing."""
    lines = [f"{at.hash}  image inputs at {at.commit[:12]}"]
    lines += [f"  {each.sha256}  {show(each.path)}" for each in at.inputs]
    lines += [f"  {'missing':<64}  {show(path)}" for path in at.missing]
    return "\n".join(lines)


def _covers(declared: str, path: str) -> bool:
    return path.startswith(declared[:-1]) if declared.endswith(_BELOW) else path == declared
