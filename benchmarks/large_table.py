"""Read and change a table of a billion rows: queries beside the same files as Parquet, DELETE beside delta-rs.

Each engine that deletes is a process of its own, so that its peak memory is known; that of a session includes the JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import pydelta
from benchmarks._timing import interleave, linked, peak_mb, ratios, sums_of_files
from pydelta.tables import DeltaTable

ONLY_IF_NAMED = True
ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "1000000000"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "3"))
COMMIT_ROWS = 4_000_000
DELETES = {"delete one row": "id = 40001", "delete 10 %": "k < 100"}
QUERIES = {
    "count": "SELECT count(*) FROM {}",
    "sum of a thousand rows by their keys": "SELECT sum(v) FROM {} WHERE id BETWEEN 40000 AND 40999",
    "filtered sum": "SELECT sum(v), count(*) FROM {} WHERE k < 10",
    "groups": "SELECT k, sum(v), max(id) FROM {} GROUP BY k",
}


def _make(path: str) -> None:
    random = np.random.default_rng(7)
    table = None
    for first in range(0, ROWS, COMMIT_ROWS):
        ids = np.arange(first, min(first + COMMIT_ROWS, ROWS), dtype=np.int64)
        rows = pa.table(
            {
                "id": ids,
                "k": random.integers(0, 1000, len(ids), dtype=np.int32),
                "v": random.integers(0, 1 << 20, len(ids), dtype=np.int32),
            }
        )
        if table is None:
            table = pydelta.LocalTable.create(path, rows)
        else:
            table.append(rows)


def _queries(path: str) -> dict[str, Any]:
    """Return the medians of each query over the table and over its files; answers are compared."""
    spark = _session()
    spark.read.format("delta").load(path).createOrReplaceTempView("ours")
    spark.read.parquet(f"{path}/*.parquet").createOrReplaceTempView("files")
    found: dict[str, Any] = {}
    for name, query in QUERIES.items():
        answers: dict[str, list[Any]] = {}

        def ask(view: str, text: str = query, answers: dict[str, list[Any]] = answers) -> None:
            answers[view] = sorted(tuple(row) for row in spark.sql(text.format(view)).collect())

        medians = interleave(
            {"parquet": lambda ask=ask: ask("files"), "pydelta": lambda ask=ask: ask("ours")}, rounds=ROUNDS
        )
        assert answers["files"] == answers["ours"], name
        found[name] = {**ratios(medians, to="parquet"), "seconds": round(medians["pydelta"], 3)}
    return found


def _session() -> Any:
    return pydelta.session(
        app_name="bench-large-table", conf={"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"}
    )


def _delete_in_session(path: str, condition: str) -> dict[str, Any]:
    spark = _session()
    table = DeltaTable.forPath(spark, path)
    spark.range(10).selectExpr("sum(id)").collect()
    started = time.perf_counter()
    table.delete(condition)
    seconds = time.perf_counter() - started
    jvm = spark.sparkContext._gateway.proc.pid
    return {"s": round(seconds, 2), "peak MB": peak_mb(), "peak MB of the JVM": peak_mb(jvm)}


def _delete_without_spark(path: str, condition: str) -> dict[str, Any]:
    table = pydelta.open(path)
    started = time.perf_counter()
    table.delete(condition)
    return {"s": round(time.perf_counter() - started, 2), "peak MB": peak_mb()}


def _delete_by_delta_rs(path: str, condition: str) -> dict[str, Any]:
    import deltalake

    table = deltalake.DeltaTable(path)
    started = time.perf_counter()
    table.delete(condition)
    return {"s": round(time.perf_counter() - started, 2), "peak MB": peak_mb()}


_TURNS = {
    "pydelta, session": _delete_in_session,
    "pydelta, no JVM": _delete_without_spark,
    "delta-rs": _delete_by_delta_rs,
}


def run() -> dict[str, Any]:
    """1,000,000,000 rows (``PYDELTA_BENCH_ROWS``) in 250 commits; the folder of temporary files needs 35 GB."""
    result: dict[str, Any] = {"rows": ROWS}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/table"
        started = time.perf_counter()
        _make(path)
        files = list(Path(path).glob("*.parquet"))
        result["made"] = {"s": round(time.perf_counter() - started, 1), "files": len(files)}
        result["made"] |= {"MB": sum(file.stat().st_size for file in files) // 1_000_000, "peak MB": peak_mb()}
        result["queries"] = _process("queries", path)
        print(result, file=sys.stderr, flush=True)
        for name, condition in DELETES.items():
            left = set()
            result[name] = {}
            for who in _TURNS:
                copy = f"{folder}/copy"
                shutil.copytree(path, copy, copy_function=linked)
                result[name][who] = _process(who, copy, condition)
                print(name, who, result[name][who], file=sys.stderr, flush=True)
                left.add(tuple(sums_of_files(copy, ["id", "v"]).values()))
                shutil.rmtree(copy)
            assert len(left) == 1, left
    return result


def _process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.large_table", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Be one of the processes: ``queries TABLE``, or ``ENGINE TABLE CONDITION``."""
    what, path, *condition = sys.argv[1:]
    print(json.dumps(_queries(path) if what == "queries" else _TURNS[what](path, *condition)))


if __name__ == "__main__":
    main()
