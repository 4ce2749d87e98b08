"""Commands whose condition could answer differently a second time: they ask it once, and change only what it says."""

from __future__ import annotations

import time

import pytest
from built_once import built_once
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import RowsDoNotAddUpError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable
from pydelta.testing.commands import update

pytestmark = pytest.mark.spark

ZONES = "spark.sql.session.timeZone"
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def in_zone(spark):
    before = spark.conf.get(ZONES)
    yield lambda zone: spark.conf.set(ZONES, zone)
    spark.conf.set(ZONES, before)


def save(rows, path, *, by=(), **properties):
    rows.write.format("delta").options(**properties).partitionBy(*by).save(path)


def around_now(spark, path, **properties):
    """A row for each 20 ms of the minutes around now, so that any later "now" finds other rows."""
    micros = time.time_ns() // 1000
    rows = spark.range(6000).selectExpr("id", f"timestamp_micros({micros} + (id - 1000) * 20000) AS ts", "0L AS v")
    save(rows.repartition(2), path, **properties)


def feed_of(spark, path):
    found = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    return {(row["_change_type"], row["id"]): row for row in found.collect()}


CLOCKS = ["ts < current_timestamp()", "ts >= now()", "ts < CAST(localtimestamp() AS timestamp)"]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copied", "vectors"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_an_update_by_the_clock_doubles_and_loses_no_row(spark, tmp_path, clock, properties):
    path = str(tmp_path / "t")
    around_now(spark, path, **properties, **FEED)
    result = DeltaTable.forPath(spark, path).update(clock, {"v": "v + 1", "ts": "current_timestamp()"})
    rows = spark.read.format("delta").load(path).collect()
    assert sorted(row["id"] for row in rows) == list(range(6000))
    changed = [row for row in rows if row["v"] == 1]
    (instant,) = {row["ts"] for row in changed}  # what the values saw is what the condition saw
    feed = feed_of(spark, path)
    before = {id_: row["ts"] for (kind, id_), row in feed.items() if kind == "update_preimage"}
    assert set(before) == {row["id"] for row in changed}
    later = ">=" in clock
    assert all((at >= instant) is later for at in before.values())
    assert all((row["ts"] >= instant) is not later for row in rows if row["v"] == 0)
    assert {id_ for kind, id_ in feed if kind == "update_postimage"} == set(before)
    assert len(feed) == 2 * len(before) == 2 * result.num_updated_rows > 0
    assert result.num_copied_rows == (0 if properties else 6000 - len(before))


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copied", "vectors"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_delete_by_the_clock_deletes_what_it_counts(spark, tmp_path, clock, properties):
    path = str(tmp_path / "t")
    around_now(spark, path, **properties, **FEED)
    result = DeltaTable.forPath(spark, path).delete(clock)
    left = {row["id"] for row in spark.read.format("delta").load(path).collect()}
    feed = feed_of(spark, path)
    gone = {id_ for kind, id_ in feed if kind == "delete"}
    assert left | gone == set(range(6000))
    assert not left & gone
    assert len(gone) == len(feed) == result.num_deleted_rows > 0
    assert (max(gone) < min(left)) if "<" in clock else (max(left) < min(gone))
    assert result.num_copied_rows == (0 if properties else len(left))


def test_a_function_that_changes_its_mind_is_asked_once(spark, tmp_path):
    path, calls = str(tmp_path / "t"), str(tmp_path / "calls")
    save(spark.range(0, 500, 1, 1), path, **FEED)

    @F.udf("boolean")
    def undecided(value: int) -> bool:  # the other way round when it is asked again
        import os

        with open(calls, "ab") as file:
            file.write(b"x")
        return (value < 250) == (os.path.getsize(calls) <= 500)

    result = DeltaTable.forPath(spark, path).delete(undecided("id"))
    left = {row["id"] for row in spark.read.format("delta").load(path).collect()}
    assert left == set(range(250, 500))
    assert result.num_deleted_rows == result.num_copied_rows == 250


def test_a_delete_by_the_age_of_rows_reads_no_file_that_statistics_rule_out(spark, tmp_path):
    path = str(tmp_path / "t")
    for days in (1, 40):
        save_mode = spark.range(5).selectExpr("id", f"current_timestamp() - INTERVAL {days} DAYS AS ts").coalesce(1)
        save_mode.write.format("delta").mode("append").save(path)
    asked = []

    class Watching(SparkEngine):
        def match_rows(self, snapshot, files, condition):
            asked.append(files.height)
            return super().match_rows(snapshot, files, condition)

    where = "ts < current_timestamp() - INTERVAL 30 DAYS"
    assert update(DeltaLog.for_table(path), Watching(spark), [("id", "-1")], where).num_updated_rows == 5
    assert asked == [1]


def test_replace_where_by_the_clock_leaves_no_old_row_beside_the_new_ones(spark, tmp_path):
    path = str(tmp_path / "t")
    around_now(spark, path)
    new = spark.range(1).selectExpr("-1L AS id", "current_timestamp() AS ts", "1L AS v")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "ts <= current_timestamp()").save(path)
    rows = spark.read.format("delta").load(path).collect()
    (instant,) = (row["ts"] for row in rows if row["v"] == 1)
    old = [row for row in rows if row["v"] == 0]
    assert old
    assert all(row["ts"] > instant for row in old)
    assert sorted(row["id"] for row in old) == list(range(6000 - len(old), 6000))


