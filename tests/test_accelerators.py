import json

import pytest

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

NVIDIA = "0, GPU-aa11, NVIDIA H200, 512\n1, GPU-bb22, NVIDIA H200, 0\n"
ROCM = json.dumps(
    {
        "card1": {
            "Card Series": "AMD Instinct MI350X",
            "VRAM Total Memory (B)": "9",
            "VRAM Total Used Memory (B)": "7",
        },
        "card0": {
            "Card Series": "AMD Instinct MI350X",
            "VRAM Total Memory (B)": "9",
            "VRAM Total Used Memory (B)": "5",
        },
        "system": {"Driver version": "6.12"},
    }
)


def test_nvidia_answers() -> None:
    assert parse_nvidia(NVIDIA) == (
        Accelerator(index=0, uuid="GPU-aa11", name="NVIDIA H200", used=512 << 20),
        Accelerator(index=1, uuid="GPU-bb22", name="NVIDIA H200", used=0),
    )
    assert parse_nvidia_holders("4242, 1024\n77, [N/A]\n") == (Holder(pid=4242, used=1 << 30), Holder(pid=77, used=0))


def test_rocm_answers() -> None:
    assert [(device.index, device.used) for device in parse_rocm(f"WARNING: x\n{ROCM}")] == [(0, 5), (1, 7)]
    holders = parse_rocm_holders(json.dumps({"system": {"PID42": "python3, 1, 1048576, 0, unknown"}}))
    assert holders == (Holder(pid=42, used=1048576),)


@pytest.mark.parametrize(
    "text", ["NVIDIA-SMI has failed because it couldn't communicate with the driver", "x, y", "0, a, b"]
)
def test_another_answer_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_nvidia(text)


@pytest.mark.parametrize(
    ("setting", "indices"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("", []), ("-1", []), ("0,9,1", [0]), ("GPU-bb", [1]), ("0,0", [0])],
)
def test_what_the_variable_leaves_visible(setting: str | None, indices: list[int]) -> None:
    assert [device.index for device in visible(parse_nvidia(NVIDIA), setting)] == indices


@pytest.mark.parametrize(
    ("name", "hardware", "same"),
    [
        ("NVIDIA H200", "h200", True),
        ("NVIDIA H100 80GB HBM3", "h100", True),
        ("NVIDIA GH200 480GB", "h200", False),
        ("NVIDIA H2000", "h200", False),
        ("AMD Instinct MI350X", "mi350", True),
        ("AMD Instinct MI300X", "mi350", False),
    ],
)
def test_classes(name: str, hardware: str, same: bool) -> None:  # noqa: FBT001
    assert is_class(Accelerator(index=0, name=name, used=0), hardware) is same
