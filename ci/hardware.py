"""Is the hardware of a stage here? An edge module: it runs the vendors' tools (spec §9)."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ci.accelerators import (
    Accelerator,
    Holder,
    is_class,
    parse_nvidia,
    parse_nvidia_holders,
    parse_rocm,
    parse_rocm_holders,
    visible,
)
from ci.console import say
from ci.errors import InfrastructureError
from ci.inventory import Stage
from ci.proc import has_open
from ci.text import show

# whoever uses an accelerator has one of these open
DEVICE_NODES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri/renderD*")
_TRIES = 60
_PAUSE = 2.0
_TIMEOUT = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A vendor's tool: its questions, how its answers are read, and the variable that hides devices."""

    program: str
    variable: str
    devices: tuple[str, ...]
    holders: tuple[str, ...]
    parse_devices: Callable[[str], tuple[Accelerator, ...]]
    parse_holders: Callable[[str], tuple[Holder, ...]]


TOOLS: Mapping[str, Tool] = {
    "cuda": Tool(
        program="nvidia-smi",
        variable="CUDA_VISIBLE_DEVICES",
        devices=("--query-gpu=index,uuid,name,memory.used", "--format=csv,noheader,nounits"),
        holders=("--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader,nounits"),
        parse_devices=parse_nvidia,
        parse_holders=parse_nvidia_holders,
    ),
    "rocm": Tool(
        program="rocm-smi",
        variable="HIP_VISIBLE_DEVICES",
        devices=("--showproductname", "--showmeminfo", "vram", "--json"),
        holders=("--showpids", "--json"),
        parse_devices=parse_rocm,
        parse_holders=parse_rocm_holders,
    ),
}


def require(
    stage: Stage, environ: Mapping[str, str], *, any_class: bool = False, engines: Sequence[str] = ()
) -> tuple[Accelerator, ...]:
    """The visible accelerators, once they answer and are enough for the stage.

    A driver that is still torn down after an earlier job is waited for (60 tries, 2 s apart); a tool that is
    not installed is not. ``any_class`` takes other hardware than the stage's, not fewer devices. ``engines``: those
    of containers that can be offered instead.

    Raises:
        InfrastructureError: they are not to be had; says what is missing and what can be done instead.
    """
    tool = TOOLS[stage.backend]
    wanted = f"{stage.name} needs {stage.gpus}×{stage.hardware}"
    instead = "--list-only shows what it would run; --any-hardware takes another class"
    if engines:
        instead += f"; --container {engines[0]} runs it in its image"
    if shutil.which(tool.program, path=environ.get("PATH")) is None:
        raise InfrastructureError(f"{wanted}; this machine has no {tool.program}", hint=instead)
    devices = visible(_wait(tool, environ, wanted), environ.get(tool.variable))
    usable = [device for device in devices if any_class or is_class(device, stage.hardware)]
    if len(usable) < stage.gpus:
        names = ", ".join(sorted({show(device.name, 40) for device in devices})) or "none"
        hidden = f" that {tool.variable} leaves visible" if tool.variable in environ else ""
        raise InfrastructureError(f"{wanted}; of the devices{hidden} {len(usable)} are ({names})", hint=instead)
    return tuple(usable)


def used_memory(backend: str, environ: Mapping[str, str]) -> int | None:
    """Bytes used on the visible devices, or None where the tool does not answer."""
    tool = TOOLS[backend]
    try:
        return sum(device.used for device in visible(_devices(tool, environ), environ.get(tool.variable)))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def memory_holders(backend: str, environ: Mapping[str, str]) -> tuple[Holder, ...]:
    """Processes that hold accelerator memory; none where the tool does not answer."""
    tool = TOOLS[backend]
    try:
        return tool.parse_holders(_ask(tool, tool.holders, environ))
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def memory_of(
    pids: Iterable[int], backend: str, environ: Mapping[str, str], *, nodes: Sequence[str] = DEVICE_NODES
) -> dict[int, int]:
    """Process → bytes of accelerator memory, of those of ``pids`` that hold some.

    The vendor's tool is slow: it is asked only when one of them has a device open.
    """
    having = {pid for pid in pids if has_open(pid, nodes)}
    return _summed(holder for holder in memory_holders(backend, environ) if holder.pid in having) if having else {}


def visible_holders(backend: str, environ: Mapping[str, str], *, nodes: Sequence[str] = DEVICE_NODES) -> dict[int, int]:
    """Process → bytes of accelerator memory on the visible devices, of processes that can be told apart.

    The tools may name processes by the ids of another PID namespace, so that only one that has a device open
    is believed. Where devices are hidden and the tool does not say which one a process uses (ROCm), it may be
    on a hidden one and is left out.
    """
    tool = TOOLS[backend]
    setting = environ.get(tool.variable)
    holders = memory_holders(backend, environ)
    if setting is not None and holders:
        try:
            shown = {device.uuid for device in visible(_devices(tool, environ), setting)} - {""}
        except (OSError, ValueError, subprocess.SubprocessError):
            return {}
        holders = tuple(holder for holder in holders if holder.device in shown)
    return _summed(holder for holder in holders if has_open(holder.pid, nodes))


def _summed(holders: Iterable[Holder]) -> dict[int, int]:
    total: dict[int, int] = {}
    for holder in holders:
        total[holder.pid] = total.get(holder.pid, 0) + holder.used
    return total


def _wait(tool: Tool, environ: Mapping[str, str], wanted: str) -> tuple[Accelerator, ...]:
    fault = ""
    for number in range(1, _TRIES + 1):
        try:
            return _devices(tool, environ)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            fault = show(_said(error), 120)
        say(f"hardware: {tool.program} does not answer ({fault}), try {number} of {_TRIES}")
        if number < _TRIES:
            time.sleep(_PAUSE)
    raise InfrastructureError(
        f"{wanted}; {tool.program} does not answer: {fault}", hint="the driver is down: use another machine"
    )


def _devices(tool: Tool, environ: Mapping[str, str]) -> tuple[Accelerator, ...]:
    return tool.parse_devices(_ask(tool, tool.devices, environ))


def _ask(tool: Tool, question: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return subprocess.run(
        [tool.program, *question],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT,
        check=True,
    ).stdout


def _said(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stdout + error.stderr).strip().splitlines()
        return lines[-1] if lines else f"exit code {error.returncode}"
    return str(error)
