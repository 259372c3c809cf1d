"""What uv's or pip's output says went wrong: the requirement at fault, why, and whether the other may do better."""

import re

from packaging.utils import canonicalize_name

from ci.text import show

_NAME = r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_UNREACHABLE = (
    *("error sending request", "failed to fetch", "connection refused", "name resolution", "dns error"),
    *("network is unreachable", "connection timed out", "max retries exceeded", "newconnectionerror", "invalid peer"),
)
_WRONG_HASH = "its hash is not the pinned one"
_NO_HASH = "others have a hash, and it has none"
# what is wrong with the requirement itself: no other installer is asked to take it all the same
_FAULTS = (
    (rf"hash mismatch for `?{_NAME}", _WRONG_HASH),
    (rf"do not match the hashes[^\n]*\n(?:[^\n]*\n)*?\s+{_NAME}[=<>~! ][^\n]* from [^\n]*:\s*\n", _WRONG_HASH),
    (rf"hashes are required in [^\n]*\n\s+{_NAME}", _NO_HASH),
    (rf"must have their versions pinned[^\n]*\n\s+{_NAME}", _NO_HASH),
    (rf"invalid requirement: '{_NAME}", "its line cannot be read"),
    (rf"couldn't parse requirement in [^\n]*\n[^\n]*\n\s+{_NAME}", "its line cannot be read"),
    (rf"failed (?:building wheel for|to build) `?{_NAME}", "it could not be built"),
    (rf"encountered error while [^\n]*\n╰─> (?!see ){_NAME}", "it could not be built"),
)
# what this installer did not find: another, with mirrors of its own, may
_ABSENCES = (
    (rf"no matching distribution found for {_NAME}", "no version of it fits this machine"),
    (rf"failed to download(?: and build)? `{_NAME}", "it could not be downloaded"),
    (rf"because {_NAME}(?:\[[^]]*\])? was not found", "it is not to be found"),
    (rf"(?:because|and) {_NAME}(?:[=<>~!]=?\S*)? has no (?:usable )?wheels", "it has no wheel for this machine"),
    (rf"does not satisfy python\S* and (?:all versions of )?{_NAME}", "it needs another Python"),
    (rf"there (?:is|are) no versions? of {_NAME}", "no such version is to be found"),
    (rf"only (?:the following versions of )?{_NAME}\S* (?:is|are) available", "no such version is to be found"),
)
_CONFLICTS = (
    (rf"cannot install (?:-r \S+ \(line \d+\) and )?{_NAME}", "it contradicts another"),
    (rf"you require {_NAME}[^\n]*(?:unsatisfiable|incompatible)", "it contradicts another"),
)


class InstallFailed(Exception):
    """An installer ended with an error.

    ``requirement``: the one at fault, if its output names one. ``final``: the other installer would not mend it.
    """

    def __init__(self, reason: str, *, requirement: str | None = None, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.requirement = requirement
        self.final = final

    def __str__(self) -> str:
        return f"{show(self.requirement, 80)}: {self.reason}" if self.requirement else self.reason


def read_failure(output: str, code: int) -> InstallFailed:
    """What went wrong, from what an installer printed and its exit code."""
    if found := _first(_FAULTS, output):
        return InstallFailed(found[1], requirement=found[0], final=True)
    if any(sign in output.lower() for sign in _UNREACHABLE):
        return InstallFailed("the package index does not answer")
    if found := _first(_ABSENCES, output):
        return InstallFailed(found[1], requirement=found[0])
    if found := _first(_CONFLICTS, output):
        return InstallFailed(found[1], requirement=found[0], final=True)
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), f"exit code {code}")
    return InstallFailed(show(last))


def _first(causes: tuple[tuple[str, str], ...], output: str) -> tuple[str, str] | None:
    for pattern, reason in causes:
        if found := re.search(pattern, output, re.IGNORECASE):
            return str(canonicalize_name(found[1])), reason
    return None
