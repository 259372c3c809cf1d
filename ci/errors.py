"""What can go wrong, and the exit code that each kind owns."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of every command here."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INTERRUPTED = 130


class CiError(Exception):
    """Something that a person can act on: one line of what, at most one of what to do next.

    ``what`` names the thing and where it stands; ``hint`` says what to do next.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return self.what if self.hint is None else f"{self.what}\n  {self.hint}"


class UsageError(CiError):
    """Wrong input or configuration (exit 2)."""


class InfrastructureError(CiError):
    """A source, an environment or hardware is not to be had (exit 3): a rerun elsewhere may pass."""

    exit_code = ExitCode.INFRASTRUCTURE


class Problems(UsageError):
    """Several faults of the input, found in one pass and shown together (exit 2)."""

    def __init__(self, heading: str, problems: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__("\n".join([heading, *(f"  {problem}" for problem in problems)]), hint=hint)
        self.problems = problems


def combine(codes: list[ExitCode]) -> ExitCode:
    """The exit code of several parts: interrupted, then wrong input, failed tests, infrastructure.

    A failed test outranks missing infrastructure because a rerun cannot mend it.
    """
    order = (ExitCode.INTERRUPTED, ExitCode.USAGE, ExitCode.FAILED, ExitCode.INFRASTRUCTURE)
    return next((code for code in order if code in codes), ExitCode.OK)
