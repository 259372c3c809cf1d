"""From decisions on refs to source trees on disk, with the sample's own repositories behind the sample workspace."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.commits import repository_url, resolve_commit
from ci.paths import SAMPLE, cache_dir
from ci.ref import RefKind
from ci.refs import RefDecision
from ci.sources import SourceTree, obtain
from ci.workspace import Workspace

# the folder of each sample tree, by the name of its dependency
_SAMPLE_FOLDERS = {"sglang": "sglang", "megatron": "Megatron-LM"}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a ref was looked up, and the commit it names; both None for what has none."""

    url: str | None
    commit: str | None


def source_environ(workspace: Workspace, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with repository addresses for the sample, unless the person chose others."""
    if not workspace.sample:
        return environ
    from ci.sample_repos import materialise

    dependencies = [
        (workspace.inventory.dependencies[name], folder)
        for name, folder in _SAMPLE_FOLDERS.items()
        if name in workspace.inventory.dependencies
    ]
    repositories = materialise(SAMPLE, cache_dir(environ), dependencies)
    addresses = {
        dependency.repository_variable: repositories[dependency.name]
        for dependency, _ in dependencies
        if not environ.get(dependency.repository_variable)
    }
    return {**environ, **addresses}


def resolve_decision(
    decision: RefDecision, workspace: Workspace, *, environ: Mapping[str, str], offline: bool
) -> Resolved:
    """The commit that a decision names now.

    Raises:
        UsageError: the repository has no such ref.
        InfrastructureError: the repository does not answer.
    """
    if decision.ref is None:
        return Resolved(None, None)
    if decision.ref.kind is RefKind.PATH:
        return Resolved(decision.ref.value, None)
    url = repository_url(decision.dependency, source_environ(workspace, environ))
    commit = resolve_commit(decision.dependency, decision.ref, url=url, cache=cache_dir(environ), offline=offline)
    return Resolved(url, commit)


def obtain_trees(
    decisions: tuple[RefDecision, ...], workspace: Workspace, *, environ: Mapping[str, str], offline: bool
) -> dict[str, SourceTree]:
    """The source tree of every dependency that has a ref, by name."""
    environ = source_environ(workspace, environ)
    cache: Path = cache_dir(environ)
    return {
        decision.dependency.name: obtain(
            decision.dependency, decision.ref, environ=environ, cache=cache, offline=offline
        )
        for decision in decisions
        if decision.ref is not None
    }
