import pytest

from ci.child_environment import ChildEnvironment, commit_name, compose
from ci.errors import UsageError
from ci.inventory import Inventory

HOSTILE = {
    "PYTHONPATH": "/other/job::relative",
    "PYTHONHOME": "/nowhere",
    "PYTHONSAFEPATH": "1",
    "VIRTUAL_ENV": "/v",
    "UV_PYTHON": "3.9",
    "UV_SYSTEM_PYTHON": "1",
    "PYTEST_ADDOPTS": "--collect-only",
    "PATH": "/usr/bin",
    "HF_TOKEN": "secret",
}


def composed(inventory: Inventory) -> ChildEnvironment:
    sources = [(inventory.dependencies["sglang"], "/s/python"), (inventory.dependencies["megatron"], "/m")]
    return compose(HOSTILE, workspace="/w", sources=sources, programs="/e/bin", commit_name="c_7", extra={"A": "b"})


def test_pythonpath_is_exactly_the_trees_in_their_order(inventory: Inventory) -> None:
    variables = composed(inventory).variables
    assert variables["PYTHONPATH"] == "/w:/s/python:/m"
    assert variables["SGLANG_SOURCE_ROOT"] == "/s/python"
    assert variables["MEGATRON_SOURCE_ROOT"] == "/m"
    assert variables["PATH"] == "/e/bin:/usr/bin"


def test_what_would_change_python_or_pytest_is_dropped_and_named(inventory: Inventory) -> None:
    environment = composed(inventory)
    assert environment.dropped == (
        "PYTEST_ADDOPTS",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSAFEPATH",
        "UV_PYTHON",
        "UV_SYSTEM_PYTHON",
        "VIRTUAL_ENV",
    )
    assert not {"PYTHONHOME", "UV_PYTHON", "PYTEST_ADDOPTS"} & set(environment.variables)


def test_secrets_of_the_job_reach_the_tests(inventory: Inventory) -> None:
    assert composed(inventory).variables["HF_TOKEN"] == "secret"


def test_commit_name() -> None:
    assert commit_name("abc", None) == "abc_non-pr"
    assert commit_name("abc", 12) == "abc_12"


def test_a_folder_that_pythonpath_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="has a colon"):
        compose({}, workspace="/a:b", sources=[], programs="/e", commit_name="c", extra={})
