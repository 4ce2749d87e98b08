"""Write the tables of the report that are not of targets: changes by size of the table, and tables of many rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.report.runs import Run

__all__ = ["changes_by_size", "many_clients", "many_rows", "visible_in_trino"]

_SIZES: Final = {"changes_small": "2 million rows", "changes": "8 million", "changes_large": "80 million"}
_BY_SIZE: Final = """## Changes in a Spark session, by the number of rows

Seconds of delta-spark / delta-rs / pydelta, and pydelta over delta-rs. A million rows are 38 MB. The contestants' rows
are compared. The source of a MERGE is read from files, for delta-rs by Arrow; it writes no deletion vectors."""
_MANY_ROWS: Final = """## A table of {rows:,} rows

{files} files of {megabytes:,} MB in all. Queries in a session, over the same files read as Parquet:

| | seconds | over Parquet |
|---|---|---|"""
_VISIBLE: Final = """## From a commit to its row in a query of Trino

Seconds from the acknowledgement of a commit to the end of the first query that shows its row, in the stack with MinIO
and a metastore on this machine. A row a second is committed, and its entries are synced; a client per entry asks all
the time. The load: {load}.

| | p50 alone | p95 alone | p50 under load | p95 under load |
|---|---|---|---|---|"""
_CLIENTS: Final = """## {clients} clients of `pydelta serve` at once

Half by Thrift, half by Spark Connect, on the server's two processors, each with its next statement as soon as it has
the last answer. What was acknowledged is there, once.

| | statements | p50, s | p95, s | most, s |
|---|---|---|---|---|"""
_CHANGED: Final = """DELETE, each in a process without other work:

| | seconds | over delta-rs | peak MB |
|---|---|---|---|"""


def changes_by_size(runs: Mapping[str, Run]) -> list[str]:
    """Return the table of the runs of ``changes``, ``changes_small`` and ``changes_large`` that there are."""
    found = {title: runs[name].result for name, title in _SIZES.items() if name in runs}
    if not found:
        return []
    steps = list(dict.fromkeys(step for result in found.values() for step in result))
    head = [f"| | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    rows = [f"| {step} | {' | '.join(_cell(result.get(step)) for result in found.values())} |" for step in steps]
    return [_BY_SIZE, "", *head, *rows, ""]


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    seconds = found["seconds"]
    said = " / ".join(_seconds(seconds.get(who)) for who in ("delta-spark", "delta-rs", "pydelta"))
    over = f": {seconds['pydelta'] / seconds['delta-rs']:.2f}" if seconds.get("delta-rs") else ""
    return f"{said}{over}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def many_rows(runs: Mapping[str, Run]) -> list[str]:
    """Return the tables of ``large_table``, if it ran."""
    if "large_table" not in runs:
        return []
    result = runs["large_table"].result
    made = result["made"]
    lines = [_MANY_ROWS.format(rows=result["rows"], files=made["files"], megabytes=made["MB"])]
    lines += [
        f"| {name} | {found['seconds']:.2f} | {found['pydelta']:.2f} |" for name, found in result["queries"].items()
    ]
    lines += ["", _CHANGED]
    for name, found in result.items():
        if name.startswith("delete"):
            lines += [
                f"| {name}, {who} | {turn['s']:.2f} | {turn['s'] / found['delta-rs']['s']:.2f} | {_memory(turn)} |"
                for who, turn in found.items()
            ]
    return [*lines, ""]


def _memory(turn: Mapping[str, Any]) -> str:
    jvm = turn.get("peak MB of the JVM")
    return f"{turn['peak MB']}" + (f", and {jvm} of the JVM" if jvm else "")


def visible_in_trino(runs: Mapping[str, Run]) -> list[str]:
    """Return the table of ``visible``, if it ran."""
    if "visible" not in runs:
        return []
    alone, loaded = (runs["visible"].result[kind] for kind in ("alone", "under load"))
    load = ", ".join(f"{count:,} {work}" for work, count in loaded["done beside it"].items())
    rows = []
    for entry in alone:
        delays = (found[entry][part] for found in (alone, loaded) for part in ("p50", "p95"))
        rows.append(f"| {entry} | {' | '.join(f'{delay:.2f}' for delay in delays)} |")
    return [_VISIBLE.format(load=load), *rows, ""]


def many_clients(runs: Mapping[str, Run]) -> list[str]:
    """Return the table of ``serve_load``, if it ran."""
    if "serve_load" not in runs:
        return []
    result = runs["serve_load"].result
    (clients,) = {found["clients"] for found in result.values()}
    rows = [
        f"| {kind}: {name} | {said['count']} | {said['p50']:.2f} | {said['p95']:.2f} | {said['most']:.2f} |"
        for kind, found in result.items()
        for name, said in found["statements"].items()
    ]
    return [_CLIENTS.format(clients=clients), *rows, ""]
