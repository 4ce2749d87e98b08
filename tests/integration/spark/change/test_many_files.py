"""DELETE and UPDATE of a table of more files than are held in memory: only those that are concerned are listed."""

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
