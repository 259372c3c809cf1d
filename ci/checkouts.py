"""The image's own checkouts of the source trees, brought to a ref where they are (spec §9).

An image's checkout is not ours alone: it is changed while the image is made, and people work in a container.
So changes to tracked files are kept under a ref before they are undone, and whole histories stay whole.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ci import git, git_checkout
from ci.commits import ensure_commit, repository_url, resolve_commit
from ci.console import say
from ci.errors import InfrastructureError, UsageError
from ci.inventory import Dependency, Image
from ci.locks import held
from ci.ref import Ref
from ci.sources import SourceTree
from ci.stale_locks import clear_stale_files
from ci.text import show


def image_checkouts(image: Image | None) -> dict[str, Path]:
    """Dependency → its checkout, of those that are on this machine; outside the image there are none."""
    folders = {name: Path(folder) for name, folder in (image.checkouts if image else {}).items()}
    return {name: folder for name, folder in folders.items() if os.path.lexists(folder / ".git")}


def checkout_as_it_is(dependency: Dependency, folder: Path) -> SourceTree:
    """What the checkout holds now.

    Raises:
        InfrastructureError: git cannot tell.
    """
    try:
        return SourceTree(
            dependency=dependency.name,
            ref="the image's own",
            commit=git.head_commit(folder),
            repository=str(folder),
            root=os.path.normpath(folder / dependency.source),
            changed=bool(git.changed_files(folder)),
        )
    except git.GitError as error:
        raise _broken(dependency, folder, error) from error


def bring_checkout(
    dependency: Dependency,
    ref: Ref,
    folder: Path,
    *,
    from_origin: bool,
    environ: Mapping[str, str],
    cache: Path,
    offline: bool,
) -> SourceTree:
    """Make the checkout's tracked files those of a ref; ``from_origin``: of its own remote, not the inventory's.

    Raises:
        UsageError: no such ref, or a file that git does not track is in the way.
        InfrastructureError: the repository does not answer, or the checkout is broken.
    """
    try:
        url = repository_url(dependency, environ)
        if from_origin and not environ.get(dependency.repository_variable):
            url = git_checkout.origin(folder) or url
        commit = resolve_commit(dependency, ref, url=url, cache=cache, offline=offline)
        repository = git_checkout.git_dir(folder)
        # not `.lock`, which is what git's own are called and what is cleared as stale
        with held(repository / "ci-held", what=f"the checkout {show(folder)}"):
            clear_stale_files(repository)
            here = git.head_commit(folder)
            if here != commit and not (offline and git.has_commit(repository, commit)):
                ensure_commit(dependency, ref, commit, url, repository, offline=offline)
            kept = git_checkout.keep_changes(folder)
            if kept:
                say(f"sources: {show(folder)} had changes; `git stash apply {kept}` there brings them back")
            if kept or here != commit:
                _switch(dependency, ref, folder, commit)
    except git.GitError as error:
        raise _broken(dependency, folder, error) from error
    except OSError as error:
        raise InfrastructureError(
            f"{dependency.title}: {show(folder)} cannot be used: {show(error, 200)}",
            hint="it has to be writable, and the disk not full",
        ) from error
    return SourceTree(
        dependency=dependency.name,
        ref=str(ref),
        commit=commit,
        repository=str(folder),
        root=os.path.normpath(folder / dependency.source),
        changed=False,
    )


def patch_checkout(dependency: Dependency, tree: SourceTree, patch: Path) -> None:
    """Apply what a tree needs in this image, or see that it has it.

    Raises:
        UsageError: it does not fit this ref.
    """
    if not patch.is_file():
        say(f"sources: {dependency.title}: the workspace has no {show(patch)}, so nothing is applied")
        return
    try:
        applied = git_checkout.apply(Path(tree.repository), patch)
    except git.GitError as error:
        raise UsageError(
            f"{dependency.title}: {show(patch)} does not apply to {show(tree.ref)}: {error.last}",
            hint="name a ref that it fits, or mend the patch in the workspace",
        ) from error
    say(f"sources: {dependency.title}: {show(patch.name)} {'applied' if applied else 'was there already'}")


def _switch(dependency: Dependency, ref: Ref, folder: Path, commit: str) -> None:
    try:
        git_checkout.switch(folder, commit)
    except git.GitError as error:
        if not (files := git_checkout.files_in_the_way(error)):
            raise
        raise UsageError(
            f"{dependency.title}: {show(folder)} has {', '.join(map(show, files))}, which git does not track there "
            f"and {show(ref)} has",
            hint="move or delete it, then run again",
        ) from error


def _broken(dependency: Dependency, folder: Path, error: git.GitError) -> InfrastructureError:
    return InfrastructureError(
        f"{dependency.title}: the checkout {show(folder)}: {error}",
        hint=f"mend it, start from a fresh container, or use another tree: --{dependency.name} path:DIR",
    )
