"""A range of service ports for each attempt, its own also beside other runners of one host (spec §9).

Ray's workers own 10002-19999 and the kernel hands out ports from its ephemeral range, so ranges lie between.
A range is held by a lock that ends with the processes that hold it.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ci.errors import InfrastructureError

FIRST = 20000
SIZE = 200
VARIABLE = "MILES_CI_PORT_BASE"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_END = 32768


@contextmanager
def port_range(folder: Path, *, sizes: int = SIZE) -> Iterator[int]:
    """The first port of a range of ``sizes`` free ports that nobody else is given meanwhile.

    ``folder``: where the runners of one host meet, whoever they run as; made if it is not there.

    Raises:
        InfrastructureError: every range is taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):
        folder.chmod(0o1777)
    for base in range(FIRST, _end() - sizes + 1, sizes):
        # reading is enough to lock a file that another user made; a link that one planted is not followed
        handle = os.open(folder / f"{base}.lock", os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        try:
            if all(_is_free(port) for port in range(base, base + sizes)):
                yield base
                return
        finally:
            os.close(handle)
    raise InfrastructureError(
        f"no {sizes} free ports in a row between {FIRST} and {_end()}", hint="end what listens there, then run again"
    )


def _end() -> int:
    """Where the kernel's ephemeral range begins; the default where it cannot be read or leaves no room."""
    with suppress(OSError, ValueError, IndexError):
        begin = int(_EPHEMERAL.read_text().split()[0])
        if begin >= FIRST + SIZE:
            return begin
    return _DEFAULT_END


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
