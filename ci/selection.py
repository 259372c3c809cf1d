"""Which registrations a suite runs under a policy, and why the others do not (spec §4)."""

from collections.abc import Iterable
from dataclasses import dataclass

from ci.inventory import Scope
from ci.policy import Policy
from ci.registration import Registration
from ci.text import show


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a registration does not run, and what would make it run."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """``enabled`` run; ``skipped`` would, were they not disabled. Both in the order of the files."""

    enabled: tuple[Registration, ...]
    skipped: tuple[Registration, ...]


def select(registrations: Iterable[Registration], *, backend: str, suite: str, policy: Policy) -> Selection:
    """The registrations of one suite that the policy admits."""
    scope = frozenset(policy.include_labels)
    admitted = [
        registration
        for registration in registrations
        if registration.backend == backend
        and registration.suite == suite
        and _cadence_admits(registration, policy)
        and _labels_admit(registration, scope)
    ]
    return Selection(
        enabled=tuple(registration for registration in admitted if registration.disabled is None),
        skipped=tuple(registration for registration in admitted if registration.disabled is not None),
    )


def reasons_against(registration: Registration, policy: Policy, scope: Scope) -> tuple[Reason, ...]:
    """Every reason why the policy keeps a registration out; empty when it runs."""
    reasons = []
    if registration.disabled is not None:
        reasons.append(
            Reason(f"it is disabled: {show(registration.disabled)}", "remove `disabled=` once the cause is gone")
        )
    if not _cadence_admits(registration, policy):
        reasons.append(
            Reason(
                f"it runs nightly, and this run is {policy.cadence}",
                f"add the label `{scope.nightly_label}`, or wait for the scheduled run",
            )
        )
    if not _labels_admit(registration, frozenset(policy.include_labels)):
        wanted = ", ".join(f"`{scope.prefix}{label}`" for label in registration.labels)
        labels = ", ".join(registration.labels)
        reasons.append(
            Reason(f"none of its labels ({labels}) is in scope", f"add one of {wanted}, or `{scope.all}`"),
        )
    return tuple(reasons)


def _cadence_admits(registration: Registration, policy: Policy) -> bool:
    return policy.admit_nightly or not registration.nightly


def _labels_admit(registration: Registration, scope: frozenset[str]) -> bool:
    return not registration.labels or not scope.isdisjoint(registration.labels)
