"""What a person reads at the end of a run, and the step summary of GitHub Actions."""

from collections.abc import Mapping
from pathlib import Path

from ci.errors import ExitCode
from ci.plan import duration
from ci.process import Reaped
from ci.results import FileResult, SuiteOutcome, Verdict
from ci.text import show

_SLOWEST = 5
_TAIL_LINES = 25
_FAILURES_SHOWN = 10
_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def summary(outcome: SuiteOutcome, *, title: str, results: str, rerun: str) -> list[str]:
    """The lines, the most important last: slow files, what was reaped, what failed and how it ended."""
    lines = ["", f"{title}: {_counts(outcome)} in {duration(outcome.duration)}"]
    slowest = sorted(outcome.files, key=lambda result: -result.duration)[:_SLOWEST]
    if len(outcome.files) > 1 and slowest[0].duration >= 1:
        lines.append("slowest: " + ", ".join(f"{show(item.file, 80)} {duration(item.duration)}" for item in slowest))
    if outcome.reaped:
        lines.append("warning: tests left processes behind, which is a fault of theirs; they were ended:")
        lines += [f"  {found.pid}  {found.age:g} s old{_held(found)}  {found.command}" for found in outcome.reaped]
    if outcome.infrastructure:
        lines.append(f"stopped, through no fault of a test: {show(outcome.infrastructure, 400)}")
    if outcome.fault:
        lines.append(f"error: {show(outcome.fault, 400)}")
    notable = [result for result in outcome.files if result.verdict is not Verdict.PASSED]
    lines += [f"  {result.verdict:<8} {show(result.file)}{_reason(result)}" for result in notable]
    for result in [result for result in notable if result.tail][-_FAILURES_SHOWN:]:
        lines += [
            "",
            f"--- {show(result.file)}",
            *(show(line, 300) for line in result.tail.splitlines()[-_TAIL_LINES:]),
        ]
    if red := next((result for result in notable if result.verdict in {Verdict.FAILED, Verdict.ERROR}), None):
        lines.append(f"run one again: {rerun} {show(red.file)}")
    if outcome.covers_nothing and outcome.exit_code is ExitCode.OK:
        lines.append("nothing ran: this is no coverage")
    return [*lines, f"results: {show(results)}"]


def write_step_summary(outcome: SuiteOutcome, *, title: str, environ: Mapping[str, str]) -> None:
    """Append a table to the step summary of GitHub Actions, where there is one."""
    if not (path := environ.get(_STEP_SUMMARY)):
        return
    notable = [result for result in outcome.files if result.verdict is not Verdict.PASSED]
    rows = [f"| `{_cell(result.file)}` | {result.verdict} | {duration(result.duration)} |" for result in notable]
    table = ["| file | verdict | time |", "|---|---|---|", *rows] if rows else []
    nothing = "\n\n**Nothing ran: this is no coverage.**" if outcome.covers_nothing else ""
    fault = f"\n\n**{show(outcome.fault, 400)}**" if outcome.fault else ""
    text = "\n".join([f"### {title}: {_counts(outcome)}{fault}{nothing}", "", *table, ""])
    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        # the summary is a courtesy; the verdict stands without it
        print(f"the step summary cannot be written: {show(error.strerror)}", flush=True)


def _held(found: Reaped) -> str:
    return "" if found.memory is None else f", held {found.memory / (1 << 30):.1f} GiB of accelerator memory"


def _cell(text: str) -> str:
    return show(text).replace("|", "\\|").replace("`", "'")


def _counts(outcome: SuiteOutcome) -> str:
    counts = [f"{outcome.count(verdict)} {verdict}" for verdict in Verdict if outcome.count(verdict)]
    interrupted = "interrupted; " if outcome.interrupted else ""
    return interrupted + (", ".join(counts) or "no files")


def _reason(result: FileResult) -> str:
    counts = ", ".join(f"{number} {outcome}" for outcome, number in result.counts.items() if outcome != "passed")
    reason = "; ".join(part for part in (result.reason, counts) if part)
    return f"  ({show(reason)})" if reason else ""
