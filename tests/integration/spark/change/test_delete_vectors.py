"""DELETE on tables with deletion vectors: what is written, what it says, and that every write path copes with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from built_once import built_once
from pyspark.sql import functions as F

from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.scan.deleted_rows import collect_rows
from pydelta.errors import DeltaConcurrentModificationException, InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.tables import DeltaTable
from pydelta.testing.commands import delete

pytestmark = pytest.mark.spark


def _ids(spark, path) -> set[int]:
    return {row[0] for row in spark.read.format("delta").load(path).select("id").collect()}


def _files(path, suffix) -> set[str]:
    return {str(item.relative_to(path)) for item in Path(path).rglob(f"*{suffix}") if "_delta_log" not in item.parts}


def _adds(path):
    snapshot = DeltaLog.for_table(path).update()
    return snapshot.files.adds(snapshot.files.core)


@pytest.fixture
def table(spark, tmp_path):
    return parted(spark, str(tmp_path / "t"))


@built_once
def parted(spark, path):
    """ids 0-399 in four files of 100 rows, with ``p`` the number of the file."""
    (
        DeltaTable.create(spark)
        .location(path)
        .addColumn("id", "long")
        .addColumn("p", "int")
        .addColumn("v", "decimal(30,10)")
        .property("delta.enableDeletionVectors", "true")
        .execute()
    )
    for part in range(4):
        frame = spark.range(part * 100, part * 100 + 100, 1, 1).selectExpr(
            "id", f"{part} as p", "cast(12345678901234567890.1234567890 + id as decimal(30,10)) as v"
        )
        frame.write.format("delta").mode("append").save(path)


def test_a_delete_writes_one_vector_file_and_no_data_file(spark, table):
    data = _files(table, ".parquet")
    result = DeltaTable.forPath(spark, table).delete("id IN (5, 7, 105) OR v IS NULL")
    assert _files(table, ".parquet") == data
    assert len(_files(table, ".bin")) == 1
    assert _ids(spark, table) == set(range(400)) - {5, 7, 105}
    assert (result.num_deleted_rows, result.num_touched_files, result.num_copied_rows) == (3, 2, 0)
    assert (result.num_deletion_vectors_added, result.num_deletion_vectors_updated) == (2, 0)
    marked = [add for add in _adds(table) if add.deletion_vector is not None]
    assert sorted(add.deletion_vector.cardinality for add in marked) == [1, 2]
    for add in marked:
        stats = json.loads(add.stats)
        assert (stats["numRecords"], stats["tightBounds"]) == (100, False)
        assert "12345678901234567" in add.stats
        assert add.deletion_vector.storage_type == "u"
    info = DeltaLog.for_table(table).history(1)[0].commit_info.fields
    metrics = info["operationMetrics"]
    assert info["operation"] == "DELETE"
    assert {name: metrics[name] for name in metrics if "Vector" in name} == {
        "numDeletionVectorsAdded": "2",
        "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
    }
    assert (metrics["numDeletedRows"], metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("3", "0", "0")


def test_a_second_delete_unites_and_a_file_without_rows_goes(spark, table):
    DeltaTable.forPath(spark, table).delete("id = 5")
    result = DeltaTable.forPath(spark, table).delete("id < 10 OR id >= 300 AND id * 2 > 1")
    assert _ids(spark, table) == set(range(10, 300))
    assert result.num_deleted_rows == 109
    assert (result.num_deletion_vectors_added, result.num_deletion_vectors_removed) == (1, 1)
    assert result.num_deletion_vectors_updated == 1
    assert len(_adds(table)) == 3
    nothing = DeltaTable.forPath(spark, table).delete("id = 5")
    assert (nothing.version, nothing.num_deleted_rows) == (None, 0)


@pytest.mark.parametrize("command", ["delete", "update", "merge"])
def test_a_file_whose_rows_the_log_undercounts_keeps_those_that_no_one_changed(spark, table, command):
    first = Path(table, "_delta_log", f"{1:020}.json")
    first.write_text(first.read_text().replace('\\"numRecords\\":100', '\\"numRecords\\":2'))
    Path(table, "_delta_log", f".{1:020}.json.crc").unlink(missing_ok=True)
    DeltaLog.clear_cache()
    target = DeltaTable.forPath(spark, table)
    if command == "delete":
        target.delete("id IN (5, 7)")
    elif command == "update":
        target.update("id IN (5, 7)", {"id": "-id"})
    else:
        source = spark.createDataFrame([(5,), (7,)], "k long")
        target.merge(source, "id = k").whenMatchedDelete().execute()
    changed = {-5, -7} if command == "update" else set()
    assert _ids(spark, table) == set(range(400)) - {5, 7} | changed


def test_rows_deleted_by_condition_over_all_files_then_whole_table(spark, table):
    DeltaTable.forPath(spark, table).delete("id % 3 = 0")
    assert _ids(spark, table) == {i for i in range(400) if i % 3}
    everything = DeltaTable.forPath(spark, table).delete()
    assert everything.num_deleted_rows == len([i for i in range(400) if i % 3])
    assert _ids(spark, table) == set()


def test_every_write_path_copes_with_live_vectors(spark, table):
    delta = DeltaTable.forPath(spark, table)
    delta.delete("id IN (1, 101, 201, 301)")
    before = _ids(spark, table)
    version = DeltaLog.for_table(table).update().version
    new = spark.createDataFrame([(1000, 2, None)], "id long, p int, v decimal(30,10)")
    new.write.format("delta").mode("append").save(table)
    assert _ids(spark, table) == before | {1000}
    new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 2").save(table)
    assert _ids(spark, table) == {i for i in before if not 200 <= i < 300} | {1000}
    delta.restoreToVersion(version)
    assert _ids(spark, table) == before
    delta.restoreToVersion(version - 1)
    assert _ids(spark, table) == set(range(400))
    delta.restoreToVersion(version)
    new.write.format("delta").mode("overwrite").save(table)
    assert _ids(spark, table) == {1000}


def test_without_the_property_files_are_rewritten_and_vectors_go_with_them(spark, table):
    delta = DeltaTable.forPath(spark, table)
    delta.delete("id = 1")
    log = DeltaLog.for_table(table)
    metadata = log.update().metadata
    from pydelta.txn import Operation, start_transaction

    txn = start_transaction(log)
    txn.update_metadata(metadata.replace(configuration={"delta.enableDeletionVectors": "false"}))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    result = delta.delete("id IN (2, 105)")
    assert result.num_rewritten_files >= 1
    assert _ids(spark, table) == set(range(400)) - {1, 2, 105}
    assert not DeltaLog.for_table(table).update().files.has_live_vectors()


def test_a_partitioned_table_and_a_checkpoint_keep_their_vectors(spark, tmp_path):
    path = str(tmp_path / "t")
    (
        spark.range(0, 300, 1, 1)
        .selectExpr("id", "cast(id % 3 as int) as p")
        .write.format("delta")
        .partitionBy("p")
        .option("delta.enableDeletionVectors", "true")
        .save(path)
    )
    delta = DeltaTable.forPath(spark, path)
    delta.delete("id < 10 AND p = 1")
    DeltaLog.for_table(path).checkpoint()
    DeltaLog.clear_cache()
    assert _ids(spark, path) == set(range(300)) - {1, 4, 7}
    delta = DeltaTable.forPath(spark, path)
    delta.delete("id = 2 OR id = 10")
    assert _ids(spark, path) == set(range(300)) - {1, 4, 7, 2, 10}
    delta.delete("p = 1")
    assert _ids(spark, path) == {i for i in range(300) if i % 3 != 1} - {2}


def test_positions_are_gathered_as_they_are(spark):
    rows = [(0, 0), (0, 63), (0, 64), (3, 2**33), (3, 5), (3, 5), (1, 127)]
    frame = spark.createDataFrame(rows, "f long, r long").withColumn("x", F.lit(1))
    found = collect_rows(frame, file_column="f", row_column="r")
    assert {file: rows.positions().tolist() for file, rows in found.items()} == {
        0: [0, 63, 64],
        1: [127],
        3: [5, 2**33],
    }


class _Interrupted(SparkEngine):
    """Another DELETE commits between this one's reading and its commit."""

    def __init__(self, spark, path, condition):
        super().__init__(spark)
        self._meanwhile = (spark, path, condition)

    def match_rows(self, snapshot, files, condition):
        found = super().match_rows(snapshot, files, condition)
        if self._meanwhile:
            (spark, path, text), self._meanwhile = self._meanwhile, None
            DeltaTable.forPath(spark, path).delete(text)
        return found


