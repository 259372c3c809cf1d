"""Setting a run up: source trees, interpreter, packages; or taking what was given."""

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ci.console import say
from ci.environment import EnvironmentSpec, ensure
from ci.errors import InfrastructureError, UsageError
from ci.facts import Facts
from ci.image_setup import fit_image, session_trees
from ci.interpreter import Interpreter, find_interpreter, interpreter_at
from ci.inventory import Backend, Dependency
from ci.paths import REPOSITORY, cache_dir
from ci.plan import StagePlan
from ci.refs import RefDecision, Refs
from ci.requirement_files import read_requirements
from ci.text import did_you_mean, show
from ci.verify import Expected
from ci.workspace import Workspace

_OWN_REQUIREMENTS = REPOSITORY / "requirements" / "cpu.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a run of the tests needs.

    ``sources`` go on PYTHONPATH, ``installed`` are in the interpreter; ``expected``: where modules must come
    from. ``facts`` go into the results.
    """

    python: str
    sources: tuple[tuple[Dependency, str], ...]
    number: int | None
    rerun: str
    facts: Mapping[str, Any]
    installed: tuple[tuple[Dependency, str], ...] = ()
    expected: tuple[Expected, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def session_setup(
    options: Namespace,
    workspace: Workspace,
    plan: StagePlan,
    facts: Facts,
    refs: Refs,
    *,
    started_in: Path,
    results: Path,
) -> Setup:
    """What a Nox session runs with: trees at their refs, and an environment with the workspace's pins."""
    backend = workspace.inventory.backends[plan.stage.backend]
    if options.leave_out and options.python:
        raise UsageError("--leave-out has no meaning here", hint="--python installs nothing; drop one of the two")
    trees = session_trees(refs.decisions, workspace, backend, installs=not options.python, offline=options.offline)
    for tree in trees.all.values():
        dependency = workspace.inventory.dependencies[tree.dependency]
        changed = " with local changes" if tree.changed else ""
        say(f"{dependency.title}: {show(tree.ref)} at {tree.commit or 'no commit'}{changed}")
    python, interpreter = _interpreter(options, workspace, plan, started_in)
    packages: Mapping[str, object] = {}
    if plan.stage.gpus and not options.python:
        packages = fit_image(
            python,
            trees,
            workspace,
            backend,
            leave_out=_left_out(options),
            results=results,
            offline=options.offline,
        )
    sources = _roots(trees.on_path, workspace)
    installed = _roots(trees.installed, workspace)
    named = [(dependency, root) for dependency, root in installed if dependency.name in trees.named]
    return Setup(
        python=python,
        sources=sources,
        installed=installed,
        expected=expected_modules(workspace, (*sources, *named)),
        number=facts.number,
        rerun=_rerun(plan),
        variables={**_infinite_run(facts), **_platform(plan)},
        facts={
            "refs": [_ref_fact(decision, trees.all) for decision in refs.decisions],
            "python": interpreter.version,
            "left_out": list(options.leave_out),
            "number": facts.number,
            **packages,
        },
    )


def given_setup(options: Namespace, workspace: Workspace, plan: StagePlan) -> Setup:
    """The interpreter and trees that were given: ``python -m ci.suite`` without a session."""
    interpreter = interpreter_at(options.python) if options.python else find_interpreter(None)
    sources = _given_sources(options, workspace)
    return Setup(
        python=interpreter.path,
        sources=sources,
        expected=expected_modules(workspace, sources),
        number=None,
        rerun=f"python -m ci.suite --suite {plan.stage.name} --only",
        facts={"python": interpreter.version, "left_out": []},
    )


def expected_modules(workspace: Workspace, sources: tuple[tuple[Dependency, str], ...]) -> tuple[Expected, ...]:
    """The workspace's modules and those of the trees, each with the tree that it must come from."""
    own = workspace.inventory.workspace_modules
    wanted = [Expected(module=module, root=str(workspace.root), owner="the workspace") for module in own]
    for dependency, root in sources:
        wanted += [Expected(module=module, root=root, owner=dependency.title) for module in dependency.modules]
    return tuple(wanted)


def _roots(trees: Mapping[str, Any], workspace: Workspace) -> tuple[tuple[Dependency, str], ...]:
    return tuple((workspace.inventory.dependencies[name], tree.root) for name, tree in trees.items())


