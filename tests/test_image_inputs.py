"""The hash of what an image is built from; real git repositories."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci import commands
from ci.errors import UsageError
from ci.image_inputs import Input, content_hash, inputs_data, inputs_text, read_inputs
from ci.inventory import ImageInputs, Inventory
from tests.repositories import commit, git, repository

FILES = {
    "miles/__init__.py": "",
    "tests/__init__.py": "",
    "docker/Dockerfile": "FROM scratch\n",
    "docker/Dockerfile.rocm": "FROM scratch\n",
    "docker/build.py": "print()\n",
    "docker/install-kube-tools.sh": "true\n",
    "docker/verify_transformer_engine.py": "",
    "docker/patch/latest/megatron.patch": "--- a\r\n+++ b\r\n",
    "docker/patch/größe": "x",
    "docker/patchwork": "no input",
    "requirements.txt": "ray\n",
    "tests/requirements.txt": "no input",
}
INPUTS = (
    "docker/Dockerfile",
    "docker/build.py",
    "docker/install-kube-tools.sh",
    "docker/patch/größe",
    "docker/patch/latest/megatron.patch",
    "docker/verify_transformer_engine.py",
    "requirements.txt",
)


@pytest.fixture
def declared(inventory: Inventory) -> ImageInputs:
    image = inventory.backends["cuda"].image
    assert image is not None
    assert image.inputs is not None
    return image.inputs


@pytest.fixture
def miles(tmp_path: Path) -> Path:
    # names, not order of creation, decide; `write_text` keeps CR as it is
    return repository(tmp_path / "miles", FILES)


def test_every_input_is_found_with_the_hash_of_its_bytes(miles: Path, declared: ImageInputs) -> None:
    at = read_inputs(miles, "HEAD", declared)
    assert at.commit == git(miles, "rev-parse", "HEAD")
    assert at.missing == ()
    expected = {path: hashlib.sha256((miles / path).read_bytes()).hexdigest() for path in INPUTS}
    assert {each.path: each.sha256 for each in at.inputs} == expected


def test_the_hash_is_the_one_that_published_images_carry(miles: Path, declared: ImageInputs) -> None:
    # computed by docker/image_inputs.py of a Miles checkout on the ASCII names of these files
    git(miles, "rm", "-q", "docker/patch/größe")
    git(miles, "commit", "-qm", "remove")
    assert (
        read_inputs(miles, "HEAD", declared).hash == "e90326e8ae3db6e436983584bd17d54d465f48a1122fb063473360a16e110946"
    )


def test_the_form_of_the_hash_is_fixed() -> None:
    digests = {name: hashlib.sha256(name.encode()).digest() for name in ("a", "b")}
    expected = hashlib.sha256(b"a\0" + digests["a"] + b"b\0" + digests["b"]).hexdigest()
    files = [Input(name, digest.hex()) for name, digest in digests.items()]
    assert content_hash(files) == content_hash(reversed(files)) == expected
    assert content_hash([]) == hashlib.sha256(b"").hexdigest()


NAMES = st.text("ab/\xe9\U00010000\uffee", min_size=1)
HASHED = st.dictionaries(NAMES, st.sampled_from([hashlib.sha256(bytes([byte])).hexdigest() for byte in range(3)]))


@given(HASHED, HASHED)
def test_other_files_have_another_hash(one: dict[str, str], other: dict[str, str]) -> None:
    hashes = [content_hash(Input(path, sha256) for path, sha256 in files.items()) for files in (one, other)]
    assert (hashes[0] == hashes[1]) == (one == other)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("docker/Dockerfile", "FROM scratch\r\n"),
        ("docker/patch/latest/megatron.patch", "--- a\n+++ b\n"),
        ("docker/patch/new/deep/x", ""),
        ("requirements.txt", "ray\n "),
    ],
)
def test_a_change_of_an_input_changes_the_hash(miles: Path, declared: ImageInputs, path: str, content: str) -> None:
    (miles / path).parent.mkdir(parents=True, exist_ok=True)
    (miles / path).write_bytes(content.encode())
    commit(miles, {})
    assert read_inputs(miles, "HEAD", declared).hash != read_inputs(miles, "HEAD^1", declared).hash


def test_a_move_within_the_inputs_changes_the_hash(miles: Path, declared: ImageInputs) -> None:
    git(miles, "mv", "docker/patch/latest/megatron.patch", "docker/patch/latest/x.patch")
    git(miles, "commit", "-qm", "move")
    assert read_inputs(miles, "HEAD", declared).hash != read_inputs(miles, "HEAD^1", declared).hash


@pytest.mark.parametrize("path", ["docker/Dockerfile.rocm", "docker/patchwork", "tests/requirements.txt", "new.txt"])
def test_a_change_of_another_file_does_not(miles: Path, declared: ImageInputs, path: str) -> None:
    commit(miles, {path: "changed"})
    assert read_inputs(miles, "HEAD", declared).hash == read_inputs(miles, "HEAD^1", declared).hash


def test_what_is_not_committed_does_not_count(miles: Path, declared: ImageInputs) -> None:
    before = read_inputs(miles, "HEAD", declared)
    (miles / "docker/Dockerfile").write_text("changed")
    (miles / "docker/patch/untracked").write_text("new")
    git(miles, "add", "docker/Dockerfile")
    assert read_inputs(miles, "HEAD", declared) == before


def test_how_a_checkout_is_configured_does_not_count(miles: Path, declared: ImageInputs) -> None:
    before = read_inputs(miles, "HEAD", declared)
    (miles / ".git/info/attributes").write_text("* text eol=crlf ident filter=nope\n")
    for key, value in (("core.autocrlf", "true"), ("core.quotePath", "true"), ("filter.nope.smudge", "false")):
        git(miles, "config", key, value)
    assert read_inputs(miles, "HEAD", declared) == before


def test_a_name_that_is_not_utf8_counts_too(miles: Path, declared: ImageInputs) -> None:
    name = os.fsdecode(b"docker/patch/\xff")
    at = read_inputs(miles, commit(miles, {name: "x"}), declared)
    assert name in {each.path for each in at.inputs}
    assert at.hash != read_inputs(miles, "HEAD^1", declared).hash
    assert json.loads(json.dumps(inputs_data("HEAD", at)))["hash"] == at.hash
    assert all(line.isprintable() for line in inputs_text(at).split("\n"))


def test_what_is_missing_is_said(miles: Path, declared: ImageInputs) -> None:
    git(miles, "rm", "-qr", "docker/patch", "docker/build.py")
    git(miles, "commit", "-qm", "remove")
    at = read_inputs(miles, "HEAD", declared)
    assert at.missing == ("docker/build.py", "docker/patch/*")
    assert [line.split() for line in inputs_text(at).split("\n")[-2:]] == [
        ["missing", "docker/build.py"],
        ["missing", "docker/patch/*"],
    ]


def test_a_workspace_below_the_top_of_its_checkout_has_its_own_inputs(tmp_path: Path, declared: ImageInputs) -> None:
    root = repository(tmp_path / "root", {"requirements.txt": "outer", "inner/requirements.txt": "inner"})
    (found,) = read_inputs(root / "inner", "HEAD", declared).inputs
    assert found == Input("requirements.txt", hashlib.sha256(b"inner").hexdigest())


def given_options(miles: Path, **options: str) -> dict[str, object]:
    base = {"workspace": str(miles), "started_in": miles, "backend": "cuda", "rev": "HEAD", "format": "text"}
    return {**base, **options}


def test_the_command_prints_the_hash_and_each_input(miles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.image_inputs(given_options(miles)) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in rest] == list(INPUTS)
    commit(miles, {"docker/build.py": "print(1)\n"})
    assert commands.image_inputs(given_options(miles, rev="HEAD^1", format="json")) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["hash"] == first.split()[0]
    assert data["revision"] == "HEAD^1"
    assert [entry["path"] for entry in data["inputs"]] == list(INPUTS)
    assert data["missing"] == []


def test_the_command_warns_of_what_is_missing(miles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(miles, "rm", "-q", "docker/build.py")
    git(miles, "commit", "-qm", "remove")
    assert commands.image_inputs(given_options(miles, format="json")) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["missing"] == ["docker/build.py"]
    assert "1 of 6 image inputs are missing" in shown.err


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("rev", "nope", "`nope` is not a commit"),
        ("backend", "rocm", "declares no image inputs for rocm"),
        ("backend", "cpu", "declares no image inputs for cpu"),
        ("backend", "gpu", "`gpu` is not a backend"),
        ("format", "yaml", "`yaml` is not a format"),
    ],
)
def test_the_command_refuses_what_it_cannot_answer(miles: Path, option: str, value: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        commands.image_inputs(given_options(miles, **{option: value}))
