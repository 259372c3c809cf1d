"""What a trigger asks for: cadence, scope of labels, fast-fail, baselines (spec §4)."""

import json
import re
from dataclasses import dataclass

from ci.errors import UsageError
from ci.inventory import Inventory, Scope
from ci.text import did_you_mean, nearest, show

CADENCES = ("regular", "nightly", "weekly", "release")
_ADMIT_NIGHTLY = frozenset({"nightly", "weekly", "release"})
_FULL_SCOPE = frozenset({"weekly", "release"})
_WRITE_BASELINE = frozenset({"nightly", "weekly"})
_EVENTS = ("pull_request", "schedule", "workflow_dispatch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Why a run started. ``event`` is None for a person's own run.

    ``labels``: all labels of the pull request. ``cadence``: an explicit one, as a called workflow gives it;
    the event's labels are then ignored. ``extra_labels``: typed by a person beside the event, never ignored.
    """

    event: str | None = None
    schedule: str = ""
    labels: tuple[str, ...] = ()
    cadence: str | None = None
    extra_labels: tuple[str, ...] = ()
    match_all_labels: bool = False
    bypass_fastfail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The decision. ``include_labels`` is sorted; ``because`` says where each field came from."""

    cadence: str
    raw_labels: tuple[str, ...]
    include_labels: tuple[str, ...]
    admit_nightly: bool
    bypass_fastfail: bool
    write_baseline: bool
    match_all_labels: bool
    because: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


def parse_labels(text: str) -> tuple[str, ...]:
    """Read a JSON array of strings.

    Raises:
        UsageError: the text is anything else.
    """
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the labels are not JSON: {show(error, 100)}", hint='give an array of strings: ["a", "b"]'
        ) from error
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UsageError(f"the labels are {show(text, 60)}", hint='give an array of strings: ["a", "b"]')
    return tuple(labels)


def resolve_policy(trigger: Trigger, inventory: Inventory) -> Policy:
    """The policy of a run.

    Raises:
        UsageError: an unknown cadence, cron or event.
    """
    scope = inventory.scope
    cadence, labels, cadence_from, labels_from = _cadence(trigger, inventory)
    labels = (*labels, *(label for label in relevant_labels(trigger.extra_labels, scope) if label not in labels))
    include, include_from = _include(cadence, labels, inventory, match_all=trigger.match_all_labels)
    bypass, bypass_from = _bypass(trigger, cadence, labels, scope)
    because = (
        ("cadence", cadence_from),
        ("raw_labels", labels_from),
        ("include_labels", include_from),
        ("admit_nightly", f"cadence {cadence}"),
        ("bypass_fastfail", bypass_from),
        ("write_baseline", f"cadence {cadence}"),
    )
    return Policy(
        cadence=cadence,
        raw_labels=labels,
        include_labels=tuple(sorted(include)),
        admit_nightly=cadence in _ADMIT_NIGHTLY,
        bypass_fastfail=bypass,
        write_baseline=cadence in _WRITE_BASELINE,
        match_all_labels=trigger.match_all_labels,
        because=because,
        warnings=tuple(_warnings(trigger, labels, inventory)),
    )


