"""What we write delta-rs reads, and what delta-rs writes we read: the same rows, in both directions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import deltalake
import pyarrow as pa
import pytest

from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


def _their_rows(path: str, version: int | None = None) -> list[dict]:
    table = deltalake.DeltaTable(path, version=version)
    batches = deltalake.QueryBuilder().register("t", table).execute("select * from t")
    return pa.table(batches.read_all()).to_pylist()


def _key(row: dict) -> str:
    return repr(sorted(row.items()))


def _our_rows(spark, path: str) -> list[dict]:
    return [row.asDict(recursive=True) for row in spark.read.format("delta").load(path).collect()]


def _same(left: list[dict], right: list[dict]) -> None:
    assert sorted(map(_key, left)) == sorted(map(_key, right))


@pytest.fixture
def sample() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3, None], pa.int64()),
            "name": pa.array(["a b", "50%", None, "x=y/z"]),
            "price": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")], pa.decimal128(10, 2)),
            "day": pa.array([dt.date(2024, 1, 1), dt.date(1970, 1, 1), None, dt.date(2024, 2, 29)]),
            "flag": pa.array([True, False, None, True]),
            "tags": pa.array([["x"], [], None, ["y", None]], pa.list_(pa.string())),
            "inner": pa.array([{"a": 1}, {"a": None}, None, {"a": 4}], pa.struct([("a", pa.int32())])),
        }
    )


@pytest.mark.parametrize("partitions", [[], ["name"], ["day", "flag"]])
def test_we_read_what_delta_rs_writes(spark, tmp_path, sample, partitions):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, sample, partition_by=partitions)
    deltalake.write_deltalake(path, sample, mode="append")
    _same(_our_rows(spark, path), sample.to_pylist() * 2)


@pytest.mark.parametrize("partitions", [[], ["name"], ["day", "flag"]])
def test_delta_rs_reads_what_we_write(spark, tmp_path, sample, partitions):
    path = str(tmp_path / "t")
    frame = spark.createDataFrame(sample)
    frame.write.format("delta").partitionBy(*partitions).save(path)
    frame.write.format("delta").mode("append").save(path)
    _same(_their_rows(path), sample.to_pylist() * 2)


def test_both_write_to_one_table_in_turn(spark, tmp_path):
    path = str(tmp_path / "t")
    ours = spark.range(0, 10).selectExpr("id", "cast(id % 2 as int) as p")
    ours.write.format("delta").partitionBy("p").save(path)
    theirs = pa.table(
        {"id": pa.array(range(10, 20), pa.int64()), "p": pa.array([i % 2 for i in range(10)], pa.int32())}
    )
    deltalake.write_deltalake(path, theirs, mode="append")
    DeltaTable.forPath(spark, path).delete("id in (3, 13) or p = 0 and id >= 18")
    deltalake.DeltaTable(path).delete("id = 5")
    expected = [{"id": i, "p": i % 2} for i in range(20) if i not in (3, 5, 13, 18)]
    _same(_our_rows(spark, path), expected)
    _same(_their_rows(path), expected)


def test_delta_rs_reads_our_checkpoint_and_we_read_theirs(spark, tmp_path):
    path = str(tmp_path / "t")
    for number in range(12):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(path)
    log_folder = tmp_path / "t" / "_delta_log"
    assert (log_folder / f"{10:020d}.checkpoint.parquet").exists()
    for version in range(10):  # only the checkpoint can tell what these said
        (log_folder / f"{version:020d}.json").unlink()
    _same(_their_rows(path), [{"id": i} for i in range(12)])
    deltalake.DeltaTable(path).create_checkpoint()
    (log_folder / f"{10:020d}.checkpoint.parquet").unlink()
    (log_folder / f"{10:020d}.json").unlink()
    DeltaLog.clear_cache()
    _same(_our_rows(spark, path), [{"id": i} for i in range(12)])
