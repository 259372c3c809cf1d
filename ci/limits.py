"""How long files that are run as scripts may take, and whether that fits into the job that runs them (spec §9)."""

from collections.abc import Sequence

from ci.plan import duration
from ci.registration import Registration

_LEAST_LIMIT = 1800.0
_SHARE = 1.25


def limit_of(registration: Registration, timeout: float | None) -> float:
    """Seconds that one attempt may take: the one given, else 1.25 × est_time and half an hour at least."""
    return timeout if timeout is not None else max(_LEAST_LIMIT, _SHARE * registration.est_time)


def job_warning(registrations: Sequence[Registration], *, timeout: float | None, job_minutes: int) -> str | None:
    """What to say before the start when the files may take longer than the CI gives their job; None when they fit.

    First attempts alone are counted: what is tried again takes longer still.
    """
    limits = sum(limit_of(registration, timeout) for registration in registrations)
    estimates = sum(registration.est_time for registration in registrations)
    job = job_minutes * 60.0
    if limits <= job:
        return None
    said = (
        f"the limits of the {len(registrations)} files add up to {duration(limits)}, their est_times to "
        f"{duration(estimates)}; the CI ends the job after {duration(job)}"
    )
    if estimates > job:
        return f"{said}: it cannot finish there; split the stage into more partitions"
    return f"{said}: files that take their whole limits would be cut off"
