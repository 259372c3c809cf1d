"""Command-line options: one declaration for sessions, the suite runner and the tasks."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ci.errors import UsageError
from ci.inventory import Inventory
from ci.text import did_you_mean, show


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: what is wrong, what is close, exit 2."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(show(message, 300), hint=f"{self.prog} --help lists the arguments")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of ``arguments``.

        Raises:
            UsageError: an unknown argument (the nearest known is named), or a value that cannot be read.
        """
        namespace, unknown = self.parse_known_args(list(arguments))
        if unknown:
            raise UsageError(
                f"`{show(unknown[0], 80)}` is not an argument of {self.prog}",
                hint=did_you_mean(unknown[0].partition("=")[0], self._known()),
            )
        return namespace

    def _known(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings if option.startswith("--")]


def add_workspace(parser: Parser) -> None:
    """``--workspace``."""
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="the Miles checkout under test (else MILES_ROOT, the folder started in, or the bundled sample)",
    )


def add_policy(parser: Parser) -> None:
    """What decides which tests run."""
    parser.add_argument("--cadence", metavar="C", help="regular, nightly, weekly or release")
    parser.add_argument(
        "--labels",
        metavar="LABEL",
        nargs="*",
        action="extend",
        default=[],
        help="labels as on a pull request: run-ci-megatron, nightly, bypass-fastfail",
    )
    parser.add_argument("--match-all-labels", action="store_true", help="select every label, as a manual dispatch does")
    parser.add_argument("--bypass-fastfail", action="store_true", help="go on after a failure")


def add_trigger(parser: Parser) -> None:
    """Facts of the run that is to be reproduced."""
    parser.add_argument(
        "--event", metavar="FILE", help="a GitHub event payload; labels, PR text, number, cron are read"
    )
    parser.add_argument("--event-name", metavar="NAME", help="pull_request, schedule or workflow_dispatch")
    parser.add_argument("--pr-body", metavar="FILE", help="the text of the pull request, for its directives")


def add_refs(parser: Parser, inventory: Inventory) -> None:
    """One option per dependency, and whether the network may be used."""
    for dependency in inventory.dependencies.values():
        parser.add_argument(
            f"--{dependency.name}",
            metavar="REF",
            default="",
            help=f"{dependency.title}: a branch, tag, #PR, full commit, or path:DIR (a local tree as it is)",
        )
    parser.add_argument("--offline", action="store_true", help="use what the cache has, no network")


def add_run(parser: Parser) -> None:
    """How the suite is run."""
    parser.add_argument("--list-only", action="store_true", help="print the plan and stop; sets nothing up")
    parser.add_argument("--results", metavar="DIR", help="where results.json, junit.xml and the log go")
    parser.add_argument(
        "--parallel", metavar="N", type=_count, default=0, help="run N files at a time (needs pytest-xdist)"
    )
    parser.add_argument("--python", metavar="INTERPRETER", help="use this interpreter as it is, install nothing")
    parser.add_argument(
        "--grace", metavar="S", type=_seconds, default=30.0, help="seconds for tear-down after Ctrl-C (30)"
    )


def add_environment(parser: Parser) -> None:
    """What goes into the environment that a session builds."""
    parser.add_argument(
        "--leave-out",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        type=_requirement_name,
        help="do not install this requirement (a wheel that this machine cannot have); said in the results",
    )


def early_value(arguments: Iterable[str], option: str) -> str | None:
    """The value of one option before the real parse: the workspace decides which options there are."""
    value, expected = None, False
    for argument in arguments:
        if expected:
            value, expected = argument, False
        elif argument == option:
            expected = True
        elif argument.startswith(f"{option}="):
            value = argument.removeprefix(f"{option}=")
    return value


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"`{show(text, 40)}` is not a number from 0 to 999")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"`{show(text, 40)}` is not a number of seconds")
    return float(text)


def _requirement_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"`{show(text, 40)}` is not the name of a requirement, as `torch`")
    return text
