from pathlib import Path

import pytest

from ci.errors import UsageError
from ci.inventory_file import OWN_INVENTORY
from ci.workspace import find_stage, find_workspace, session_inventory
from tests.factory import workspace


def test_the_order_is_option_variable_folder_sample(tmp_path: Path) -> None:
    chosen, variable, started = (workspace(tmp_path / name, {}) for name in ("chosen", "variable", "started"))
    environ = {"MILES_ROOT": str(variable)}
    assert find_workspace(str(chosen), environ=environ, started_in=started).root == chosen
    assert find_workspace(None, environ=environ, started_in=started).root == variable
    assert find_workspace(None, environ={}, started_in=started).root == started
    assert find_workspace(None, environ={}, started_in=started / "tests").root == started
    sample = find_workspace(None, environ={}, started_in=tmp_path)
    assert sample.sample
    assert "--workspace DIR" in sample.origin


def test_a_relative_workspace_is_relative_to_where_the_person_is(tmp_path: Path) -> None:
    root = workspace(tmp_path / "m", {})
    assert find_workspace("m", environ={}, started_in=tmp_path).root == root


@pytest.mark.parametrize("name", ["nothing", "file", "plain"])
def test_what_is_no_tree_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "plain").mkdir()
    with pytest.raises(UsageError, match=r"is not a (folder|Miles tree)"):
        find_workspace(name, environ={}, started_in=tmp_path)


def test_a_stage_that_the_workspace_lacks_says_which_side_is_older(tmp_path: Path) -> None:
    older = OWN_INVENTORY.read_text().replace("stage-b-cpu:", "stage-c-cpu:")
    found = find_workspace(str(workspace(tmp_path, {"ci/inventory.yml": older})), environ={}, started_in=tmp_path)
    with pytest.raises(UsageError) as error:
        find_stage("stage-b-cpu", found)
    assert "this workspace has no stage `stage-b-cpu`" in str(error.value)
    assert "the workspace is older than the CI that asks for it" in str(error.value)
    with pytest.raises(UsageError, match="did you mean `stage-c-4-gpu-h200`"):
        find_stage("stage-c-4-gpu-h20", found)


def test_sessions_come_from_the_workspace_that_the_command_line_names(tmp_path: Path) -> None:
    own = OWN_INVENTORY.read_text().replace("partitions: 4", "partitions: 6", 1)
    root = workspace(tmp_path, {"ci/inventory.yml": own})
    arguments = ["nox", "-l", "--", "--workspace", str(root)]
    assert session_inventory(arguments, {"PWD": "/"}).stages["stage-a-cpu"].partitions == 6
    assert session_inventory(["nox", "--", f"--workspace={root}"], {"PWD": "/"}).stages["stage-a-cpu"].partitions == 6
    assert (
        session_inventory(["nox", "--", "--workspace", "/nowhere"], {"PWD": "/"}).stages["stage-a-cpu"].partitions == 4
    )
    assert session_inventory(["nox", "-l"], {"PWD": str(root)}).stages["stage-a-cpu"].partitions == 6
