"""Files kept few without being asked: optimised writes before, auto-compaction after."""

from __future__ import annotations

import pytest
from optimize_tables import adds, last_commit, rows

from pydelta.errors import StorageError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def few_files(spark):
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    yield
    spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")


def many(spark, path, ids, files, **options):
    frame = spark.range(*ids, numPartitions=files).selectExpr("id", "cast(id % 2 as int) as p")
    frame.write.format("delta").options(**options).partitionBy("p").mode("append").save(path)


def operations(path):
    return [record.commit_info.operation for record in DeltaLog.for_table(path).history()]


def test_auto_compaction_follows_a_write_that_leaves_many_small_files(spark, tmp_path, few_files):
    path = str(tmp_path / "t")
    many(spark, path, (0, 30), 3, **{"delta.autoOptimize.autoCompact": "true"})
    assert operations(path) == ["CREATE TABLE AS SELECT"] or len(operations(path)) == 1
    spark.range(100, 110).selectExpr("id", "1 as p").coalesce(1).write.format("delta").mode("append").save(path)
    assert operations(path)[0] == "OPTIMIZE"
    parameters = last_commit(path)["operationParameters"]
    assert parameters["auto"] == "true"
    assert sorted(add.partition_values["p"] for add in adds(path)) == ["0", "0", "0", "1"]
    assert spark.read.format("delta").load(path).count() == 40


def test_auto_compaction_is_off_unless_asked_for_and_the_session_decides(spark, tmp_path, few_files):
    path = str(tmp_path / "t")
    many(spark, path, (0, 40), 4)
    assert len(adds(path)) == 8
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")
    try:
        many(spark, path, (40, 80), 4)
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.enabled")
    assert len(adds(path)) == 2


def test_auto_compaction_that_fails_leaves_the_write_alone(spark, tmp_path, few_files, monkeypatch, caplog):
    from pydelta.engines.spark.engine import SparkEngine

    def fail(*args, **kwargs):
        raise StorageError("the disk is full")

    path = str(tmp_path / "t")
    monkeypatch.setattr(SparkEngine, "compact", fail)
    many(spark, path, (0, 40), 4, **{"delta.autoOptimize.autoCompact": "true"})
    assert len(adds(path)) == 8
    assert "auto-compaction after version 0" in caplog.text


def test_an_optimised_write_gives_each_partition_few_files(spark, tmp_path):
    plain, option, table = (str(tmp_path / name) for name in ("plain", "option", "table"))
    many(spark, plain, (0, 80), 8)
    many(spark, option, (0, 80), 8, optimizeWrite="true")
    many(spark, table, (0, 80), 8, **{"delta.autoOptimize.optimizeWrite": "true"})
    assert [len(adds(path)) for path in (plain, option, table)] == [16, 2, 2]
    many(spark, table, (80, 160), 8, optimizeWrite="false")
    assert len(adds(table)) == 18
    spark.conf.set("spark.databricks.delta.optimizeWrite.enabled", "true")
    try:
        many(spark, plain, (80, 160), 8)
        spark.range(0, 80, numPartitions=8).write.format("delta").save(str(tmp_path / "flat"))
    finally:
        spark.conf.unset("spark.databricks.delta.optimizeWrite.enabled")
    assert len(adds(plain)) == 18
    assert len(adds(str(tmp_path / "flat"))) == 1
    assert rows(spark, plain) == rows(spark, table)


def test_an_optimised_write_splits_a_large_partition(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.range(0, 400_000, numPartitions=4).selectExpr("id", "uuid() as u", "cast(0 as int) as p")
    spark.conf.set("spark.pydelta.write.optimizeBinSize", "4mb")
    try:
        frame.write.format("delta").partitionBy("p").option("optimizeWrite", "true").save(path)
    finally:
        spark.conf.unset("spark.pydelta.write.optimizeBinSize")
    assert 2 <= len(adds(path)) <= 6


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("change", ["delete", "update"])
def test_auto_compaction_follows_a_change_that_leaves_many_small_files(spark, tmp_path, few_files, change, vectors):
    path = str(tmp_path / "t")
    many(spark, path, (0, 80), 4, **{"delta.enableDeletionVectors": vectors})
    assert len(adds(path)) == 8
    table = DeltaTable.forPath(spark, path)
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")
    try:
        if change == "delete":
            table.delete("id in (0, 1, 20, 40, 60)")  # p=0 in every file, p=1 in one
        else:
            table.update("id in (0, 1, 20, 40, 60)", {"id": "id + 1000"})
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.enabled")
    assert operations(path)[:2] == ["OPTIMIZE", change.upper()]
    assert len(adds(path)) <= 3  # a rewrite joins files, and then a partition may have too few to be compacted
    moved = {0, 1, 20, 40, 60}
    expected = set(range(80)) - moved | ({item + 1000 for item in moved} if change == "update" else set())
    assert {row.id for row in table.toDF().collect()} == expected
