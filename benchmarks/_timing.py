"""Time contestants in turns and compare their medians, so that a busy minute hits all alike."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq


def peak_mb(process: int | str = "self") -> int:
    """Return the most memory that a process has had; ``getrusage`` counts the parent of a new process, too."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def sums_of_files(path: str, columns: Sequence[str]) -> dict[str, float]:
    """Return the number of a table's rows and the sums of columns, read by delta-rs' list of files and by Arrow."""
    import deltalake

    sums: dict[str, float] = dict.fromkeys(("rows", *columns), 0)
    for file in deltalake.DeltaTable(path).file_uris():
        found = pq.read_table(file, columns=list(columns))
        sums["rows"] += found.num_rows
        for name in columns:
            sums[name] += pc.sum(found[name]).as_py() or 0
    return sums


def interleave(contestants: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Median seconds of each contestant over ``rounds`` turns, after one turn that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def linked(source: str, target: str) -> str:
    """Link a data file, which no engine changes; copy all others."""
    if source.endswith(".parquet") and "_delta_log" not in source:
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def on_copies(
    contestants: Mapping[str, Callable[[str], float]],
    base: str,
    folder: str,
    *,
    rounds: int,
    left: Callable[[str], str],
    warm_up: str = "",
) -> dict[str, float]:
    """Return the median seconds of each contestant's change to a copy of a table, after one turn that is not counted.

    Args:
        contestants: Each changes the table at a path, and returns how long it took.
        base: The table.
        folder: Where the copies are made.
        rounds: Turns that count.
        left: Describes the rows that a copy is left with: the same for all, or the run fails.
        warm_up: The table of the turn that is not counted, if it is another one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        seen = set()
        for name, change in contestants.items():
            copy = f"{folder}/copy-{turn}-{name}"
            shutil.copytree(base if turn else warm_up or base, copy, copy_function=linked)
            took = change(copy)
            if turn:
                seconds[name].append(took)
            seen.add(left(copy))
            shutil.rmtree(copy)
        assert len(seen) == 1, seen
    return {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}


def ratios(medians: Mapping[str, float], *, to: str) -> dict[str, float]:
    """Each contestant's median over that of ``to``; below 1 is faster."""
    return {name: round(value / medians[to], 2) for name, value in medians.items()}
