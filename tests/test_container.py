import shlex
import subprocess
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.container import (
    ContainerRun,
    Mount,
    container_name,
    give_back_command,
    merged_mounts,
    passed_variables,
    run_command,
    session_arguments,
    shell_line,
    without_mounts,
)
from ci.errors import UsageError
from ci.inventory import Image, Inventory
from ci.inventory_file import OWN_INVENTORY, load_inventory
from ci.options import ENVIRONMENT, EVENT, GPU, POLICY, REFS, RUN, WORKSPACE, Parser, ref_options
from tests.container_runs import PLAIN

INVENTORY = load_inventory(OWN_INVENTORY)
DECLARED = (*WORKSPACE, *EVENT, *POLICY, *ref_options(INVENTORY), *REFS, *RUN, *GPU, *ENVIRONMENT)
ULIMITS = "--ulimit=memlock=-1 --ulimit=stack=67108864 --ulimit=nofile=65536:65536 --privileged"


def image(backend: str, **changes: Any) -> Image:
    found = INVENTORY.backends[backend].image
    assert found is not None
    return replace(found, **changes)


def own(path: str, *, writable: bool = True, source: str | None = None) -> Mount:
    return Mount(source=source or path, target=path, writable=writable, what=f"the {path}")


def composed(backend: str, *mounts: Mount, **changes: Any) -> ContainerRun:
    """A run as a session composes it."""
    found = image(backend)
    run = replace(
        PLAIN,
        image=f"{found.repository}:{found.tag}",
        options=found.options,
        mounts=merged_mounts(mounts, found, INVENTORY.dependencies),
        folder="/home/me/ci",
        cache="/home/me/.cache/miles-ci",
    )
    return replace(run, **changes)


def test_the_command_of_a_cuda_stage() -> None:
    run = composed(
        "cuda",
        own("/home/me/ci"),
        own("/home/me/ci/sample/miles"),
        own("/home/me/.cache/miles-ci"),
        own("/home/me/ci/results"),
        own("/home/me/event: 1.json", writable=False),
        name="miles-ci-stage-c-8-gpu-h200-1-77-abc",
        owner="host/77/123",
        variables=("CUDA_VISIBLE_DEVICES", "WANDB_API_KEY"),
        stage="stage-c-8-gpu-h200",
        arguments=("--event=/home/me/event: 1.json", "--partition-id=1"),
    )
    assert shell_line(run_command(run)) == " ".join(
        [
            "docker run --rm --init --name miles-ci-stage-c-8-gpu-h200-1-77-abc --label miles-ci=host/77/123",
            f"--gpus=all --ipc=host --shm-size=32g {ULIMITS}",
            "--mount type=bind,source=/data/miles_ci,target=/data/miles_ci",
            "--mount type=bind,source=/data/miles_ci/models,target=/root/models",
            "--mount type=bind,source=/data/miles_ci/datasets,target=/root/datasets",
            "--mount type=bind,source=/data/miles_ci/hf_cache,target=/root/.cache/huggingface",
            "--mount type=bind,source=/home/me/ci,target=/home/me/ci",
            "--mount 'type=bind,source=/home/me/event: 1.json,target=/home/me/event: 1.json,readonly'",
            "--mount type=bind,source=/home/me/.cache/miles-ci,target=/home/me/.cache/miles-ci",
            "--env CUDA_VISIBLE_DEVICES --env WANDB_API_KEY --env CI_CACHE_DIR=/home/me/.cache/miles-ci",
            "--workdir /home/me/ci radixark/miles:dev",
            "python3 -m ci.session stage-c-8-gpu-h200 '--event=/home/me/event: 1.json' --partition-id=1",
        ]
    )


def test_the_command_of_a_rocm_stage() -> None:
    run = composed(
        "rocm",
        own("/home/me/ci"),
        engine="podman",
        name="miles-ci-stage-c-4-gpu-mi350-77-abc",
        pull=False,
        variables=("HIP_VISIBLE_DEVICES",),
        stage="stage-c-4-gpu-mi350",
    )
    run = without_mounts(run, image("rocm").mounts)
    assert shell_line(run_command(run)) == " ".join(
        [
            "podman run --rm --init --name miles-ci-stage-c-4-gpu-mi350-77-abc --label miles-ci=host/1/2 --pull=never",
            "--device=/dev/kfd --device=/dev/dri --group-add=video --cap-add=SYS_PTRACE",
            f"--security-opt=seccomp=unconfined --ipc=host --shm-size=32g {ULIMITS}",
            "--mount type=bind,source=/home/me/ci,target=/home/me/ci",
            "--env HIP_VISIBLE_DEVICES --env CI_CACHE_DIR=/home/me/.cache/miles-ci",
            "--workdir /home/me/ci rocm/sgl-dev:miles-rocm720-mi35x",
            "python3 -m ci.session stage-c-4-gpu-mi350",
        ]
    )


def test_podman_is_given_gpus_as_it_takes_them() -> None:
    assert "--device=nvidia.com/gpu=all" in run_command(composed("cuda", engine="podman"))
    assert "--gpus=all" not in run_command(composed("cuda", engine="podman"))


def test_giving_back_touches_roots_files_alone() -> None:
    command = give_back_command(PLAIN, ["/a", "/b c"], uid=7, gid=8)
    assert shlex.join(command).endswith(
        "--entrypoint chown radixark/miles:dev --recursive --no-dereference --from=0 7:8 -- /a '/b c'"
    )


