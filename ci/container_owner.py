"""Whose files a container leaves. Its image runs as root, and so does what it writes where the engine is root's.

What a person ran is theirs to read, run again and delete, so root's files in this run's folders are given back
to them by one more container, which may do what they may not. Rootless engines need none: root in there is the
person out here.
"""

import os
import subprocess
from collections.abc import Iterator

from ci.console import say, warn
from ci.container import ContainerRun, give_back_command, shell_line

# seconds; a cache may hold hundreds of thousands of files
_TIMEOUT = 300.0


def give_back(run: ContainerRun, *, uid: int, gid: int) -> None:
    """Make root's files in the folders of this run ``uid``'s; failing at that is a warning with the command."""
    folders = [] if uid == 0 else [folder for folder in own_folders(run, uid) if _has_roots(folder)]
    if not folders:
        return
    command = give_back_command(run, folders, uid=uid, gid=gid)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is not None and done.returncode == 0:
        say(f"what the container wrote as root is yours now: {shell_line(folders)}")
    else:
        warn(f"the container wrote as root; this makes it yours: sudo chown -R {uid}:{gid} {shell_line(folders)}")


def own_folders(run: ContainerRun, uid: int) -> Iterator[str]:
    """Folders that this run mounted to be written, and that are the person's: never shared data."""
    for mount in run.mounts:
        if mount.writable and not mount.shared and os.path.isdir(mount.source) and os.stat(mount.source).st_uid == uid:
            yield mount.source


def _has_roots(folder: str) -> bool:
    """Whether anything in it is root's."""
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.stat(follow_symlinks=False).st_uid == 0:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue
    return False
