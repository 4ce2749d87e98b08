"""The native scan: what the plan looks like, which files are opened, and which rows come back."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RsTable
from deltalake import write_deltalake
from leaks import secret
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, Extra, scan_dataframe
from pydelta.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from pydelta.log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]


def _plan(frame, mode="simple") -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain(mode)
    return out.getvalue()


def _load(spark, path):
    return spark.read.format("delta").load(str(path))


def _spoil(path, keep) -> int:
    """Make every data file unreadable for which ``keep(relative path)`` is false."""
    spoilt = 0
    for file in Path(path).rglob("*.parquet"):
        if "_delta_log" not in file.parts and not keep(str(file.relative_to(path))):
            file.write_bytes(b"not parquet")
            spoilt += 1
    return spoilt


@pytest.fixture
def table(tmp_path):
    """ids 0-99 in four partitions p = 0..3 (of one file each); ``p`` is the middle column."""
    path = str(tmp_path / "t")
    data = pa.table(
        {
            "id": pa.array(range(100), pa.int64()),
            "p": pa.array([i % 4 for i in range(100)], pa.int32()),
            "name": pa.array([f"n{i:03d}" for i in range(100)]),
        }
    )
    write_deltalake(path, data, partition_by=["p"])
    return path


def test_the_plan_is_sparks_own_parquet_scan(spark, table):
    plan = _plan(_load(spark, table).where("id > 50 AND p = 1").select("id"))
    assert "FileScan parquet" in plan
    assert "BatchScan" not in plan and "Python" not in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,50)]" in plan
    assert "PartitionFilters: [isnotnull(p" in plan
    assert "ReadSchema: struct<id:bigint>" in plan


def test_columns_come_in_the_tables_order(spark, table):
    frame = _load(spark, table)
    assert frame.columns == ["id", "p", "name"]
    assert frame.orderBy("id").first().asDict() == {"id": 0, "p": 0, "name": "n000"}


@pytest.mark.parametrize(
    ("condition", "partitions"),
    [
        ("p = 1", {1}),
        ("p + 1 = 2", {1}),
        ("p IN (1, 3)", {1, 3}),
        ("p IN (1,11,12,13,14,15,16,17,18,19,20,21)", {1}),
        ("CAST(p AS STRING) LIKE '1%' OR p = 2", {1, 2}),
        ("p IS NULL", set()),
        ("NOT (p <=> 0)", {1, 2, 3}),
        ("pmod(hash(p), 1) = 0 AND p > 2", {3}),
    ],
)
def test_partition_filters_are_exact_and_open_no_other_file(spark, table, condition, partitions):
    _spoil(table, lambda name: int(name.split("p=")[1][0]) in partitions)
    rows = _load(spark, table).where(condition).collect()
    assert {row.p for row in rows} == partitions
    assert len(rows) == 25 * len(partitions)


def test_files_are_skipped_by_statistics(spark, tmp_path):
    path = str(tmp_path / "t")
    for start in (0, 100, 200):
        names = pa.array([f"n{i:03d}" for i in range(start, start + 100)])
        days = pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(start, start + 100)])
        write_deltalake(path, pa.table({"id": list(range(start, start + 100)), "n": names, "d": days}), mode="append")
    keep = RsTable(path).get_add_actions(flatten=True)
    files = {row["min.id"]: row["path"] for row in pa.table(keep).to_pylist()}
    _spoil(path, lambda name: name == files[100])
    frame = _load(spark, path)
    assert frame.where("id = 150").count() == 1
    assert frame.where("id BETWEEN 120 AND 130 AND n LIKE 'n12%'").count() == 10
    assert frame.where("d = DATE'2024-05-01'").count() == 1
    assert frame.where("id IN (100,101,102,103,104,105,106,107,108,109,110,111)").count() == 12
    assert frame.where("n LIKE 'n1%'").count() == 100


def test_a_condition_without_meaning_to_us_reads_all_files(spark, table):
    assert _load(spark, table).where("id % 10 = 3 AND length(name) = 4").count() == 10


def test_special_characters_in_partition_values_and_paths(spark, tmp_path):
    path = str(tmp_path / "a table, 100% ü")
    values = ["a b", "x/y", "50%", "%20", "é", "a=b:c", "q?#r", "'\"", "{}[]", "&+;", None]
    write_deltalake(path, pa.table({"v": list(range(len(values))), "p": values}), partition_by=["p"])
    frame = _load(spark, path)
    assert {(row.v, row.p) for row in frame.collect()} == set(enumerate(values))
    for number, value in enumerate(values):
        assert [row.v for row in frame.where(F.col("p").eqNullSafe(F.lit(value))).collect()] == [number]
    named = {row[0] for row in frame.select(F.input_file_name()).collect()}
    assert len(named) == len(values)
    assert {row[0] for row in frame.select("_metadata.file_path").collect()} == named


def test_typed_partition_values(spark, tmp_path):
    path = str(tmp_path / "t")
    moment = dt.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=dt.UTC)
    data = pa.table(
        {
            "v": [1, 2],
            "d": pa.array([dt.date(2024, 2, 29), None]),
            "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "b": pa.array([True, None]),
            "f": pa.array([1.5, None]),
        }
    )
    write_deltalake(path, data, partition_by=["d", "t", "b", "f"])
    frame = _load(spark, path)
    assert [kind for _, kind in frame.dtypes] == ["bigint", "date", "timestamp", "boolean", "double"]
    only = frame.where("year(d) = 2024 AND b AND f > 1 AND t = TIMESTAMP'2024-03-31 01:30:00.123456'")
    assert [row.v for row in only.collect()] == [1]
    assert [row.v for row in frame.where("t IS NULL AND d IS NULL AND b IS NULL").collect()] == [2]


def test_partition_timestamps_follow_the_session_zone_only_where_they_name_none(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"v": [1]}))
    data = next(file.name for file in path.glob("*.parquet"))
    log = path / "_delta_log" / "00000000000000000000.json"
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("v", "long"), ("t", "timestamp"))]
    size = (path / data).stat().st_size
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "z",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["t"],
                "configuration": {},
            }
        },
    ]
    for name, value in ((data, "2024-01-01 00:00:00"), ("./" + data, "2024-01-01T00:00:00.000000Z")):
        values = {"t": value}
        add = {"path": name, "partitionValues": values, "size": size, "modificationTime": 1, "dataChange": True}
        lines.append({"add": add})
    log.write_text("\n".join(json.dumps(line) for line in lines))
    DeltaLog.clear_cache()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = {row[0] for row in _load(spark, path).selectExpr("unix_seconds(t)").collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    midnight = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp())
    assert found == {midnight, midnight - 9 * 3600}


def test_a_table_without_files_has_its_columns_and_no_rows(spark, table):
    RsTable(table).delete()
    frame = _load(spark, table)
    assert frame.columns == ["id", "p", "name"]
    assert frame.count() == 0
    assert frame.where("p = 1").agg(F.max("id")).first()[0] is None


def test_columns_that_old_files_lack_are_null(spark, tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"a": [1]}))
    write_deltalake(path, pa.table({"a": [2], "b": ["x"]}), mode="append", schema_mode="merge")
    assert {(row.a, row.b) for row in _load(spark, path).collect()} == {(1, None), (2, "x")}
    assert [row.a for row in _load(spark, path).where("b IS NULL").collect()] == [1]


def test_names_are_found_whatever_their_case(spark, table):
    assert _load(spark, table).where("ID = 5 AND P = 1").select("NAME").first()[0] == "n005"


def test_metadata_columns_and_file_identity(spark, table):
    snapshot = DeltaLog.for_table(table).update()
    core = snapshot.files.core
    frame = scan_dataframe(spark, snapshot, pinned=True, files=core, extra=Extra.FILE)
    pairs = frame.select(FILE_ROW_COLUMN, "_metadata.file_name", "p").distinct().collect()
    assert len(pairs) == 4
    for position, name, partition in pairs:
        assert core["path"][position].endswith(name)
        assert core["pv:p"][position] == str(partition)


def test_a_scan_of_some_files_reads_only_those(spark, table):
    snapshot = DeltaLog.for_table(table).update()
    some = snapshot.files.core.filter(snapshot.files.core["pv:p"] == "2")
    _spoil(table, lambda name: name.startswith("p=2"))
    frame = scan_dataframe(spark, snapshot, pinned=True, files=some)
    assert frame.count() == 25
    whole = scan_dataframe(spark, snapshot, pinned=True)
    assert not frame.sameSemantics(whole)


def test_dynamic_partition_pruning_opens_only_the_joined_partitions(spark, table, tmp_path):
    _spoil(table, lambda name: name.startswith("p=3"))
    spark.createDataFrame([(3, "yes"), (9, "no")], "k int, flag string").write.parquet(str(tmp_path / "dim"))
    dimension = spark.read.parquet(str(tmp_path / "dim")).where("flag = 'yes'")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(10 << 20))
    spark.conf.set("spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly", "false")
    try:
        joined = _load(spark, table).join(dimension, F.col("p") == F.col("k"))
        assert "dynamicpruning" in _plan(joined)
        assert joined.count() == 25
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.conf.unset("spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly")


def test_an_exchange_is_reused_in_a_self_join(spark, table):
    for name, value in (("spark.sql.autoBroadcastJoinThreshold", "-1"), ("spark.sql.adaptive.enabled", "false")):
        spark.conf.set(name, value)
    try:
        left, right = (_load(spark, table).groupBy("name").agg(F.count("*").alias("n")) for _ in range(2))
        joined = left.join(right, "name")
        assert "ReusedExchange" in _plan(joined)
        assert joined.count() == 100
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_a_frame_shows_what_was_appended_since(spark, table):
    frame = _load(spark, table)
    write_deltalake(table, pa.table({"id": [1000], "p": pa.array([1], pa.int32()), "name": ["new"]}), mode="append")
    assert frame.count() == 101
    assert _load(spark, table).count() == 101


def test_time_travel_by_version_option_path_and_timestamp(spark, table):
    write_deltalake(table, pa.table({"id": [1000], "p": pa.array([1], pa.int32()), "name": ["new"]}), mode="append")
    reader = spark.read.format("delta")
    assert reader.option("versionAsOf", 0).load(table).count() == 100
    assert spark.read.format("delta").option("versionAsOf", "1").load(table).count() == 101
    assert _load(spark, table + "@v0").count() == 100
    log = DeltaLog.for_table(table)
    newest = log.update().timestamp_ms
    moment = dt.datetime.fromtimestamp(newest / 1000, dt.UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert spark.read.format("delta").option("timestampAsOf", text).load(table).count() == 101
    assert _load(spark, f"{table}@{moment.strftime('%Y%m%d%H%M%S')}{newest % 1000:03d}").count() == 101
    with pytest.raises(VersionNotFoundError) as caught:
        spark.read.format("delta").option("versionAsOf", 7).load(table)
    assert isinstance(caught.value, AnalysisException)
    with pytest.raises(VersionNotFoundError):
        spark.read.format("delta").option("timestampAsOf", "1999-01-01").load(table)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"versionAsOf": "x"}, "not a version"),
        ({"timestampAsOf": "yesterday evening"}, "not a timestamp"),
        ({"versionAsOf": "0", "timestampAsOf": "2024-01-01"}, "both"),
    ],
)
def test_a_version_that_cannot_be_right_is_refused(spark, table, options, word):
    with pytest.raises(InvalidArgumentError, match=word):
        spark.read.format("delta").options(**options).load(table)


def test_what_is_no_delta_table_is_refused_by_name(spark, tmp_path):
    with pytest.raises(TableNotFoundError, match="nowhere") as caught:
        _load(spark, tmp_path / "nowhere")
    assert isinstance(caught.value, AnalysisException)
    (tmp_path / "plain").mkdir()
    with pytest.raises(TableNotFoundError, match="plain"):
        _load(spark, tmp_path / "plain")


def test_a_schema_for_reading_is_refused(spark, table):
    with pytest.raises(InvalidArgumentError, match="schema"):
        spark.read.format("delta").schema("id int").load(table)


def test_a_credential_among_the_options_is_refused_and_not_repeated(spark, table):
    with pytest.raises(InvalidArgumentError) as caught:
        spark.read.format("delta").option("fs.s3a.secret.key", secret("option")).load(table)
    assert secret("option") not in str(caught.value)
    assert "spark.hadoop.fs.s3a.secret.key" in str(caught.value)


def test_queries_are_planned_from_several_threads_at_once(spark, table):
    counts: list[int] = []
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for _ in range(3):
                counts.append(_load(spark, table).where(f"p = {number % 4} AND id >= 0").count())
        except BaseException as error:  # noqa: BLE001  shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counts == [25] * 12


def test_a_stream_plans_a_table_while_the_main_thread_plans_it_too(spark, table, tmp_path):
    source, found = str(tmp_path / "source"), []
    for _ in range(4):
        spark.range(3).write.mode("append").parquet(source)

    def each(batch, number):
        joined = batch.crossJoin(_load(spark, table).where("p = 1 AND id > 4"))
        found.append((number, joined.count()))

    stream = (
        spark.readStream.schema("id bigint")
        .option("maxFilesPerTrigger", 2)
        .parquet(source)
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while stream.isActive:
            assert _load(spark, table).where("p IN (1, 2)").count() == 50
            stream.awaitTermination(0.05)
    finally:
        stream.stop()
    assert stream.exception() is None
    assert sum(rows for _, rows in found) == 12 * 24


def test_the_path_of_a_partitions_folder_reads_that_partition(spark, table):
    expected = [(i, i % 4) for i in range(100) if i % 4 == 2]
    frame = _load(spark, f"{table}/p=2")
    assert frame.columns == ["id", "p", "name"]
    assert sorted((row["id"], row["p"]) for row in frame.collect()) == expected
    in_sql = spark.sql(f"SELECT id, p FROM delta.`{table}/p=2/` ORDER BY id")
    assert [tuple(row) for row in in_sql.collect()] == expected
    assert _spoil(table, keep=lambda path: path.startswith("p=2/")) == 3
    assert _load(spark, f"{table}/p=2").count() == len(expected)


def test_folders_of_several_columns_name_a_null_a_space_and_a_slash(spark, tmp_path):
    rows = [(1, "a b", None), (2, "x/y", "z"), (3, "a b", "z")]
    frame = spark.createDataFrame(rows, "id int, g string, h string")
    path = f"{tmp_path}/g=not a partition"
    frame.write.format("delta").partitionBy("g", "h").save(path)
    for folder, ids in {
        "g=a b": [1, 3],
        "g=a b/h=__HIVE_DEFAULT_PARTITION__": [1],
        "g=x%2Fy/h=z": [2],
        "g=a b/h=other": [],
    }.items():
        assert sorted(row["id"] for row in _load(spark, f"{path}/{folder}").collect()) == ids
    assert _load(spark, path).count() == 3


def test_a_folder_of_what_is_no_partition_column_is_refused(spark, table):
    with pytest.raises(InvalidArgumentError, match=r"id=1, but the table at .* is partitioned by p") as refused:
        _load(spark, f"{table}/p=1/id=1")
    assert refused.value.code == "DELTA_NON_PARTITION_COLUMN_SPECIFIED"
    with pytest.raises(TableNotFoundError):
        _load(spark, f"{Path(table).parent}/p=1")
