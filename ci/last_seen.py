"""Where branches stood when they were last looked up, for runs without a network."""

import json
import time
from pathlib import Path

from ci.files import replace_text


def remember(record: Path, url: str, name: str, commit: str) -> None:
    """Note the commit that a name stood for just now."""
    known = _read(record)
    known[_key(url, name)] = (commit, int(time.time()))
    record.parent.mkdir(parents=True, exist_ok=True)
    replace_text(record, json.dumps(known, indent=1, sort_keys=True))


def last_seen(record: Path, url: str, name: str) -> tuple[str, float] | None:
    """The commit that a name last stood for and how many hours ago, or None."""
    entry = _read(record).get(_key(url, name))
    return None if entry is None else (entry[0], (time.time() - entry[1]) / 3600)


def _key(url: str, name: str) -> str:
    return f"{url}\n{name}"


def _read(record: Path) -> dict[str, tuple[str, int]]:
    """URL and name → commit and when it was seen (seconds since the epoch); a broken record is an empty one."""
    try:
        known = json.loads(record.read_bytes())
        return {key: (str(commit), int(seen)) for key, (commit, seen) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
