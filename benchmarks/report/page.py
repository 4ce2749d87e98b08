"""Write the page of the report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.report.runs import Run
from benchmarks.report.slopes import extended, sizes_of
from benchmarks.report.tables import changes_by_size, many_clients, many_rows, visible_in_trino
from benchmarks.report.targets import Verdict

__all__ = ["PICTURES", "page_of"]

PICTURES: Final = "images/benchmarks"
_TEXTS: Final = {
    "targets": "Each target, and how much of it is used",
    "slopes": "Processor seconds of each step by the number of live files",
    "tpc": "Each query of TPC-H and TPC-DS over Delta tables: its time over that over Parquet",
}
_INTRODUCTION: Final = """# Benchmarks: targets and measurements

`make bench BENCH=report` draws this page from the runs in `benchmarks/results`; only the reasons for misses are
written by hand, in `benchmarks/report/targets.toml`. Contestants take turns in one run on the same data, and their
rows are compared. Ratios carry over to another machine, seconds do not.
[Each benchmark, with older figures](../benchmarks/README.md)."""
_FILES: Final = 100_000_000
_EXTENDED: Final = f"""## {_FILES:,} files

Not measured: the line through the two largest sizes, extended. The driver does each step in one process. What takes
minutes has to become a job, or has to be done in parts, before a table of this size can be maintained.

| step | {{files:,}} files, processor s | peak MB there | {_FILES:,} files, processor s | |
|---|---|---|---|---|"""
_JOBS: Final = """Two steps have to become jobs: VACUUM by an inventory, which joins two lists of files, and a whole
checkpoint, whose sidecars tasks can write. Appends, opening, and checkpoints that name unchanged sidecars again do not
grow with the table. Finding and deleting a partition read the log in parts, and stay below a minute."""
_RUNS: Final = """## The runs

Load: number of processes waiting for the processors, in the minute before the run.

| benchmark | ended (UTC) | commit | processors | load | seconds | pyspark, delta-rs |
|---|---|---|---|---|---|---|"""


def page_of(verdicts: list[Verdict], runs: Mapping[str, Run], pictures: list[str]) -> str:
    """Write the page.

    Args:
        verdicts: Of all targets, in the order of the page.
        runs: By the benchmark's name.
        pictures: Names of those that are drawn; ``targets`` is one of them.
    """
    measured = [verdict for verdict in verdicts if verdict.value is not None]
    met = sum(verdict.is_met for verdict in measured)
    said = f"{met} are met, {len(measured) - met} missed, {len(verdicts) - len(measured)} not measured."
    lines = [_INTRODUCTION, "", f"Of {len(verdicts)} targets {said}", "", _picture("targets"), ""]
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.target.group, []).append(verdict)
    for group, items in groups.items():
        lines += [f"## {group}", "", "| | measured | target | |", "|---|---|---|---|", *map(_row, items), ""]
    misses = [verdict.target for verdict in measured if not verdict.is_met]
    if misses:
        lines += ["## Why targets are missed", ""]
        lines += [f"- **{target.name}** ({target.group}): {target.miss or 'not known yet.'}" for target in misses]
        lines.append("")
    lines += [*changes_by_size(runs), *many_rows(runs), *visible_in_trino(runs), *many_clients(runs)]
    for name in pictures[1:]:
        lines += [_picture(name), ""]
    if "large_logs" in runs:
        lines += [*_extension(runs["large_logs"].result), ""]
    return "\n".join([*lines, _RUNS, *map(_run, runs.values())]) + "\n"


def _extension(result: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| {item.step} | {item.measured:.2f} | {item.peak_mb} | {item.seconds:.0f} "
        f"| {'minutes' if item.seconds > 60 else ''} |"
        for item in extended(result, _FILES)
    ]
    return [_EXTENDED.format(files=max(sizes_of(result))), *rows, "", _JOBS]


def _picture(name: str) -> str:
    return f"![{_TEXTS[name]}]({PICTURES}/{name}.svg)"


def _run(run: Run) -> str:
    on = run.machine
    told = (run.benchmark, run.ended, run.commit, on["processors"], on["load"], round(run.seconds))
    return f"| {' | '.join(map(str, told))} | {on['pyspark']}, {on['deltalake']} |"


def _row(verdict: Verdict) -> str:
    target = verdict.target
    bound = f"at most {target.at_most:g}" if target.at_most is not None else f"at least {target.at_least:g}"
    value = "–" if verdict.value is None else f"{verdict.value:.2f}{target.unit}".replace("inf", "∞")
    said = "not measured" if verdict.value is None else "met" if verdict.is_met else "**missed**"
    return f"| {target.name} | {value} | {bound}{target.unit} | {said} |"
