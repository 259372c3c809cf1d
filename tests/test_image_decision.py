"""The image of a run; the pairs of the live system are in test_vectors."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.errors import UsageError
from ci.image_decision import (
    ImageRequest,
    OwnImage,
    OwnImageDecision,
    OwnImageRequest,
    Publication,
    Published,
    decide_image,
    decide_own_image,
    parse_tag,
)
from ci.inventory import Image
from ci.inventory_file import OWN_INVENTORY, load_inventory

OWN = load_inventory(OWN_INVENTORY)


def image_of(backend: str) -> Image:
    image = OWN.backends[backend].image
    assert image is not None
    return image


CUDA, ROCM = image_of("cuda"), image_of("rocm")
BODY = "text\nci-image-tag: from-body\n"


@pytest.mark.parametrize(
    ("request_", "tag", "origin", "reason"),
    [
        (ImageRequest(), "dev", "default", "nothing names another"),
        (ImageRequest(body=BODY), "from-body", "directive", "ci-image-tag in line 2"),
        (ImageRequest(body=BODY, own_image=7), "pr-7", "own-image", "pull request 7"),
        (ImageRequest(body=BODY, own_image=7, given="x"), "x", "given", "given to this run"),
        (ImageRequest(body="ci-image-tag: a\r\nci-image-tag: b"), "a", "directive", "line 1"),
    ],
)
def test_the_strongest_names_the_image(request_: ImageRequest, tag: str, origin: str, reason: str) -> None:
    decided = decide_image(request_, CUDA)
    assert (decided.image, decided.origin) == (f"radixark/miles:{tag}", origin)
    assert reason in decided.reason


def test_rocm_knows_a_given_tag_and_its_default_alone() -> None:
    assert decide_image(ImageRequest(body=BODY, own_image=7), ROCM).image == "rocm/sgl-dev:miles-rocm720-mi35x"
    assert decide_image(ImageRequest(body=BODY, own_image=7, given="x"), ROCM).image == "rocm/sgl-dev:x"
    assert decide_image(ImageRequest(body="ci-image-tag: a/b"), ROCM).warnings == ()


def test_a_directive_that_is_not_used_is_said() -> None:
    for request in (ImageRequest(body=BODY, own_image=7), ImageRequest(body=BODY, given="x")):
        (warning,) = decide_image(request, CUDA).warnings
        assert warning.startswith("line 2: `ci-image-tag: from-body` is not used, because ")
    assert decide_image(ImageRequest(body=BODY, given="from-body"), CUDA).warnings == ()


def test_near_misses_of_the_directive_are_said() -> None:
    (warning,) = decide_image(ImageRequest(body=" ci-image-tag: x"), CUDA).warnings
    assert "indented" in warning


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (ImageRequest(given="a/b"), "the image tag given: `a/b`"),
        (ImageRequest(body="\nci-image-tag: a:b"), "ci-image-tag in line 2 of the pull request's text: `a:b`"),
        (ImageRequest(body="ci-image-tag: x\x1b[31m"), "`x\\x1b[31m`"),
    ],
)
def test_a_tag_that_is_none_says_where_it_was_written(request_: ImageRequest, where: str) -> None:
    with pytest.raises(UsageError, match=re.escape(where)) as error:
        decide_image(request_, CUDA)
    assert error.value.what.isprintable()


def test_a_wrong_tag_that_is_not_used_is_no_error() -> None:
    assert decide_image(ImageRequest(body="ci-image-tag: a/b", given="x"), CUDA).tag == "x"


@pytest.mark.parametrize("text", ["dev", "_", "A.b-c_1", "0", "a" * 128, "release-v1.2.0-ci"])
def test_what_is_a_tag(text: str) -> None:
    assert parse_tag(text) == text


@pytest.mark.parametrize("text", ["", "-a", ".a", "a b", "a\n", "a/b", "r:t", "t@sha256:0", "é", "٣", "a" * 129, "a,b"])
def test_what_is_no_tag(text: str) -> None:
    with pytest.raises(UsageError, match="is not a tag"):
        parse_tag(text)


@pytest.mark.parametrize("text", ["radixark/miles:dev", "miles:dev", "dev@sha256:0"])
def test_a_full_name_is_told_to_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="give the tag alone"):
        parse_tag(text)


@given(st.text() | st.text("aA0_.-/:", max_size=130))
def test_a_tag_is_safe_in_a_command_line_or_there_is_none(text: str) -> None:
    try:
        tag = parse_tag(text)
    except UsageError:
        return
    assert tag == text
    assert tag.isascii()
    assert not tag.startswith(("-", "."))
    assert not set(tag) & set("/:@ \n'\"$`\\")


CHANGED = OwnImageRequest(number=7, fork=False, head="h" * 64, base="b" * 64)
UNKNOWN = Published(publication=Publication.UNKNOWN, detail="503\x1b[31m")
ABSENT = Published(publication=Publication.ABSENT)


def present(inputs: str | None) -> Published:
    return Published(publication=Publication.PRESENT, inputs=inputs)


def decide(**fields: object) -> OwnImageDecision:
    return decide_own_image(dataclasses.replace(CHANGED, **fields), CUDA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "action", "origin", "reason"),
    [
        ({"number": None}, OwnImage.NONE, "event", "no pull request"),
        ({"base": CHANGED.head}, OwnImage.NONE, "inputs", "those of the base"),
        ({"base": CHANGED.head, "labels": ("rebuild-ci-image",)}, OwnImage.NONE, "inputs", "those of the base"),
        ({"fork": True}, OwnImage.NONE, "fork", "a fork cannot publish"),
        ({"fork": True, "labels": ("rebuild-ci-image",)}, OwnImage.NONE, "fork", "a fork cannot publish"),
        ({"labels": ("rebuild-ci-image",)}, OwnImage.BUILD, "label", "once"),
        ({"labels": ("rebuild-ci-image",), "published": present("h" * 64)}, OwnImage.BUILD, "label", "once"),
        ({"labels": ("rebuild-ci-image",), "published": UNKNOWN}, OwnImage.BUILD, "label", "once"),
        ({"labels": ("rebuild-ci-image-x",)}, OwnImage.UNDECIDED, "registry", "was not asked"),
        ({"published": present("h" * 64)}, OwnImage.REUSE, "registry", "the same inputs"),
        ({"published": present("x" * 64)}, OwnImage.BUILD, "registry", "other inputs (xxxxx"),
        ({"published": present("\x1b")}, OwnImage.BUILD, "registry", "other inputs (\\x1b)"),
        ({"published": present("")}, OwnImage.BUILD, "registry", "other inputs"),
        ({"published": present(None)}, OwnImage.BUILD, "registry", "pr-7 has no label miles.image-inputs"),
        ({"published": ABSENT}, OwnImage.BUILD, "registry", "there is no pr-7 yet"),
        ({"published": UNKNOWN}, OwnImage.UNDECIDED, "registry", "does not say whether there is a pr-7 (503\\x1b"),
    ],
)
def test_the_image_of_a_pull_request(fields: dict[str, object], action: OwnImage, origin: str, reason: str) -> None:
    decided = decide(**fields)
    assert (decided.action, decided.origin) == (action, origin)
    assert reason in decided.reason
    assert decided.reason.isprintable()
    assert (decided.tag, decided.inputs) == ((None, None) if action is OwnImage.NONE else ("pr-7", "h" * 64))


def test_the_label_is_taken_off_after_the_build_that_it_asked_for() -> None:
    assert decide(labels=("rebuild-ci-image",)).remove_label == "rebuild-ci-image"
    assert decide(published=ABSENT).remove_label is None
    assert decide(labels=("rebuild-ci-image",), fork=True).remove_label is None


def test_a_backend_whose_image_declares_no_inputs_has_none() -> None:
    assert decide_own_image(CHANGED, ROCM).action is OwnImage.NONE


REQUESTS = st.builds(
    OwnImageRequest,
    number=st.none() | st.just(7),
    fork=st.booleans(),
    head=st.sampled_from(["a", "b"]),
    base=st.sampled_from(["a", "b"]),
    labels=st.lists(st.sampled_from(["nightly", "rebuild-ci-image"])).map(tuple),
    published=st.sampled_from([None, ABSENT, UNKNOWN, present(None), present("a"), present("b")]),
)


@given(REQUESTS)
def test_nothing_is_reused_but_what_was_built_from_the_same_inputs(request: OwnImageRequest) -> None:
    decided = decide_own_image(request, CUDA)
    if decided.action is OwnImage.REUSE:
        assert request.published == present(request.head)
    if decided.action is OwnImage.BUILD:
        assert not request.fork
        assert request.head != request.base
        assert decided.remove_label or request.published not in {None, UNKNOWN}
