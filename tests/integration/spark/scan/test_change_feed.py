"""Reading the change data feed, beside delta-rs and beside what the operations did."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import deltalake
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

from pydelta.errors import ChangeDataNotRecordedError, DeltaError, InvalidArgumentError, SchemaMismatchError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def fed(spark, tmp_path):
    """Versions: 0 ten rows, 1 two more, 2 DELETE of three, 3 DELETE of a partition, 4 replaceWhere, 5 overwrite."""
    path = str(tmp_path / "t")
    columns = ("id", "cast(id % 2 as int) as p", "'v' || id as v")
    frame = spark.range(10).selectExpr(*columns).coalesce(1)
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").partitionBy("p").save(path)
    spark.range(10, 12).selectExpr(*columns).coalesce(1).write.format("delta").mode("append").save(path)
    DeltaTable.forPath(spark, path).delete("id in (4, 6, 7)")
    DeltaTable.forPath(spark, path).delete("p = 1")
    rows = spark.range(8, 11, 2).selectExpr("id", "0 as p", "'new' as v")
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id >= 8").save(path)
    spark.range(2).selectExpr(*columns).coalesce(1).write.format("delta").mode("overwrite").save(path)
    return path


def _feed(spark, path, **options):
    return spark.read.format("delta").option("readChangeFeed", "true").options(**options).load(path)


def _rows(frame):
    return Counter((r["_commit_version"], r["_change_type"], r["id"], r["v"]) for r in frame.collect())


EXPECTED = Counter(
    [(0, "insert", i, f"v{i}") for i in range(10)]
    + [(1, "insert", i, f"v{i}") for i in (10, 11)]
    + [(2, "delete", i, f"v{i}") for i in (4, 6, 7)]
    + [(3, "delete", i, f"v{i}") for i in (1, 3, 5, 9, 11)]
    + [(4, "delete", i, f"v{i}") for i in (8, 10)]
    + [(4, "insert", i, "new") for i in (8, 10)]
    + [(5, "delete", i, f"v{i}") for i in (0, 2)]
    + [(5, "delete", i, "new") for i in (8, 10)]
    + [(5, "insert", i, f"v{i}") for i in (0, 1)]
)


def test_every_change_of_every_version(spark, fed):
    frame = _feed(spark, fed, startingVersion=0)
    assert frame.columns == ["id", "p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert _rows(frame) == EXPECTED
    assert all(row["p"] == row["id"] % 2 for row in frame.collect())
    theirs = deltalake.DeltaTable(fed).load_cdf(starting_version=0).read_all()
    columns = [theirs.column(name).to_pylist() for name in ("_commit_version", "_change_type", "id", "v")]
    assert Counter(zip(*columns, strict=True)) == EXPECTED


def test_times_are_those_of_the_history(spark, fed):
    times = {
        record.version: dt.datetime.fromtimestamp(record.timestamp_ms / 1000, tz=dt.UTC)
        for record in DeltaLog.for_table(fed).history()
    }
    seen = _feed(spark, fed, startingVersion=0).select("_commit_version", "_commit_timestamp").distinct().toArrow()
    found = zip(seen.column(0).to_pylist(), seen.column(1).to_pylist(), strict=True)
    assert {version: time.astimezone(dt.UTC) for version, time in found} == times


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ({"startingVersion": 2, "endingVersion": 3}, {2, 3}),
        ({"startingVersion": 5}, {5}),
        ({"startingVersion": 4, "endingVersion": 4}, {4}),
        ({"startingTimestamp": "2000-01-01"}, {0, 1, 2, 3, 4, 5}),
    ],
)
def test_ranges(spark, fed, options, versions):
    expected = Counter({row: count for row, count in EXPECTED.items() if row[0] in versions})
    assert _rows(_feed(spark, fed, **options)) == expected


def test_the_old_option_name_and_names_in_any_case(spark, fed):
    frame = spark.read.format("delta").option("readchangedata", "TRUE").option("STARTINGVERSION", "5").load(fed)
    assert _rows(frame) == Counter({row: count for row, count in EXPECTED.items() if row[0] == 5})


def test_filters_over_the_feeds_own_columns_choose_files(spark, fed):
    frame = _feed(spark, fed, startingVersion=0).where("_commit_version = 3 and _change_type = 'delete' and p = 1")
    assert _rows(frame) == Counter({row: count for row, count in EXPECTED.items() if row[0] == 3})
    plan = frame._jdf.queryExecution().toString()
    assert "PythonUDF" not in plan and "MapInArrow" not in plan
    assert frame.select("id").count() == 5


def test_a_table_by_name(spark, fed, tmp_path):
    spark.sql(f"CREATE TABLE fed_by_name USING delta LOCATION '{fed}'")
    try:
        frame = spark.read.option("readChangeFeed", "true").option("startingVersion", 2).table("fed_by_name")
        assert _rows(frame) == Counter({row: count for row, count in EXPECTED.items() if row[0] >= 2})
    finally:
        spark.sql("DROP TABLE fed_by_name")


@pytest.fixture
def named(spark, fed):
    """The name of the table that was fed, and the times of its versions as texts."""
    spark.sql(f"CREATE TABLE fed_by_name USING delta LOCATION '{fed}'")
    times = {item.version: item.timestamp_ms for item in DeltaLog.for_table(fed).history()}
    yield "fed_by_name", {at: f"{dt.datetime.fromtimestamp(ms / 1000, tz=dt.UTC)}" for at, ms in times.items()}
    spark.sql("DROP TABLE fed_by_name")


def test_changes_from_gives_the_feed_with_the_ends_that_are_asked_for(spark, named):
    name, times = named
    for text, versions in {
        "VERSION 2 TO VERSION 4": {2, 3, 4},
        "VERSION '3'": {3, 4, 5},
        "VERSION 2 EXCLUSIVE TO VERSION 4 INCLUSIVE": {3, 4},
        "VERSION 2 INCLUSIVE TO VERSION 4 EXCLUSIVE": {2, 3},
        f"TIMESTAMP '{times[2]}' TO TIMESTAMP '{times[4]}'": {2, 3, 4},
        f"TIMESTAMP '{times[2]}' EXCLUSIVE TO TIMESTAMP '{times[4]}' EXCLUSIVE": {3},
        "VERSION 4 WITH (deduplicationMode = 'none', computeUpdates = 'true')": {4, 5},
    }.items():
        expected = Counter({row: count for row, count in EXPECTED.items() if row[0] in versions})
        for query in (
            f"SELECT * FROM {name} CHANGES FROM {text} AS c",
            f"WITH w AS (SELECT * FROM default.{name} CHANGES FROM {text}) SELECT c.* FROM w AS c WHERE c.id >= 0",
        ):
            assert _rows(spark.sql(query)) == expected, query


def test_changes_from_by_path_in_a_script_a_view_and_a_stream(spark, named, fed, tmp_path):
    name, _ = named
    expected = Counter({row: count for row, count in EXPECTED.items() if row[0] >= 3})
    assert _rows(spark.sql(f"SELECT * FROM delta.`{fed}` CHANGES FROM VERSION 3")) == expected
    spark.sql(f"CREATE OR REPLACE TEMP VIEW fed_seen AS SELECT * FROM {name} CHANGES FROM VERSION 3")
    assert _rows(spark.table("fed_seen")) == expected
    script = f"BEGIN IF (SELECT count(*) FROM {name}) = 2 THEN SELECT * FROM {name} CHANGES FROM VERSION 3; END IF; END"
    assert _rows(spark.sql(script)) == expected
    spark.sql("DROP VIEW fed_seen")
    streams = {
        "sql": spark.sql(f"SELECT * FROM STREAM {name} CHANGES FROM VERSION 2 EXCLUSIVE"),
        "api": spark.readStream.option("startingVersion", 2).option("startingBoundInclusive", "false").changes(name),
    }
    for kind, frame in streams.items():
        query = frame.writeStream.format("memory").queryName(f"fed_{kind}").trigger(availableNow=True)
        assert query.option("checkpointLocation", str(tmp_path / kind)).start().awaitTermination(60)
        assert _rows(spark.table(f"fed_{kind}")) == expected, kind


def test_changes_of_a_reader_takes_the_words_of_spark(spark, named):
    name, _ = named
    reader = spark.read.option("startingVersion", 2).option("endingVersion", 4).option("endingBoundInclusive", "false")
    for _ in range(2):  # a reader may be used again
        assert {row[0] for row in _rows(reader.changes(name))} == {2, 3}
    for frame in (
        lambda: spark.read.option("startingVersion", 0).option("deduplicationMode", "netChanges").changes(name),
        lambda: spark.sql(f"SELECT * FROM {name} CHANGES FROM VERSION 0 WITH (deduplicationMode = 'netChanges')"),
    ):
        with pytest.raises(InvalidArgumentError, match="netChanges") as caught:
            frame()
        assert caught.value.getCondition() == "DELTA_CHANGELOG_UNSUPPORTED_OPTION"
    for text, condition in {
        "VERSION 9": "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "VERSION 5 EXCLUSIVE": "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "VERSION 2 EXCLUSIVE TO VERSION 3 EXCLUSIVE": "DELTA_INVALID_CDC_RANGE",
        "VERSION 'two'": "DELTA_VERSION_INVALID",
    }.items():
        with pytest.raises(DeltaError) as refused:
            spark.sql(f"SELECT * FROM {name} CHANGES FROM {text}")
        assert refused.value.getCondition() == condition, text


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, InvalidArgumentError, "startingVersion"),
        ({"startingVersion": "first"}, InvalidArgumentError, "'first'"),
        ({"startingVersion": 0, "versionAsOf": 1}, InvalidArgumentError, "travel"),
        ({"startingVersion": 6}, IllegalArgumentException, "version 6"),
        ({"startingTimestamp": "yesterday-ish"}, InvalidArgumentError, "not a timestamp"),
    ],
)
def test_bad_ranges(spark, fed, options, error, said):
    with pytest.raises(error, match=said):
        _feed(spark, fed, **options)


def test_versions_without_the_feed(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    with pytest.raises(ChangeDataNotRecordedError, match="version 0") as caught:
        _feed(spark, path, startingVersion=0)
    assert isinstance(caught.value, AnalysisException)


def test_columns_that_come_later_are_null_in_earlier_changes(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(2).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    more = spark.range(2, 3).selectExpr("id", "'x' as late")
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    rows = {row["id"]: row["late"] for row in _feed(spark, path, startingVersion=0).collect()}
    assert rows == {0: None, 1: None, 2: "x"}
    other = spark.range(2).selectExpr("cast(id as string) as id")
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    for first, named in ((0, 0), (2, 1)):  # version 2 removes files with the old type
        with pytest.raises(SchemaMismatchError, match=f"version {named}"):
            _feed(spark, path, startingVersion=first)
    other.write.format("delta").mode("append").save(path)
    assert _feed(spark, path, startingVersion=3).count() == 2


def test_columns_with_the_feeds_names_are_refused(spark, tmp_path):
    frame = spark.range(2).selectExpr("id", "'a' as _change_type")
    with pytest.raises(InvalidArgumentError, match="_change_type"):
        frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(tmp_path / "t"))
