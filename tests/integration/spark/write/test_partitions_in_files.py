"""``materializePartitionColumns``: data files hold the partition columns, too, whoever writes them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import pydelta
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

COLUMNS = "id BIGINT, d DATE, t TIMESTAMP, s STRING, n DECIMAL(10, 2)"
FEATURE = "'delta.feature.materializePartitionColumns' = 'supported'"
NOON = "2024-02-29T12:00:00"


@pytest.fixture
def table(spark, tmp_path):
    """Makes a table that everything but its first column partitions, with some rows."""

    def make(properties=FEATURE):
        path = str(tmp_path / "t")
        clauses = f"PARTITIONED BY (d, t, s, n) TBLPROPERTIES ({properties})"
        spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta {clauses}")
        spark.sql(
            f"INSERT INTO delta.`{path}` SELECT id, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00Z', "
            "IF(id % 2 = 0, 'a=b c', NULL), 1.50 FROM range(0, 10, 1, 1)"
        )
        return path

    return make


def live_files(path):
    """The live files' own rows, by their paths, with what the log says of their partitions."""
    found = []
    files = DeltaLog.for_table(path).update().files
    for add in files.adds(files.core):
        file = pq.ParquetFile(Path(path, unquote(add.path)))
        found.append((file.schema_arrow.names, file.read().to_pylist(), add))
    assert found
    return found


def check(path, names=("id", "d", "t", "s", "n")):
    for columns, rows, add in live_files(path):
        assert tuple(columns[: len(names)]) == names
        assert not {"d", "t", "s", "n"} & set((add.stats or "").replace('"', " ").split())
        for row in rows:
            assert (row["d"], row["t"].isoformat()[:19], str(row["n"])) == (dt.date(2024, 2, 29), NOON, "1.50")
            assert row["s"] == add.partition_values["s"] == (None if row["id"] % 2 else "a=b c")


def test_writes_deletes_updates_and_optimize_keep_them(spark, table):
    path = table()
    check(path)
    spark.sql(f"INSERT INTO delta.`{path}` SELECT 20, d, t, s, n FROM delta.`{path}` WHERE id = 0")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")
    spark.sql(f"UPDATE delta.`{path}` SET id = id + 100 WHERE id IN (6, 7)")
    check_rows = {0, 1, 2, 3, 5, 8, 9, 20, 106, 107}
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert {row["id"] for row in spark.read.format("delta").load(path).collect()} == check_rows
    assert len(live_files(path)) == 2
    check(path)


def test_a_table_that_asks_for_it_by_the_property_has_the_feature(table):
    path = table("'delta.enableMaterializePartitionColumnsFeature' = 'true'")
    protocol = DeltaLog.for_table(path).update().protocol
    assert "materializePartitionColumns" in protocol.writer_features
    check(path)


def test_the_change_feed_has_them_and_reads_as_before(spark, table):
    path = table(f"{FEATURE}, 'delta.enableChangeDataFeed' = 'true'")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")
    files = list(Path(path, "_change_data").rglob("*.parquet"))
    assert files
    assert all({"d", "t", "s", "n"} <= set(pq.read_schema(file).names) for file in files)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(path)
    assert [(row["id"], row["s"], row["_change_type"]) for row in feed.collect()] == [(4, "a=b c", "delete")]


def test_without_a_jvm_they_are_written_too(table):
    path = table()
    opened = pydelta.open(path)
    opened.append(opened.scan().slice(0, 1))
    check(path)


def test_a_mapped_table_has_their_physical_names(spark, table):
    path = table(f"{FEATURE}, 'delta.columnMapping.mode' = 'name'")
    snapshot = DeltaLog.for_table(path).update()
    names = {field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema.fields}
    assert all(set(columns) == names for columns, _, _ in live_files(path))
    assert spark.read.format("delta").load(path).where("s IS NULL").count() == 5


def test_once_the_feature_is_dropped_files_go_without(spark, table):
    path = table()
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE materializePartitionColumns")
    spark.sql(f"INSERT OVERWRITE delta.`{path}` SELECT * FROM delta.`{path}`")
    assert all(columns == ["id"] for columns, _, _ in live_files(path))
