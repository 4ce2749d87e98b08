"""VACUUM of tables that Spark wrote: nothing that can still be read goes, everything else that is old does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import functions as F

from pydelta import DeltaTable
from pydelta.errors import SchemaMismatchError, UnsafeOperationError

pytestmark = pytest.mark.spark
WEEK_S = 7 * 86_400


def age(path: Path, seconds: float, *, log: bool = True) -> None:
    """Let everything below a folder be older."""
    at = time.time() - seconds
    for found in [path, *path.rglob("*")]:
        if log or "_delta_log" not in found.parts:
            os.utime(found, (at, at))


@pytest.fixture
def unchecked(spark):
    """A session in which any retention may be said."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    yield
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def data_files(path: Path) -> set[str]:
    found = (item for item in path.rglob("*") if item.is_file() and "_delta_log" not in item.parts)
    return {str(item.relative_to(path)) for item in found}


def test_a_dry_run_says_what_it_would_free_and_where(spark, tmp_path, unchecked, capsys):
    path = tmp_path / "t"
    frame = spark.range(6).selectExpr("id", "id % 2 AS p").repartition(1)
    for _ in range(2):
        frame.write.format("delta").partitionBy("p").mode("overwrite").save(str(path))
    age(path, WEEK_S + 3600)
    read = spark.read.format("delta").load(str(path)).selectExpr("_metadata.file_name AS name").distinct().collect()
    live = {row.name for row in read}
    files = {name: (path / name).stat().st_size for name in data_files(path) if name.endswith(".parquet")}
    doomed = {name: size for name, size in files.items() if name.rpartition("/")[2] not in live}
    assert len(live) == len(doomed) == 2
    capsys.readouterr()
    found = spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS DRY RUN").collect()
    said = capsys.readouterr().err.splitlines()
    assert {row.path for row in found} == {f"file://{path}/{name}" for name in doomed}
    for name, size in doomed.items():
        assert f"{name.partition('/')[0]}: 1 files, {size} bytes" in said
    assert said[-2].endswith(f"files listed, {sum(doomed.values())} bytes to free.")
    assert said[-1] == "Found 2 files and directories to delete in a total of 3 directories."
    assert data_files(path) >= set(doomed)

    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert capsys.readouterr().err.splitlines()[-1] == "Deleted 2 files and directories in a total of 3 directories."
    assert not data_files(path) & set(doomed)


def test_a_table_with_vectors_feed_and_odd_partitions(spark, tmp_path, unchecked):
    path = tmp_path / "a table"
    rows = [(number, f"p {number % 3}:%/", None if number % 5 else "x") for number in range(60)]
    frame = spark.createDataFrame(rows, "id long, p string, q string").repartition(2)
    writer = frame.write.format("delta").partitionBy("p", "q")
    writer.option("delta.enableDeletionVectors", "true").option("delta.enableChangeDataFeed", "true").save(str(path))
    table = DeltaTable.forPath(spark, str(path))
    table.delete("id < 5")
    table.update("id = 10", {"q": "'new'"})
    table.optimize().executeCompaction()
    expected = {row.id: row.q for row in table.toDF().collect()}
    before = data_files(path)
    assert table.vacuum().count() == 0
    assert data_files(path) == before, "all of it is young"

    age(path, WEEK_S + 3600)
    planned = {row.path for row in table.vacuum(0, dryRun=True).collect()}
    assert data_files(path) == before
    table.vacuum(0)
    gone = {f"file://{path}/{name}" for name in before - data_files(path)}
    assert {name for name in gone if not name.endswith(".crc")} == planned
    for part in ("_change_data/", "deletion_vector", "p=p"):
        assert any(part in name for name in planned), part
    assert {row.id: row.q for row in table.toDF().collect()} == expected
    history = table.history(2).collect()
    assert [row.operation for row in history] == ["VACUUM END", "VACUUM START"]
    assert int(history[0].operationMetrics["numDeletedFiles"]) >= len(planned)


def test_the_sessions_check_counts_and_errors_are_those_that_spark_users_catch(spark, tmp_path):
    path = tmp_path / "t"
    spark.range(3).write.format("delta").save(str(path))
    spark.range(4).write.format("delta").mode("overwrite").save(str(path))
    table = DeltaTable.forPath(spark, str(path))
    with pytest.raises(UnsafeOperationError) as caught:
        table.vacuum(0)
    assert isinstance(caught.value, IllegalArgumentException)
    table.vacuum()
    assert spark.read.format("delta").load(str(path)).count() == 4


