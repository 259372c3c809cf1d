"""The inventory as frozen values: what the CI knows about stages, labels and dependencies (spec §2).

``ci/inventory_file.py`` reads them from ``inventory.yml``; everything else derives from these.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ci.errors import UsageError
from ci.text import show

_GPU_STAGE = re.compile(
    r"(?P<nightly>nightly-)?stage-(?P<tier>[abc])-(?P<gpus>[1-9][0-9]*)-gpu-(?P<hardware>[a-z0-9]+)"
)
_CPU_STAGE = re.compile(r"stage-(?P<tier>[abc])-cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageName:
    """What a stage's name says: ``[nightly-]stage-<tier>-<gpus>-gpu-<hw>`` or ``stage-<tier>-cpu``."""

    tier: str
    gpus: int
    hardware: str
    nightly: bool

    @classmethod
    def parse(cls, text: str) -> "StageName":
        """Read a name.

        Raises:
            UsageError: the text has neither form.
        """
        if cpu := _CPU_STAGE.fullmatch(text):
            return cls(tier=cpu["tier"], gpus=0, hardware="cpu", nightly=False)
        if gpu := _GPU_STAGE.fullmatch(text):
            return cls(
                tier=gpu["tier"],
                gpus=int(gpu["gpus"]),
                hardware=gpu["hardware"],
                nightly=gpu["nightly"] is not None,
            )
        raise UsageError(
            f"`{show(text, 80)}` is not a stage name",
            hint="a name is stage-<a|b|c>-cpu or [nightly-]stage-<a|b|c>-<gpus>-gpu-<hardware>",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A source tree besides the workspace.

    ``source`` is the folder of its repository that goes on PYTHONPATH (``.`` for the root), and
    ``root_variable`` the environment variable that hands that folder to the tests.
    ``repository_variable`` names the environment variable that replaces ``repository`` (a mirror).
    """

    name: str
    title: str
    repository: str
    repository_variable: str
    branch: str
    directive: str
    lock_key: str
    source: str
    root_variable: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInputs:
    """What an image is built from, and how a pull request that changes it gets an image of its own (spec §8).

    ``label``: of the published image, holds the inputs' hash; ``rebuild_label``: of a pull request, asks for a new
    build. ``paths``: files of the workspace; one that ends in ``/*`` stands for everything below its folder.
    """

    label: str
    rebuild_label: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The container image of a backend.

    ``tag``: the default one; ``directive``: of a PR text, which replaces it. ``checkouts``: dependency → the
    folder of its checkout in the image. ``protected``: canonical names of packages that keep the image's
    version (spec §9). ``patches``: dependency → the workspace's patch for a tree of another ref. ``options``:
    of docker's or podman's ``run``; ``mounts``: folder of the host → folder of the container. ``inputs``: None
    where pull requests have no images of their own.
    """

    repository: str
    tag: str
    directive: str | None
    checkouts: Mapping[str, str]
    protected: tuple[str, ...]
    patches: Mapping[str, str]
    options: tuple[str, ...]
    mounts: Mapping[str, str]
    inputs: ImageInputs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """``cpu``, ``cuda`` or ``rocm``: how its tests register, and how a run of them is set up.

    ``baked_sources``: the image's own trees stay unless a ref was named (ROCm, spec §7).
    ``dispatch_matches_all``: a manual dispatch selects every label (spec §4.4).
    ``attempts``: at a file that is run as a script, when the rules allow another (spec §9).
    ``job_minutes``: after that long the CI ends a job, whatever it does.
    ``requirements``: files of the workspace, in the order in which they are installed.
    ``secrets``: environment variables that its tests may be given (spec §9).
    """

    name: str
    title: str
    register: str
    hardware: tuple[str, ...]
    labels_required: bool
    dispatch_matches_all: bool
    baked_sources: bool
    attempts: int
    job_minutes: int
    python: str | None
    requirements: tuple[str, ...]
    secrets: tuple[str, ...]
    image: Image | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One CI job and the tests that declare it. ``external``: another repository's nightly runs it."""

    name: str
    backend: str
    gpus: int
    hardware: str
    runs_on: tuple[str, ...]
    partitions: int
    needs: tuple[str, ...]
    external: bool

    @property
    def summary(self) -> str:
        """``4×h200, 3 partitions``: what `nox -l` and plans show of it."""
        where = f"{self.gpus}×{self.hardware}" if self.gpus else f"CPU ({', '.join(self.runs_on)})"
        parts = f"{self.partitions} partitions" if self.partitions > 1 else "1 partition"
        return f"{where}, {parts}" + (", run by another repository's nightly" if self.external else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One run of the CI for a trigger. ``group``: how the name of its concurrency group begins (spec §10).

    ``closed``: a pull request that is closed starts it too, only to cancel what runs.
    """

    name: str
    title: str
    backends: tuple[str, ...]
    group: str
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How PR labels and cadences choose domain labels (spec §4)."""

    nightly_label: str
    bypass_label: str
    prefix: str
    all: str
    image: str
    without_nightly: frozenset[str]
    without_image: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Where test files lie, and what a file of ``implicit_root`` without a registration counts as (spec §3)."""

    roots: tuple[str, ...]
    implicit_root: str
    implicit_suite: str
    implicit_est_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGpuPaths:
    """Changed paths that cannot touch a GPU run (spec §5)."""

    folders: tuple[str, ...]
    suffixes: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that is declared once. Mappings keep the order of the file."""

    origin: str
    workspace_modules: tuple[str, ...]
    dependencies: Mapping[str, Dependency]
    backends: Mapping[str, Backend]
    stages: Mapping[str, Stage]
    workflows: Mapping[str, Workflow]
    labels: Mapping[str, str]
    scope: Scope
    crons: Mapping[str, str]
    discovery: Discovery
    no_gpu_paths: NoGpuPaths

    def backend_of_register(self) -> dict[str, str]:
        """Register function → backend, as ``register_cpu_ci`` → ``cpu``."""
        return {backend.register: backend.name for backend in self.backends.values()}
