"""A DELETE, UPDATE or MERGE that lost to a compaction is run again: with one clock, and a source that is read once."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import ConcurrentDeleteReadException
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable
from pydelta.txn import OptimisticTransaction

pytestmark = pytest.mark.spark


@pytest.fixture
def path(spark, tmp_path):
    path = str(tmp_path / "t")
    for part in range(3):
        rows = spark.range(part * 10, part * 10 + 10).selectExpr("id", "0 AS v", "timestamp'2020-01-01 00:00:00' AS at")
        rows.coalesce(1).write.format("delta").mode("append").save(path)
    return path


@pytest.fixture
def compacts(spark, path, monkeypatch):
    """Before the first change of the test is committed, another writer merges all files."""
    commit, done = OptimisticTransaction.commit, []

    def meanwhile(self, actions, operation, **how):
        if operation.name in ("DELETE", "UPDATE", "MERGE") and not done:
            done.append(operation.name)
            DeltaTable.forPath(spark, path).optimize().executeCompaction()
        return commit(self, actions, operation, **how)

    monkeypatch.setattr(OptimisticTransaction, "commit", meanwhile)
    return done


def rows_of(spark, path):
    return {row["id"]: row for row in spark.read.format("delta").load(path).collect()}


def told_of(path):
    (record,) = DeltaLog.for_table(path).history(1)
    return record.commit_info.get("operationMetrics")


def data_files(path):
    snapshot = DeltaLog.for_table(path).update()
    return set(snapshot.files.core["path"].to_list())


def test_a_delete(spark, path, tmp_path, compacts):
    result = DeltaTable.forPath(spark, path).delete("id % 10 = 3")
    assert compacts == ["DELETE"]
    assert result.num_deleted_rows == 3
    assert sorted(rows_of(spark, path)) == [key for key in range(30) if key % 10 != 3]
    assert (told_of(path)["numRetries"], told_of(path)["retryReason"]) == ("1", "version 3: OPTIMIZE")
    live = data_files(path)
    left = {item.name for item in (tmp_path / "t").glob("*.parquet")}
    removed = {
        action.path for version in range(5) for action in DeltaLog.for_table(path).actions(version)
        if hasattr(action, "deletion_timestamp")
    }  # fmt: skip
    assert left == live | removed, "what the first try wrote was deleted"


def test_an_update_has_the_clock_of_its_first_try(spark, path, compacts, monkeypatch):
    moments = []
    taken = SparkEngine._next_moment

    def noted(self):
        moments.append(taken(self))
        return moments[-1]

    monkeypatch.setattr(SparkEngine, "_next_moment", noted)
    DeltaTable.forPath(spark, path).update("id < 5", {"v": "v + 1", "at": "current_timestamp()"})
    of_update = [item for item in moments if item is moments[0]]
    assert len(of_update) == 2, "both tries have the same moment"
    rows = rows_of(spark, path)
    assert {key for key, row in rows.items() if row["v"] == 1} == set(range(5))
    assert len({rows[key]["at"] for key in range(5)}) == 1
    assert told_of(path)["numRetries"] == "1"


def test_a_merge_reads_its_source_once(spark, path, compacts):
    runs = spark.sparkContext.accumulator(0)

    def counted(batches):
        runs.add(1)
        yield from batches

    source = spark.range(25, 35).coalesce(1).mapInArrow(counted, "id long").withColumn("r", F.rand()).alias("s")
    result = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(source, "t.id = s.id")
        .whenMatchedUpdate(set={"v": "7"})
        .whenNotMatchedInsert(values={"id": "s.id", "v": "8", "at": "current_timestamp()"})
        .run()
    )
    assert runs.value == 1
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_source_rows) == (5, 5, 10)
    rows = rows_of(spark, path)
    assert sorted(rows) == list(range(35))
    assert {key: row["v"] for key, row in rows.items() if row["v"]} == {
        **dict.fromkeys(range(25, 30), 7),
        **dict.fromkeys(range(30, 35), 8),
    }
    assert told_of(path)["numRetries"] == "1"


@pytest.mark.parametrize(
    "source",
    [
        "SELECT id, v + 1 AS v FROM delta.`{0}` WHERE id < 5",
        "SELECT 3L AS id, (SELECT max(v) FROM delta.`{0}`) + 1 AS v",
        "SELECT max(id) AS id, 5 AS v FROM delta.`{0}`",  # answered by statistics
    ],
    ids=["scan", "subquery", "statistics"],
)
def test_a_merge_whose_source_reads_the_table_is_a_conflict(spark, path, compacts, source):
    before = rows_of(spark, path)
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(spark.sql(source.format(path)).alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"v": "s.v"})
    )
    with pytest.raises(ConcurrentDeleteReadException):
        merge.execute()
    assert compacts == ["MERGE"]
    assert rows_of(spark, path) == before
