"""Where the cache lies. An edge module: it reads the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "sample"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``CI_CACHE_DIR``, else ``miles-ci`` in the XDG cache folder; absolute, perhaps not there yet."""
    if chosen := environ.get("CI_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    xdg = environ.get("XDG_CACHE_HOME", "")
    # the XDG base directory specification: a relative value is invalid and ignored
    base = Path(xdg) if os.path.isabs(xdg) else Path("~/.cache").expanduser()
    return base / "miles-ci"
