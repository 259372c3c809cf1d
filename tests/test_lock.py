import json
from pathlib import Path

import pytest

from ci.errors import UsageError
from ci.inventory import Inventory
from ci.lock import locked_commits, read_lock
from ci.paths import REPOSITORY
from ci.workspace import SAMPLE_WORKSPACE

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEYS = ("sglang_commit", "megatron_commit")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f'{{"sglang_commit": "{COMMIT}", "megatron_com', "release-lock.json:1:"),
        (f'{{"sglang_commit": "{COMMIT}", "sglang_commit": "{COMMIT}"}}', "`sglang_commit` is given twice"),
        ('{"sglang_commit": NaN}', "NaN"),
        ('{"sglang_commit": "0123456"}', "`sglang_commit`"),
        ('{"megatron_commit": 5}', "`megatron_commit`"),
        (f'{{"sglang_commit": "{COMMIT.upper()}"}}', "40 lower-case hex digits"),
        ("[]", "not a JSON object"),
        ("", "release-lock.json:1:1"),
        ("[" * 100000, "nested too deep"),
    ],
)
def test_a_broken_lock_is_refused_with_key_or_position(text: str, named: str) -> None:
    with pytest.raises(UsageError) as error:
        locked_commits(text, KEYS)
    assert named in str(error.value)


def test_unknown_keys_and_nulls_are_fine() -> None:
    text = f'{{"sglang_commit": "{COMMIT}", "megatron_commit": null, "new_key": [1]}}'
    assert locked_commits(text, KEYS) == {"sglang_commit": COMMIT}


def test_no_lock_pins_nothing(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    assert locked_commits(None, KEYS) == {}


def test_a_lock_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "release-lock.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path)


@pytest.mark.parametrize("root", [REPOSITORY, SAMPLE_WORKSPACE])
def test_the_lock_on_main_pins_nothing_and_agrees_with_the_inventory(root: Path, inventory: Inventory) -> None:
    text = read_lock(root)
    assert text is not None
    assert locked_commits(text, [dependency.lock_key for dependency in inventory.dependencies.values()]) == {}
    lock = json.loads(text)
    assert "main pins nothing" in lock["note"]
    for name, dependency in inventory.dependencies.items():
        assert dependency.repository == f"https://github.com/{lock[f'{name}_repo']}.git"
        assert dependency.branch == lock[f"{name}_branch"]
