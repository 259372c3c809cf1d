"""What a container needs of this machine, found out for its command. An edge: it looks at paths and variables."""

import os
import platform
import secrets
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ci.console import say, warn
from ci.container import ContainerRun, Mount, container_name, merged_mounts, passed_variables, session_arguments
from ci.errors import UsageError
from ci.facts import Facts
from ci.hardware import TOOLS
from ci.image_decision import INPUT, ImageRequest, decide_image
from ci.options import Option
from ci.paths import REPOSITORY, cache_dir
from ci.plan import StagePlan
from ci.proc import started as started_at
from ci.text import show
from ci.workspace import Workspace

_PATH = "path:"
# files of GitHub Actions that a step writes to
_STEP_FILES = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE")
_EVENT_FILE = "GITHUB_EVENT_PATH"


def container_run(
    options: Namespace,
    workspace: Workspace,
    plan: StagePlan,
    facts: Facts,
    *,
    declared: Sequence[Option],
    started_in: Path,
) -> ContainerRun:
    """The run of this plan in its image. ``declared``: the options that the session inside is given.

    Raises:
        UsageError: no image, a tag that is none, or a path that cannot be mounted.
    """
    inventory, backend = workspace.inventory, workspace.inventory.backends[plan.stage.backend]
    if backend.image is None:
        raise UsageError(
            f"--container: {show(inventory.origin)} names no image for {backend.title}",
            hint=f"add backends.{backend.name}.image there",
        )
    dispatched = facts.event.inputs.get(INPUT, "") if facts.event else ""
    # a pull request's own image is the run's business, which hands its tag over with --image
    chosen = decide_image(ImageRequest(given=options.image or dispatched, body=facts.refs.body), backend.image)
    for warning in chosen.warnings:
        warn(f"PR text, {warning}")
    say(f"image: {chosen.image} ({chosen.reason})")
    values, named = _named_paths(options, facts, started_in)
    values |= {"workspace": str(workspace.root), "started_in": str(started_in)}
    cache = cache_path(os.environ)
    own = [
        _mount(REPOSITORY, "this repository", writable=True),
        _mount(workspace.root, "the workspace", writable=True),
        Mount(source=os.path.realpath(cache), target=cache, writable=True, what="the cache"),
        _mount(results_parent(options, started_in), "--results" if options.results else "the results", writable=True),
        *named,
        *_git_folders([workspace.root, *(Path(mount.source) for mount in named)]),
        *_step_files(os.environ),
        *_repositories(workspace, os.environ),
    ]
    partition = plan.partition.id if plan.partition else None
    return ContainerRun(
        engine=options.container,
        name=container_name(plan.stage.name, partition, f"{os.getpid()}-{secrets.token_hex(3)}"),
        owner=f"{host()}/{os.getpid()}/{started_at(os.getpid())}",
        image=chosen.image,
        options=backend.image.options,
        mounts=merged_mounts(own, backend.image, inventory.dependencies),
        variables=passed_variables(
            os.environ, backend, inventory.dependencies.values(), TOOLS[plan.stage.backend].variable
        ),
        cache=cache,
        folder=str(REPOSITORY),
        pull=not options.offline,
        stage=plan.stage.name,
        arguments=session_arguments(declared, {**vars(options), **values}),
    )


def missing_data(workspace: Workspace, plan: StagePlan) -> tuple[str, ...]:
    """Folders of the inventory's mounts that this machine does not have."""
    image = workspace.inventory.backends[plan.stage.backend].image
    return tuple(folder for folder in (image.mounts if image else ()) if not os.path.isdir(folder))


def host() -> str:
    """This machine's name, as it can stand in a label."""
    return "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in platform.node()) or "_"


def results_parent(options: Namespace, started_in: Path) -> Path:
    """The folder that the partition's folder of results goes to."""
    return Path(os.path.realpath(started_in / options.results if options.results else REPOSITORY / "results"))


def cache_path(environ: Mapping[str, str]) -> str:
    """The cache as it is named, links and all: git's worktrees in it say their own paths."""
    cache = cache_dir(environ)
    return os.path.realpath(cache) if ".." in cache.parts else str(cache)


def _mount(path: Path, what: str, *, writable: bool) -> Mount:
    """The same path inside, links resolved: what they lead through is not there."""
    real = os.path.realpath(path)
    return Mount(source=real, target=real, writable=writable, what=what)


def _named_paths(options: Namespace, facts: Facts, started_in: Path) -> tuple[dict[str, str], list[Mount]]:
    """Values of options that name files or folders, as they are inside, and the mounts that put them there.

    Not ``--python``, which names an interpreter of the image, and not ``--only``, a file of the workspace.
    """
    values: dict[str, str] = {}
    mounts = []
    for name in ("event", "pr_body"):
        if text := getattr(options, name):
            what = f"--{name.replace('_', '-')}"
            mount = _mount(started_in / text, what, writable=False)
            if not os.path.isfile(mount.source):
                raise UsageError(f"{what}: {show(text)} is not a file that can be mounted", hint="write it to a file")
            values[name] = mount.target
            mounts.append(mount)
    if options.results:
        values["results"] = str(results_parent(options, started_in))
    for name in sorted(facts.refs.local):
        ref = facts.refs.dispatch[name]
        if ref.startswith(_PATH) and ref != _PATH:
            # writable: Megatron-LM builds its helpers where it lies
            mount = _mount(Path(ref.removeprefix(_PATH)), f"--{name}", writable=True)
            if not os.path.isdir(mount.source):
                raise UsageError(f"--{name}: {show(mount.source)} is not a folder", hint="give path:DIR, a source tree")
            values[name] = f"{_PATH}{mount.target}"
            mounts.append(mount)
    return values, mounts


def _git_folders(trees: Sequence[Path]) -> Iterator[Mount]:
    """The repositories of linked worktrees and submodules lie elsewhere; without them a tree has no commit."""
    for tree in trees:
        with suppress(OSError, UnicodeDecodeError):
            kind, _, folder = (tree / ".git").read_text(encoding="utf-8").strip().partition(": ")
            if kind == "gitdir" and (tree / folder / "HEAD").is_file():
                common = tree / folder / "commondir"
                inner = common.read_text(encoding="utf-8").strip() if common.exists() else "."
                yield _mount(tree / folder / inner, f"the repository of {show(tree)}", writable=False)


def _step_files(environ: Mapping[str, str]) -> Iterator[Mount]:
    for name in (*_STEP_FILES, _EVENT_FILE):
        path = environ.get(name, "")
        if os.path.isabs(path) and os.path.isfile(path):
            real = os.path.realpath(path)
            yield Mount(source=real, target=os.path.normpath(path), writable=name != _EVENT_FILE, what=name)


def _repositories(workspace: Workspace, environ: Mapping[str, str]) -> Iterator[Mount]:
    """Mirrors that are folders of this machine; the variable itself is read as it stands, from this repository."""
    for dependency in workspace.inventory.dependencies.values():
        name = dependency.repository_variable
        path = environ.get(name, "").removeprefix("file://")
        if path and os.path.isdir(REPOSITORY / path):
            target = os.path.normpath(REPOSITORY / path)
            yield Mount(source=os.path.realpath(target), target=target, writable=False, what=name)
