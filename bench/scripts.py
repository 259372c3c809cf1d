"""The GPU runner's own cost: per file, of that its reaping, and its memory while a child prints a gigabyte."""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ci.paths import REPOSITORY

_FILES = 30
_ROUNDS = 3
_PRINTED = 1 << 30
_FLOOD = f"""
import sys
for _ in range({_PRINTED >> 16}):
    sys.stdout.write(("x" * 1023 + "\\n") * 64)
"""
_RUN = """
import json, os, sys, time
from ci import process
from ci.registration import Registration
from ci.scripts import ScriptRun, run_scripts
from ci.show_output import Output
from ci.supervise import Stop
root, results = sys.argv[1:]
reaping = 0.0
end_descendants = process.end_descendants
def timed(*args, **options):
    global reaping
    started = time.perf_counter()
    try:
        return end_descendants(*args, **options)
    finally:
        reaping += time.perf_counter() - started
process.end_descendants = timed
registrations = tuple(
    Registration(file=name, line=1, backend="cuda", suite="stage-c-4-gpu-h200", est_time=1.0)
    for name in sorted(os.listdir(root))
)
run = ScriptRun(
    title="bench", python=sys.executable, workspace=root, backend="cuda", registrations=registrations,
    env=dict(os.environ), keep_going=True, attempts=1, results=results, grace=5.0, timeout=None, retry_pause=0.0,
    shared=results,
)
started = time.perf_counter()
run_scripts(run, Output(open(os.devnull, "wb")), Stop())
print(json.dumps({"seconds": time.perf_counter() - started, "reaping": reaping}))
"""


def main() -> None:
    """Print the cost per file and the memory, each beside the aim of the requirements."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "scripts"
        root.mkdir()
        for number in range(_FILES):
            (root / f"test_{number:03}.py").write_text("import json\n")
        plain = min(_plain(root) for _ in range(_ROUNDS))
        runs = [_runner(root, Path(folder) / f"results-{number}")[0] for number in range(_ROUNDS)]
        best = min(runs, key=lambda run: float(run["seconds"]))
    seconds, reaping = best["seconds"], best["reaping"]
    print(f"{_FILES} files: plain {plain:.2f} s, runner {seconds:.2f} s, ratio {seconds / plain:.2f}")
    print(
        f"  {(seconds - plain) / _FILES * 1000:.1f} ms a file (aim: under 40), "
        f"of which reaping {reaping / _FILES * 1000:.2f} ms (aim: under 10)",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "scripts"
        root.mkdir()
        (root / "test_flood.py").write_text(_FLOOD)
        run, memory = _runner(root, Path(folder) / "results")
    print(f"1 GiB of output: {memory >> 20} MB of memory (aim: under 80), {run['seconds']:.1f} s")


def _plain(root: Path) -> float:
    started = time.perf_counter()
    for file in sorted(root.iterdir()):
        subprocess.run([sys.executable, str(file)], stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def _runner(root: Path, results: Path) -> tuple[dict[str, Any], int]:
    """What the runner says of its run, and the most bytes that it had in RAM itself."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(root), str(results)], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    most = 0
    while process.poll() is None:
        if found := re.search(r"VmHWM:\s*([0-9]+) kB", Path(f"/proc/{process.pid}/status").read_text()):
            most = int(found[1]) << 10
        time.sleep(0.02)
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the runner ended with {process.returncode}")
    run: dict[str, Any] = json.loads(said)
    return run, most
