"""Run the shapes of LHBench's merges and refreshes: MERGEs of a share of a table, and ten refreshes in a row.

A merge changes as many rows as it inserts. A refresh upserts 3 % of the table by MERGE and deletes as many rows by
DELETE; after ten of them all rows are summed up. Each contestant has copies of its own of one table, and is asked for
the rows that are left.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import deltalake
import pyarrow.dataset as ds

import pydelta
from benchmarks._peer import reference_engine
from benchmarks._timing import on_copies, ratios
from pydelta.tables import DeltaTable

ROWS, FILES, ROUNDS, REFRESHES = 4_000_000, 16, 3, 10
SHARES = {"0.001 %": 0.00001, "0.1 %": 0.001, "1 %": 0.01, "10 %": 0.1}
_CONF = {"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"}

# What both Spark engines run: the API is one and the same.
_OPERATIONS = """
def run_operation(spark, table, name, source, path):
    rows = spark.read.parquet(source)
    if name == "sum":
        spark.read.format("delta").load(path).selectExpr("sum(v)", "count(DISTINCT s)", "count(*)").collect()
        return
    merge = table.alias("t").merge(rows.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    if name.startswith("refresh"):
        number = int(name.split()[1])
        table.delete(f"id % 33 = {number}")
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


def _delta_rs(name: str, path: str, source: str) -> float:
    table = deltalake.DeltaTable(path)
    started = time.perf_counter()
    if name == "sum":
        asked = "select sum(v), count(distinct s), count(*) from t"
        deltalake.QueryBuilder().register("t", table).execute(asked).read_all()
        return time.perf_counter() - started
    merge = table.merge(ds.dataset(source).to_table(), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    if name.startswith("refresh"):
        table.delete(f"id % 33 = {name.split()[1]}")
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    """4 million rows in 16 files; medians of three turns for merges, one chain of ten for refreshes."""
    spark = pydelta.session(app_name="bench-lhbench", conf={"spark.master": "local[2]", **_CONF})
    reference = reference_engine(_REFERENCE, {"spark.driver.memory": "3g"})

    def ours(name: str, path: str, source: str) -> float:
        table = DeltaTable.forPath(spark, path)
        started = time.perf_counter()
        globals()["run_operation"](spark, table, name, source, path)
        return time.perf_counter() - started

    contestants: dict[str, Callable[[str, str, str], float]] = {"pydelta": ours, "delta-rs": _delta_rs}
    if reference is not None:
        contestants["delta-spark"] = reference
    result: dict[str, Any] = {}
    with reference or nullcontext(), tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/base"
        _rows(spark, 0, ROWS, step=1).repartitionByRange(FILES, "id").write.format("delta").save(base)
        for label, share in SHARES.items():
            source = f"{folder}/source-{share}"
            _source(spark, int(ROWS * share), number=0).write.parquet(source)
            result[f"merge of {label}"] = _merges(contestants, base, source, folder)
            print(label, result[f"merge of {label}"], flush=True)
        result |= _refreshes(spark, contestants, base, folder)
        print(result, flush=True)
    return result


def _rows(spark: Any, first: int, count: int, *, step: int) -> Any:
    return spark.range(first, first + count * step, step, FILES).selectExpr(
        "id", "cast(id % 8 as int) AS p", "hash(id) / 1000.0D AS v", "concat('customer-', id % 100000) AS s"
    )


def _source(spark: Any, count: int, *, number: int) -> Any:
    """Half of the rows are in the table, spread over it; half are new."""
    half = max(count // 2, 1)
    there = _rows(spark, number, half, step=max(ROWS // half, 1))
    new = _rows(spark, ROWS + number * count, half, step=1)
    return there.union(new).selectExpr("id", "p", "0.5D AS v", "'corrected' AS s")


def _left(path: str) -> str:
    corrected = "sum(case when s = 'corrected' then 1 else 0 end) as corrected"
    asked = f"select count(*) as n, sum(id) as ids, count(distinct s) as names, {corrected} from t"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute(asked).read_all()
    return str({name: found.column(name).to_pylist() for name in found.schema.names})


def _merges(
    contestants: dict[str, Callable[[str, str, str], float]], base: str, source: str, folder: str
) -> dict[str, Any]:
    runs = {name: partial(_turn, run_one, source) for name, run_one in contestants.items()}
    return _told(on_copies(runs, base, folder, rounds=ROUNDS, left=_left))


def _turn(run_one: Callable[[str, str, str], float], source: str, path: str) -> float:
    return run_one("merge", path, source)


def _refreshes(
    spark: Any, contestants: dict[str, Callable[[str, str, str], float]], base: str, folder: str
) -> dict[str, Any]:
    refreshed, summed = dict.fromkeys(contestants, 0.0), dict.fromkeys(contestants, 0.0)
    for name in contestants:
        shutil.copytree(base, f"{folder}/{name}")
    for number in range(REFRESHES):
        source = f"{folder}/refresh-{number}"
        _source(spark, int(ROWS * 0.03), number=number).write.parquet(source)
        for name, run_one in contestants.items():
            refreshed[name] += run_one(f"refresh {number}", f"{folder}/{name}", source)
        assert len({_left(f"{folder}/{name}") for name in contestants}) == 1
    for name, run_one in contestants.items():
        turns = [run_one("sum", f"{folder}/{name}", source) for _ in range(3)]
        summed[name] = sorted(turns)[1]
    return {"ten refreshes of 3 %": _told(refreshed), "sum of all after them": _told(summed)}


def _told(seconds: dict[str, float]) -> dict[str, Any]:
    to = "delta-spark" if "delta-spark" in seconds else "delta-rs"
    return {**ratios(seconds, to=to), "seconds": {name: round(value, 3) for name, value in seconds.items()}}