def relevant_labels(labels: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """The labels that the CI reads, in order: nightly, the bypass, and whole ``run-ci-<x>``."""
    asked = re.compile(rf"{re.escape(scope.prefix)}[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
    return tuple(
        label for label in labels if label in {scope.nightly_label, scope.bypass_label} or asked.fullmatch(label)
    )


def known_cadence(text: str) -> str:
    """The text if it is a cadence.

    Raises:
        UsageError: it is none; the nearest is named.
    """
    if text not in CADENCES:
        raise UsageError(f"`{show(text, 60)}` is not a cadence", hint=did_you_mean(text, CADENCES))
    return text


def _cadence(trigger: Trigger, inventory: Inventory) -> tuple[str, tuple[str, ...], str, str]:
    """Cadence and kept labels, and where each came from: the five rules in their order."""
    scope = inventory.scope
    if trigger.cadence is not None:
        ignored = (
            "given beside the explicit cadence" if trigger.extra_labels else "an explicit cadence ignores the event's"
        )
        return known_cadence(trigger.cadence), (), "given explicitly", ignored
    labels = relevant_labels((*trigger.labels, *trigger.extra_labels), scope)
    nightly = scope.nightly_label in labels
    match trigger.event:
        case None:
            why = f"label {scope.nightly_label}" if nightly else "nothing asks for another"
            return "nightly" if nightly else "regular", labels, why, "given"
        case "pull_request":
            why = f"label {scope.nightly_label}" if nightly else "a pull request without the nightly label"
            return "nightly" if nightly else "regular", labels, why, "labels of the pull request that the CI reads"
        case "schedule":
            if trigger.schedule not in inventory.crons:
                known = ", ".join(f"`{cron}`" for cron in inventory.crons)
                raise UsageError(
                    f"no cadence for the cron `{show(trigger.schedule, 60)}`", hint=f"known, exactly: {known}"
                )
            return inventory.crons[trigger.schedule], (), f"cron {trigger.schedule}", "a schedule has none"
        case "workflow_dispatch":
            return "regular", (), "a manual dispatch is regular", "a manual dispatch has none"
        case other:
            raise UsageError(f"no policy for the event `{show(other, 60)}`", hint=did_you_mean(other, _EVENTS))


def _include(
    cadence: str, labels: tuple[str, ...], inventory: Inventory, *, match_all: bool
) -> tuple[frozenset[str], str]:
    """The domain labels in scope: the strongest signal, then what was asked for by name."""
    scope, everything = inventory.scope, frozenset(inventory.labels)
    if match_all:
        return everything, "all labels match"
    if scope.all in labels or cadence in _FULL_SCOPE:
        base, why = everything, scope.all if scope.all in labels else f"cadence {cadence}"
    elif cadence == "nightly":
        base, why = everything - scope.without_nightly, f"cadence nightly, without {_names(scope.without_nightly)}"
    elif scope.image in labels:
        base, why = everything - scope.without_image, f"{scope.image}, without {_names(scope.without_image)}"
    else:
        base, why = frozenset[str](), "nothing asks for labels"
    asked = {label.removeprefix(scope.prefix) for label in labels if label.startswith(scope.prefix)} & everything
    extra = asked - base
    if not extra:
        return base, why
    return (
        base | extra,
        f"{f'{why}, and ' if base else ''}asked for by {_names({scope.prefix + label for label in extra})}",
    )


def _names(labels: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(labels))


def _bypass(trigger: Trigger, cadence: str, labels: tuple[str, ...], scope: Scope) -> tuple[bool, str]:
    if cadence in _ADMIT_NIGHTLY:
        return True, f"cadence {cadence}"
    if scope.bypass_label in labels:
        return True, f"label {scope.bypass_label}"
    return trigger.bypass_fastfail, "given" if trigger.bypass_fastfail else "nothing asks for it"


def _warnings(trigger: Trigger, labels: tuple[str, ...], inventory: Inventory) -> list[str]:
    scope = inventory.scope
    selecting = sorted({scope.all, scope.image, *(scope.prefix + label for label in inventory.labels)})
    readable = [*selecting, scope.nightly_label, scope.bypass_label]
    unread = [label for label in trigger.extra_labels if label not in relevant_labels(trigger.extra_labels, scope)]
    unknown = [label for label in labels if label.startswith(scope.prefix) and label not in selecting]
    return [
        *(f"label `{show(label, 80)}` selects nothing; {_hint(label, selecting)}" for label in unknown),
        *(f"`{show(label, 80)}` is not a label that the CI reads; {_hint(label, readable)}" for label in unread),
    ]


def _hint(label: str, known: list[str]) -> str:
    close = nearest(label, known)
    return f"did you mean `{close}`?" if close else "docs/policy.md lists the labels"
