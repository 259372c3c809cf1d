"""Command-line options, declared once for sessions, the suite runner and the tasks."""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ci.errors import UsageError
from ci.image_decision import image_tag
from ci.inventory import Inventory
from ci.text import did_you_mean, show


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


def _format(text: str) -> str:
    if text not in {"text", "json"}:
        raise argparse.ArgumentTypeError(f"`{show(text, 40)}` is not text or json")
    return text


def _engine(text: str) -> str:
    if text not in {"", "docker", "podman"}:
        raise argparse.ArgumentTypeError(f"`{show(text, 40)}` is not docker or podman")
    return text


def _tag(text: str) -> str:
    return image_tag(text, "--image") if text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. ``value`` is the placeholder of its value, None for a flag; ``many``: it adds up.

    ``default`` is what stands when it is not given; ``read`` turns the text into the value.
    """

    name: str
    help: str
    value: str | None = None
    many: bool = False
    default: object = ""
    read: Callable[[str], object] = str

    @property
    def key(self) -> str:
        """The name as an identifier."""
        return self.name.replace("-", "_")

    @property
    def initial(self) -> object:
        """The default, by the option's shape."""
        return False if self.value is None else [] if self.many else self.default


WORKSPACE = (
    Option(
        name="workspace",
        value="DIR",
        help="the Miles checkout under test (else MILES_ROOT, the folder started in, or the bundled sample)",
    ),
)
POLICY = (
    Option(name="cadence", value="C", help="regular, nightly, weekly or release; the event's labels are then ignored"),
    Option(
        name="labels",
        value="LABEL",
        many=True,
        help="labels as on a pull request, beside the event's: run-ci-megatron, nightly, bypass-fastfail",
    ),
    Option(name="match-all-labels", help="select every label, as a manual dispatch does"),
    Option(name="bypass-fastfail", help="go on after a failure"),
)
EVENT = (
    Option(
        name="event", value="FILE", help="a GitHub event payload; labels, PR text, number and cron are read from it"
    ),
    Option(name="event-name", value="NAME", help="pull_request, schedule or workflow_dispatch"),
    Option(name="schedule", value="CRON", default=None, help="the cron string of a scheduled run, exactly"),
    Option(name="labels-json", value="JSON", default=None, help="the labels of the pull request as a JSON array"),
)
REFS = (
    Option(name="pr-body", value="FILE", help="the text of the pull request, for its directives"),
    Option(name="offline", help="use what the cache has, no network"),
)
RUN = (
    Option(name="list-only", help="print the plan and stop; sets nothing up"),
    Option(name="only", value="FILE", many=True, help="of the planned files run these alone"),
    Option(name="results", value="DIR", help="where results.json, junit.xml and the log go"),
    Option(name="parallel", value="N", default=0, read=_count, help="run N files at a time (pytest-xdist)"),
    Option(name="python", value="INTERPRETER", help="use this interpreter as it is, install nothing"),
    Option(name="grace", value="S", default=30.0, read=_seconds, help="seconds for tear-down after Ctrl-C (30)"),
)
GPU = (
    Option(name="any-hardware", help="take accelerators of another class than the stage's"),
    Option(
        name="timeout-per-file",
        value="S",
        default=None,
        read=_seconds,
        help="seconds for each file of a GPU stage (else 1.25 × its est_time, half an hour at least)",
    ),
    Option(name="clean-host", help="remove what dead runs left on this host (it is only listed otherwise)"),
)
CONTAINER = (
    Option(name="container", value="ENGINE", read=_engine, help="run inside the stage's image, with docker or podman"),
    Option(
        name="image",
        value="TAG",
        read=_tag,
        help="with --container: the tag of the image (else the event's input, the PR text's, the inventory's)",
    ),
    Option(name="dry-run", help="with --container: print the command that would run, and stop"),
)
ENVIRONMENT = (
    Option(
        name="leave-out",
        value="REQUIREMENT",
        many=True,
        read=_requirement_name,
        help="do not install this requirement (a wheel that this machine cannot have); said in the results",
    ),
)
PLAN = (
    Option(name="workflow", value="NAME", help="pr-test or pr-test-rocm (else both)"),
    Option(
        name="diff", value="FILE", help="`git diff --name-status -z -M HEAD^1 HEAD` of the pull request (else git's)"
    ),
    Option(name="number", value="N", default=0, read=_count, help="the number of the pull request"),
    Option(name="fork", help="the pull request comes from a fork"),
    Option(name="called-ref", value="REF", help="the ref that a calling workflow tests"),
    Option(name="image", value="TAG", help="the tag of the image"),
    Option(name="files", help="list every file and command"),
)
FORMAT = (Option(name="format", value="F", default="text", read=_format, help="text or json"),)


def ref_options(inventory: Inventory) -> tuple[Option, ...]:
    """One option per dependency."""
    return tuple(
        Option(
            name=dependency.name,
            value="REF",
            help=f"{dependency.title}: a branch, tag, #PR, full commit, or path:DIR (a local tree as it is)",
        )
        for dependency in inventory.dependencies.values()
    )


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: what is wrong, what is close, exit 2."""

    def __init__(self, prog: str, description: str, *options: Option) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        for option in options:
            self._add(option)

    def _add(self, option: Option) -> None:
        flag = f"--{option.name}"
        if option.value is None:
            self.add_argument(flag, action="store_true", help=option.help)
        elif option.many:
            self.add_argument(
                flag, metavar=option.value, nargs="*", action="extend", default=[], type=option.read, help=option.help
            )
        else:
            self.add_argument(flag, metavar=option.value, default=option.default, type=option.read, help=option.help)

    def error(self, message: str) -> NoReturn:
        """Raise instead of leaving."""
        raise UsageError(show(message, 300), hint=f"{self.prog} --help lists the arguments")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of ``arguments``.

        Raises:
            UsageError: an unknown argument (the nearest known is named), or a value that cannot be read.
        """
        namespace, unknown = self.parse_known_args(_joined(arguments))
        if unknown:
            known = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
            raise UsageError(
                f"`{show(unknown[0], 80)}` is not an argument of {self.prog}",
                hint=did_you_mean(unknown[0].partition("=")[0], known),
            )
        return namespace


def _joined(arguments: Sequence[str]) -> list[str]:
    """``--partition -1/4`` as ``--partition=-1/4``: argparse takes a value that begins with `-` for an option."""
    joined: list[str] = []
    for argument in arguments:
        if re.match(r"-[0-9]", argument) and joined and re.fullmatch(r"--[a-z-]+", joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


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
