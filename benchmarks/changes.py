"""Compare DELETE, UPDATE and MERGE with the peers' on copies of the very same table.

The reference engine takes part where ``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark; its jars come by
their Maven coordinates, ``PYDELTA_REFERENCE_PACKAGE``. Every contestant's rows are compared after every turn.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds

import pydelta
from benchmarks._peer import reference_engine
from benchmarks._timing import on_copies, ratios
from pydelta.tables import DeltaTable

ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "8000000"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "3"))

# What both Spark engines run: the API is one and the same.
_OPERATIONS = """
import datetime
def run_operation(spark, table, name, source, path):
    if name == "append one row":
        row = [(9000000, 1, 0.5, "new", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))]
        frame = spark.createDataFrame(row, "id long, p int, v double, s string, t timestamp")
        frame.write.format("delta").mode("append").save(path)
    elif name == "append ten rows, twenty times":
        for turn in range(20):
            moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
            rows = [(9000000 + turn * 10 + number, 1, 0.5, "new", moment) for number in range(10)]
            frame = spark.createDataFrame(rows, "id long, p int, v double, s string, t timestamp")
            frame.write.format("delta").mode("append").save(path)
    elif name == "delete one row":
        table.delete("id = 40001")
    elif name == "delete 10 %":
        table.delete("id % 10 = 3")
    elif name == "delete a partition":
        table.delete("p = 3")
    elif name == "update one file":
        table.update("id BETWEEN 40000 AND 40999", {"v": "v + 1"})
    else:
        rows = spark.read.parquet(source)
        merge = table.alias("t").merge(rows.alias("s"), "t.id = s.id")
        if name == "merge, insert only":
            merge.whenNotMatchedInsertAll().execute()
        elif name == "merge, delete":
            merge.whenMatchedDelete().execute()
        else:
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
"""
exec(_OPERATIONS)  # the reference engine runs the same text in its process

_REFERENCE = f"""
from delta.tables import DeltaTable
{_OPERATIONS}
def turn(name, path, source):
    table = DeltaTable.forPath(spark, path)
    started = time.perf_counter()
    run_operation(spark, table, name, source, path)
    return time.perf_counter() - started
