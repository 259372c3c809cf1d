"""Fixtures for all tests. The network is denied: only loopback and local sockets answer."""

import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ci.inventory import Inventory
from ci.inventory_file import OWN_INVENTORY, load_inventory

# machines are noisy: how long an example takes says nothing
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# a person may lack a registry or root; where the proof is made, a test that does not run proves nothing
_NOTHING_IS_SKIPPED = os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test has failed: it lacks something that `.ci/run` has to bring."""
    report = yield
    if _NOTHING_IS_SKIPPED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}. Where CI=true nothing may be skipped: `.ci/run` has to bring what is missing."
    return report


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: object) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and (
            not isinstance(address, tuple) or address[0] not in _LOOPBACK
        ):
            raise AssertionError(f"a test reached for the network: {address!r}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", only_here)
    # git is another process, where the line above does not reach
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests see no cache, workspace, GitHub run or git configuration of the person who runs them."""
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "CI_", "PYTEST_ADDOPTS")) or name in {"CI", "MILES_ROOT", "PYTHONPATH"}:
            monkeypatch.delenv(name)
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="session")
def inventory() -> Inventory:
    return load_inventory(OWN_INVENTORY)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CI_CACHE_DIR", str(folder))
    return folder
