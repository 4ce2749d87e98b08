"""Streams out of tables: batches, offsets in the checkpoint, restarts, and what stops a query."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, StreamingQueryException
from pyspark.sql import functions as F
from stream_queries import Query, all_of, append, stream

from pydelta.commands.stream.errors import (
    SourceColumnsRenamedError,
    SourceRowsChangedError,
    SourceRowsRemovedError,
    SourceSchemaChangedError,
    SourceTableReplacedError,
)
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def table(spark, tmp_path):
    path = str(tmp_path / "t")
    append(spark, path, 0, 6, 3)
    append(spark, path, 6, 10, 2)
    return path


@pytest.fixture
def query(tmp_path):
    return Query(tmp_path / "checkpoint")


def test_snapshot_then_commits_with_offsets_and_backlog_in_the_progress(spark, table, query):
    frame = stream(spark, table, maxFilesPerTrigger=2)
    assert frame.isStreaming
    assert frame.columns == ["id", "p"]
    assert [len(batch) for batch in query.run(frame)] == [4, 4, 2]
    assert query.offsets() == [(1, 1, True), (1, 3, True), (2, -1, False)]
    sources = [item["sources"][0] for item in query.progress if item["numInputRows"]]
    assert [item["numInputRows"] for item in sources] == [4, 4, 2]
    assert [item["metrics"]["numFilesOutstanding"] for item in sources] == ["3", "1", "0"]
    assert int(sources[0]["metrics"]["numBytesOutstanding"]) > 0
    append(spark, table, 10, 14, 2)
    assert query.run(stream(spark, table, maxFilesPerTrigger=1)) == [[10, 11], [12, 13]]
    assert query.offsets()[3:] == [(2, 0, False), (3, -1, False)]
    assert query.run(stream(spark, table)) == []


def test_a_source_keeps_its_place_by_its_name_where_the_session_lets_sources_have_names(spark, table, query, tmp_path):
    def named(name, path=table):
        return spark.readStream.name(name).format("delta").load(path)

    with pytest.raises(AnalysisException) as refused:
        named("left")
    assert refused.value.getCondition() == "STREAMING_QUERY_EVOLUTION_ERROR.SOURCE_NAMING_NOT_SUPPORTED"
    append(spark, str(tmp_path / "u"), 100, 102)
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    try:
        assert all_of(query.run(named("left").union(named("right", str(tmp_path / "u"))))) == [*range(10), 100, 101]
        append(spark, table, 10, 12)
        swapped = named("right", str(tmp_path / "u")).union(named("left"))
        assert all_of(query.run(swapped)) == [10, 11]
        for frame, condition in (
            (named("left").union(named("left")), "DUPLICATE_SOURCE_NAMES"),
            (named("left").union(stream(spark, table)), "UNNAMED_STREAMING_SOURCES_WITH_ENFORCEMENT"),
        ):
            with pytest.raises(InvalidArgumentError) as refused:
                query.run(frame)
            assert refused.value.getCondition() == f"STREAMING_QUERY_EVOLUTION_ERROR.{condition}"
    finally:
        spark.conf.unset("spark.sql.streaming.queryEvolution.enableSourceEvolution")


@pytest.mark.parametrize("lost", [0, 1, 3, 5])
def test_batch_that_was_planned_and_lost_comes_again_with_the_same_rows(spark, table, query, lost):
    append(spark, table, 10, 16, 3)
    frame = stream(spark, table, maxFilesPerTrigger=1, startingVersion=0) if lost > 3 else stream(
        spark, table, maxFilesPerTrigger=1
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match="the batch is lost"):
        query.run(frame, fail_in=lost)
    done = list(query.batches)
    again = query.run(frame)
    assert all_of(done + again) == list(range(16))
    assert len(done + again) == 8


def test_two_queries_of_one_frame_are_independent(spark, table, tmp_path):
    frame = stream(spark, table, maxFilesPerTrigger=1)
    first, second = Query(tmp_path / "one"), Query(tmp_path / "two")
    assert len(first.run(frame)) == 5
    append(spark, table, 10, 12)
    assert all_of(second.run(frame)) == list(range(12))
    assert first.run(frame) == [[10, 11]]


def test_every_trigger(spark, table, tmp_path):
    frame = stream(spark, table, maxFilesPerTrigger=1)
    once = Query(tmp_path / "once")
    assert [len(batch) for batch in once.run(frame, once=True)] == [10]
    seen = []
    waiting = frame.writeStream.foreachBatch(lambda rows, _: seen.append([row[0] for row in rows.collect()]))
    running = waiting.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="0 seconds").start()
    try:
        running.processAllAvailable()
        assert all_of(seen) == list(range(10))
        append(spark, table, 10, 12)
        running.processAllAvailable()
        assert all_of(seen) == list(range(12))
    finally:
        running.stop()
    assert running.exception() is None


def test_filters_choose_partitions_and_rows(spark, tmp_path, query):
    path = str(tmp_path / "t")
    for first in (0, 6):
        rows = spark.range(first, first + 6, 1, 1).withColumn("p", F.col("id") % 3)
        rows.write.format("delta").partitionBy("p").mode("append").save(path)
    frame = stream(spark, path, startingVersion=0, maxFilesPerTrigger=4)
    assert all_of(query.run(frame.where("p = 1 and id > 1"))) == [4, 7, 10]
    assert sum(item["numInputRows"] for item in query.progress) == 4  # files of the other partitions are not read


def test_by_name_latest_and_timestamp(spark, tmp_path):
    spark.sql("CREATE TABLE streamed (id long) USING delta")
    try:
        spark.range(3).write.format("delta").mode("append").saveAsTable("streamed")
        latest = Query(tmp_path / "latest")
        frame = spark.readStream.option("startingVersion", "latest").table("streamed")
        assert latest.run(frame) == [[]]
        spark.range(3, 5).write.format("delta").mode("append").saveAsTable("streamed")
        assert all_of(latest.run(frame)) == [3, 4]
        early = spark.readStream.format("delta").option("startingTimestamp", "2020-01-01").table("streamed")
        assert all_of(Query(tmp_path / "early").run(early)) == [0, 1, 2, 3, 4]
    finally:
        spark.sql("DROP TABLE streamed")


def test_deletion_vectors_and_column_mapping(spark, tmp_path, query):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id long, s struct<a: long>) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')"
    )
    rows = spark.range(0, 10, 1, 1).selectExpr("id", "named_struct('a', id * 2) AS s")
    rows.write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 3")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN s TO t")
    assert query.run(stream(spark, path).selectExpr("t.a")) == [[6, 8, 10, 12, 14, 16, 18]]
    changed = Query(tmp_path / "changed")
    frame = stream(spark, path, startingVersion=3, ignoreChanges=True)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 5")
    assert changed.run(frame.selectExpr("t.a")) == [[6, 8, 12, 14, 16, 18]]
    with pytest.raises(SourceColumnsRenamedError, match="column s"):
        Query(tmp_path / "old").run(stream(spark, path, startingVersion=1, ignoreChanges=True))


def test_widened_column_is_read_from_files_of_either_type(spark, tmp_path, query):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (n int) USING delta TBLPROPERTIES ('delta.enableTypeWidening'='true')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1)")
    frame = stream(spark, path, startingVersion=0)
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN n TYPE long")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3000000000)")
    with pytest.raises(SourceSchemaChangedError, match="column n is"):
        query.run(frame)
    assert all_of(query.run(stream(spark, path, startingVersion=0))) == [1, 3000000000]


def test_change_feed_streams_what_the_batch_reader_gives(spark, tmp_path, query):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id long, v string) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql(f"UPDATE delta.`{path}` SET v = 'B' WHERE id = 2")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    seen = []
    frame = stream(spark, path, readChangeFeed=True, startingVersion=0, maxFilesPerTrigger=1)
    order = ["_commit_version", "_change_type", "id"]
    writer = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.orderBy(*order).collect()))
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    assert seen == reader.load(path).orderBy(*order).collect()
    assert len(seen) == 6
    first = [tuple(row)[:4] for row in _rows(stream(spark, path, readChangeFeed=True), tmp_path / "d")]
    assert sorted(first) == [(1, "a", "insert", 3), (2, "B", "insert", 3)]


def _rows(frame, checkpoint):
    seen = []
    writer = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return seen


def test_stateful_queries_and_watermarks(spark, table, tmp_path):
    timed = stream(spark, table, maxFilesPerTrigger=2).withColumn("at", F.timestamp_seconds("id"))
    counted = timed.withWatermark("at", "1 second").groupBy("p", F.window("at", "5 seconds")).count()
    writer = counted.writeStream.format("memory").queryName("windows").outputMode("complete")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert spark.sql("SELECT sum(count) FROM windows").collect() == [(10,)]


# -- what stops a query ------------------------------------------------------------------------------------------


def _stops(kind, query, frame, *words):
    with pytest.raises(kind) as caught:
        query.run(frame)
    text = str(caught.value)
    assert isinstance(caught.value, DeltaError)
    assert isinstance(caught.value, StreamingQueryException)
    assert caught.value.getCondition() == kind.code
    for word in ("Next:", *words):
        assert word in text
    assert "Traceback" not in text
    assert "\tat " not in text


def test_deleted_and_changed_rows_stop_the_query_with_what_to_do(spark, table, query):
    assert len(query.run(stream(spark, table))) == 1
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 6")
    _stops(SourceRowsRemovedError, query, stream(spark, table), "Version 2 (DELETE)", "ignoreDeletes")
    append(spark, table, 20, 22)
    assert query.run(stream(spark, table, ignoreDeletes=True)) == [[20, 21]]
    spark.sql(f"UPDATE delta.`{table}` SET p = 9 WHERE id = 20")
    passing = stream(spark, table, ignoreDeletes=True)
    _stops(SourceRowsChangedError, query, passing, "Version 4 (UPDATE)", "skipChangeCommits")
    assert all_of(query.run(stream(spark, table, skipChangeCommits=True))) == []


def test_new_column_under_a_running_query_stops_it_and_a_restart_goes_on(spark, table, query):
    frame = stream(spark, table)
    query.run(frame)
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN z int")
    spark.range(10, 12, 1, 1).selectExpr("id", "id AS p", "1 AS z").write.format("delta").mode("append").save(table)
    _stops(SourceSchemaChangedError, query, frame, "column z is new", "same checkpoint")
    assert query.run(stream(spark, table)) == [[10, 11]]


def test_other_table_in_the_checkpoint_or_at_the_place_is_refused(spark, table, query, tmp_path):
    query.run(stream(spark, table))
    other = str(tmp_path / "other")
    append(spark, other, 0, 2)
    _stops(SourceTableReplacedError, query, stream(spark, other), "checkpointLocation")
    _stops(InvalidArgumentError, _foreign(query), stream(spark, table), "logOffset", "checkpointLocation")


def _foreign(query):
    (query.checkpoint / "commits").joinpath("0").unlink()
    offset = query.checkpoint / "offsets" / "0"
    offset.write_text("\n".join([*offset.read_text().splitlines()[:-1], '{"logOffset":3}']))
    (query.checkpoint / "offsets" / ".0.crc").unlink(missing_ok=True)
    return query


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"startingVersion": "x"}, InvalidArgumentError, "startingVersion"),
        ({"versionAsOf": "0"}, InvalidArgumentError, "versionAsOf"),
        ({"withEventTimeOrder": "yes"}, InvalidArgumentError, "withEventTimeOrder"),
    ],
)
def test_wrong_options_are_refused_by_load(spark, table, options, kind, words):
    with pytest.raises(kind, match=words) as caught:
        stream(spark, table, **options)
    assert isinstance(caught.value, AnalysisException | IllegalArgumentException), "what users of Spark catch"


def test_what_is_not_a_table_is_refused_by_load(spark, tmp_path):
    with pytest.raises(TableNotFoundError):
        stream(spark, str(tmp_path / "nothing"))
    with pytest.raises(InvalidArgumentError, match="One path"):
        spark.readStream.format("delta").load()
    with pytest.raises(InvalidArgumentError, match="schema"):
        spark.readStream.format("delta").schema("id long").load(str(tmp_path))


def test_other_formats_stay_with_spark(spark, tmp_path):
    spark.range(3).write.parquet(str(tmp_path / "p"))
    frame = spark.readStream.schema("id long").format("parquet").load(str(tmp_path / "p"))
    assert all_of(Query(tmp_path / "c").run(frame)) == [0, 1, 2]


def test_snapshot_of_an_older_schema_comes_in_the_newer_one(spark, tmp_path, query):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (_change_type int, s struct<a: int>) USING delta")
    spark.range(2).selectExpr("1 AS _change_type", "named_struct('a', 1) AS s").coalesce(1).write.format("delta").mode(
        "append"
    ).save(path)
    spark.range(2).selectExpr("2 AS _change_type", "named_struct('a', 1) AS s").coalesce(1).write.format("delta").mode(
        "append"
    ).save(path)
    with pytest.raises(StreamingQueryException, match="the batch is lost"):
        query.run(stream(spark, path, maxFilesPerTrigger=1), fail_in=1)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (s.b string, z date)")
    frame = stream(spark, path, maxFilesPerTrigger=1)
    assert query.run(frame.selectExpr("struct(_change_type, s.a, s.b, z)")) == [[(2, 1, None, None)] * 2, []]


def test_stream_in_sql_is_a_stream_of_the_table(spark, table, tmp_path):
    spark.sql(f"CREATE TABLE in_sql USING delta LOCATION '{table}'")
    try:
        texts = {
            "SELECT id, p FROM STREAM in_sql WHERE id > 3": [4, 5, 6, 7, 8, 9],
            "SELECT s.id FROM STREAM(in_sql) WITH (startingVersion = 1) AS s": [6, 7, 8, 9],
            f"WITH w AS (SELECT id FROM STREAM delta.`{table}`) SELECT id FROM w WHERE id < 2": [0, 1],
        }
        for number, (text, expected) in enumerate(texts.items()):
            frame = spark.sql(text)
            assert frame.isStreaming
            assert all_of(Query(tmp_path / f"sql{number}").run(frame)) == expected, text
        with pytest.raises(AnalysisException, match=r"writeStream\.start"):
            spark.sql("SELECT * FROM STREAM in_sql").collect()
        with pytest.raises(InvalidArgumentError, match="startingVersion"):
            spark.sql("SELECT * FROM STREAM in_sql WITH (startingVersion = 'x')")
    finally:
        spark.sql("DROP TABLE in_sql")


def test_streamed_rows_have_no_file_metadata(spark, table):
    with pytest.raises(AnalysisException, match="_metadata"):
        stream(spark, table).select("_metadata.file_name")
