"""Column mapping is taken off: files under the columns' own names, the same rows, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import (
    DeltaConcurrentModificationException,
    RowsDoNotAddUpError,
    SchemaError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

NONE = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
UNSET = "UNSET TBLPROPERTIES ('delta.columnMapping.mode')"


@pytest.fixture
def path(spark, tmp_path):
    """A table with a column of everything, some of them renamed and dropped."""

    def make(mode="name", more=""):
        path = str(tmp_path / "t")
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id BIGINT, s STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, "
            "`odd name` STRING, gone INT, p DATE) USING delta PARTITIONED BY (p) "
            f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}'{more})"
        )
        spark.sql(
            f"INSERT INTO delta.`{path}` SELECT id, struct(CAST(id AS INT), array(struct(CAST(id AS STRING)))), "
            "IF(id = 3, NULL, concat('v', id)), 7, IF(id % 2 = 0, DATE '2024-02-29', NULL) FROM range(0, 10, 1, 2)"
        )
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `odd name` TO plain")
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN s.x TO first")
        spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN gone")
        return path

    return make


def rows(spark, path, columns="*"):
    return sorted(map(str, spark.sql(f"SELECT {columns} FROM delta.`{path}`").collect()))


def columns_of_files(path):
    snapshot = DeltaLog.for_table(path).update()
    adds = list(snapshot.files.adds(snapshot.files.core))
    found = {tuple(pq.read_schema(Path(path, unquote(add.path))).names) for add in adds}
    values = {tuple(add.partition_values) for add in adds}
    return found, values


@pytest.mark.parametrize(("mode", "statement"), [("name", NONE), ("id", NONE), ("name", UNSET)])
def test_files_have_the_columns_own_names_and_the_same_rows(spark, path, mode, statement):
    path = path(mode)
    before = rows(spark, path)
    old = DeltaLog.for_table(path).update()
    spark.sql(f"ALTER TABLE delta.`{path}` {statement}")
    snapshot = DeltaLog.for_table(path).update()
    assert snapshot.column_mapping_mode == "none"
    assert "columnMapping" not in snapshot.metadata.schema_string
    assert columns_of_files(path) == ({("id", "s", "plain")}, {("p",)})
    assert rows(spark, path) == before
    assert rows(spark, f"{path}@v{old.version}") == before
    assert spark.sql(f"SELECT count(*) FROM delta.`{path}` WHERE s.first > 7 AND plain IS NOT NULL").first()[0] == 2
    last = DeltaTable.forPath(spark, path).history(1).first()
    assert last["operation"] == "REMOVE COLUMN MAPPING"
    assert last["operationMetrics"]["numOutputRows"] == "10"
    assert last["operationMetrics"]["numRemovedFiles"] == str(old.num_files)
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id + 100, s, plain, p FROM delta.`{path}` WHERE id = 1")
    spark.sql(f"UPDATE delta.`{path}` SET plain = 'new' WHERE id = 101")
    assert len(rows(spark, path)) == 11
    with pytest.raises(UnsupportedFeatureError, match="column mapping"):
        spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN plain")


def test_the_feature_is_dropped_in_one_statement(spark, path):
    path = path()
    before = rows(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE columnMapping")
    protocol = DeltaLog.for_table(path).update().protocol
    assert "columnMapping" not in {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    assert protocol.min_reader_version == 1
    assert rows(spark, path) == before


def test_hidden_rows_stay_deleted_and_row_ids_stay(spark, path):
    path = path(more=", 'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true'")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (2, 5)")
    ids = rows(spark, path, "id, _metadata.row_id, _metadata.row_commit_version")
    assert len(ids) == 8
    spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    assert rows(spark, path, "id, _metadata.row_id, _metadata.row_commit_version") == ids
    snapshot = DeltaLog.for_table(path).update()
    assert all(add.deletion_vector is None for add in snapshot.files.adds(snapshot.files.core))


def test_clustering_goes_by_the_new_names(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (a INT, s STRUCT<b: INT>) USING delta CLUSTER BY (a, s.b) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` SELECT CAST(id AS INT), struct(CAST(id AS INT)) FROM range(10)")
    spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    snapshot = DeltaLog.for_table(path).update()
    assert snapshot.clustering_columns == ("a", "s.b")
    assert '[["a"],["s","b"]]' in snapshot.domain_metadata["delta.clustering"].configuration.replace(" ", "")
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert len(rows(spark, path)) == 10


def test_names_that_files_do_not_take_are_all_told(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (`a b` INT, c INT, d STRUCT<`e,f`: INT>) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    with pytest.raises(SchemaError, match="'a b', 'd'") as caught:
        spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    assert "RENAME COLUMN" in caught.value.hint
    assert caught.value.condition.name == "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"
    assert DeltaLog.for_table(path).update().version == 0


def test_the_change_feed_over_it_is_refused_and_goes_on_behind_it(spark, path):
    path = path(more=", 'delta.enableChangeDataFeed' = 'true'")
    spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    version = DeltaLog.for_table(path).update().version
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")

    def feed(first):
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
        return [(row["id"], row["_change_type"]) for row in reader.load(path).collect()]

    assert feed(version) == [(1, "delete")]
    with pytest.raises(Exception, match=r"(?i)schema"):
        feed(1)


def test_rows_that_another_writer_adds_meanwhile_are_not_lost(spark, path, monkeypatch):
    path = path()
    before = rows(spark, path)
    write = SparkEngine.rewrite_as

    def beside(self, snapshot, metadata):
        written = write(self, snapshot, metadata)
        spark.sql(f"INSERT INTO delta.`{path}` SELECT 50, s, plain, p FROM delta.`{path}` WHERE id = 1")
        return written

    monkeypatch.setattr(SparkEngine, "rewrite_as", beside)
    files = set(Path(path).rglob("*.parquet"))
    with pytest.raises(DeltaConcurrentModificationException):
        spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    assert DeltaLog.for_table(path).update().column_mapping_mode == "name"
    assert len(rows(spark, path)) == len(before) + 1
    assert len([file for file in set(Path(path).rglob("*.parquet")) - files if "_delta_log" not in str(file)]) == 1


def test_rows_that_do_not_add_up_are_not_committed(spark, path, monkeypatch):
    path = path()
    write = SparkEngine.rewrite_as
    monkeypatch.setattr(
        SparkEngine,
        "rewrite_as",
        lambda self, snapshot, metadata: write(self, snapshot, metadata).__class__(adds=(), num_rows=9),
    )
    version = DeltaLog.for_table(path).update().version
    with pytest.raises(RowsDoNotAddUpError, match=r"hold 10 rows, but .* hold 9"):
        spark.sql(f"ALTER TABLE delta.`{path}` {NONE}")
    assert DeltaLog.for_table(path).update().version == version


def test_without_a_session_the_feature_says_what_to_do(spark, path):
    from pydelta.testing.commands import drop_feature

    path = path()
    with pytest.raises(UnsafeOperationError, match="mode is name") as caught:
        drop_feature(DeltaLog.for_table(path), "columnMapping")
    assert "'none'" in caught.value.hint


def test_dropping_deletion_vectors_rewrites_the_files_that_have_them_and_keeps_the_rows(spark, tmp_path):
    path = str(tmp_path / "hidden")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true')"
    )
    spark.range(6).coalesce(1).write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    log = DeltaLog.for_table(path)
    assert log.update().files.core["dv_id"].null_count() == 0, "the file has a vector"
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE deletionVectors")
    after = log.update()
    assert after.files.core["dv_id"].null_count() == after.num_files and not after.properties.enable_deletion_vectors
    assert "deletionVectors" not in (after.protocol.writer_features or ())
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 1, 3, 4, 5]
