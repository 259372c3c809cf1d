"""Setting a suite up and running it: the impure middle between a plan and its results."""

import os
import signal
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ci import git
from ci.child_environment import commit_name, compose
from ci.console import say
from ci.cpu import CpuRun, run_cpu
from ci.environment import EnvironmentSpec, ensure
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.facts import Facts
from ci.hardware import require
from ci.interpreter import Interpreter, find_interpreter, interpreter_at
from ci.inventory import Backend, Dependency
from ci.paths import REPOSITORY, cache_dir
from ci.plan import StagePlan, plan_data, plan_text
from ci.process import die_with_parent
from ci.refs import RefDecision, Refs
from ci.requirement_files import read_requirements
from ci.results import SuiteOutcome, write_results
from ci.run_sources import obtain_trees
from ci.scripts import ScriptRun, run_scripts
from ci.show_output import Output
from ci.summary import summary, write_step_summary
from ci.supervise import Stop
from ci.text import did_you_mean, show
from ci.verify import Expected, verify
from ci.workspace import Workspace

# seconds before another attempt at a file (spec §9)
_RETRY_PAUSE = 60.0
_OWN_REQUIREMENTS = REPOSITORY / "requirements" / "cpu.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a run of the tests needs. ``facts`` go into the results."""

    python: str
    sources: tuple[tuple[Dependency, str], ...]
    number: int | None
    rerun: str
    facts: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)


def run_session(
    options: Namespace, workspace: Workspace, plan: StagePlan, facts: Facts, refs: Refs, *, started_in: Path
) -> int:
    """Obtain sources, build the environment, then run; what a Nox session does."""
    die_with_parent(signal.SIGTERM)
    parent = started_in / options.results if options.results else REPOSITORY / "results"
    results = _results_folder(parent, plan)
    if not plan.enabled:
        nothing = Setup(python="", sources=(), number=None, rerun="", facts={})
        return _run(options, workspace, plan, nothing, results)
    _require_hardware(options, plan)
    _refuse_unsupported(plan, refs, workspace)
    trees = obtain_trees(refs.decisions, workspace, environ=os.environ, offline=options.offline)
    for tree in trees.values():
        dependency = workspace.inventory.dependencies[tree.dependency]
        changed = " with local changes" if tree.changed else ""
        say(f"{dependency.title}: {show(tree.ref)} at {tree.commit or 'no commit'}{changed}")
    python, interpreter = _interpreter(options, workspace, plan, started_in)
    setup = Setup(
        python=python,
        sources=tuple((workspace.inventory.dependencies[name], tree.root) for name, tree in trees.items()),
        number=facts.number,
        rerun=_rerun(plan),
        variables={**_infinite_run(facts), **_platform(plan)},
        facts={
            "refs": [_ref_fact(decision, trees) for decision in refs.decisions],
            "python": interpreter.version,
            "left_out": list(options.leave_out),
            "number": facts.number,
        },
    )
    return _run(options, workspace, plan, setup, results)


def run_given(options: Namespace, workspace: Workspace, plan: StagePlan) -> int:
    """Run with the interpreter and trees that were given: ``python -m ci.suite`` without a session."""
    _require_hardware(options, plan)
    interpreter = interpreter_at(options.python) if options.python else find_interpreter(None)
    setup = Setup(
        python=interpreter.path,
        sources=_given_sources(options, workspace),
        number=None,
        rerun=f"python -m ci.suite --suite {plan.stage.name} --only",
        facts={"python": interpreter.version, "left_out": []},
    )
    results = Path(options.results).absolute() if options.results else _results_folder(REPOSITORY / "results", plan)
    return _run(options, workspace, plan, setup, results)


def _run(options: Namespace, workspace: Workspace, plan: StagePlan, setup: Setup, results: Path) -> int:
    """Verify, print the plan, run the tests, write what came of it."""
    print(plan_text(plan), flush=True)
    stop = Stop()
    # until the results are written: a signal may cost tests, never what is known of them
    with stop.listening():
        outcome = SuiteOutcome(files=())
        if plan.enabled:
            outcome = _run_tests(options, workspace, plan, setup, results, stop)
        facts = {**plan_data(plan), **setup.facts, "workspace": str(workspace.root)}
        for fact in ("enabled", "skipped"):
            facts[fact] = len(facts[fact])
        output = Output()
        for line in summary(outcome, title=plan.title, results=str(results), rerun=setup.rerun):
            output.line(line)
        write_step_summary(outcome, title=plan.title, environ=os.environ)
        write_results(results, outcome, facts, title=plan.title)
    return ExitCode(outcome.exit_code)


