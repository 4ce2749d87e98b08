"""Tables of more files than are held in memory: commands and queries list only those that are concerned."""

from __future__ import annotations

import pytest

from pydelta.log import DeltaLog
from pydelta.log.files import FileTable
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark
SETTING = "spark.pydelta.log.maxFilesInMemory"


@pytest.fixture
def many(spark, tmp_path, monkeypatch):
    """A table of 12 files in 3 partitions with a checkpoint, in a session that holds one file in memory."""
    path = str(tmp_path / "t")
    rows = spark.range(120).selectExpr("id", "id % 3 AS p", "id * 2 AS v")
    rows.repartitionByRange(4, "id").write.format("delta").partitionBy("p").save(path)
    DeltaLog.for_table(path).checkpoint()
    whole = FileTable.core.fget

    def core(self):
        assert not self.in_parts, "all files were listed"
        return whole(self)

    spark.conf.set(SETTING, "1")
    DeltaLog.clear_cache()
    monkeypatch.setattr(FileTable, "core", property(core))
    yield path
    monkeypatch.undo()
    spark.conf.unset(SETTING)
    DeltaLog.clear_cache()


@pytest.mark.parametrize("here", ["0", "256m"], ids=["by Spark", "in this process"])
def test_rows_are_changed_without_listing_all_files(spark, many, monkeypatch, here):
    before = spark.conf.get("spark.pydelta.local.maxBytes", None)
    spark.conf.set("spark.pydelta.local.maxBytes", here)
    try:
        table = DeltaTable.forPath(spark, many)
        assert table.delete("p = 1").num_touched_files == 4
        deleted = table.delete("id IN (6, 8)")
        assert (deleted.num_deleted_rows, deleted.num_touched_files) == (2, 2)
        updated = table.update("id BETWEEN 60 AND 65 AND p = 0", {"v": "-v"})
        assert updated.num_updated_rows == 2
        assert spark.sql(f"DELETE FROM delta.`{many}` WHERE id = 119").first()[0] == 1
    finally:
        if before is None:
            spark.conf.unset("spark.pydelta.local.maxBytes")
        else:
            spark.conf.set("spark.pydelta.local.maxBytes", before)
    monkeypatch.undo()
    kept = [number for number in range(120) if number % 3 != 1 and number not in (6, 8, 119)]
    found = sorted(map(tuple, spark.read.format("delta").load(many).select("id", "v").collect()))
    assert found == [(number, -2 * number if number in (60, 63) else 2 * number) for number in kept]


QUERIES = {
    "p = 1": 40, "id < 30": 30, "p = 2 AND id < 30": 10, "p = 7": 0, "v = 100": 1, "p IN (0, 1) AND v > 200": 12,
    "p IS NULL": 1, "p + 1 = 3": 40, "id IN (3, 60, 119)": 3, "true AND p < 1": 40, "id = 500": 1,
}  # fmt: skip


def test_queries_with_a_condition_list_only_what_it_leaves(spark, many):
    rows = spark.range(500, 501).selectExpr("id", "CAST(NULL AS BIGINT) AS p", "id AS v")
    rows.write.format("delta").mode("append").save(many)  # beside the checkpoint
    for condition, count in QUERIES.items():
        by_path = spark.read.format("delta").load(many).where(condition)
        by_sql = spark.sql(f"SELECT id, p, v FROM delta.`{many}` WHERE {condition}")
        found = sorted(row["id"] for row in by_path.collect())
        assert len(found) == count, condition
        assert sorted(row["id"] for row in by_sql.collect()) == found
    grouped = spark.sql(f"SELECT p, count(*) AS n FROM delta.`{many}` WHERE id < 30 GROUP BY p ORDER BY p").collect()
    assert [(row["p"], row["n"]) for row in grouped] == [(0, 10), (1, 10), (2, 10)]
    assert spark.sql(f"SELECT count(*) FROM delta.`{many}` WHERE p = 1").first()[0] == 40
    both = spark.sql(f"SELECT a.id FROM delta.`{many}` a JOIN delta.`{many}` b ON a.id = b.v AND a.p = 0 AND b.p = 0")
    assert sorted(row["id"] for row in both.collect()) == list(range(0, 120, 6))


def test_a_file_of_which_a_query_reads_nothing_is_not_among_its_files(spark, many):
    plan = spark.read.format("delta").load(many).where("p = 1 AND id < 30")
    plan.collect()
    scans = [node for node in plan._jdf.queryExecution().executedPlan().toString().split("\n") if "FileScan" in node]
    assert len(scans) == 1
    files = plan.selectExpr("_metadata.file_name AS name").distinct().count()
    assert files == 1


def test_a_table_without_partitions_and_one_with_vectors(spark, tmp_path):
    for name, properties in (("plain", {}), ("vectors", {"delta.enableDeletionVectors": "true"})):
        path = str(tmp_path / name)
        rows = spark.range(100).selectExpr("id", "id * 2 AS v")
        rows.repartitionByRange(5, "id").write.format("delta").options(**properties).save(path)
        if properties:
            DeltaTable.forPath(spark, path).delete("id = 7")
        DeltaLog.for_table(path).checkpoint()
        DeltaLog.clear_cache()
        spark.conf.set(SETTING, "1")
        try:
            frame = spark.read.format("delta").load(path)
            expected = [number for number in range(10) if number != 7 or not properties]
            assert sorted(row["id"] for row in frame.where("v < 20").collect()) == expected
            assert frame.count() == (99 if properties else 100)
            assert frame.where("false").count() == 0
            assert len(frame.inputFiles()) == 5
        finally:
            spark.conf.unset(SETTING)
            DeltaLog.clear_cache()
