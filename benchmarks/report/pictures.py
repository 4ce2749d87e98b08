"""Draw the pictures of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.report.runs import Run
from benchmarks.report.slopes import sizes_of
from benchmarks.report.targets import Verdict

__all__ = ["draw"]

mpl.rcParams["svg.hashsalt"] = "benchmarks"  # the same figures give the same file
mpl.rcParams["svg.fonttype"] = "none"
_GOOD, _BAD, _OTHER = "#2a7f62", "#b8433a", "#8a8f98"


def draw(verdicts: list[Verdict], runs: Mapping[str, Run], folder: Path) -> list[str]:
    """Write ``FOLDER/NAME.svg`` for each picture, and return their names; the first is ``targets``."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"targets": _targets(verdicts)}
    if "large_logs" in runs:
        pictures["slopes"] = _slopes(runs["large_logs"].result)
    workloads = {kind: found for name in ("tpc", "tpcds") if name in runs for kind, found in runs[name].result.items()}
    if workloads:
        pictures["tpc"] = _queries(workloads)
    for name, figure in pictures.items():
        path = folder / f"{name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    return list(pictures)


def _targets(verdicts: list[Verdict]) -> Figure:
    shown = [verdict for verdict in reversed(verdicts) if verdict.share is not None]
    figure = Figure(figsize=(9, 1 + 0.26 * len(shown)))
    axes = figure.subplots()
    shares = [min(max(verdict.share or 0, 0.01), 100) for verdict in shown]
    colors = [_GOOD if verdict.is_met else _BAD for verdict in shown]
    names = [f"{verdict.target.group.split(',')[0]}: {verdict.target.name}" for verdict in shown]
    axes.barh(names, shares, color=colors)
    axes.set_xlim(0.01, 100)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("measured over target; met up to 1")
    axes.tick_params(labelsize=8)
    return figure


def _slopes(result: Mapping[str, Any]) -> Figure:
    """Processor seconds of each step by the number of files."""
    sizes = sizes_of(result)
    figure = Figure(figsize=(9, 4.5))
    axes = figure.subplots()
    axes.set_prop_cycle(color=mpl.colormaps["tab20"].colors)
    steps = dict.fromkeys(name for found in sizes.values() for name in found if isinstance(found[name], dict))
    for step in steps:
        of_step = [(size, max(found[step]["processor s"], 0.01)) for size, found in sizes.items() if step in found]
        axes.plot(*zip(*of_step, strict=True), marker="o", markersize=3, label=step)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("live files")
    axes.set_ylabel("processor seconds")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _queries(result: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 3 * len(result)))
    for axes, (kind, found) in zip(figure.subplots(len(result), squeeze=False)[:, 0], result.items(), strict=True):
        by_query = found["over parquet, by query"]
        values = list(by_query.values())
        axes.bar(range(len(values)), values, color=[_GOOD if value <= 1 else _OTHER for value in values])
        axes.axhline(1, color="black", linewidth=1)
        axes.set_xticks(range(len(values)), [name.removeprefix("q") for name in by_query], fontsize=5, rotation=90)
        axes.set_ylabel("over Parquet")
        axes.set_title(f"{kind}, each query", fontsize=9)
    figure.subplots_adjust(hspace=0.5)
    return figure
