"""The GPU runner's own cost: the same scripts through the runner and through plain ``python3 FILE``."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ci.paths import REPOSITORY

_FILES = 30
_RUN = """
import os, sys, time
from ci.registration import Registration
from ci.scripts import ScriptRun, run_scripts
from ci.show_output import Output
from ci.supervise import Stop
root, results = sys.argv[1:]
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
print(time.perf_counter() - started)
"""


def main() -> None:
    """Print both times, their ratio and the difference per file."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "scripts"
        root.mkdir()
        for number in range(_FILES):
            (root / f"test_{number:03}.py").write_text("import json\n")
        started = time.perf_counter()
        for file in sorted(root.iterdir()):
            subprocess.run([sys.executable, str(file)], stdin=subprocess.DEVNULL, check=True)
        plain = time.perf_counter() - started
        command = [sys.executable, "-c", _RUN, str(root), str(Path(folder) / "results")]
        ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        runner = float(ran.stdout)
    print(f"{_FILES} files: plain {plain:.2f} s, runner {runner:.2f} s, ratio {runner / plain:.2f}")
    print(f"  {(runner - plain) / _FILES * 1000:.1f} ms a file")
