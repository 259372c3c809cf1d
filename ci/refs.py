"""Which ref of each dependency a run uses, and who said so (spec §7)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ci.directives import read_directives
from ci.errors import UsageError
from ci.inventory import Backend, Dependency, Inventory
from ci.lock import LOCK_FILE, locked_commits
from ci.ref import Ref, RefKind, parse_ref
from ci.text import show


@dataclass(frozen=True, slots=True, kw_only=True)
class RefRequest:
    """What may name refs: ``dispatch`` by dependency (empty means not given), the PR body, the lock's text.

    ``local``: the dependencies whose value was typed by the person at this machine, who may give ``path:DIR``.
    """

    dispatch: Mapping[str, str]
    body: str = ""
    lock: str | None = None
    local: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefDecision:
    """The answer for one dependency. ``ref`` is None when the image's own tree stays.

    ``origin``: ``dispatch``, ``directive``, ``lock``, ``branch`` or ``image``; ``detail`` says where exactly.
    """

    dependency: Dependency
    ref: Ref | None
    origin: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """The decisions in the inventory's order, and what a person should know about them."""

    decisions: tuple[RefDecision, ...]
    warnings: tuple[str, ...]


def decide_refs(request: RefRequest, inventory: Inventory, backend: Backend) -> Refs:
    """Dispatch input, else the PR's directive, else the lock, else the head of the branch.

    Raises:
        UsageError: a value is no ref (it names the origin), or the lock is broken.
    """
    dependencies = tuple(inventory.dependencies.values())
    names = [dependency.directive for dependency in dependencies]
    directives = read_directives(request.body, names)
    # an image with baked sources is not built from the lock, so the lock must not even be able to fail the run
    text = None if backend.baked_sources else request.lock
    locked = locked_commits(text, [dependency.lock_key for dependency in dependencies])
    decisions = []
    for dependency in dependencies:
        directive = directives.get(dependency.directive)
        if value := request.dispatch.get(dependency.name, ""):
            ref = _parse(value, f"the {dependency.title} ref given", allow_path=dependency.name in request.local)
            origin, detail = "dispatch", "given to this run"
        elif directive is not None:
            where = f"line {directive.line} of the PR's text"
            ref, origin, detail = _parse(directive.value, f"{directive.name} in {where}"), "directive", where
        elif backend.baked_sources:
            decisions.append(_decision(dependency, None, "image", f"the {backend.title} image's own tree"))
            continue
        elif commit := locked.get(dependency.lock_key):
            ref, origin, detail = Ref(RefKind.COMMIT, commit), "lock", f"{dependency.lock_key} in {LOCK_FILE}"
        else:
            ref, origin, detail = Ref(RefKind.NAME, dependency.branch), "branch", f"the head of {dependency.branch}"
        decisions.append(_decision(dependency, ref, origin, detail))
    return Refs(decisions=tuple(decisions), warnings=directives.warnings)


def _decision(dependency: Dependency, ref: Ref | None, origin: str, detail: str) -> RefDecision:
    return RefDecision(dependency=dependency, ref=ref, origin=origin, detail=detail)


def _parse(value: str, where: str, *, allow_path: bool = False) -> Ref:
    try:
        return parse_ref(value, allow_path=allow_path)
    except UsageError as error:
        raise UsageError(f"{show(where)}: {error.what}", hint=error.hint) from error
