"""Change one table from six processes at once: three append, one deletes, one merges, one compacts all the time.

Each process keeps a ledger: which rows it wrote or took away, and whether it was told that this was committed.
Afterwards the table must hold what the ledgers say, each row once: the benchmark fails otherwise. The same is done with
changes that are not run again, with those run again after a compaction, and after any conflict over rows (the default).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

import pydelta
from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.settings import Settings

SECONDS = int(os.environ.get("PYDELTA_BENCH_SECONDS", "120"))
KEYS = 40_000
FILES = 8
FIRST_OF = 1_000_000
"""Appended rows begin here, a million for each process; merged ones behind them."""
MERGED = 10 * FIRST_OF
KINDS = ("append", "append", "append", "delete", "merge", "compact")
MODES = {
    "never run again": {"spark.pydelta.change.maxRetries": "0", "spark.pydelta.optimize.giveWay": "0"},
    "run again after a compaction": {"spark.pydelta.change.retryOn": "rearranged"},
    "run again after any conflict over rows": {},
}
_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
}


def run() -> dict[str, Any]:
    """``PYDELTA_BENCH_SECONDS`` (120) for each mode; ``PYDELTA_BENCH_ONLY`` names a part of a mode's name."""
    wanted = os.environ.get("PYDELTA_BENCH_ONLY", "")
    result: dict[str, Any] = {}
    for mode, conf in MODES.items():
        if wanted in mode:
            with tempfile.TemporaryDirectory() as folder:
                result[mode] = _mix(f"{folder}/t", conf)
            print(mode, result[mode], flush=True)
    return result


def _rows(first: int, count: int, value: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(first, first + count), pa.int64()), "v": pa.array([value] * count, pa.int64())}
    )


