from pathlib import Path

import pytest

from ci.errors import Problems, UsageError
from ci.inventory import Inventory, StageName
from ci.inventory_file import OWN_INVENTORY, load_inventory, parse_inventory, workspace_inventory
from tests.factory import workspace

SOURCE = OWN_INVENTORY.read_text()


def faults(source: str) -> list[str]:
    with pytest.raises(Problems) as error:
        parse_inventory(source, origin="inv.yml")
    return list(error.value.problems)


def line_of(text: str, source: str = SOURCE) -> int:
    return source[: source.index(text)].count("\n") + 1


def test_the_inventory_of_this_repository_is_the_table_of_the_spec(inventory: Inventory) -> None:
    assert {
        stage.name: (stage.backend, stage.partitions) for stage in inventory.stages.values() if not stage.external
    } == {
        "stage-a-cpu": ("cpu", 4),
        "stage-b-cpu": ("cpu", 1),
        "stage-b-2-gpu-h200": ("cuda", 1),
        "stage-c-2-gpu-h200": ("cuda", 2),
        "stage-c-4-gpu-h200": ("cuda", 3),
        "stage-c-8-gpu-h100": ("cuda", 2),
        "stage-c-8-gpu-h200": ("cuda", 2),
        "stage-c-4-gpu-mi350": ("rocm", 2),
    }
    assert inventory.stages["stage-c-4-gpu-mi350"].needs == ("policy", "image")
    assert inventory.stages["stage-c-8-gpu-h100"].runs_on == ("h100", "8gpu")


def test_one_image_alone_is_built_for_pull_requests(inventory: Inventory) -> None:
    images = {name: backend.image for name, backend in inventory.backends.items() if backend.image}
    assert {name for name, image in images.items() if image.inputs} == {"cuda"}
    assert (inputs := images["cuda"].inputs) is not None
    assert (inputs.label, inputs.rebuild_label) == ("miles.image-inputs", "rebuild-ci-image")
    assert inputs.paths[-2:] == ("docker/patch/*", "requirements.txt")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("gpus: 4, hardware: h200", "gpus: 8, hardware: h200", "the name says 4×h200, the fields 8×h200"),
        ("partitions: 4", "partitions: 0", "0 is too small"),
        ("partitions: 4", "partitions: 0x4", "not a whole number"),
        ("partitions: 4", "partitions: 014", "not a whole number"),
        ("backend: cpu, gpus: 0", "backend: gpu, gpus: 0", "`gpu` is not known"),
        ("needs: [policy]}", "needs: [polcy]}", "did you mean `policy`?"),
        ("without_nightly: [long,", "without_nightly: [lnog,", "did you mean `long`?"),
        ('"0 15 * * 6": weekly', '"0 15 * * 6": weekley', "did you mean `weekly`?"),
        ("  megatron: Megatron-LM training tests", "  megatron: a\n  megatron: b", "`megatron` is given twice"),
        (
            "    directive: ci-megatron-pr",
            "    directive: ci-sglang-pr",
            "directive `ci-sglang-pr` is used twice, by sglang and megatron",
        ),
        ("    branch: miles-main", "    branch: -x", "begins with `-`"),
        ("    source: python\n", "    source: ../python\n", "leaves the repository"),
        ("    lock_key: sglang_commit\n", "", "lock_key missing"),
        ("    title: ROCm\n", "    title: ROCm\n    colour: red\n", "`colour` is not a field"),
        ("labels_required: false", "labels_required: no", "not true or false"),
        ("roots: [tests/fast,", "roots: [/tests/fast,", "leaves the workspace"),
        ("stage-a-cpu:\n", "stage-d-cpu:\n", "`stage-d-cpu` is not a stage name"),
        ("hardware: h100, runs_on", "hardware: [h100], runs_on", "a text is expected"),
        ("job_minutes: 360", "job_minutes: 0", "0 is too small"),
        ("secrets: [HF_TOKEN]", "secrets: [hf-token]", "not the name of an environment variable"),
        ("sglang: /sgl-workspace/sglang", "sglang: sgl-workspace", "not an absolute path"),
        ("checkouts: {sglang:", "checkouts: {sglnag:", "no dependency `sglnag`"),
        ("patches: {megatron: docker/", "patches: {megatron: ../", "leaves the repository"),
        ("- docker/build.py", "- /docker/build.py", "inputs.paths: `/docker/build.py`"),
        ("- docker/build.py", "- docker/../build.py", "write relative paths of files, or FOLDER/*"),
        ("- docker/build.py", "- ./docker/build.py", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- docker/*/patch", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- '*'", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- docker//patch", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- docker/patch/", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- docker/[ab]", "write relative paths of files, or FOLDER/*"),
        ("- docker/patch/*", "- docker/build.py", "an entry is given twice"),
        ("label: miles.image-inputs", "label: Miles inputs", "not a label of an image"),
        ("rebuild_label: rebuild-ci-image", "rebuild_label: ' x'", "not a label of a pull request"),
        ("        rebuild_label: rebuild-ci-image\n", "", "rebuild_label missing"),
        ("label: miles.image-inputs", "label: miles.image-inputs\n        rebuild: x", "`rebuild` is not a field"),
        ("/data/miles_ci/models: /root/models", "/data/../models: /root/models", "not an absolute path"),
    ],
)
def test_a_fault_is_named_with_its_line(old: str, new: str, what: str) -> None:
    assert old in SOURCE
    found = faults(SOURCE.replace(old, new, 1))
    named = [fault for fault in found if what in fault]
    assert named, found
    assert named[0].startswith("inv.yml:")
    line = int(named[0].split(":")[1])
    assert abs(line - line_of(old)) <= 10


def test_the_line_is_the_one_of_the_value() -> None:
    source = SOURCE.replace("partitions: 3", "partitions: many")
    line = line_of("partitions: many", source)
    assert faults(source) == [f"inv.yml:{line}: stages.stage-c-4-gpu-h200.partitions: `many` is not a whole number"]


def test_all_faults_are_reported_at_once() -> None:
    source = SOURCE.replace("partitions: 3", "partitions: many").replace("est_time: 1}", "est_time: soon}")
    source = source.replace("branch: miles-main", "branch: a..b")
    assert len(faults(source)) == 3


@pytest.mark.parametrize("source", ["", "a: [", "a: b: c", "\t- x", "- 1\n- 2", "x", "&a [*a]", "[" * 3000])
def test_what_is_no_inventory_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match=r"inv\.yml|inventory"):
        parse_inventory(source, origin="inv.yml")


def test_a_workspace_brings_its_own(tmp_path: Path) -> None:
    own = SOURCE.replace("partitions: 4", "partitions: 6", 1)
    root = workspace(tmp_path, {"ci/inventory.yml": own})
    inventory = workspace_inventory(root)
    assert inventory.stages["stage-a-cpu"].partitions == 6
    assert inventory.origin == "the workspace's ci/inventory.yml"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_inventory(tmp_path / "inventory.yml")


@pytest.mark.parametrize(
    "text",
    [
        "stage-d-cpu",
        "stage-a-0-gpu-h200",
        "stage-a-4-gpu",
        "nightly-stage-a-cpu",
        "stage-a-cpu ",
        "Stage-a-cpu",
        "stage-c-٤-gpu-h200",
    ],
)
def test_what_is_no_stage_name(text: str) -> None:
    with pytest.raises(UsageError, match="is not a stage name"):
        StageName.parse(text)


def test_a_stage_name_says_its_parts() -> None:
    assert StageName.parse("nightly-stage-c-8-gpu-mi350") == StageName(tier="c", gpus=8, hardware="mi350", nightly=True)
