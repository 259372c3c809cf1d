"""Setting a suite up and running it: the impure middle between a plan and its results."""

import os
import signal
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ci import git
from ci.child_environment import commit_name, compose
from ci.clean_host import look_for_leftovers
from ci.console import say, warn
from ci.cpu import CpuRun, run_cpu
from ci.engine import installed_engines
from ci.errors import ExitCode
from ci.facts import Facts
from ci.hardware import require
from ci.limits import job_warning
from ci.paths import REPOSITORY
from ci.plan import StagePlan, plan_data, plan_text
from ci.process import die_with_parent
from ci.refs import Refs
from ci.results import SuiteOutcome, write_results
from ci.scripts import ScriptRun, run_scripts
from ci.session_setup import Setup, given_setup, session_setup
from ci.show_output import Output
from ci.summary import summary, write_step_summary
from ci.supervise import Stop
from ci.text import show
from ci.verify import verify
from ci.workspace import Workspace

# seconds before another attempt at a file (spec §9)
_RETRY_PAUSE = 60.0


def run_session(
    options: Namespace, workspace: Workspace, plan: StagePlan, facts: Facts, refs: Refs, *, started_in: Path
) -> int:
    """Obtain sources, build the environment, then run; what a Nox session does."""
    die_with_parent(signal.SIGTERM)
    parent = started_in / options.results if options.results else REPOSITORY / "results"
    results = parent / plan.folder
    if not plan.enabled:
        nothing = Setup(python="", sources=(), number=None, rerun="", facts={})
        return _run(options, workspace, plan, nothing, results)
    machine = _require_hardware(options, plan)
    setup = session_setup(options, workspace, plan, facts, refs, started_in=started_in, results=results)
    setup = replace(setup, facts={**setup.facts, **machine})
    return _run(options, workspace, plan, setup, results)


def run_given(options: Namespace, workspace: Workspace, plan: StagePlan) -> int:
    """Run with the interpreter and trees that were given: ``python -m ci.suite`` without a session."""
    machine = _require_hardware(options, plan)
    results = Path(options.results).absolute() if options.results else REPOSITORY / "results" / plan.folder
    setup = given_setup(options, workspace, plan)
    return _run(options, workspace, plan, replace(setup, facts={**setup.facts, **machine}), results)


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
        installed=setup.installed,
        programs=os.path.dirname(setup.python),
        commit_name=commit_name(commit, setup.number),
        extra=setup.variables,
    )
    if environment.dropped:
        say(f"not handed to the tests: {', '.join(environment.dropped)}")
    verify(setup.python, setup.expected, env=environment.variables, cwd=str(workspace.root))
    if plan.stage.gpus:
        minutes = workspace.inventory.backends[plan.stage.backend].job_minutes
        if warning := job_warning(plan.enabled, timeout=options.timeout_per_file, job_minutes=minutes):
            warn(warning)
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


def _require_hardware(options: Namespace, plan: StagePlan) -> dict[str, Any]:
    """Facts of the machine, once it has what the stage needs."""
    if not plan.stage.gpus:
        return {}
    # `python -m ci.suite` has no containers
    engines = installed_engines(os.environ) if "container" in options else ()
    for device in require(plan.stage, os.environ, any_class=options.any_hardware, engines=engines):
        say(f"hardware: {device.index} {show(device.name, 60)}, {device.used / (1 << 30):.1f} GiB in use")
    return {"leftovers": look_for_leftovers(plan.stage.backend, os.environ, clean=options.clean_host)}
