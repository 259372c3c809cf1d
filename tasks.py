"""Tasks: what a person asks the CI. `invoke -l` lists them; `invoke --help TASK` says a task's options."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task, task

sys.path.insert(0, str(Path(__file__).parent))

from ci.inventory_file import OWN_INVENTORY, load_inventory
from ci.main import guarded
from ci.options import EVENT, FORMAT, PLAN, POLICY, REFS, WORKSPACE, Option, ref_options

BACKEND = (Option(name="backend", value="NAME", default="cpu", help="cpu, cuda or rocm"),)
IMAGE = (
    Option(name="backend", value="NAME", default="cuda", help="the backend whose image is meant"),
    Option(name="rev", value="REV", default="HEAD", help="the commit to look at: HEAD, HEAD^1, a branch, a hash"),
)
DEPENDENCIES = ref_options(load_inventory(OWN_INVENTORY))


Body = Callable[[Mapping[str, Any]], int]


def command(*options: Option, positional: str | None = None) -> Callable[[Body], Task[Any]]:
    """A task with options of ``ci/options.py``; its body gets their values and answers an exit code."""

    def decorate(body: Body) -> Task[Any]:
        def run(_context: Context, **given: Any) -> None:
            if code := guarded(lambda: body({**given, "started_in": Path.cwd()})):
                raise Exit(code=code)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter("context", kind)]
        parameters += [inspect.Parameter(positional, kind)] if positional else []
        parameters += [inspect.Parameter(option.key, kind, default=option.initial) for option in options]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = body.__name__, body.__doc__
        many = [option.key for option in options if option.many]
        helps = {option.name: option.help for option in options}
        return task(run, iterable=many, help=helps, auto_shortflags=False)  # type: ignore[return-value]

    return decorate


@command(*WORKSPACE, *BACKEND, *EVENT, *POLICY, *FORMAT)
def policy(given: Mapping[str, Any]) -> int:
    """What a trigger asks for, and where each part of the decision came from."""
    from ci import commands

    return commands.policy(given)


@command(*WORKSPACE, *BACKEND, *EVENT, *POLICY, *REFS, *DEPENDENCIES, *FORMAT)
def refs(given: Mapping[str, Any]) -> int:
    """Which SGLang and Megatron-LM a run uses: ref, commit, and who said so."""
    from ci import commands

    return commands.refs(given)


@command(*WORKSPACE, *EVENT, *POLICY, *REFS, *DEPENDENCIES, *PLAN, *FORMAT)
def plan(given: Mapping[str, Any]) -> int:
    """The whole run of a trigger: every stage, its partitions and files, or why it does not start."""
    from ci import plan_command

    return plan_command.plan(given)


@command(*WORKSPACE, *EVENT, *POLICY, *FORMAT, positional="test_file")
def explain(given: Mapping[str, Any]) -> int:
    """Whether a test would run, in which stage and partition; if not, every reason and what would mend it."""
    from ci import commands

    return commands.explain(given)


@command(*WORKSPACE, *FORMAT)
def check(given: Mapping[str, Any]) -> int:
    """Everything that is wrong with a workspace's registrations; lint runs it on the sample."""
    from ci import commands

    return commands.check(given)


@command(*WORKSPACE, *IMAGE, *FORMAT)
def image_inputs(given: Mapping[str, Any]) -> int:
    """The hash of what the container image is built from at a revision, and each input with its own."""
    from ci import commands

    return commands.image_inputs(given)
