"""Compare small changes in this process with the same ones by Spark jobs, and with delta-rs, on copies of one table.

``rewrite n files``: a row is deleted from each of n files at once, so that as many bytes are rewritten: where the two
ways cross is what ``spark.pydelta.local.maxBytes`` is by default. After every turn the rows are compared.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake

import pydelta
from benchmarks._timing import on_copies, ratios
from pydelta.tables import DeltaTable

ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "8000000"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "3"))
FILES = 16
LIMIT = "spark.pydelta.local.maxBytes"
EACH = ROWS // FILES
_ONE_FILE = f"id BETWEEN {ROWS // 2} AND {ROWS // 2 + 999}"
OPERATIONS = ("delete one row", "delete 10 %", "update one file", "delete one row, vectors", "update one file, vectors")
REWRITES = (1, 2, 4, 8, 16)


def _delete(count: int) -> str:
    return f"id IN ({', '.join(str(EACH * number + 1) for number in range(count))})"


def _ours(spark: Any, limit: str) -> Callable[[str, str], float]:
    def run(name: str, path: str) -> float:
        spark.conf.set(LIMIT, limit)
        table = DeltaTable.forPath(spark, path)
        started = time.perf_counter()
        if name.startswith("rewrite"):
            table.delete(_delete(int(name.split()[1])))
        elif name.startswith("delete one row"):
            table.delete(f"id = {ROWS // 2 + 1}")
        elif name == "delete 10 %":
            table.delete("id % 10 = 3")
        else:
            table.update(_ONE_FILE, {"v": "v + 1"})
        took = time.perf_counter() - started
        told = table.history(1).collect()[0]["operationMetrics"]
        assert told.get("scannedBy", "spark") == ("spark" if limit == "0" else "arrow"), told
        return took

    return run


def _delta_rs(name: str, path: str) -> float:
    table = deltalake.DeltaTable(path)
    started = time.perf_counter()
    if name.startswith("rewrite"):
        table.delete(_delete(int(name.split()[1])))
    elif name == "delete one row":
        table.delete(f"id = {ROWS // 2 + 1}")
    elif name == "delete 10 %":
        table.delete("id % 10 = 3")
    else:
        table.update(updates={"v": "v + 1"}, predicate=_ONE_FILE)
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    """8 million rows (``PYDELTA_BENCH_ROWS``) in 16 files; figures are medians over that of Spark's way."""
    conf = {"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"}
    spark = pydelta.session(app_name="bench-small-changes", conf=conf)
    wanted = os.environ.get("PYDELTA_BENCH_ONLY", "")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(ROWS, numPartitions=FILES).selectExpr(
            "id",
            "cast(id % 8 as int) AS p",
            "rand(7) AS v",
            "concat('customer-', id % 100000) AS s",
            "timestamp_micros(1577836800000000 + id * 1000003) AS t",
        )
        rows.write.format("delta").save(f"{folder}/plain")
        rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(f"{folder}/vectors")
        size = sum(file.stat().st_size for file in Path(folder, "plain").glob("*.parquet")) // FILES
        result["bytes of a file"] = size
        for name in (*OPERATIONS, *(f"rewrite {count} files" for count in REWRITES)):
            if wanted not in name:
                continue
            contestants = {"arrow": _ours(spark, "8g"), "spark": _ours(spark, "0")}
            if "vectors" not in name:  # delta-rs writes none
                contestants["delta-rs"] = _delta_rs
            kind = "vectors" if "vectors" in name else "plain"
            result[name] = _compare(contestants, name, f"{folder}/{kind}", folder)
            print(name, result[name], flush=True)
    return result


def _fingerprint(path: str) -> str:
    query = "select count(*) as n, sum(id) as ids, sum(p) as parts, count(distinct s) as names from t"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute(query).read_all()
    return str({name: found.column(name).to_pylist() for name in found.schema.names})


def _compare(contestants: dict[str, Callable[[str, str], float]], name: str, base: str, folder: str) -> dict[str, Any]:
    runs = {who: partial(change, name) for who, change in contestants.items()}
    medians = on_copies(runs, base, folder, rounds=ROUNDS, left=_fingerprint)
    return {
        **ratios(medians, to="spark"),
        "seconds": {contestant: round(value, 2) for contestant, value in medians.items()},
    }
