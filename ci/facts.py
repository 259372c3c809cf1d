"""The facts of a run, read once from options and files into frozen values. An edge module."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.errors import UsageError
from ci.event import Event, parse_event
from ci.inventory import Backend, Inventory
from ci.lock import read_lock
from ci.policy import Trigger, parse_labels
from ci.refs import RefRequest
from ci.text import show

_MANUAL = "workflow_dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person or a workflow gave on the command line; empty means not given.

    ``refs`` by dependency. ``event``, ``pr_body``: files. ``labels_json``: the labels of the pull request.
    """

    event: str = ""
    event_name: str = ""
    schedule: str | None = None
    labels_json: str | None = None
    cadence: str = ""
    labels: tuple[str, ...] = ()
    match_all_labels: bool = False
    bypass_fastfail: bool = False
    pr_body: str = ""
    refs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that decides a run besides the workspace's tests."""

    trigger: Trigger
    refs: RefRequest
    number: int | None
    event: Event | None


def read_facts(given: Given, inventory: Inventory, *, workspace: Path, started_in: Path) -> Facts:
    """Read the files that were named and put all facts together.

    Raises:
        UsageError: a file cannot be read, or holds something that it should not.
    """
    event = None
    if given.event:
        source = _read(started_in / given.event, "--event")
        event = parse_event(source, name=given.event_name or None, origin=given.event)
    body = event.body if event else ""
    if given.pr_body:
        body = _read(started_in / given.pr_body, "--pr-body").decode("utf-8", "replace")
    labels = event.labels if event else ()
    if given.labels_json is not None:
        labels = parse_labels(given.labels_json)
    trigger = Trigger(
        event=given.event_name or (event.name if event else None),
        schedule=given.schedule if given.schedule is not None else (event.schedule if event else ""),
        labels=labels,
        cadence=given.cadence or None,
        extra_labels=given.labels,
        match_all_labels=given.match_all_labels,
        bypass_fastfail=given.bypass_fastfail,
    )
    request = RefRequest(
        dispatch={**_dispatched(event, inventory), **_typed(given.refs, started_in)},
        body=body,
        lock=read_lock(workspace),
        local=frozenset(name for name, ref in given.refs.items() if ref),
    )
    return Facts(trigger=trigger, refs=request, number=event.number if event else None, event=event)


def for_backend(trigger: Trigger, backend: Backend) -> Trigger:
    """The trigger as this backend sees it: a manual dispatch selects all labels on GPUs (spec §4.4)."""
    if trigger.event == _MANUAL and trigger.cadence is None and backend.dispatch_matches_all:
        return dataclasses.replace(trigger, match_all_labels=True)
    return trigger


def _dispatched(event: Event | None, inventory: Inventory) -> dict[str, str]:
    """Refs from the inputs of a manual dispatch, which are named as the directives are."""
    if event is None:
        return {}
    named = {dependency.name: dependency.directive.replace("-", "_") for dependency in inventory.dependencies.values()}
    return {name: event.inputs[key] for name, key in named.items() if key in event.inputs}


def _typed(refs: Mapping[str, str], started_in: Path) -> dict[str, str]:
    """Refs typed by a person; a folder is meant from where they are."""
    prefix = "path:"
    return {
        name: f"{prefix}{started_in / Path(ref.removeprefix(prefix)).expanduser()}"
        if ref.startswith(prefix) and ref != prefix
        else ref
        for name, ref in refs.items()
        if ref
    }


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{option}: {show(path)}: {show(error.strerror)}", hint="name a file that is there") from error
