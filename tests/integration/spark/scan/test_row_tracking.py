"""Row ids and row versions: given out by appends, kept by rewrites."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from pydelta.engines.spark.scan.scan import Extra, scan_dataframe
from pydelta.errors import UnsafeOperationError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN, materialized_columns
from pydelta.tables import DeltaTable
from pydelta.txn import Operation, start_transaction

pytestmark = pytest.mark.spark


def _tracked(spark, path):
    """id -> (row id, row version)"""
    frame = scan_dataframe(spark, DeltaLog.for_table(path).update(), pinned=True, extra=Extra.TRACKING)
    assert frame.columns[-2:] == [ROW_ID_COLUMN, ROW_VERSION_COLUMN]
    return {row["id"]: (row[ROW_ID_COLUMN], row[ROW_VERSION_COLUMN]) for row in frame.collect()}


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def table(spark, tmp_path, request):
    """Ids 0-9 by version 0 and 10-14 by version 1."""
    path = str(tmp_path / "t")
    frame = spark.range(10).selectExpr("id", "cast(id % 2 as int) as p", "'v' || id as v").coalesce(1)
    writer = frame.write.format("delta").option("delta.enableRowTracking", "true")
    (writer.partitionBy("p") if request.param else writer).save(path)
    more = spark.range(10, 15).selectExpr("id", "cast(id % 2 as int) as p", "'v' || id as v").coalesce(1)
    more.write.format("delta").mode("append").save(path)
    return path


def test_appended_rows_have_unique_ids_and_the_version_that_brought_them(spark, table):
    snapshot = DeltaLog.for_table(table).update()
    assert {"rowTracking", "domainMetadata"} <= set(snapshot.protocol.writer_features)
    assert '"rowIdHighWaterMark":14' in snapshot.domain_metadata["delta.rowTracking"].configuration
    found = _tracked(spark, table)
    assert sorted(row_id for row_id, _ in found.values()) == list(range(15))
    assert {version for key, (_, version) in found.items() if key < 10} == {0}
    assert {version for key, (_, version) in found.items() if key >= 10} == {1}


def test_rows_that_a_delete_copies_keep_both(spark, table):
    before = _tracked(spark, table)
    DeltaTable.forPath(spark, table).delete("id in (3, 4, 12)")
    after = _tracked(spark, table)
    assert after == {key: value for key, value in before.items() if key not in (3, 4, 12)}
    log = DeltaLog.for_table(table)
    snapshot = log.update()
    assert log.history(1)[0].commit_info.fields["tags"] == {"delta.rowTracking.preserved": "true"}
    names = materialized_columns(snapshot.properties)
    rewritten = [add for add in snapshot.files.adds(snapshot.files.core) if add.default_row_commit_version == 2]
    assert rewritten
    for add in rewritten:
        assert pq.ParquetFile(Path(table) / add.path).schema_arrow.names[-2:] == list(names)
    DeltaTable.forPath(spark, table).delete("id = 5")
    assert _tracked(spark, table) == {key: value for key, value in after.items() if key != 5}
    assert spark.read.format("delta").load(table).columns == ["id", "p", "v"]


def test_ids_survive_a_checkpoint(spark, table):
    DeltaTable.forPath(spark, table).delete("id = 3")
    before = _tracked(spark, table)
    log = DeltaLog.for_table(table)
    log.checkpoint(log.update())
    spark.range(20, 22).selectExpr("id", "0 as p", "'w' as v").write.format("delta").mode("append").save(table)
    DeltaLog.clear_cache()
    after = _tracked(spark, table)
    assert {key: value for key, value in after.items() if key < 20} == before
    assert len({row_id for row_id, _ in after.values()}) == len(after)


def test_a_table_without_tracking_has_no_ids(spark, tmp_path):
    path = str(tmp_path / "plain")
    spark.range(2).write.format("delta").save(path)
    assert _tracked(spark, path) == {0: (None, None), 1: (None, None)}


def test_a_table_that_has_rows_gets_ids_in_one_commit(spark, tmp_path):
    path = str(tmp_path / "late")
    spark.range(6).coalesce(2).write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    with pytest.raises(UnsupportedFeatureError, match="does not track"):
        table.toDFWithRowTracking()
    table.enableRowTracking()
    table.enableRowTracking()
    frame = table.toDFWithRowTracking()
    assert frame.columns == ["id", "_row_id", "_row_commit_version"]
    before = {row["id"]: row["_row_id"] for row in frame.collect()}
    assert sorted(before.values()) == list(range(6))
    assert {row["_row_commit_version"] for row in frame.collect()} == {1}
    log = DeltaLog.for_table(path)
    assert log.update().version == 1
    assert {action.data_change for action in log.actions(1) if action.kind == "add"} == {False}
    table.delete("id = 2")
    after = {row["id"]: row["_row_id"] for row in table.toDFWithRowTracking().collect()}
    assert after == {key: value for key, value in before.items() if key != 2}


def test_turning_it_on_by_the_property_alone_is_refused(spark, tmp_path):
    path = str(tmp_path / "late")
    spark.range(6).write.format("delta").save(path)
    log = DeltaLog.for_table(path)
    txn = start_transaction(log)
    txn.update_metadata(txn.snapshot.metadata.replace(configuration={"delta.enableRowTracking": "true"}))
    with pytest.raises(UnsafeOperationError, match="no ids yet"):
        txn.commit([], Operation(name="SET TBLPROPERTIES"))


def _in_metadata(spark, table, where="true"):
    query = f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM delta.`{table}` WHERE {where}"
    return {row["id"]: (row["row_id"], row["row_commit_version"]) for row in spark.sql(query).collect()}


def test_sql_shows_ids_and_versions_of_rows_in_metadata(spark, table):
    assert _in_metadata(spark, table) == _tracked(spark, table)
    DeltaTable.forPath(spark, table).update("id = 3", {"v": "'changed'"})
    found = _in_metadata(spark, table)
    assert found == _tracked(spark, table)
    assert _in_metadata(spark, table, "_metadata.row_commit_version = 2") == {3: found[3]}
    assert _in_metadata(spark, table, "p = 1 AND id > 7") == {key: found[key] for key in (9, 11, 13)}
    newest = f"SELECT max(_metadata.row_commit_version) FROM delta.`{table}`"
    assert [*_in_metadata(spark, table, f"_metadata.row_commit_version = ({newest})")] == [3]


def test_a_table_that_tracks_its_rows_is_read_by_name_as_any_other(spark, table):
    spark.sql(f"CREATE TABLE tracked_by_name USING delta LOCATION '{table}'")
    try:
        for frame in (spark.read.table("tracked_by_name"), spark.table("tracked_by_name")):
            assert frame.count() == len(_in_metadata(spark, table)) and "_metadata" not in frame.columns
    finally:
        spark.sql("DROP TABLE tracked_by_name")


def test_metadata_keeps_its_other_fields_and_the_columns_stay_those_of_the_table(spark, table):
    frame = spark.sql(f"SELECT *, _metadata.file_name, _metadata.row_id FROM delta.`{table}`")
    assert frame.columns == ["id", "p", "v", "file_name", "row_id"]
    assert not frame.schema["row_id"].nullable
    assert all(row["file_name"].endswith(".parquet") for row in frame.collect())


def test_ids_in_metadata_are_those_of_the_rows_that_deletion_vectors_leave(spark, table):
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    before = _in_metadata(spark, table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id IN (0, 4, 9)")
    assert _in_metadata(spark, table) == {key: value for key, value in before.items() if key not in (0, 4, 9)}


def test_ids_in_metadata_go_with_columns_that_were_renamed(spark, table):
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN v TO w")
    found = spark.sql(f"SELECT w, _metadata.row_id AS r FROM delta.`{table}` WHERE id = 12").first()
    assert found["w"] == "v12"
    assert found["r"] == _tracked(spark, table)[12][0]


@pytest.mark.parametrize("by", ["load", "table", "toDF", "select"])
def test_frames_of_every_kind_show_ids_in_metadata(spark, table, by):
    frame = {
        "load": lambda: spark.read.format("delta").load(table),
        "table": lambda: spark.table(f"delta.`{table}`"),
        "toDF": lambda: DeltaTable.forPath(spark, table).toDF(),
        "select": lambda: spark.sql(f"SELECT * FROM delta.`{table}`"),
    }[by]()
    shown = frame.where("_metadata.row_id >= 0").select("id", "_metadata.row_id", "_metadata.row_commit_version")
    assert {row[0]: tuple(row[1:]) for row in shown.collect()} == _tracked(spark, table)
    assert frame.columns == ["id", "p", "v"] and frame.count() == 15


def test_a_frame_with_ids_follows_its_table_and_one_without_reads_no_values_per_file(spark, table):
    frame = spark.read.format("delta").load(table)
    ids = frame.select("id", "_metadata.row_id", "_metadata.row_commit_version")
    DeltaTable.forPath(spark, table).update("id = 11", {"v": "'new'"})
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    DeltaTable.forPath(spark, table).delete("id < 3")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (more INT)")
    found = {row[0]: tuple(row[1:]) for row in ids.collect()}
    assert found == _tracked(spark, table) and found[11][1] == 2
    assert sorted(row.id for row in frame.where("v != 'v9'").collect()) == [3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]
    plans = [str(shown._jdf.queryExecution().optimizedPlan()) for shown in (frame, ids)]
    assert ["__pydelta_base_row_id" in plan for plan in plans] == [False, True]


def test_a_version_that_was_asked_for_shows_its_own_ids(spark, table):
    before = _tracked(spark, table)
    DeltaTable.forPath(spark, table).update("true", {"v": "'new'"})
    frame = spark.read.format("delta").option("versionAsOf", 1).load(table)
    shown = frame.select("id", "_metadata.row_id", "_metadata.row_commit_version")
    assert {row[0]: tuple(row[1:]) for row in shown.collect()} == before


def test_a_cached_frame_of_a_table_with_ids_is_read_by_all_that_ask_for_its_rows(spark, table):
    cached = spark.read.format("delta").load(table).cache()
    try:
        assert cached.count() == 15
        other = spark.read.format("delta").load(table).where("id > 3")
        assert "InMemoryRelation" in str(other._jdf.queryExecution().withCachedData())
        DeltaTable.forPath(spark, table).delete("id = 3")
        assert cached.count() == 14 and other.count() == 11
    finally:
        cached.unpersist()


def test_a_table_without_tracked_rows_has_no_row_ids_in_metadata(spark, tmp_path):
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    with pytest.raises(AnalysisException, match="row_id"):
        spark.sql(f"SELECT _metadata.row_id FROM delta.`{tmp_path}/t`")
