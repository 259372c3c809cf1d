"""The time of a plan against parsing every test file once in one process.

The generated tree has the mixture of the live one: five of eight files lie under tests/fast without a
registration; sizes are those measured on a Miles checkout (8.6 kB without, 6.4 kB with a registration).
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ci.inventory_file import OWN_INVENTORY, load_inventory
from ci.paths import REPOSITORY

_BODY = '''
def helper_{n}(values, scale=1.0):
    """Scale and sum what is above zero."""
    total = 0.0
    for index, value in enumerate(values):
        if value > 0 and index % 2 == 0:
            total += value * scale
        elif value < 0:
            total -= abs(value) / (scale or 1.0)
    return {{"total": total, "count": len(values), "mean": total / max(len(values), 1)}}


def test_case_{n}():
    assert helper_{n}([1.0, -2.0, 3.5], scale=0.5)["count"] == 3
'''
_IMPLICIT_SIZE, _REGISTERED_SIZE = 8600, 6400
_BASELINE = """
import ast, glob, sys
for file in glob.glob(sys.argv[1] + "/tests/**/test_*.py", recursive=True):
    with open(file, "rb") as stream:
        ast.parse(stream.read())
"""
_ROUNDS = 3


def generate(root: Path, count: int) -> None:
    """A workspace of ``count`` test files."""
    stages = [stage for stage in load_inventory(OWN_INVENTORY).stages.values() if stage.backend != "cpu"]
    (root / "miles").mkdir(parents=True)
    for number in range(count):
        implicit = number % 8 < 5  # noqa: PLR2004 - five of eight, as in the live tree
        folder = root / ("tests/fast" if implicit else "tests/e2e") / f"group_{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        size = _IMPLICIT_SIZE if implicit else _REGISTERED_SIZE
        source = "".join(_BODY.format(n=n) for n in range(size // len(_BODY) + 1))
        if not implicit:
            stage = stages[number % len(stages)]
            call = (
                f'register_{stage.backend}_ci(est_time={60 + number % 900}, suite="{stage.name}", labels=["megatron"])'
            )
            source = f"from tests.ci.ci_register import register_{stage.backend}_ci\n\n{call}\n{source}"
        (folder / f"test_{number}.py").write_text(source)


def _seconds(command: list[str], cache: Path) -> tuple[float, int]:
    """Wall time and peak memory (kB) of a process."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, "CI_CACHE_DIR": str(cache)}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss


def main() -> None:
    """Print cold and warm ratios for 400 and 10,000 files."""
    for count in (400, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "workspace"
            generate(root, count)
            time.sleep(2.1)  # files written a moment ago are not kept by the scan cache
            suite = [
                sys.executable,
                "-m",
                "ci.suite",
                "--workspace",
                str(root),
                "--suite",
                "stage-a-cpu",
                "--list-only",
            ]
            baseline = min(
                _seconds([sys.executable, "-c", _BASELINE, str(root)], Path(folder))[0] for _ in range(_ROUNDS)
            )
            cold = [_seconds(suite, Path(folder) / f"cache-{number}") for number in range(_ROUNDS)]
            warm = [_seconds(suite, Path(folder) / "cache-0") for _ in range(_ROUNDS)]
            print(f"{count} files: parsing every file {baseline:.2f} s", flush=True)
            for name, runs in (("cold", cold), ("warm", warm)):
                seconds, memory = min(runs)[0], max(run[1] for run in runs)
                print(
                    f"  plan {name}: {seconds:.2f} s, ratio {seconds / baseline:.3f}, {memory / 1024:.0f} MB",
                    flush=True,
                )