def test_deletes_of_different_rows_of_one_file_both_stand(spark, table):
    log = DeltaLog.for_table(table)
    first = delete(log, _Interrupted(spark, table, "id IN (2, 105)"), "id IN (1, 301)")
    assert first.num_deleted_rows == 2
    assert first.version == log.update().version
    assert _ids(spark, table) == set(range(400)) - {1, 2, 105, 301}
    both = [add for add in _adds(table) if add.deletion_vector and add.deletion_vector.cardinality == 2]
    assert len(both) == 1
    assert len(_files(table, ".bin")) == 3  # the first one's own file still holds the vector of another data file
    second = delete(log, _Interrupted(spark, table, "id = 11"), "id = 10")
    assert second.num_deleted_rows == 1
    assert _ids(spark, table) == set(range(400)) - {1, 2, 10, 11, 105, 301}
    assert len(_files(table, ".bin")) == 5, "a vector that was united with another goes with its file"


def test_deletes_of_the_same_row_conflict(spark, table):
    log = DeltaLog.for_table(table, settings=Settings(change_max_retries=0))
    version = log.update().version
    with pytest.raises(DeltaConcurrentModificationException):
        delete(log, _Interrupted(spark, table, "id < 3"), "id IN (1, 301)")
    assert log.update().version == version + 1
    assert _ids(spark, table) == set(range(400)) - {0, 1, 2}
    assert len(_files(table, ".bin")) == 1, "the loser's vectors are deleted"


