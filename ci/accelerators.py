"""What accelerators a machine has, how much of their memory is used and by whom: answers of the vendors' tools."""

import csv
import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device. ``used`` in bytes; ``uuid`` is empty where the tool does not say."""

    index: int
    name: str
    used: int
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds accelerator memory, in bytes. ``device``: uuid, empty where the tool does not say."""

    pid: int
    used: int
    device: str = ""


def parse_nvidia(text: str) -> tuple[Accelerator, ...]:
    """Answer of ``nvidia-smi --query-gpu=index,uuid,name,memory.used --format=csv,noheader,nounits`` (MiB).

    Raises:
        ValueError: it is another answer, as while the driver is torn down.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    return tuple(
        Accelerator(index=int(index), uuid=uuid, name=name, used=int(used) << 20) for index, uuid, name, used in rows
    )


def parse_nvidia_holders(text: str) -> tuple[Holder, ...]:
    """Answer of ``nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv,noheader,nounits`` (MiB).

    Raises:
        ValueError: it is another answer.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    return tuple(
        Holder(pid=int(pid), used=int(used) << 20 if used.isdigit() else 0, device="".join(device))
        for pid, used, *device in rows
    )


def parse_rocm(text: str) -> tuple[Accelerator, ...]:
    """Answer of ``rocm-smi --showproductname --showmeminfo vram --json``.

    Raises:
        ValueError: it is another answer.
    """
    found = []
    for card, fields in _json(text).items():
        if (number := re.fullmatch(r"card([0-9]+)", card)) is None:
            continue
        name = next((str(fields[key]) for key in ("Card Series", "Card series", "Card Model") if key in fields), "")
        used = next((fields[key] for key in fields if re.fullmatch(r"VRAM Total Used Memory \(B\)", key)), None)
        if used is None:
            raise ValueError(f"{card}: no used memory")
        found.append(Accelerator(index=int(number[1]), name=name, used=int(used)))
    return tuple(sorted(found, key=lambda device: device.index))


def parse_rocm_holders(text: str) -> tuple[Holder, ...]:
    """Answer of ``rocm-smi --showpids --json``: ``PID123: name, gpus, memory, …``.

    Raises:
        ValueError: it is another answer.
    """
    holders = []
    for fields in _json(text).values():
        for key, value in fields.items():
            if number := re.fullmatch(r"PID([0-9]+)", key):
                cells = [cell.strip() for cell in str(value).split(",")]
                used = cells[2] if len(cells) > 2 else ""  # noqa: PLR2004 - name, gpus, memory
                holders.append(Holder(pid=int(number[1]), used=int(used) if used.isdigit() else 0))
    return tuple(holders)


def visible(devices: tuple[Accelerator, ...], setting: str | None) -> tuple[Accelerator, ...]:
    """The devices that a ``…_VISIBLE_DEVICES`` variable leaves visible, in its order.

    Indices or (the beginning of) UUIDs; as the drivers do, the list ends at the first entry that is neither.
    """
    if setting is None:
        return devices
    chosen: list[Accelerator] = []
    for entry in (part.strip() for part in setting.split(",")):
        found = [
            device
            for device in devices
            if entry == str(device.index) or (entry and not entry.isdigit() and device.uuid.startswith(entry))
        ]
        if len(found) != 1 or found[0] in chosen:
            break
        chosen += found
    return tuple(chosen)


def is_class(device: Accelerator, hardware: str) -> bool:
    """Whether a device is of a hardware class, as ``NVIDIA H200`` is of ``h200`` and ``MI350X`` of ``mi350``."""
    return re.search(rf"(?<![a-z0-9]){re.escape(hardware)}(?:[a-z]|\b)", device.name.lower()) is not None


def _json(text: str) -> dict[str, dict[str, Any]]:
    # rocm-smi prints warnings before its document
    document = json.loads(text[text.index("{") :])
    if not isinstance(document, dict) or not all(isinstance(fields, dict) for fields in document.values()):
        raise ValueError("not the answer of rocm-smi")
    return document