# --- what was not to change ------------------------------------------------------------------------------------


@built_once
def generated_table(spark, path, **properties):
    """Rows of three late hours of one day: of what day and what hour, depends on the zone."""
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("ts", "TIMESTAMP")
    builder = builder.addColumn("v", "BIGINT").addColumn("day", "DATE", generatedAlwaysAs="CAST(ts AS DATE)")
    for key, value in {"delta.constraints.late": "hour(ts) >= 21 OR v > 100", **properties}.items():
        builder = builder.property(key, value)
    builder.execute()
    # in New York the same instants are in the early morning
    rows = spark.range(0, 3, 1, 1).selectExpr("id", "timestamp'2024-05-01 21:30:00' + make_interval(0,0,0,0,id) AS ts")
    rows.selectExpr("id", "ts", "0L AS v").write.format("delta").mode("append").save(path)


@pytest.mark.parametrize(
    "properties", [{}, FEED, VECTORS, {**VECTORS, **FEED}], ids=["plain", "feed", "vectors", "both"]
)
def test_an_update_leaves_generated_columns_of_other_rows_alone(spark, tmp_path, in_zone, properties):
    path = str(tmp_path / "t")
    in_zone("Pacific/Auckland")
    generated_table(spark, path, **properties)
    before = {row["id"]: row["day"] for row in spark.read.format("delta").load(path).collect()}
    in_zone("America/New_York")
    DeltaTable.forPath(spark, path).update("id = 1", {"v": "v + 101"})
    rows = {row["id"]: row for row in spark.read.format("delta").load(path).collect()}
    assert {id_: row["day"] for id_, row in rows.items()} == before  # of the changed row too: its ts did not change
    assert [rows[id_]["v"] for id_ in range(3)] == [0, 101, 0]
    if "delta.enableChangeDataFeed" in properties:
        feed = feed_of(spark, path)
        assert {row["day"] for (kind, id_), row in feed.items() if id_ == 1 and kind != "insert"} == {before[1]}


def test_an_update_computes_generated_columns_of_what_it_changes(spark, tmp_path, in_zone):
    path = str(tmp_path / "t")
    in_zone("Pacific/Auckland")
    generated_table(spark, path)
    before = {row["id"]: str(row["day"]) for row in spark.read.format("delta").load(path).collect()}
    DeltaTable.forPath(spark, path).update("id = 1", {"ts": "timestamp'2030-01-01 23:00:00'"})
    after = {row["id"]: str(row["day"]) for row in spark.read.format("delta").load(path).collect()}
    assert after == {**before, 1: "2030-01-01"}


# --- rows that do not add up -----------------------------------------------------------------------------------


class _Losing(SparkEngine):
    """Finds one row more than it hands on."""

    def write_updated(self, snapshot, files, rows, bound, *, copy_others):
        fewer = {place: type(found).of(found.positions()[1:]) for place, found in rows.items()}
        return super().write_updated(snapshot, files, fewer, bound, copy_others=copy_others)


@pytest.mark.parametrize("properties", [VECTORS, FEED], ids=["vectors", "feed"])
def test_an_update_whose_rows_do_not_add_up_leaves_no_trace(spark, tmp_path, properties):
    path = tmp_path / "t"
    save(spark.range(0, 100, 1, 1), str(path), **properties)
    before = sorted(str(item) for item in path.rglob("*") if item.is_file())
    with pytest.raises(RowsDoNotAddUpError, match="do not add up") as caught:
        update(DeltaLog.for_table(str(path)), _Losing(spark), [("id", "id + 1000")], "id < 10")
    assert caught.value.hint
    assert sorted(str(item) for item in path.rglob("*") if item.is_file()) == before
    assert spark.read.format("delta").load(str(path)).agg(F.sum("id")).first()[0] == 4950


# --- no table --------------------------------------------------------------------------------------------------

STATEMENTS = [
    "DELETE FROM delta.`{}`",
    "DELETE FROM delta.`{}` WHERE id = 1",
    "UPDATE delta.`{}` SET id = 1",
    "MERGE INTO delta.`{}` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE INTO delta.`{}` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "TRUNCATE TABLE delta.`{}`",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_on_no_table_says_so(spark, tmp_path, statement):
    with pytest.raises(AnalysisException, match="no Delta table") as caught:
        spark.sql(statement.format(tmp_path / "nothing"))
    assert caught.value.getCondition() == "PATH_NOT_FOUND"
    assert not (tmp_path / "nothing").exists()


def test_a_table_that_went_away_is_not_found_any_more(spark, tmp_path):
    import shutil

    path = tmp_path / "t"
    save(spark.range(3), str(path))
    table = DeltaTable.forPath(spark, str(path))
    shutil.rmtree(path)
    merge = table.alias("t").merge(spark.range(3).alias("s"), "t.id = s.id").whenMatchedDelete()
    for command in (table.delete, lambda: table.update(set={"id": "1"}), merge.execute):
        with pytest.raises(TableNotFoundError) as caught:
            command()
        assert isinstance(caught.value, AnalysisException)
