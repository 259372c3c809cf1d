"""What the kernel says of processes: /proc, read into frozen values. An edge module; only Linux has it.

What cannot be read, because the process is another user's or just ended, is empty or None and never an error.
"""

import fnmatch
import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ci.mark import VARIABLE, Mark, Process, parse_mark
from ci.text import show

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_COMMAND = 200


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, which may hold anything; empty when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def state(pid: int) -> str:
    """``R``, ``S``, ``Z``, …; empty when it is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


def started(pid: int) -> int | None:
    """Clock ticks after boot at which it started."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def command_of(pid: int) -> str:
    """Its command line on one line, safe to show; ``?`` where there is none."""
    command = ""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return show(command or "?", _COMMAND)


def age_of(pid: int) -> float:
    """Seconds since it started; 0 when it is gone."""
    begin = started(pid)
    if begin is None:
        return 0.0
    up = float(Path("/proc/uptime").read_text().split()[0])
    return round(max(0.0, up - begin / os.sysconf("SC_CLK_TCK")), 1)


def user_name(uid: int) -> str:
    """A user's name, or the number where it has none here."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def boot_id() -> str:
    """The kernel's id of this boot; empty where it does not say."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


def own_mark() -> Mark | None:
    """The mark of this process as a runner; None where there is no /proc."""
    begin, namespace = started(os.getpid()), _namespace("self")
    if begin is None or namespace is None:
        return None
    return Mark(pid=os.getpid(), started=begin, namespace=namespace, boot=boot_id())


def read_all() -> Iterator[Process]:
    """Every process that is not a zombie, as far as this one may look."""
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (found := read(int(name))) is not None:
                yield found


def read(pid: int) -> Process | None:
    """One process; None when it is gone or a zombie."""
    fields = stat_fields(pid)
    if not fields or fields[0] in {"Z", "X"}:
        return None
    status: dict[str, list[str]] = {}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            status[key] = value.split()
    if "Uid" not in status:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        terminal=fields[4] != "0",
        uid=int(status["Uid"][0]),
        inner_pid=int(status.get("NSpid", [str(pid)])[-1]),
        namespace=_namespace(str(pid)),
        marks=_marks(pid),
    )


def has_open(pid: int, patterns: Sequence[str]) -> bool:
    """Whether it has a file open whose path fits one of the shell patterns; False where we may not look."""
    with suppress(OSError):
        for handle in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                path = os.readlink(f"/proc/{pid}/fd/{handle}")
                if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                    return True
    return False


def _namespace(pid: str) -> int | None:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    return None


def _marks(pid: int) -> tuple[Mark, ...]:
    begin = f"{VARIABLE}=".encode()
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        texts = [entry.removeprefix(begin).decode(errors="replace") for entry in entries if entry.startswith(begin)]
        return tuple(mark for text in texts if (mark := parse_mark(text)) is not None)
    return ()
