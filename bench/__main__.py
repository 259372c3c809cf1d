"""``python -m bench [NAME …]``: run benchmarks; ``nox -s bench`` does it in the development environment."""

import sys

from bench import plan, runner, scripts

BENCHMARKS = {"plan": plan.main, "runner": runner.main, "scripts": scripts.main}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    for name in names or list(BENCHMARKS):
        if name not in BENCHMARKS:
            print(f"`{name}` is not a benchmark; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
