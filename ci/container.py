"""A stage inside its image: the command of docker or podman, composed from frozen values (spec §8, §9)."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.errors import UsageError
from ci.inventory import Backend, Dependency, Image, Stage
from ci.options import Option
from ci.text import show

LABEL = "miles-ci"
# folders of the container that a folder of the host must not stand in for: nothing would start any more
_SYSTEM = frozenset(
    {"/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var"}
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PASSED = re.compile(r"CI|GITHUB_.*|MILES_.*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or folder of the host at an absolute path of the container.

    ``what`` names it in errors; ``shared``: it is the inventory's, data that all runs of a machine share.
    """

    source: str
    target: str
    writable: bool
    what: str
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One run of a stage in a container.

    ``owner`` becomes the label's value; ``options`` are of the engine's ``run``; ``variables`` are handed over by
    name, so that no value stands on a command line; ``pull``: an image that is not here may be fetched;
    ``arguments`` are the session's.
    """

    engine: str
    name: str
    owner: str
    image: str
    options: tuple[str, ...]
    mounts: tuple[Mount, ...]
    variables: tuple[str, ...]
    cache: str
    folder: str
    pull: bool
    stage: str
    arguments: tuple[str, ...]


def run_command(run: ContainerRun) -> list[str]:
    """The whole command, an argument each."""
    return [
        *(run.engine, "run", "--rm", "--init"),
        *("--name", run.name, "--label", f"{LABEL}={run.owner}"),
        *(() if run.pull else ("--pull=never",)),
        *(_option(run.engine, option) for option in run.options),
        *(part for mount in run.mounts for part in ("--mount", _mount(mount))),
        *(part for name in run.variables for part in ("--env", name)),
        *("--env", f"CI_CACHE_DIR={run.cache}"),
        *("--workdir", run.folder),
        run.image,
        *("python3", "-m", "ci.session", run.stage, *run.arguments),
    ]


def give_back_command(run: ContainerRun, folders: Sequence[str], *, uid: int, gid: int) -> list[str]:
    """A container that makes root's files in these folders of the host the person's own."""
    mounts = [Mount(source=folder, target=folder, writable=True, what="") for folder in folders]
    return [
        *(run.engine, "run", "--rm", "--name", f"{run.name}-owner", "--label", f"{LABEL}={run.owner}"),
        *("--pull=never", "--network=none"),
        *(part for mount in mounts for part in ("--mount", _mount(mount))),
        *("--entrypoint", "chown", run.image),
        *("--recursive", "--no-dereference", "--from=0", f"{uid}:{gid}", "--", *folders),
    ]


def container_name(stage: str, partition: int | None, unique: str) -> str:
    """``miles-ci-<stage>[-<partition>]-<unique>``; a stage's name is valid for an engine as it is."""
    return "-".join([LABEL, stage, *([] if partition is None else [str(partition)]), unique])


def session_arguments(declared: Iterable[Option], values: Mapping[str, object]) -> tuple[str, ...]:
    """The command line that reads as ``values``; what stands at its default is left out."""
    spelled: list[str] = []
    for option in declared:
        value = values[option.key]
        if value == option.initial:
            continue
        if option.value is None:
            spelled.append(f"--{option.name}")
        else:
            spelled += [f"--{option.name}={each}" for each in (value if isinstance(value, list) else [value])]
    return tuple(spelled)


def passed_variables(
    given: Iterable[str], backend: Backend, dependencies: Iterable[Dependency], devices: str
) -> tuple[str, ...]:
    """Of the names that are set, those that the session inside and its tests read.

    ``devices``: the variable that hides accelerators. A name that is none (podman takes a ``*`` for all) is not
    passed.
    """
    wanted = {*backend.secrets, devices, *(dependency.repository_variable for dependency in dependencies)}
    return tuple(
        sorted(name for name in given if _VARIABLE.fullmatch(name) and (name in wanted or _PASSED.fullmatch(name)))
    )


