"""DELETE through ``DeltaTable``: the three cases, what each reads and writes, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from built_once import built_once
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.errors import BindError, InvalidArgumentError, ParseError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


def _tree(path: str) -> dict[str, tuple[int, int]]:
    """Every file under the table with size and time."""
    return {
        str(item.relative_to(path)): (item.stat().st_size, item.stat().st_mtime_ns)
        for item in Path(path).rglob("*")
        if item.is_file()
    }


def _data_files(path: str) -> set[str]:
    return {name for name in _tree(path) if name.endswith(".parquet") and not name.startswith("_delta_log")}


def _last_commit(path: str) -> dict:
    log = DeltaLog.for_table(path)
    return log.history(1)[0].commit_info.fields


@pytest.fixture
def partitioned(spark, tmp_path):
    return parted(spark, str(tmp_path / "t"))


@built_once
def parted(spark, path):
    """200 rows, ids 0-199, in partitions p=0..3 of two files each; ``v`` is null where id is divisible by 10."""
    frame = spark.range(200).selectExpr("id", "cast(id % 4 as int) as p", "if(id % 10 = 0, null, id * 2) as v")
    for half in ("id < 100", "id >= 100"):
        frame.where(half).coalesce(1).write.format("delta").partitionBy("p").mode("append").save(path)


def _ids(spark, path) -> set[int]:
    return {row[0] for row in spark.read.format("delta").load(path).select("id").collect()}


def test_delete_without_condition_removes_every_file_in_one_commit(spark, partitioned):
    before = _data_files(partitioned)
    result = DeltaTable.forPath(spark, partitioned).delete()
    assert _ids(spark, partitioned) == set()
    assert _data_files(partitioned) == before
    assert (result.num_files_total, result.num_touched_files, result.num_rewritten_files) == (8, 8, 0)
    assert result.num_deleted_rows == 200
    assert result.version == 2
    said = result.as_dict()
    assert (said["numFilesTotal"], said["numDeletedRows"], said["condition"]) == (8, 200, None)
    assert {"numTouchedFiles", "numRewrittenFiles", "scanTimeMs", "rewriteTimeMs", "executionTimeMs"} <= said.keys()
    info = _last_commit(partitioned)
    assert info["operation"] == "DELETE"
    assert json.loads(info["operationParameters"]["predicate"]) == ["true"]


@pytest.mark.damages_tables
def test_delete_on_partition_columns_opens_and_writes_no_data_file(spark, partitioned):
    for name in _data_files(partitioned):  # a file that cannot be read would fail any job that opened it
        (Path(partitioned) / name).write_bytes(b"not parquet")
    result = DeltaTable.forPath(spark, partitioned).delete("p = 1 OR p + 1 = 4")
    assert result.num_touched_files == 4
    assert result.num_deleted_rows == 100
    assert result.num_rewritten_files == 0
    assert DeltaLog.for_table(partitioned).update().num_files == 4


def test_delete_without_a_matching_row_changes_not_a_byte(spark, partitioned):
    before = _tree(partitioned)
    result = DeltaTable.forPath(spark, partitioned).delete("v = 1001 AND id > 5")
    assert result.version is None
    assert result.num_deleted_rows == 0
    inside = DeltaTable.forPath(spark, partitioned).delete("v = 7")  # within the statistics, yet no row has it
    assert inside.version is None
    assert _tree(partitioned) == before


def test_delete_rewrites_only_touched_files_and_keeps_rows_for_which_the_condition_is_null(spark, partitioned):
    before = {row.path for row in _adds(partitioned)}
    result = DeltaTable.forPath(spark, partitioned).delete("v >= 380")
    after = {row.path for row in _adds(partitioned)}
    assert result.num_deleted_rows == 9
    assert _ids(spark, partitioned) == set(range(200)) - {i for i in range(190, 200) if i % 10}
    assert len(before - after) == result.num_touched_files == 4
    info = _last_commit(partitioned)
    metrics = info["operationMetrics"]
    assert metrics["numDeletedRows"] == "9"
    assert metrics["numCopiedRows"] == str(100 - 9)
    assert metrics["numRemovedFiles"] == "4"
    assert metrics["numAddedFiles"] == str(result.num_rewritten_files)
    assert {"scanTimeMs", "rewriteTimeMs", "executionTimeMs"} <= metrics.keys()
    assert {"timestamp", "readVersion", "isBlindAppend", "isolationLevel", "engineInfo", "txnId"} <= info.keys()
    assert len(json.loads(info["operationParameters"]["predicate"])) == 1
    assert info["isBlindAppend"] is False


def _adds(path):
    snapshot = DeltaLog.for_table(path).update()
    return snapshot.files.adds(snapshot.files.core)


def test_a_file_that_is_left_without_a_row_adds_no_file(spark, partitioned):
    result = DeltaTable.forPath(spark, partitioned).delete("id >= 100 AND v IS NOT NULL OR id >= 100 AND v IS NULL")
    assert result.num_rewritten_files == 0
    assert result.num_touched_files == 4
    assert _ids(spark, partitioned) == set(range(100))


def test_delete_takes_a_column_and_an_alias(spark, partitioned):
    table = DeltaTable.forPath(spark, partitioned).alias("t")
    table.delete(F.col("t.id") == 5)
    table.delete("t.id = 6")
    assert _ids(spark, partitioned) == set(range(200)) - {5, 6}


def test_delete_with_many_values_and_functions(spark, partitioned):
    doomed = list(range(0, 200, 7))
    DeltaTable.forPath(spark, partitioned).delete(F.col("id").isin(doomed))
    DeltaTable.forPath(spark, partitioned).delete("cast(id as string) like '%99'")
    assert _ids(spark, partitioned) == set(range(200)) - set(doomed) - {99, 199}


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("exists(numbers, x -> x > 2)", [1, 3]),
        ("forall(numbers, x -> x > 0)", [3]),
        ("size(filter(numbers, x -> x = 1)) = 1", [2, 3]),
        ("extract(MONTH FROM day) = 2", [1, 3]),
        ("day + INTERVAL 1 MONTH > DATE'2024-02-15'", [1, 3]),
        ("from_json('{\"q\": 2}', 'q INT').q = id", [1, 3]),
    ],
)
def test_delete_takes_functions_of_arrays_times_and_json(spark, tmp_path, condition, left):
    path = str(tmp_path / "t")
    rows = "(1, array(1, 2), DATE'2024-01-01'), (2, array(3), DATE'2024-02-01'), (3, NULL, NULL)"
    spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, numbers, day)").write.format("delta").save(path)
    DeltaTable.forPath(spark, path).delete(condition)
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == left


def test_an_append_only_table_refuses(spark, tmp_path):
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "long").property("delta.appendOnly", "true").execute()
    spark.range(5).write.format("delta").mode("append").save(path)
    before = _tree(path)
    for condition in (None, "id = 1"):
        with pytest.raises(UnsafeOperationError, match="append-only"):
            DeltaTable.forPath(spark, path).delete(condition)
    assert _tree(path) == before


def test_a_missing_column_is_named_with_those_there_are(spark, partitioned):
    with pytest.raises(BindError) as caught:
        DeltaTable.forPath(spark, partitioned).delete("nonsense = 1")
    assert "nonsense" in str(caught.value)
    assert "id, p, v" in str(caught.value)
    assert isinstance(caught.value, AnalysisException)


@pytest.mark.parametrize("text", ["id = ", "id = = 3", "DELETE FROM t"])
def test_a_condition_that_does_not_parse_is_shown(spark, partitioned, text):
    with pytest.raises((ParseError, BindError)) as caught:
        DeltaTable.forPath(spark, partitioned).delete(text)
    assert text.strip() in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [("id in (select 1)", "subquery"), ("rand() < 0.5", "deterministic"), ("id = (select 1)", "subquery")],
)
def test_conditions_that_delete_cannot_take_are_refused(spark, partitioned, text, word):
    before = _tree(partitioned)
    with pytest.raises(InvalidArgumentError, match=word):
        DeltaTable.forPath(spark, partitioned).delete(text)
    assert _tree(partitioned) == before


def test_a_cached_frame_over_the_table_is_refreshed(spark, partitioned):
    cached = spark.read.format("delta").load(partitioned).cache()
    try:
        assert cached.count() == 200
        DeltaTable.forPath(spark, partitioned).delete("id < 50")
        assert spark.read.format("delta").load(partitioned).count() == 150
    finally:
        cached.unpersist()


def test_delete_over_special_partition_values_and_paths(spark, tmp_path):
    path = str(tmp_path / "table with spaces %41 é")
    rows = [(1, "a b"), (2, "50%"), (3, "x=y"), (4, "a/b"), (5, "é"), (6, None), (7, "")]
    spark.createDataFrame(rows, "id int, p string").write.format("delta").partitionBy("p").save(path)
    DeltaTable.forPath(spark, path).delete("p = 'a b'")
    DeltaTable.forPath(spark, path).delete("id = 2")
    DeltaTable.forPath(spark, path).delete("p IS NULL")
    assert _ids(spark, path) == {3, 4, 5}


def test_history_and_detail_are_frames_with_delta_s_columns(spark, partitioned):
    table = DeltaTable.forPath(spark, partitioned)
    table.delete("p = 0")
    history = table.history().collect()
    assert [row["version"] for row in history] == [2, 1, 0]
    assert [row["operation"] for row in history] == ["DELETE", "WRITE", "WRITE"]
    assert [row["version"] for row in table.history(1).collect()] == [2]
    detail = table.detail().collect()[0]
    assert (detail["format"], detail["numFiles"], detail["partitionColumns"]) == ("delta", 6, ["p"])


def test_restore_brings_a_version_back_and_names_missing_files(spark, partitioned):
    table = DeltaTable.forPath(spark, partitioned)
    table.delete("id >= 100")
    counts = table.restoreToVersion(1).collect()[0]
    assert counts["num_restored_files"] == 4
    assert _ids(spark, partitioned) == set(range(200))
    table.delete("p = 1")
    gone = next(name for name in sorted(_data_files(partitioned)) if name.startswith("p=1/"))
    (Path(partitioned) / gone).unlink()
    version = DeltaLog.for_table(partitioned).update().version
    with pytest.raises(UnsafeOperationError) as caught:
        table.restoreToVersion(1)
    assert gone in str(caught.value)
    assert DeltaLog.for_table(partitioned).update().version == version