"""

OPERATIONS = (
    "append one row",
    "append ten rows, twenty times",
    "delete one row",
    "delete 10 %",
    "delete a partition",
    "update one file",
    "merge, upsert",
    "merge, insert only",
    "merge, delete",
)
_WITH_VECTORS = ("delete one row", "update one file", "merge, upsert")


ONE_ROW = pa.table(
    {
        "id": pa.array([9_000_000], pa.int64()),
        "p": pa.array([1], pa.int32()),
        "v": [0.5],
        "s": ["new"],
        "t": pa.array([1_704_067_200_000_000], pa.timestamp("us", "UTC")),
    }
)
TEN_ROWS = pa.concat_tables([ONE_ROW] * 10)


def _delta_rs(name: str, path: str, source: str) -> float:
    table = deltalake.DeltaTable(path)
    started = time.perf_counter()
    if name == "append one row":
        deltalake.write_deltalake(path, ONE_ROW, mode="append")
    elif name == "append ten rows, twenty times":
        for turn in range(20):
            ids = pa.array(range(9_000_000 + turn * 10, 9_000_010 + turn * 10), pa.int64())
            deltalake.write_deltalake(path, TEN_ROWS.set_column(0, "id", ids), mode="append")
    elif name == "delete one row":
        table.delete("id = 40001")
    elif name == "delete 10 %":
        table.delete("id % 10 = 3")
    elif name == "delete a partition":
        table.delete("p = 3")
    elif name == "update one file":
        table.update(updates={"v": "v + 1"}, predicate="id BETWEEN 40000 AND 40999")
    else:
        merge = table.merge(ds.dataset(source).to_table(), "t.id = s.id", source_alias="s", target_alias="t")
        if name == "merge, insert only":
            merge.when_not_matched_insert_all().execute()
        elif name == "merge, delete":
            merge.when_matched_delete().execute()
        else:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    """8 million rows (``PYDELTA_BENCH_ROWS``, 38 MB per million) of 5 columns in files of half a million at most.

    One table is partitioned by 8 values; the source's rows are spread over all files.
    """
    return run_size(ROWS, ROUNDS)


def run_size(size: int, rounds: int, *, warm_up: int = 0) -> dict[str, Any]:
    """Run all changes on tables of some rows.

    Args:
        size: The number of rows.
        rounds: Turns that count.
        warm_up: Rows of the table in the first turn, which does not count; 0 for the same table.
    """
    spark = pydelta.session(
        app_name="bench-changes", conf={"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"}
    )
    wanted = os.environ.get("PYDELTA_BENCH_ONLY")
    reference = reference_engine(_REFERENCE, {"spark.driver.memory": "3g"})

    def ours(name: str, path: str, source: str) -> float:
        table = DeltaTable.forPath(spark, path)
        started = time.perf_counter()
        globals()["run_operation"](spark, table, name, source, path)
        return time.perf_counter() - started

    result: dict[str, Any] = {}
    with reference or nullcontext(), tempfile.TemporaryDirectory() as folder:
        bases = _tables(spark, folder, size)
        small = _tables(spark, f"{folder}/warm-up", warm_up) if warm_up else dict.fromkeys(bases, "")
        plans = [(name, "partitioned" if "partition" in name else "plain") for name in OPERATIONS]
        plans += [(name, "vectors") for name in _WITH_VECTORS]
        for name, kind in plans:
            label = f"{name}, vectors" if kind == "vectors" else name
            if wanted and wanted not in label:
                continue
            contestants: dict[str, Callable[[str, str, str], float]] = {"pydelta": ours}
            if kind != "vectors":  # delta-rs writes no deletion vectors
                contestants["delta-rs"] = _delta_rs
            if reference is not None:
                contestants["delta-spark"] = reference
            result[label] = _compare(contestants, name, (bases[kind], small[kind]), folder, rounds)
            print(label, result[label], flush=True)
    return result


def _tables(spark: Any, folder: str, size: int) -> dict[str, str]:
    rows = spark.range(size, numPartitions=max(16, size // 500_000)).selectExpr(
        "id",
        "cast(id % 8 as int) AS p",
        "rand(7) AS v",
        "concat('customer-', id % 100000) AS s",
        "timestamp_micros(1577836800000000 + id * 1000003) AS t",
    )
    rows.write.format("delta").save(f"{folder}/plain")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(f"{folder}/vectors")
    rows.write.format("delta").partitionBy("p").save(f"{folder}/partitioned")
    # nine tenths are there already, one tenth is new
    spark.range(size // 40).selectExpr(
        f"if(id % 10 = 0, {size} + id, (id * 7919) % {size}) AS id",
        "cast(id % 8 as int) AS p",
        "0.5D AS v",
        "'corrected' AS s",
        "timestamp'2024-01-01 00:00:00' AS t",
    ).write.parquet(f"{folder}/source")
    return {name: f"{folder}/{name}" for name in ("plain", "vectors", "partitioned")}


def _fingerprint(path: str) -> str:
    query = "select count(*) as n, sum(id) as ids, count(distinct s) as names, count(distinct p) as parts from t"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute(query).read_all()
    return str({name: found.column(name).to_pylist() for name in found.schema.names})


def _compare(
    contestants: dict[str, Callable[[str, str, str], float]],
    name: str,
    bases: tuple[str, str],
    folder: str,
    rounds: int,
) -> dict[str, Any]:
    runs = {who: partial(_turn, run_one, name, f"{folder}/source") for who, run_one in contestants.items()}
    base, warm_up = bases
    medians = on_copies(runs, base, folder, rounds=rounds, left=_fingerprint, warm_up=warm_up)
    to = "delta-spark" if "delta-spark" in medians else "pydelta"
    return {
        **ratios(medians, to=to),
        "seconds": {contestant: round(value, 4) for contestant, value in medians.items()},
    }


def _turn(run_one: Callable[[str, str, str], float], name: str, source: str, path: str) -> float:
    return run_one(name, path, source)