def _interpreter(
    options: Namespace, workspace: Workspace, plan: StagePlan, started_in: Path
) -> tuple[str, Interpreter]:
    """The interpreter that runs the tests: the one given, or one of an environment with the workspace's pins."""
    if plan.stage.gpus and not options.python:
        image = interpreter_at("python3")
        say(f"environment: the image's own, {show(image.path)}")
        return image.path, image
    if options.python:
        # a bare name is looked up on PATH, a path is meant from where the person is
        given = interpreter_at(str(started_in / options.python) if "/" in options.python else options.python)
        return given.path, given
    backend = workspace.inventory.backends[plan.stage.backend]
    base = _base_interpreter(backend, workspace)
    spec = EnvironmentSpec(
        name=backend.name,  # stages of one backend have the same pins, and so one environment
        interpreter=base,
        files=read_requirements(_requirement_files(backend, workspace)),
        leave_out=_left_out(options),
    )
    programs = ensure(spec, cache=cache_dir(), offline=options.offline)
    return str(programs / "python"), base


def _left_out(options: Namespace) -> tuple[str, ...]:
    return tuple(sorted({str(canonicalize_name(name)) for name in options.leave_out}))


def _base_interpreter(backend: Backend, workspace: Workspace) -> Interpreter:
    """CI's version; the sample, which runs on every supported one, takes the running one where CI's is missing."""
    try:
        return find_interpreter(backend.python)
    except InfrastructureError:
        if not workspace.sample:
            raise
        running = find_interpreter(None)
        say(f"Python {backend.python}, which CI uses, is not on this machine; the sample runs on {running.version} too")
        return running


def _requirement_files(backend: Backend, workspace: Workspace) -> list[Path]:
    found = [workspace.root / name for name in backend.requirements if (workspace.root / name).is_file()]
    if not found and not workspace.sample:
        missing = ", ".join(backend.requirements)
        say(f"the workspace has none of {missing}; requirements/cpu.txt of this repository is taken")
    return found or [_OWN_REQUIREMENTS]


def _given_sources(options: Namespace, workspace: Workspace) -> tuple[tuple[Dependency, str], ...]:
    """Trees from ``--tree NAME=DIR``, else from the environment variables that a session sets."""
    dependencies = workspace.inventory.dependencies
    given: dict[str, str] = {}
    for text in options.tree:
        name, _, folder = text.partition("=")
        if name not in dependencies or not folder:
            raise UsageError(f"--tree {show(text, 80)} is not NAME=DIR", hint=did_you_mean(name, dependencies))
        given[name] = folder
    roots = {name: given.get(name) or os.environ.get(entry.root_variable) for name, entry in dependencies.items()}
    for name, root in roots.items():
        if root and not os.path.isdir(root):
            raise UsageError(f"{show(root)} is not a folder", hint=f"give the folder of {name} with --tree {name}=DIR")
    return tuple((dependencies[name], os.path.abspath(root)) for name, root in roots.items() if root)


def _rerun(plan: StagePlan) -> str:
    session = plan.stage.name if plan.partition is None else f'"{plan.stage.name}({plan.partition.id})"'
    return f"nox -s {session} -- --only"


def _platform(plan: StagePlan) -> dict[str, str]:
    """ROCm tests are told where they are (spec §9)."""
    return {"MILES_HARDWARE_PLATFORM": "rocm"} if plan.stage.backend == "rocm" else {}


def _infinite_run(facts: Facts) -> dict[str, str]:
    """The dispatch input of that name, handed to the tests (spec §9)."""
    asked = facts.event.inputs.get("infinite_run") if facts.event else None
    return {"MILES_TEST_ENABLE_INFINITE_RUN": asked} if asked else {}


def _ref_fact(decision: RefDecision, trees: Mapping[str, Any]) -> dict[str, str | bool | None]:
    tree = trees.get(decision.dependency.name)
    return {
        "name": decision.dependency.name,
        "ref": str(decision.ref) if decision.ref else None,
        "origin": decision.origin,
        "detail": decision.detail,
        "commit": tree.commit if tree else None,
        "changed": tree.changed if tree else False,
    }