def merged_mounts(own: Sequence[Mount], image: Image, dependencies: Mapping[str, Dependency]) -> tuple[Mount, ...]:
    """The inventory's mounts and this run's ``own``, without those that another one shows anyway.

    Raises:
        UsageError: a path that an engine cannot be given, or that would hide something of the image.
    """
    for mount in own:
        _refuse_hiding(mount, image, dependencies)
    shared = [
        Mount(source=host, target=inside, writable=True, what=inside, shared=True)
        for host, inside in image.mounts.items()
    ]
    unique: dict[str, Mount] = {}
    for mount in (*shared, *own):
        _refuse_inexpressible(mount)
        before = unique.setdefault(mount.target, mount)
        if before.source != mount.source:
            raise UsageError(
                f"{mount.what}: {show(mount.target)} is {show(before.source)} inside the container",
                hint="put it into another folder",
            )
        if mount.writable and not before.writable:
            unique[mount.target] = replace(before, writable=True)
    kept: list[Mount] = []
    # from the outside in: what a path shows is decided by the nearest mount around it
    for mount in sorted(unique.values(), key=lambda mount: mount.target.count("/")):
        around = [other for other in kept if _is_below(mount.target, other.target)]
        nearest = max(around, key=lambda other: len(other.target), default=None)
        if nearest is None or not _shows(nearest, mount):
            kept.append(mount)
    return tuple(kept)


def without_mounts(run: ContainerRun, sources: Iterable[str]) -> ContainerRun:
    """The run without the mounts of these files or folders of the host."""
    gone = frozenset(sources)
    return replace(run, mounts=tuple(mount for mount in run.mounts if mount.source not in gone))


def refuse_misplaced(stage: Stage, *, container: str, image: str, dry_run: bool, list_only: bool) -> None:
    """Options that have no meaning together.

    Raises:
        UsageError: says which, and what to do.
    """
    if not container and (image or dry_run):
        raise UsageError(
            f"{'--image' if image else '--dry-run'} has no meaning without --container",
            hint="add --container docker or --container podman, or drop it",
        )
    if container and not stage.gpus:
        raise UsageError(
            f"--container: {stage.name} is a CPU stage, which has no image", hint="drop it: CPU stages run here"
        )
    if dry_run and list_only:
        raise UsageError("--dry-run and --list-only each print something and stop", hint="give one of them")


def shell_line(command: Iterable[str]) -> str:
    """The command as one line that bash reads back to the same arguments; nothing in it reaches a terminal raw."""
    return " ".join(shlex.quote(part) if part.isprintable() else _escaped(part) for part in command)


def _escaped(text: str) -> str:
    shown = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\x{byte:02x}"  # noqa: PLR2004 - printable ASCII
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f"$'{shown}'"


def _option(engine: str, option: str) -> str:
    """As this engine knows it: podman 4 takes ``--gpus`` and does nothing, what podman 5 makes of it is a device."""
    name, _, value = option.partition("=")
    return f"--device=nvidia.com/gpu={value}" if engine == "podman" and name == "--gpus" else option


def _mount(mount: Mount) -> str:
    """Not ``--volume``, which cannot hold a colon and makes folders that are not there."""
    return f"type=bind,source={mount.source},target={mount.target}{'' if mount.writable else ',readonly'}"


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/") and path != folder


def _shows(around: Mount, mount: Mount) -> bool:
    """Whether ``mount`` is what ``around`` has at that path anyway, and may be written where it has to be."""
    inner = mount.target[len(around.target.rstrip("/")) :]
    return mount.source == around.source.rstrip("/") + inner and (around.writable or not mount.writable)


def _refuse_inexpressible(mount: Mount) -> None:
    for path in (mount.source, mount.target):
        if not path.isprintable() or "," in path or '"' in path:
            raise UsageError(
                f"{mount.what}: {show(path)} has a character that cannot be mounted into a container",
                hint="rename it: no comma, no double quote, no unprintable character",
            )


def _refuse_hiding(mount: Mount, image: Image, dependencies: Mapping[str, Dependency]) -> None:
    if mount.target in _SYSTEM:
        raise UsageError(
            f"{mount.what}: {show(mount.target)} would hide a system folder of the image",
            hint="use a folder further down",
        )
    for name, checkout in image.checkouts.items():
        if mount.target == checkout or _is_below(mount.target, checkout) or _is_below(checkout, mount.target):
            raise UsageError(
                f"{mount.what}: {show(mount.target)} would hide the image's own {dependencies[name].title}, {checkout}",
                hint="move it to another folder of this machine",
            )
