"""Clones read by Spark and, where it can, by delta-rs."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pytest

from pydelta.engines.spark.maintenance import clone as spark_clone
from pydelta.errors import StorageError, TableAlreadyExistsError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, tmp_path):
    """Ids 0-9 in version 0, without id 3 in version 1; under a folder whose name takes escaping."""
    path = str(tmp_path / "a table")
    frame = spark.range(10).selectExpr("id", "concat('p ', id % 2) as p").coalesce(1)
    frame.write.format("delta").option("delta.enableDeletionVectors", "true").partitionBy("p").save(path)
    DeltaTable.forPath(spark, path).delete("id = 3")
    return path


def _ids(spark, path):
    return sorted(row[0] for row in spark.read.format("delta").load(path).select("id").collect())


ALL = list(range(10))
KEPT = [i for i in ALL if i != 3]


@pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])
def test_a_clone_lives_its_own_life(spark, table, tmp_path, shallow):
    target = str(tmp_path / "clone")
    clone = DeltaTable.forPath(spark, table).clone(target, isShallow=shallow, properties={"team": "x"})
    assert _ids(spark, target) == KEPT
    assert sorted(row["id"] for row in clone.toDF().collect()) == KEPT
    clone.delete("id = 4")
    spark.range(20, 21).selectExpr("id", "'p 0' as p").write.format("delta").mode("append").save(target)
    assert _ids(spark, target) == sorted({*KEPT, 20} - {4})
    assert _ids(spark, table) == KEPT
    operations = [row["operation"] for row in clone.history().collect()]
    assert operations == ["WRITE", "DELETE", "CLONE"]
    assert dict(clone.detail().first()["properties"])["team"] == "x"
    if shallow:
        return
    moved = tmp_path / "gone"
    shutil.move(table, moved)
    assert _ids(spark, target) == sorted({*KEPT, 20} - {4})
    shutil.move(moved, table)


def test_delta_rs_reads_a_shallow_clone_as_far_as_it_can(spark, tmp_path):
    path, target = str(tmp_path / "plain"), str(tmp_path / "clone")
    spark.range(5).coalesce(1).write.format("delta").save(path)
    DeltaTable.forPath(spark, path).clone(target, isShallow=True)
    theirs = deltalake.DeltaTable(target)
    rows = deltalake.QueryBuilder().register("t", theirs).execute("select id from t").read_all()
    assert sorted(rows.column("id").to_pylist()) == [0, 1, 2, 3, 4]


def test_versions_and_times(spark, table, tmp_path):
    source = DeltaTable.forPath(spark, table)
    source.cloneAtVersion(0, str(tmp_path / "first"), isShallow=True)
    assert _ids(spark, str(tmp_path / "first")) == ALL
    time = DeltaLog.for_table(table).history()[0].timestamp_ms
    stamp = spark.sql(f"select cast(timestamp_millis({time}) as string) as t").first()["t"]
    source.cloneAtTimestamp(stamp, str(tmp_path / "last"), isShallow=False)
    assert _ids(spark, str(tmp_path / "last")) == KEPT


def test_a_clone_by_name_is_in_the_catalog(spark, table):
    clone = DeltaTable.forPath(spark, table).clone("a_clone", isShallow=False)
    try:
        assert spark.table("a_clone").count() == 9
        with pytest.raises(TableAlreadyExistsError):
            DeltaTable.forPath(spark, table).clone("a_clone", isShallow=False)
        DeltaTable.forPath(spark, table).clone("a_clone", isShallow=True, replace=True)
        assert spark.table("a_clone").count() == 9
        assert clone.history().count() == 2
    finally:
        spark.sql("DROP TABLE a_clone")


@pytest.mark.damages_tables
def test_many_files_are_copied_by_a_job(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_clone, "_FEW", 3)
    path, target = str(tmp_path / "many"), str(tmp_path / "clone")
    spark.range(0, 100, 1, 8).write.format("delta").save(path)
    DeltaTable.forPath(spark, path).clone(target, isShallow=False)
    assert _ids(spark, target) == list(range(100))
    for file in Path(path).glob("*.parquet"):
        file.write_bytes(b"PAR1")
        break
    with pytest.raises(StorageError, match="ends after 4"):
        DeltaTable.forPath(spark, path).clone(str(tmp_path / "broken"), isShallow=False)
    assert list((tmp_path / "broken").rglob("*.parquet")) == []
