import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.image import choose_image, parse_tag
from ci.inventory import Image, Inventory
from tests.factory import cases


@pytest.fixture
def cuda(inventory: Inventory) -> Image:
    image = inventory.backends["cuda"].image
    assert image is not None
    return image


# a pull request's own image is decided with the plan of a whole run
@pytest.mark.parametrize(
    "case", [case for case in cases("images") if "pr_image" not in case["in"]], ids=lambda case: json.dumps(case)[:70]
)
def test_the_image_is_the_live_systems(case: dict[str, Any], cuda: Image) -> None:
    asked, expected = case["in"], case["out"]
    if expected["rc"]:
        with pytest.raises(UsageError):
            choose_image(cuda, given="", dispatched=asked.get("tag", ""), body=asked.get("body", ""))
    else:
        chosen = choose_image(cuda, given="", dispatched=asked.get("tag", ""), body=asked.get("body", ""))
        assert chosen.name == expected["image"]


def test_what_is_given_here_beats_the_dispatch_input(cuda: Image) -> None:
    chosen = choose_image(cuda, given="mine", dispatched="a/b", body="ci-image-tag: x")
    assert (chosen.name, chosen.origin) == ("radixark/miles:mine", "--image")


def test_a_directive_says_its_line_and_near_misses_are_warnings(cuda: Image) -> None:
    chosen = choose_image(cuda, given="", dispatched="", body="A change\r\nci-image-tag: x\r\n ci-image-tag: y\r\n")
    assert (chosen.name, chosen.origin) == ("radixark/miles:x", "line 2 of the PR's text")
    assert [warning.partition(":")[0] for warning in chosen.warnings] == ["line 3"]


def test_rocm_has_no_directive(inventory: Inventory) -> None:
    image = inventory.backends["rocm"].image
    assert image is not None
    chosen = choose_image(image, given="", dispatched="", body="ci-image-tag: x")
    assert (chosen.name, chosen.origin, chosen.warnings) == (
        "rocm/sgl-dev:miles-rocm720-mi35x",
        "the inventory",
        (),
    )
    assert choose_image(image, given="", dispatched="y", body="").name == "rocm/sgl-dev:y"


@pytest.mark.parametrize("text", ["radixark/miles:dev", "miles:dev", "miles@sha256:abc", "registry/miles"])
def test_a_full_name_is_refused_as_one(text: str) -> None:
    with pytest.raises(UsageError, match="full name, not a tag") as error:
        parse_tag(text, "--image")
    assert str(error.value).startswith("--image: ")


@given(st.text(max_size=140))
def test_a_tag_is_taken_as_it_is_or_refused(text: str) -> None:
    if re.fullmatch(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z", text):
        assert parse_tag(text, "x") == text
    else:
        with pytest.raises(UsageError):
            parse_tag(text, "x")