def _mix(path: str, conf: dict[str, str]) -> dict[str, Any]:
    columns = [("id", pa.int64()), ("v", pa.int64())]
    _create(path, pa.schema(columns))
    table = pydelta.open(path)
    for number in range(FILES):
        table.append(_rows(number * KEYS // FILES, KEYS // FILES, 0))
    first = table.version
    children = [_child(kind, number, path, conf) for number, kind in enumerate(KINDS)]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "READY", "a process did not start; BENCH_DEBUG=1 shows why"
        until = time.time() + SECONDS
        for child in children:
            assert child.stdin is not None
            print(until, file=child.stdin, flush=True)
        ledgers = [[json.loads(line) for line in child.stdout or ()] for child in children]
    finally:
        for child in children:
            child.terminate()
            child.wait()
    _check(path, ledgers)
    return {"commits": pydelta.open(path).version - first, **_told(ledgers), **_history(path, first)}


def _create(path: str, schema: pa.Schema) -> None:
    from pydelta.commands.create import CreateMode, TableDefinition
    from pydelta.protocol.types import PrimitiveType, StructField, StructType
    from pydelta.testing.commands import create_table

    fields = tuple(StructField(field.name, PrimitiveType("long")) for field in schema)
    log = DeltaLog.for_table(path)
    create_table(log, TableDefinition(schema=StructType(fields)), mode=CreateMode.CREATE, settings=Settings())


def _child(kind: str, number: int, path: str, conf: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.beside", kind, str(number), path, json.dumps(conf)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
        text=True,
    )


def _told(ledgers: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """By kind: acknowledged of tried, and what the others were told."""
    told: dict[str, Any] = {}
    for kind in dict.fromkeys(KINDS):
        entries = [entry for own, ledger in zip(KINDS, ledgers, strict=True) if own == kind for entry in ledger]
        refused = Counter(entry["refused"] for entry in entries if entry["refused"])
        told[kind] = f"{len(entries) - sum(refused.values())} of {len(entries)}" + (
            f" {dict(refused)}" if refused else ""
        )
    changes = [
        entry for own, ledger in zip(KINDS, ledgers, strict=True) if own in ("delete", "merge") for entry in ledger
    ]
    landed = sum(not entry["refused"] for entry in changes)
    told["changes acknowledged"] = round(landed / max(len(changes), 1), 3)
    return told


def _history(path: str, first: int) -> dict[str, Any]:
    """What the history says of retries and of compactions."""
    retries: list[int] = []
    merged = 0
    for record in DeltaLog.for_table(path).history():
        if record.version > first and record.commit_info is not None:
            metrics = record.commit_info.get("operationMetrics") or {}
            if "numRetries" in metrics:
                retries.append(int(metrics["numRetries"]))
            merged += int(metrics.get("numRemovedFiles", 0)) if record.commit_info.operation == "OPTIMIZE" else 0
    return {
        "run again": len(retries),
        "most retries": max(retries, default=0),
        "files merged": merged,
        "files left": DeltaLog.for_table(path).update().num_files,
    }


def _check(path: str, ledgers: list[list[dict[str, Any]]]) -> None:
    """Compare the table with what its writers were told; raise if a row is lost, doubled or another's."""
    expected = dict.fromkeys(range(KEYS), 0)
    for ledger in ledgers:
        for entry in ledger:
            if entry["refused"]:
                continue
            for key in range(*entry.get("gone", (0, 0))):
                expected.pop(key, None)
            for key in range(*entry.get("put", (0, 0))):
                expected[key] = entry["value"]
            for key in range(*entry.get("set", (0, 0))):
                expected[key] = entry["value"]
    rows = pydelta.open(path).scan()
    found = Counter(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    wanted = Counter(expected.items())
    if found != wanted:
        lost, odd = wanted - found, found - wanted
        raise AssertionError(f"{sum(lost.values())} rows are lost ({lost.most_common(3)}), {sum(odd.values())} doubled "
                             f"or wrong ({odd.most_common(3)})")  # fmt: skip


# --- the processes -----------------------------------------------------------------------------------------


def _appends(path: str, number: int, conf: dict[str, str]) -> Iterator[Callable[[], dict[str, Any]]]:
    table, first = pydelta.open(path), FIRST_OF * (number + 1)
    for turn in range(FIRST_OF // 10):

        def work(start: int = first + turn * 10) -> dict[str, Any]:
            time.sleep(random.random())
            table.append(_rows(start, 10, start))
            return {"put": (start, start + 10), "value": start}

        yield work


def _deletes(path: str, number: int, conf: dict[str, str]) -> Iterator[Callable[[], dict[str, Any]]]:
    from pydelta.api.python.local import open_table

    table = open_table(path, settings=Settings.resolve(conf))
    for turn in range(KEYS // 2 // 20):
        first = turn * 20

        def work(first: int = first) -> dict[str, Any]:
            table.delete(f"id >= {first} AND id < {first + 20}")
            return {"gone": (first, first + 20)}

        yield work


def _merges(path: str, number: int, conf: dict[str, str]) -> Iterator[Callable[[], dict[str, Any]]]:
    spark = pydelta.session("bench-beside", conf={**_CONF, **conf})
    table = pydelta.DeltaTable.forPath(spark, path)
    for turn in range(KEYS // 2 // 20):
        first, new = KEYS // 2 + turn * 20, MERGED + turn * 20

        def work(first: int = first, new: int = new, turn: int = turn) -> dict[str, Any]:
            source = (
                spark.range(first, first + 20).union(spark.range(new, new + 20)).selectExpr("id", f"{turn + 1}L AS v")
            )
            merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            return {"set": (first, first + 20), "put": (new, new + 20), "value": turn + 1}

        yield work


def _compactions(path: str, number: int, conf: dict[str, str]) -> Iterator[Callable[[], dict[str, Any]]]:
    spark = pydelta.session("bench-beside", conf={**_CONF, **conf})
    table = pydelta.DeltaTable.forPath(spark, path)
    while True:

        def work() -> dict[str, Any]:
            table.optimize().executeCompaction()
            return {}

        yield work


_WORK = {"append": _appends, "delete": _deletes, "merge": _merges, "compact": _compactions}


def main() -> None:
    """Be one of the processes: ``KIND NUMBER PATH CONF``."""
    kind, number, path, conf = sys.argv[1:]
    turns = _WORK[kind](path, int(number), json.loads(conf))
    work = next(turns)
    if kind in ("merge", "compact"):  # the first job of a session is slow: not a part of what is measured
        pydelta.session().range(10).count()
    print("READY", flush=True)
    until = float(sys.stdin.readline())
    while time.time() < until:
        started, entry = time.monotonic(), {}
        try:
            entry = work()
            refused = ""
        except DeltaConcurrentModificationException as lost:
            refused = f"{lost.code} by {lost.winning_operation}"
        print(json.dumps({**entry, "refused": refused, "seconds": round(time.monotonic() - started, 2)}), flush=True)
        work = next(turns)


if __name__ == "__main__":
    main()