def test_a_dataframe_or_a_table_is_an_inventory(spark, tmp_path, unchecked):
    path = tmp_path / "t"
    spark.range(3).repartition(1).write.format("delta").save(str(path))
    spark.range(4).repartition(1).write.format("delta").mode("overwrite").save(str(path))
    age(path, WEEK_S + 3600)
    (old,) = {row.path for row in DeltaTable.forPath(spark, str(path)).vacuum(0, dryRun=True).collect()}
    (path / "stray").write_bytes(b"x")
    os.utime(path / "stray", (1, 1_600_000_000))
    listed = [
        (f"file:{found}", found.stat().st_size, found.is_dir(), int(found.stat().st_mtime * 1000))
        for found in path.rglob("*")
        if found.name != "stray"
    ]
    listed.append((f"file:{tmp_path}/elsewhere", 1, False, 1_600_000_000_000))
    inventory = spark.createDataFrame(listed, "path string, length long, isDir boolean, modificationTime long")
    table = DeltaTable.forPath(spark, str(path))
    assert {row.path for row in table.vacuum(0, dryRun=True, inventory=inventory).collect()} == {old}
    inventory.createOrReplaceTempView("the_list")
    table.vacuum(0, inventory="the_list")
    assert not Path(old.removeprefix("file://")).exists()
    assert (path / "stray").exists(), "the inventory did not name it"
    assert table.toDF().count() == 4
    with pytest.raises(SchemaMismatchError, match="length is int32 and must be bigint"):
        table.vacuum(0, inventory=inventory.selectExpr("path", "CAST(length AS INT)", "isDir", "modificationTime"))


def test_a_long_list_comes_to_the_driver_in_slices(spark, tmp_path, monkeypatch):
    from pydelta.api.sql import vacuum

    listed = [(f"file://{tmp_path}/t/part-{number}", number, False, 0) for number in range(50)]
    listed += [(f"file://{tmp_path}/other/part-{number}", number, False, 0) for number in range(50)]
    inventory = spark.createDataFrame(listed, "path string, length long, isDir boolean, modificationTime long")
    monkeypatch.setattr(vacuum, "_ROWS_AT_ONCE", 10)
    slices = [part["length"].to_list() for part in vacuum.inventory_of(inventory).frames(f"file://{tmp_path}/t")]
    assert sorted(number for part in slices for number in part) == list(range(50)), "each once, and no other table's"
    assert max(map(len, slices)) < 30


def test_the_statements(spark, tmp_path, unchecked):
    path = tmp_path / "t"
    spark.range(6).withColumn("p", F.col("id") % 2).repartition(1).write.format("delta").partitionBy("p").save(
        str(path)
    )
    spark.range(4).withColumn("p", F.col("id") % 2).repartition(1).write.format("delta").mode("overwrite").save(
        str(path)
    )
    age(path, WEEK_S + 3600)
    name = f"delta.`{path}`"
    planned = spark.sql(f"VACUUM {name} DRY RUN RETAIN 0 HOURS")
    assert planned.columns == ["path"]
    assert planned.count() >= 2
    only = spark.sql(f"VACUUM {name} RETAIN 0 HOURS WHERE p = 1 DRY RUN").collect()
    assert {row.path.split("/")[-2] for row in only} == {"p=1"}
    listed = [(row.path, 1, False, 1_600_000_000_000) for row in planned.collect()]
    inventory = spark.createDataFrame(listed, "path string, length long, isDir boolean, modificationTime long")
    inventory.createOrReplaceTempView("found")
    spark.sql(f"VACUUM {name} USING INVENTORY (SELECT * FROM found WHERE path LIKE '%p=1%') RETAIN 0 HOURS")
    assert {row.path for row in spark.sql(f"VACUUM {name} RETAIN 0 HOURS DRY RUN").collect()} == {
        row.path for row in planned.collect() if "p=1" not in row.path
    }
    assert spark.sql(f"VACUUM {name} LITE RETAIN 0 HOURS").collect()[0].path == f"file://{path}"
    assert spark.sql(f"VACUUM {name} FULL RETAIN 0 HOURS DRY RUN").count() == 0
    assert spark.table(name).count() == 4

    (lost,) = [item for item in data_files(path) if item.startswith("p=0") and item.endswith(".parquet")]
    (path / lost).unlink()
    (row,) = spark.sql(f"FSCK REPAIR TABLE {name} DRY RUN").collect()
    assert (row.dataFilePath, row.dataFileMissing, row.deletionVectorFileMissing) == (lost, True, False)
    spark.sql(f"FSCK REPAIR TABLE {name}")
    assert spark.table(name).count() == 2
