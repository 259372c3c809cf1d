"""Discovery: the test files of a workspace and what they declare (spec §3). An edge module: it reads files."""

import gc
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ci.errors import Problems, UsageError
from ci.inventory import Inventory
from ci.registration import (
    FileScan,
    Finding,
    Mentions,
    Registration,
    check_labels,
    check_suite,
    read_registrations,
)
from ci.scan_cache import ScanCache
from ci.text import show

_SHOWN_PROBLEMS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All registrations of a workspace in the live system's order (by file), and everything wrong with it."""

    registrations: tuple[Registration, ...]
    files: tuple[str, ...]
    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    def require(self) -> "Tree":
        """This tree, if nothing is wrong with it.

        Raises:
            Problems: each ``file:line: what, what to do``.
        """
        if not self.problems:
            return self
        shown = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if more := len(self.problems) - len(shown):
            shown.append(f"… and {more} more")
        count = len(self.problems)
        raise Problems(
            f"{count} problem{'s' * (count != 1)} in the registrations of this workspace:",
            tuple(shown),
            hint="mend these files; nothing was run",
        )


def read_tree(workspace: Path, inventory: Inventory, *, cache: Path | None) -> Tree:
    """Read every test file of the workspace once; ``cache`` keeps what unchanged files declared.

    Raises:
        UsageError: the workspace has none of the inventory's discovery roots.
    """
    roots = [root for root in inventory.discovery.roots if (workspace / root).is_dir()]
    if not roots:
        raise UsageError(
            f"{show(workspace)} has none of {', '.join(inventory.discovery.roots)}",
            hint="name a Miles checkout with --workspace DIR",
        )
    registers = inventory.backend_of_register()
    mentions = Mentions(registers)
    kept = ScanCache.load(cache, workspace, registers)
    implicit_prefix = f"{inventory.discovery.implicit_root}/"
    scans: list[tuple[str, FileScan]] = []
    collecting = gc.isenabled()
    gc.disable()  # thousands of short-lived AST nodes and no cycles: the collector costs a quarter of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a test file is not ours to report
            for file, entry in sorted(_test_files(workspace, roots)):
                scan = kept.get(file, entry)
                if scan is None:
                    scan = _scan(entry, file, registers, mentions, may_be_implicit=file.startswith(implicit_prefix))
                    kept.put(file, entry, scan)
                scans.append((file, scan))
    finally:
        if collecting:
            gc.enable()
    kept.save()
    return _judge(scans, inventory)


def _test_files(workspace: Path, roots: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every ``test_*.py`` below the roots, by its path in the workspace; links to folders are not followed."""
    pending = [(root, os.path.join(workspace, root)) for root in roots]
    while pending:
        relative, folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("test_") and name.endswith(".py"):
                    yield f"{relative}/{name}", entry
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((f"{relative}/{name}", entry.path))


def _scan(
    entry: os.DirEntry[str], file: str, registers: dict[str, str], mentions: Mentions, *, may_be_implicit: bool
) -> FileScan:
    try:
        # looked at before it is opened: opening a pipe would wait for a writer
        if not stat.S_ISREG(entry.stat().st_mode):
            return FileScan(problems=(Finding(file, 0, "is not a file; rename or remove it"),), mentioned=True)
        with open(entry.path, "rb") as stream:
            source = stream.read()
    except OSError as error:
        what = "is a link to nothing" if entry.is_symlink() else f"cannot be read ({error.strerror})"
        return FileScan(problems=(Finding(file, 0, f"{what}; mend or remove it"),), mentioned=True)
    if may_be_implicit and source not in mentions:
        return FileScan()
    return read_registrations(source, file, registers, mentions)


def _judge(scans: list[tuple[str, FileScan]], inventory: Inventory) -> Tree:
    registrations: list[Registration] = []
    problems: list[Finding] = []
    warned: list[Finding] = []
    for file, scan in scans:
        in_implicit_root = file.startswith(f"{inventory.discovery.implicit_root}/")
        problems.extend(scan.problems)
        if scan.registrations or scan.problems:
            warned.extend(scan.strays)
        elif scan.mentioned and in_implicit_root:
            fault = "imports a register function but never calls it; call it at top level, or drop the import"
            problems.extend(scan.strays or (Finding(file, 0, fault),))
        elif in_implicit_root:
            registrations.append(_implicit(file, inventory))
        else:
            known = ", ".join(sorted(inventory.backend_of_register()))
            problems.extend(scan.strays)
            problems.append(
                Finding(file, 0, f"has no registration, so it never runs; call one of {known} at top level")
            )
        for registration in scan.registrations:
            faults = [*check_labels(registration, inventory), *_root_fault(registration, inventory)]
            problems.extend(faults)
            if (unknown := check_suite(registration, inventory)) is not None:
                (warned if registration.disabled is not None else problems).append(unknown)
            registrations.append(registration)
        warned.extend(_doubled(scan.registrations))
    return Tree(
        registrations=tuple(registrations),
        files=tuple(file for file, _ in scans),
        problems=tuple(problems),
        warnings=tuple(warned),
    )


def _implicit(file: str, inventory: Inventory) -> Registration:
    discovery = inventory.discovery
    return Registration(
        file=file,
        line=0,
        backend=inventory.stages[discovery.implicit_suite].backend,
        suite=discovery.implicit_suite,
        est_time=discovery.implicit_est_time,
        implicit=True,
    )


def _root_fault(registration: Registration, inventory: Inventory) -> Iterator[Finding]:
    root = inventory.discovery.implicit_root
    implicit_backend = inventory.stages[inventory.discovery.implicit_suite].backend
    if registration.file.startswith(f"{root}/") and registration.backend != implicit_backend:
        register = inventory.backends[registration.backend].register
        text = f"{register} cannot stand under {root}/, which holds {implicit_backend} tests; move the file"
        yield Finding(registration.file, registration.line, text)


def _doubled(registrations: tuple[Registration, ...]) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for registration in registrations:
        key = (registration.backend, registration.suite)
        if key in seen:
            text = f"is registered twice for `{show(registration.suite)}` and counts twice; keep one call"
            yield Finding(registration.file, registration.line, text)
        seen.add(key)