def test_a_purge_rewrites_just_the_files_with_vectors(spark, table):
    delta = DeltaTable.forPath(spark, table)
    assert delta.purge().version is None
    delta.delete("id IN (5, 105, 106)")
    left = _ids(spark, table)
    untouched = {add.path for add in _adds(table) if add.deletion_vector is None}
    result = delta.purge()
    assert (result.num_removed_files, result.num_added_files) == (2, 1)
    assert (result.num_deletion_vectors_removed, result.num_deletion_vector_rows_removed) == (2, 3)
    assert _ids(spark, table) == left
    adds = _adds(table)
    assert untouched < {add.path for add in adds}
    assert all(add.deletion_vector is None for add in adds)
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 397
    info = DeltaLog.for_table(table).history(1)[0].commit_info.fields
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert info["operationMetrics"]["numDeletionVectorsRemoved"] == "2"
    assert not any(
        action.data_change
        for action in DeltaLog.for_table(table).actions(result.version)
        if hasattr(action, "data_change")
    )
    assert delta.purge().version is None


def test_a_purge_of_a_partition_and_of_a_file_without_a_live_row(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.range(0, 300, 1, 1).selectExpr("id", "cast(id % 3 as int) as p")
    writer = frame.write.format("delta").partitionBy("p").option("delta.enableDeletionVectors", "true")
    writer.save(path)
    delta = DeltaTable.forPath(spark, path)
    delta.delete("id IN (1, 2)")
    assert delta.purge("p = 1").num_removed_files == 1
    assert [add.partition_values for add in _adds(path) if add.deletion_vector] == [{"p": "2"}]
    with pytest.raises(InvalidArgumentError, match="partition columns"):
        delta.purge("id = 2")
    assert _ids(spark, path) == set(range(300)) - {1, 2}
