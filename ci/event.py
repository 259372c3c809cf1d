"""A GitHub event payload, as far as the CI reads it: hostile JSON until it is parsed here (spec §4, §10)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ci.errors import UsageError
from ci.text import show

_SHAPES = (("pull_request", "pull_request"), ("schedule", "schedule"), ("inputs", "workflow_dispatch"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What the payload says. ``inputs``: dispatch inputs with a value that is not empty.

    ``action``: of a pull request, as ``closed``. ``fork``: its head is in another repository, or in none any more.
    """

    name: str
    labels: tuple[str, ...] = ()
    body: str = ""
    number: int | None = None
    schedule: str = ""
    head: str = ""
    action: str = ""
    fork: bool = False
    inputs: Mapping[str, str]


def parse_event(source: bytes, *, name: str | None, origin: str) -> Event:
    """Read a payload. ``name`` is the event's name where it is known, else it is told by the payload's shape.

    Raises:
        UsageError: not a JSON object, a field of the wrong type, or a shape that names no event.
    """
    try:
        payload = json.loads(source.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{show(origin)}: not JSON: {show(error, 100)}", hint="give the file that GITHUB_EVENT_PATH names"
        ) from error
    reader = _Payload(payload, origin)
    event = name or next((event for key, event in _SHAPES if key in reader.root), None)
    if event is None:
        raise UsageError(
            f"{show(origin)}: the payload does not tell its event", hint="name it with --event-name pull_request"
        )
    pull = reader.mapping(reader.root, "pull_request")
    labels = reader.sequence(pull, "labels")
    return Event(
        name=event,
        labels=tuple(reader.text(reader.as_mapping(label, "labels[]"), "name") for label in labels),
        body=reader.text(pull, "body"),
        number=reader.integer(pull, "number"),
        schedule=reader.text(reader.root, "schedule"),
        head=reader.text(reader.mapping(pull, "head"), "sha"),
        action=reader.text(reader.root, "action") if pull else "",
        fork=reader.is_fork(pull),
        inputs=reader.inputs(),
    )


class _Payload:
    """Typed access to the payload; null and absent are the same."""

    def __init__(self, payload: Any, origin: str) -> None:
        self._origin = origin
        self.root = self.as_mapping(payload, "the payload")

    def _wrong(self, name: str, wanted: str) -> UsageError:
        return UsageError(f"{show(self._origin)}: `{show(name)}` is not {wanted}", hint="is this GitHub's own payload?")

    def as_mapping(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(name, "a JSON object")
        return value

    def mapping(self, parent: dict[str, Any], name: str) -> dict[str, Any]:
        return {} if parent.get(name) is None else self.as_mapping(parent[name], name)

    def sequence(self, parent: dict[str, Any], name: str) -> list[Any]:
        value = parent.get(name)
        if value is not None and not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value or []

    def text(self, parent: dict[str, Any], name: str) -> str:
        value = parent.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value or ""

    def integer(self, parent: dict[str, Any], name: str) -> int | None:
        value = parent.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise self._wrong(name, "a positive whole number")
        return value

    def is_fork(self, pull: dict[str, Any]) -> bool:
        """A payload that names neither side is a person's own, and no fork."""
        head, base = self.mapping(pull, "head"), self.mapping(pull, "base")
        if "repo" not in head and "repo" not in base:
            return False
        names = [self.text(self.mapping(side, "repo"), "full_name").lower() for side in (head, base)]
        return not names[0] or names[0] != names[1]

    def inputs(self) -> dict[str, str]:
        """Dispatch inputs as texts: GitHub hands booleans over as JSON booleans or as `true`/`false`."""
        texts = {}
        for name, value in self.mapping(self.root, "inputs").items():
            if value is not None and not isinstance(value, str | bool | int | float):
                raise self._wrong(f"inputs.{name}", "a plain value")
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            if text:
                texts[name] = text
        return texts