def test_a_name_says_whose_it_is() -> None:
    assert container_name("stage-c-4-gpu-h200", 0, "77-abc") == "miles-ci-stage-c-4-gpu-h200-0-77-abc"
    assert container_name("stage-c-4-gpu-h200", None, "77-abc") == "miles-ci-stage-c-4-gpu-h200-77-abc"


def test_variables_that_the_session_reads_are_handed_over(inventory: Inventory) -> None:
    given = ["WANDB_API_KEY", "NEON_DATABASE_URL", "HF_TOKEN", "CI", "CIRCLE", "GITHUB_SHA", "MILES_X", "HOME", "PATH"]
    given += ["CI_SGLANG_REPO", "CI_CACHE_DIR", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GITHUB_*", "MILES_A B"]

    def passed(backend: str, devices: str) -> set[str]:
        found = inventory.backends[backend]
        return set(passed_variables(given, found, inventory.dependencies.values(), devices))

    always = {"WANDB_API_KEY", "CI", "GITHUB_SHA", "MILES_X", "CI_SGLANG_REPO"}
    assert passed("cuda", "CUDA_VISIBLE_DEVICES") == {*always, "NEON_DATABASE_URL", "CUDA_VISIBLE_DEVICES"}
    assert passed("rocm", "HIP_VISIBLE_DEVICES") == {*always, "HIP_VISIBLE_DEVICES"}


@pytest.mark.parametrize("path", ["/root/Megatron-LM", "/sgl-workspace", "/sgl-workspace/sglang/python"])
def test_the_images_checkouts_are_not_hidden(path: str) -> None:
    with pytest.raises(UsageError, match="would hide the image's own"):
        merged_mounts([own(path)], image("cuda"), INVENTORY.dependencies)


@pytest.mark.parametrize("path", ["/", "/root", "/usr"])
def test_system_folders_are_not_hidden(path: str) -> None:
    with pytest.raises(UsageError, match="system folder"):
        merged_mounts([own(path)], image("cuda", checkouts={}), INVENTORY.dependencies)


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a\nb", "/a\x1bb", "/a\udcffb"])
def test_a_path_that_an_engine_cannot_be_given_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be mounted"):
        merged_mounts([own(path)], image("cuda"), INVENTORY.dependencies)


def test_two_things_cannot_be_at_one_path() -> None:
    with pytest.raises(UsageError, match="the /root/models: /root/models is /data/miles_ci/models inside"):
        merged_mounts([own("/root/models")], image("cuda"), INVENTORY.dependencies)


FOLDERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
MOUNTS = st.lists(
    st.builds(
        lambda path, writable, source: own(path, writable=writable, source=source or path),
        FOLDERS,
        st.booleans(),
        st.none() | st.just("/elsewhere"),
    ),
    max_size=6,
)


def shown(path: str, mounts: tuple[Mount, ...] | list[Mount]) -> tuple[str, bool] | None:
    """What a container has at a path, and whether it may write it there: the nearest mount decides."""
    folders = [str(path), *map(str, PurePosixPath(path).parents)]
    by_target = {mount.target: mount for mount in mounts}
    for folder in folders:
        if mount := by_target.get(folder):
            return mount.source + path[len(folder) :], mount.writable
    return None


@given(MOUNTS)
def test_every_path_is_there_once_and_as_writable_as_it_was_asked_for(mounts: list[Mount]) -> None:
    bare = image("cuda", checkouts={}, mounts={})
    sources: dict[str, set[str]] = {}
    for mount in mounts:
        sources.setdefault(mount.target, set()).add(mount.source)
    if any(len(found) > 1 for found in sources.values()):
        with pytest.raises(UsageError):
            merged_mounts(mounts, bare, INVENTORY.dependencies)
        return
    merged = merged_mounts(mounts, bare, INVENTORY.dependencies)
    assert len({mount.target for mount in merged}) == len(merged)
    for mount in mounts:
        found = shown(mount.target, merged)
        assert found is not None
        assert found[0] == mount.source
        assert found[1] or not mount.writable
    for mount in merged:
        without = shown(mount.target, [other for other in merged if other is not mount])
        assert without is None or without[0] != mount.source or (mount.writable and not without[1])


# `--` is what argparse itself cannot take as a value
WORDS = st.text(max_size=12).filter(lambda text: text != "--")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "event": WORDS,
            "labels_json": WORDS,
            "schedule": WORDS,
            "cadence": WORDS,
            "labels": st.lists(WORDS, max_size=3),
            "only": st.lists(WORDS, max_size=3),
            "match_all_labels": st.booleans(),
            "sglang": WORDS,
            "parallel": st.integers(0, 999),
            "grace": st.integers(0, 99_999_999).map(lambda milliseconds: milliseconds / 1000),
            "timeout_per_file": st.none() | st.floats(0.001, 99999).map(lambda seconds: round(seconds, 3)),
            "leave_out": st.lists(st.sampled_from(["torch", "a.b_c"]), max_size=2),
        },
    )
)
def test_the_session_inside_reads_what_the_one_outside_read(values: dict[str, Any]) -> None:
    parser = Parser("x", "", *DECLARED)
    outside = {**vars(parser.read([])), **values}
    assert vars(parser.read(session_arguments(DECLARED, outside))) == outside


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=4))
def test_a_shell_reads_the_line_back(arguments: list[str]) -> None:
    line = shell_line(["printf", r"%s\0", *arguments])
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=True).stdout
    assert said == b"".join(argument.encode() + b"\0" for argument in arguments or [""])
