"""The CPU runner's own cost: the same files through ``python -m ci.suite`` and through plain pytest."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ci.paths import REPOSITORY

_FILES = 60
_ROUNDS = 3
_TEST = "import time\n\n\ndef test_{n}():\n    time.sleep(0.01)\n"


def main() -> None:
    """Print both times, their ratio and the difference per file."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        for name in ("miles", "miles_plugins", "tests/fast"):
            (root / name).mkdir(parents=True)
        for name in ("miles", "miles_plugins"):
            (root / name / "__init__.py").touch()
        for number in range(_FILES):
            (root / "tests/fast" / f"test_{number:03}.py").write_text(_TEST.format(n=number))
        plain = [sys.executable, "-m", "pytest", "-v", "-x", f"--rootdir={root}", str(root / "tests/fast")]
        suite = [sys.executable, "-m", "ci.suite", "--workspace", str(root), "--suite", "stage-a-cpu"]
        suite += ["--results", str(Path(folder) / "results")]
        baseline = min(_seconds(plain, root, folder) for _ in range(_ROUNDS))
        runner = min(_seconds(suite, REPOSITORY, folder) for _ in range(_ROUNDS))
    print(f"{_FILES} files: plain pytest {baseline:.2f} s, runner {runner:.2f} s, ratio {runner / baseline:.2f}")
    print(f"  {(runner - baseline) / _FILES * 1000:.1f} ms a file, {runner - baseline:.2f} s in all")


def _seconds(command: list[str], cwd: Path, cache: str) -> float:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    started = time.perf_counter()
    subprocess.run(command, cwd=cwd, env={**environ, "CI_CACHE_DIR": cache}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started
