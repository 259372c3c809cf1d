"""Lock files and half-written packs that a killed git left in a repository of the cache."""

import os
import pwd
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ci.console import say
from ci.errors import InfrastructureError
from ci.text import show


def clear_stale_files(repository: Path) -> None:
    """Remove git's ``*.lock`` and ``tmp_*`` files that nobody alive holds, each named with age and owner.

    The caller holds our own lock, so only a git that somebody started by hand in the cache could hold one.

    Raises:
        InfrastructureError: a living process works in the repository; it is named.
    """
    locks = [path for pattern in ("*.lock", "objects/**/tmp_*") for path in repository.rglob(pattern) if path.is_file()]
    if not locks:
        return
    if user := next(_users(repository, locks), None):
        raise InfrastructureError(
            f"{show(locks[0])} is held: {user} works in this repository", hint="let it end, then run again"
        )
    for lock in locks:
        with suppress(FileNotFoundError):
            status = lock.stat()
            age = time.time() - status.st_mtime
            say(f"sources: removing what a killed git left: {show(lock)} ({age:.0f} s, of {_owner(status.st_uid)})")
            lock.unlink()


def _users(repository: Path, locks: list[Path]) -> Iterator[str]:
    """Processes that have one of the locks open, or work in the repository."""
    names = {str(lock.resolve()) for lock in locks}
    inside = str(repository.resolve())
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):
            working = os.readlink(process / "cwd")
            opened = set(_links(process / "fd"))
            if working == inside or working.startswith(f"{inside}/") or names & opened:
                yield f"process {process.name} ({_command(process)})"


def _links(folder: Path) -> Iterator[str]:
    for handle in folder.iterdir():
        # one that was closed meanwhile must not hide the others
        with suppress(OSError):
            yield os.readlink(handle)


def _command(process: Path) -> str:
    return show((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip(), 80)


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