def _run_tests(  # noqa: PLR0917 - all of them are needed, and each is of a type of its own
    options: Namespace, workspace: Workspace, plan: StagePlan, setup: Setup, results: Path, stop: Stop
) -> SuiteOutcome:
    commit = _head(workspace)
    environment = compose(
        os.environ,
        workspace=str(workspace.root),
        sources=setup.sources,
        programs=os.path.dirname(setup.python),
        commit_name=commit_name(commit, setup.number),
        extra=setup.variables,
    )
    if environment.dropped:
        say(f"not handed to the tests: {', '.join(environment.dropped)}")
    verify(setup.python, _expected(workspace, setup.sources), env=environment.variables, cwd=str(workspace.root))
    if plan.stage.gpus:
        return run_scripts(_script_run(options, workspace, plan, setup, environment.variables, results), Output(), stop)
    run = CpuRun(
        title=plan.title,
        python=setup.python,
        workspace=str(workspace.root),
        files=tuple(dict.fromkeys(registration.file for registration in plan.enabled)),
        env=environment.variables,
        keep_going=plan.policy.bypass_fastfail,
        parallel=options.parallel,
        results=str(results),
        grace=options.grace,
    )
    return run_cpu(run, Output(), stop)


def _head(workspace: Workspace) -> str:
    """The workspace's commit; a tree that is no checkout, or no git to ask, is no reason not to run."""
    try:
        return git.head_commit(workspace.root) or "unknown"
    except git.GitError:
        return "unknown"


def _script_run(  # noqa: PLR0917 - all of them are needed, and each is of a type of its own
    options: Namespace,
    workspace: Workspace,
    plan: StagePlan,
    setup: Setup,
    variables: Mapping[str, str],
    results: Path,
) -> ScriptRun:
    backend = workspace.inventory.backends[plan.stage.backend]
    return ScriptRun(
        title=plan.title,
        python=setup.python,
        workspace=str(workspace.root),
        backend=backend.name,
        registrations=plan.enabled,
        env=variables,
        keep_going=plan.policy.bypass_fastfail,
        attempts=backend.attempts,
        results=str(results),
        grace=options.grace,
        timeout=options.timeout_per_file,
        retry_pause=_RETRY_PAUSE,
        shared=os.path.join(tempfile.gettempdir(), "miles-ci-ports"),
    )


def _require_hardware(options: Namespace, plan: StagePlan) -> None:
    if plan.stage.gpus:
        for device in require(plan.stage, os.environ, any_class=options.any_hardware):
            say(f"hardware: {device.index} {show(device.name, 60)}, {device.used / (1 << 30):.1f} GiB in use")


def _refuse_unsupported(plan: StagePlan, refs: Refs, workspace: Workspace) -> None:
    """A ref for a backend whose image has its own trees would have to be installed there; that is not done yet."""
    backend = workspace.inventory.backends[plan.stage.backend]
    named = [decision for decision in refs.decisions if decision.ref is not None]
    if backend.baked_sources and named:
        raise UsageError(
            f"{named[0].dependency.title} {show(named[0].ref, 60)}: {backend.title} runs keep their image's own tree",
            hint="taking another is not done yet: leave the ref out, or install the tree in the image by hand",
        )


def _expected(workspace: Workspace, sources: Sequence[tuple[Dependency, str]]) -> list[Expected]:
    own = workspace.inventory.workspace_modules
    wanted = [Expected(module=module, root=str(workspace.root), owner="the workspace") for module in own]
    for dependency, root in sources:
        wanted += [Expected(module=module, root=root, owner=dependency.title) for module in dependency.modules]
    return wanted


def _interpreter(
    options: Namespace, workspace: Workspace, plan: StagePlan, started_in: Path
) -> tuple[str, Interpreter]:
    """The interpreter that runs the tests: the one given, or one of an environment with the workspace's pins."""
    if options.leave_out and (options.python or plan.stage.gpus):
        raise UsageError("--leave-out has no meaning here", hint="nothing is installed for this run; drop it")
    if plan.stage.gpus and not options.python:
        image = interpreter_at("python3")
        say(f"environment: the image's own, {show(image.path)}, as it is")
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
        leave_out=tuple(sorted({str(canonicalize_name(name)) for name in options.leave_out})),
    )
    programs = ensure(spec, cache=cache_dir(), offline=options.offline)
    return str(programs / "python"), base


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


def _results_folder(parent: Path, plan: StagePlan) -> Path:
    """A folder for each partition, because one call of Nox runs several."""
    return parent / (plan.stage.name if plan.partition is None else f"{plan.stage.name}-{plan.partition.id}")


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
