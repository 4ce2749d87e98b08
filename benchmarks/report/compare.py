"""Report which figures of the latest runs differ from the kept ones, and which targets were lost or won."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.runs import Run
from benchmarks.report.targets import Target, judge

__all__ = ["changed_figures", "changed_targets"]


def changed_figures(kept: Mapping[str, Run], latest: Mapping[str, Run], *, beyond: float) -> list[str]:
    """List the figures of benchmarks in both whose quotient is above ``beyond`` or below its inverse, a line each."""
    found = []
    for name in sorted(kept.keys() & latest.keys()):
        before, after = dict(_figures(kept[name].result)), dict(_figures(latest[name].result))
        for path in before.keys() & after.keys():
            old, new = before[path], after[path]
            if old != new and (not old or not new or not 1 / beyond <= new / old <= beyond):
                times = f"  {new / old:.2f} times" if old else ""
                found.append(f"{name}: {' / '.join(path)}: {old:g} -> {new:g}{times}")
    return sorted(found)


def changed_targets(targets: list[Target], kept: Mapping[str, Run], latest: Mapping[str, Run]) -> dict[str, list[str]]:
    """Name the targets that were met and are missed now (``lost``), and the other way round (``won``)."""
    both = {name: run for name, run in latest.items() if name in kept}
    found: dict[str, list[str]] = {"lost": [], "won": []}
    for before, after in zip(judge(targets, kept), judge(targets, both), strict=True):
        if before.value is None or after.value is None or before.is_met == after.is_met:
            continue
        line = f"{before.target.group}, {before.target.name}: {before.value:.3g} -> {after.value:.3g}"
        found["won" if after.is_met else "lost"].append(line)
    return found


def _figures(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _figures(item, (*path, str(name)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)
