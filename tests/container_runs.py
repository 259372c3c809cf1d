"""A container run as a value, for tests."""

from dataclasses import replace

from ci.container import ContainerRun, Mount

PLAIN = ContainerRun(
    engine="docker",
    name="miles-ci-x-1",
    owner="host/1/2",
    image="radixark/miles:dev",
    options=(),
    mounts=(),
    variables=(),
    cache="/cache",
    folder="/repository",
    pull=True,
    stage="x",
    arguments=(),
)


def container_run(*, mounts: tuple[str, ...]) -> ContainerRun:
    """A run with these folders mounted at their own paths."""
    return replace(PLAIN, mounts=tuple(Mount(source=path, target=path, writable=True, what=path) for path in mounts))
