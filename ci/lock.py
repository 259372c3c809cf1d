"""``release-lock.json``, as far as a run reads it: which commits a release branch froze (spec §7, §11)."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from ci.errors import UsageError
from ci.text import show

LOCK_FILE = "release-lock.json"
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


def read_lock(workspace: Path) -> str | None:
    """The text of the workspace's lock, or None if there is none.

    Raises:
        UsageError: it is there but cannot be read.
    """
    path = workspace / LOCK_FILE
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{LOCK_FILE} cannot be read: {show(error, 100)}", hint="restore it from git") from error


def locked_commits(text: str | None, keys: Iterable[str]) -> dict[str, str]:
    """Lock key → commit, for the keys that pin one; a lock on main pins none (its values are null).

    Raises:
        UsageError: not a whole flat JSON object, a doubled key, or a commit that is not 40 hex digits.
    """
    if text is None:
        return {}
    try:
        lock = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"{LOCK_FILE}:{error.lineno}:{error.colno}"
        raise UsageError(f"{where}: not JSON: {show(error.msg)}", hint="restore it from the release branch") from error
    except RecursionError as error:
        raise UsageError(f"{LOCK_FILE}: nested too deep", hint="restore it from the release branch") from error
    if not isinstance(lock, dict):
        raise UsageError(f"{LOCK_FILE}: not a JSON object", hint="restore it from the release branch")
    return {key: _commit(key, lock[key]) for key in keys if lock.get(key) is not None}


def _commit(key: str, value: object) -> str:
    if not isinstance(value, str) or not _COMMIT.fullmatch(value):
        raise UsageError(
            f"{LOCK_FILE}: `{key}` is {show(json.dumps(value), 60)}",
            hint="a commit is 40 lower-case hex digits, or null",
        )
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"{LOCK_FILE}: `{show(key, 60)}` is given twice", hint="keep the one that was meant")
    return dict(pairs)


def _no_constant(name: str) -> object:
    raise UsageError(f"{LOCK_FILE}: {name} is not JSON", hint="restore it from the release branch")
