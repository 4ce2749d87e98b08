"""OPTIMIZE through ``DeltaTable``: what is rewritten, what it says, and that not a row changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from built_once import built_once
from optimize_tables import actions, adds, last_commit, parquet_files, rows, skipped
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.errors import BindError, ConcurrentDeleteReadException, InvalidArgumentError, StorageError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def partitioned(spark, tmp_path):
    return parted(spark, str(tmp_path / "t"))


@built_once
def parted(spark, path):
    """Ids 0-399 in partitions p=0..1 (and null) of four files each, with columns of many types."""
    frame = spark.range(400).selectExpr(
        "id",
        "if(id % 5 = 0, null, cast(id % 2 as int)) as p",
        "cast(id as string) as s",
        "date_add(date'2024-01-01', cast(id as int)) as d",
        "timestamp_micros(id * 1000003) as t",
        "cast(id as decimal(12,2)) as m",
        "if(id = 7, double('NaN'), cast(id as double)) as f",
        "array(id, null) as l",
        "map('k', id) as mm",
        "struct(id as a, struct(cast(id as string) as c) as b) as st",
        "cast(id % 2 = 0 as boolean) as b",
        "cast(cast(id as string) as binary) as bin",
    )
    for part in range(4):
        frame.where(f"id % 4 = {part}").coalesce(1).write.format("delta").partitionBy("p").mode("append").save(path)


def test_small_files_of_a_partition_become_one_and_no_row_changes(spark, partitioned):
    before, files = rows(spark, partitioned), parquet_files(partitioned)
    old = adds(partitioned)
    result = DeltaTable.forPath(spark, partitioned).optimize().executeCompaction()
    assert rows(spark, partitioned) == before
    row = result.first()
    assert result.columns == ["path", "metrics"]
    metrics = row["metrics"].asDict(recursive=True)
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"], metrics["partitionsOptimized"]) == (3, len(old), 3)
    assert metrics["filesRemoved"]["totalSize"] == sum(add.size for add in old)
    assert metrics["numTableColumns"] == 12
    assert metrics["zOrderStats"] is None
    new = [item for item in actions(partitioned) if item.kind == "add"]
    assert len(new) == 3
    assert all(not item.data_change for item in actions(partitioned) if item.kind in ("add", "remove"))
    stats = {add.partition_values["p"]: json.loads(add.stats) for add in new}
    assert {key: value["numRecords"] for key, value in stats.items()} == {"0": 160, "1": 160, None: 80}
    assert stats["1"]["minValues"]["id"] == 1
    assert stats["1"]["maxValues"]["st"]["b"]["c"] == "99"
    info = last_commit(partitioned)
    assert info["operation"] == "OPTIMIZE"
    assert info["isolationLevel"] == "SnapshotIsolation"
    assert info["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}
    assert {"numAddedFiles", "numRemovedBytes", "p50FileSize", "maxFileSize"} <= info["operationMetrics"].keys()
    assert files < parquet_files(partitioned)


def test_a_second_run_has_nothing_to_do_and_commits_nothing(spark, partitioned):
    table = DeltaTable.forPath(spark, partitioned)
    table.optimize().executeCompaction()
    metrics = table.optimize().executeCompaction().first()["metrics"]
    assert (metrics["numFilesAdded"], metrics["totalConsideredFiles"], metrics["totalFilesSkipped"]) == (0, 3, 3)
    assert metrics["filesAdded"]["min"] is None
    assert DeltaLog.for_table(partitioned).update().version == 4


def test_only_the_partitions_of_the_condition_are_touched(spark, partitioned):
    table = DeltaTable.forPath(spark, partitioned)
    assert table.optimize().where("p = 1").executeCompaction().first()["metrics"]["numFilesRemoved"] == 2
    assert json.loads(last_commit(partitioned)["operationParameters"]["predicate"]) == ["('p = 1)"]
    assert table.optimize().where("p IS NULL").executeCompaction().first()["metrics"]["numFilesAdded"] == 1
    assert table.optimize().where("p = 17").executeCompaction().first()["metrics"]["numFilesAdded"] == 0


@pytest.mark.parametrize(
    ("condition", "error", "said"),
    [
        ("id = 1", InvalidArgumentError, "id"),
        ("p = 1 OR s = 'a'", InvalidArgumentError, "partition columns are: p"),
        ("nope = 1", BindError, "nope"),
    ],
)
def test_conditions_over_other_columns_are_refused(spark, partitioned, condition, error, said):
    with pytest.raises(error, match=said) as caught:
        DeltaTable.forPath(spark, partitioned).optimize().where(condition).executeCompaction()
    assert isinstance(caught.value, AnalysisException)
    assert DeltaLog.for_table(partitioned).update().version == 3


def test_the_target_size_bounds_what_goes_into_a_file(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(0, 80, numPartitions=8).write.format("delta").save(path)
    size = max(add.size for add in adds(path))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(2 * size))
    try:
        metrics = DeltaTable.forPath(spark, path).optimize().executeCompaction().first()["metrics"]
    finally:
        spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"], metrics["numBins"]) == (4, 8, 4)


@pytest.mark.damages_tables  # delta-rs knows no widened types
def test_files_of_other_types_go_through_sparks_scan(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).selectExpr("cast(id as int) as id", "1.5D as v").coalesce(1).write.format("delta").save(path)
    spark.range(3, 5).selectExpr("cast(id as int) as id", "1.5D as v").coalesce(1).write.format("delta").mode(
        "append"
    ).save(path)
    # a widened column: old files hold ints
    log = DeltaLog.for_table(path)
    from pydelta.protocol.features import upgrade
    from pydelta.txn import Operation, start_transaction

    txn = start_transaction(log)
    schema = json.loads(txn.snapshot.metadata.schema_string)
    schema["fields"][0]["type"] = "long"
    schema["fields"][0]["metadata"] = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    txn.update_metadata(
        txn.snapshot.metadata.replace(
            schema_string=json.dumps(schema), configuration={"delta.enableTypeWidening": "true"}
        )
    )
    txn.update_protocol(upgrade(txn.snapshot.protocol, {"typeWidening"}))
    txn.commit([], Operation(name="CHANGE COLUMN"))
    before = rows(spark, path)
    metrics = DeltaTable.forPath(spark, path).optimize().executeCompaction().first()["metrics"]
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, 2)
    assert rows(spark, path) == before
    assert json.loads(adds(path)[0].stats)["numRecords"] == 5


def test_a_missing_file_is_named_and_nothing_is_left(spark, partitioned):
    gone = sorted(parquet_files(partitioned))[0]
    (Path(partitioned) / gone).rename(Path(partitioned) / "kept.bak")
    before = parquet_files(partitioned)
    with pytest.raises(StorageError, match="part-"):
        DeltaTable.forPath(spark, partitioned).optimize().executeCompaction()
    # Tasks of other partitions may be killed as they write; what they leave is no part of the table, and VACUUM's.
    left = set(parquet_files(partitioned)) - set(before)
    assert not [item for item in left if Path(item).parent == Path(gone).parent]
    assert set(before) <= set(parquet_files(partitioned))
    (Path(partitioned) / "kept.bak").rename(Path(partitioned) / gone)
    assert DeltaLog.for_table(partitioned).update().version == 3


def test_a_concurrent_delete_is_a_conflict_and_an_append_is_none(spark, partitioned, monkeypatch):
    from pydelta.engines.spark.engine import SparkEngine

    compact = SparkEngine.compact

    def meanwhile(what):
        def run(self, snapshot, files, plan, *, max_bytes):
            done = compact(self, snapshot, files, plan, max_bytes=max_bytes)
            what()
            return done

        return run

    table = DeltaTable.forPath(spark, partitioned)
    more = spark.read.format("delta").load(partitioned).limit(1)
    monkeypatch.setattr(
        SparkEngine,
        "compact",
        meanwhile(lambda: more.write.format("delta").mode("append").save(partitioned)),
    )
    table.optimize().where("p = 0").executeCompaction()
    monkeypatch.setattr(SparkEngine, "compact", meanwhile(lambda: table.delete("p = 1")))
    before = None
    with pytest.raises(ConcurrentDeleteReadException, match="Run it again"):
        before = parquet_files(partitioned)
        table.optimize().where("p = 1").executeCompaction()
    assert parquet_files(partitioned) == before
    assert spark.read.format("delta").load(partitioned).where("p = 1").count() == 0


def test_rows_deleted_by_a_vector_are_gone_for_good(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(0, 100, numPartitions=3).write.format("delta").option("delta.enableDeletionVectors", "true").save(path)
    table = DeltaTable.forPath(spark, path)
    table.delete("id % 3 = 0")
    if not any(add.deletion_vector for add in adds(path)):
        pytest.fail("the table writes no deletion vectors")
    metrics = table.optimize().executeCompaction().first()["metrics"].asDict(recursive=True)
    assert metrics["deletionVectorStats"] == {"numDeletionVectorsRemoved": 3, "numDeletionVectorRowsRemoved": 34}
    assert [add.deletion_vector for add in adds(path)] == [None]
    assert spark.read.format("delta").load(path).count() == 66


# --- Z-order ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def square(spark, tmp_path):
    return points_of_a_square(spark, str(tmp_path / "t"))


@built_once
def points_of_a_square(spark, path):
    """40,000 points of a square in random order, in ten files."""
    points = spark.range(0, 40_000, numPartitions=10).selectExpr(
        "cast(xxhash64(id) % 200 as int) as x", "cast(concat('n', 1000 + pmod(xxhash64(id, 1), 200)) as string) as y",
        "id", "cast(pmod(id, 2) as int) as p",
    )  # fmt: skip
    points.orderBy(F.xxhash64("id")).repartition(10).write.format("delta").save(path)


def test_zorder_lets_conditions_on_either_column_skip_files(spark, square):
    before = rows(spark, square)
    total = sum(add.size for add in adds(square))
    spark.conf.set("spark.pydelta.optimize.maxFileSize", str(total // 16))
    try:
        result = DeltaTable.forPath(spark, square).optimize().executeZOrderBy("x", "y")
    finally:
        spark.conf.unset("spark.pydelta.optimize.maxFileSize")
    metrics = result.first()["metrics"].asDict(recursive=True)
    files = metrics["numFilesAdded"]
    assert 14 <= files <= 18
    assert metrics["zOrderStats"]["strategyName"] == "all"
    assert metrics["zOrderStats"]["mergedFiles"]["num"] == 10
    assert rows(spark, square) == before
    for column, values in (("x", range(-190, 200, 20)), ("y", [f"n{1000 + n}" for n in range(5, 200, 10)])):
        assert sum(skipped(square, column, value) for value in values) >= 0.5 * files * len(values)
    assert json.loads(last_commit(square)["operationParameters"]["zOrderBy"]) == ["x", "y"]


def test_zorder_plans_hold_no_python(spark, square, monkeypatch):
    from pydelta.engines.spark.maintenance import optimize

    seen = []

    def look(spark, snapshot, rows, *, target_bytes):
        seen.append(rows._jdf.queryExecution().executedPlan().toString())
        raise InvalidArgumentError("enough")

    monkeypatch.setattr(optimize, "_write", look)
    spark.conf.set("spark.pydelta.local.optimizeMaxBytes", "0")  # Spark's own way
    try:
        with pytest.raises(InvalidArgumentError, match="enough"):
            DeltaTable.forPath(spark, square).optimize().executeZOrderBy("x", "y", "id")
    finally:
        spark.conf.unset("spark.pydelta.local.optimizeMaxBytes")
    assert "Python" not in seen[0]
    assert "Arrow" not in seen[0]


@pytest.mark.parametrize("columns", [["d"], ["t", "m"], ["f", "id", "s"], ["st.a", "st.b.c"], [["d", "F"]]])
def test_zorder_takes_columns_of_any_ordered_type_and_keeps_partitions_apart(spark, partitioned, columns):
    before = rows(spark, partitioned)
    DeltaTable.forPath(spark, partitioned).optimize().executeZOrderBy(*columns)
    assert rows(spark, partitioned) == before
    assert sorted(str(add.partition_values["p"]) for add in adds(partitioned)) == ["0", "1", "None"]


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        (["p"], InvalidArgumentError, "partition column"),
        (["nope"], BindError, "nope"),
        (["st.nope"], BindError, "st.nope"),
        (["l"], InvalidArgumentError, "no minimum and maximum"),
        (["b"], InvalidArgumentError, "no minimum and maximum"),
        (["id", "ID"], InvalidArgumentError, "twice"),
    ],
)
def test_columns_that_cannot_order_rows_are_refused(spark, partitioned, columns, error, said):
    with pytest.raises(error, match=said):
        DeltaTable.forPath(spark, partitioned).optimize().executeZOrderBy(*columns)
    assert DeltaLog.for_table(partitioned).update().version == 3


def test_columns_without_statistics_are_refused(spark, tmp_path):
    path = str(tmp_path / "t")
    frame = spark.range(3).selectExpr("id", "id as late")
    frame.write.format("delta").option("delta.dataSkippingNumIndexedCols", "1").save(path)
    with pytest.raises(InvalidArgumentError, match="dataSkippingStatsColumns"):
        DeltaTable.forPath(spark, path).optimize().executeZOrderBy("late")
    with pytest.raises(InvalidArgumentError, match="not clustered"):
        DeltaTable.forPath(spark, path).optimize().executeCompaction(full=True)


# --- what goes along with rows ---------------------------------------------------------------------------------------


def tracked(spark, path):
    from pydelta.engines.spark.scan.scan import Extra, scan_dataframe
    from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN

    frame = scan_dataframe(spark, DeltaLog.for_table(path).update(), pinned=True, extra=Extra.TRACKING)
    found = frame.select("id", ROW_ID_COLUMN, ROW_VERSION_COLUMN).collect()
    assert None not in {row[1] for row in found}
    return sorted(map(tuple, found))


@pytest.mark.parametrize("zorder", [[], ["id", "s"]], ids=["compaction", "zorder"])
def test_rows_keep_their_ids_and_versions(spark, tmp_path, zorder):
    path = str(tmp_path / "t")
    options = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    for part in range(3):
        frame = spark.range(part * 10, part * 10 + 10, numPartitions=2).selectExpr("id", "cast(id as string) as s")
        frame.write.format("delta").options(**options).mode("append").save(path)
    table = DeltaTable.forPath(spark, path)
    table.delete("id % 7 = 3")
    for round_ in range(2):  # the second time the ids come out of the file
        before = tracked(spark, path)
        builder = table.optimize()
        builder.executeZOrderBy(*zorder) if zorder else builder.executeCompaction()
        assert tracked(spark, path) == before
        if round_ == 0:
            spark.range(100, 103, numPartitions=1).selectExpr("id", "cast(id as string) as s").write.format(
                "delta"
            ).mode("append").save(path)
    assert len({row[1] for row in before}) == len(before) == 29
    commits = DeltaLog.for_table(path).history()
    assert all(item.commit_info.get("tags")["delta.rowTracking.preserved"] == "true" for item in commits)


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("zorder", [[], ["st.a", "n"]], ids=["compaction", "zorder"])
def test_mapped_columns_are_rewritten_under_their_physical_names(spark, tmp_path, mode, zorder):
    from pydelta.protocol.actions import Protocol
    from pydelta.storage import open_store
    from pydelta.testing.tables import TableBuilder

    path = str(tmp_path / "t")
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    store = open_store(path)
    builder = TableBuilder(store, columns={"n": "long"}, protocol=protocol)
    struct = {"type": "struct", "fields": [mapped(3, "a", "string")]}
    schema = {"type": "struct", "fields": [mapped(1, "n", "long"), mapped(2, "st", struct)]}
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"}
    builder.metadata = builder.metadata.replace(schema_string=json.dumps(schema), configuration=properties)
    builder.commit()
    for part in range(3):
        frame = spark.range(part, part + 1).selectExpr("id as n", "struct(cast(id as string) as a) as st")
        frame.write.format("delta").mode("append").save(path)
    table = DeltaTable.forPath(spark, path)
    before = rows(spark, path)
    optimize = table.optimize()
    optimize.executeZOrderBy(*zorder) if zorder else optimize.executeCompaction()
    assert rows(spark, path) == before
    [add] = adds(path)
    assert json.loads(add.stats)["maxValues"] == {"col-1": 2, "col-2": {"col-3": "2"}}


def mapped(number, name, data_type):
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}
