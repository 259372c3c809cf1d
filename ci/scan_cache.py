"""What each test file declared, kept between runs while the file is unchanged. An edge module.

A file counts as unchanged by its inode, size, modification and change time, as git's index does it. An
entry whose file changed within the clock's grain of being read is not kept: a later write could bear the
same times.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.registration import FileScan, Finding, Registration

_FORMAT = 1
_GRAIN_NS = 2_000_000_000


class ScanCache:
    """Scans of one workspace by file. Not shared between threads; a lost or broken store is an empty one."""

    def __init__(self, store: Path | None, entries: dict[str, list[Any]]) -> None:
        self._store = store
        self._old = entries
        self._new: dict[str, list[Any]] = {}
        self._changed = False
        self._started = time.time_ns()

    @classmethod
    def load(cls, cache: Path | None, workspace: Path, registers: Mapping[str, str]) -> "ScanCache":
        """The store of this workspace, for this Python (its parser decides) and these register names."""
        if cache is None:
            return cls(None, {})
        identity = json.dumps([_FORMAT, sys.version, sorted(registers.items()), os.path.realpath(workspace)])
        store = cache / "scans" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
        try:
            entries = json.loads(store.read_bytes())
        except (OSError, ValueError, RecursionError):
            entries = {}
        return cls(store, entries if isinstance(entries, dict) else {})

    def get(self, file: str, entry: os.DirEntry[str]) -> FileScan | None:
        """The scan of an unchanged file, or None."""
        kept = self._old.get(file)
        if kept is None:
            return None
        try:
            if kept[0] != _identity(entry.stat()):
                return None
            scan = _unpack(file, kept[1])
        except (OSError, LookupError, TypeError, ValueError):
            return None
        self._new[file] = kept
        return scan

    def put(self, file: str, entry: os.DirEntry[str], scan: FileScan) -> None:
        """Keep the scan of a file that was just read."""
        if self._store is None:
            return
        try:
            status = entry.stat()
        except OSError:
            return
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._started - _GRAIN_NS:
            self._new[file] = [_identity(status), _pack(scan)]
            self._changed = True

    def save(self) -> None:
        """Write the store if anything is new; a cache that cannot be written is no fault of the run."""
        if self._store is None or not (self._changed or len(self._new) != len(self._old)):
            return
        with contextlib.suppress(OSError):
            self._store.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._store.parent, prefix=f".{self._store.name}.")
            try:
                with os.fdopen(handle, "w") as stream:
                    json.dump(self._new, stream, separators=(",", ":"))
                os.replace(temporary, self._store)
            except BaseException:
                os.unlink(temporary)
                raise


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _pack(scan: FileScan) -> list[Any] | None:
    """A scan as JSON; None for the common one, a file without any mention."""
    if scan == FileScan():
        return None
    return [
        [[r.line, r.backend, r.suite, r.est_time, r.labels, r.nightly, r.disabled] for r in scan.registrations],
        [[finding.line, finding.text] for finding in scan.problems],
        [[finding.line, finding.text] for finding in scan.strays],
        scan.mentioned,
    ]


def _unpack(file: str, packed: list[Any] | None) -> FileScan:
    if packed is None:
        return FileScan()
    registrations, problems, strays, mentioned = packed
    return FileScan(
        registrations=tuple(
            Registration(
                file=file,
                line=line,
                backend=backend,
                suite=suite,
                est_time=est_time,
                labels=tuple(labels),
                nightly=nightly,
                disabled=disabled,
            )
            for line, backend, suite, est_time, labels, nightly, disabled in registrations
        ),
        problems=tuple(Finding(file, line, text) for line, text in problems),
        strays=tuple(Finding(file, line, text) for line, text in strays),
        mentioned=mentioned,
    )
