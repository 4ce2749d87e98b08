"""What a bound expression keeps, whatever becomes of clock, session and table between two jobs of one command."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import pydelta
from pydelta.engines.spark.change.binding import Moment, SparkColumns, bind_condition, bind_values
from pydelta.engines.spark.scan.scan import Extra, scan_dataframe
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

ZONES = "spark.sql.session.timeZone"
OF_THE_CLOCK = [
    "current_timestamp()", "now()", "localtimestamp()", "current_date()", "curdate()", "unix_timestamp()",
    "date_sub(current_date(), 3)", "extract(year FROM now())", "current_timestamp() - INTERVAL 5 DAYS",
    "current_timezone()", "current_user()", "session_user()", "current_database()", "current_catalog()",
]  # fmt: skip


@pytest.fixture
def rows(spark):
    return spark.range(3).selectExpr("id", "timestamp'2024-03-31 23:30:00' AS ts", "'a' AS s")


@pytest.fixture
def in_zone(spark):
    before = spark.conf.get(ZONES)
    yield lambda zone: spark.conf.set(ZONES, zone)
    spark.conf.set(ZONES, before)


def value(rows, *bound):
    return rows.select(*[item.column.alias(f"c{place}") for place, item in enumerate(bound)]).first()


def bound_to(moment, rows, *texts):
    return bind_values(moment, rows, [F.expr(text) for text in texts])


@pytest.mark.parametrize("text", OF_THE_CLOCK)
def test_what_depends_on_the_clock_or_the_session_is_a_literal(spark, rows, text):
    (bound,) = bind_values(Moment(spark), rows, [F.expr(text)])
    assert bound.expression.foldable()
    assert value(rows, bound) == value(rows, bound)


def test_all_expressions_of_one_moment_see_one_instant(spark, rows, in_zone):
    in_zone("Asia/Kathmandu")
    moment = Moment(spark)
    first, second = bind_values(moment, rows, [F.expr("current_timestamp()"), F.expr("localtimestamp()")])
    (third,) = bind_values(moment, rows, [F.expr("CAST(now() AS timestamp_ntz)")])
    later = bind_condition(moment, rows, F.expr("current_date() = CAST(now() AS date)"))
    found = value(rows, first, second, third, later)
    assert found["c1"] == found["c2"]
    assert found["c3"] is True
    framed = moment.frame(rows.select(F.current_timestamp().alias("at"), F.expr("(SELECT max(now())) AS inner")))
    assert set(framed.first()) == {found["c0"]}


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize("word", ["now", " Today", "YESTERDAY ", "tomorrow", "epoch", "today UTC"])
def test_a_word_for_a_time_stands_for_that_of_the_command(spark, rows, in_zone, monkeypatch, word, kind):
    in_zone("Pacific/Apia")
    moment = Moment(spark)
    monkeypatch.setattr(moment, "_instant", moment._instant.minusSeconds(50 * 3600))
    of_day, said = {"yesterday": -1, "tomorrow": 1}, word.strip().lower()
    wanted = f"CAST(date_add(current_date(), {of_day.get(said, 0)}) AS {kind})"
    if said == "now" and kind != "date":
        wanted = f"CAST(now() AS {kind})"
    if said == "epoch":
        start = "TIMESTAMP'1970-01-01 00:00:00Z'" if kind == "timestamp" else "DATE'1970-01-01'"
        wanted = f"CAST({start} AS {kind})"
    texts = [f"CAST('{word}' AS {kind})", f"CAST(concat('{word}', '') AS {kind})", wanted]
    bound = bound_to(moment, rows, *texts)
    assert len(set(value(rows, *bound))) == 1
    (inside,) = bind_values(
        moment, rows, [F.expr(f"coalesce(NULLIF(true, true), CAST('{word}' AS {kind}) = {wanted})")]
    )
    assert value(rows, inside)["c0"] is True
    framed = moment.frame(rows.selectExpr(f"(SELECT max(CAST('{word}' AS {kind}))) = {wanted} AS same"))
    assert framed.first()["same"] is True
    source = spark.range(1).selectExpr(f"CAST('{word}' AS {kind}) AS at")
    assert moment.source(source).first()["at"] == value(rows, *bound_to(moment, rows, wanted))["c0"]


def test_a_text_that_only_looks_like_a_word_for_a_time_is_what_it_was(spark, rows):
    texts = ["TRY_CAST('nowhere' AS timestamp)", "TRY_CAST('now UTC' AS timestamp)", "TRY_CAST(s AS date)"]
    assert set(value(rows, *bind_values(Moment(spark), rows, [F.expr(text) for text in texts]))) == {None}


def test_a_frame_over_another_moment_shows_another_instant(spark, rows):
    shown = rows.select(F.current_timestamp().alias("at"))
    assert Moment(spark).frame(shown).first() != Moment(spark).frame(shown).first()


def test_the_zone_is_the_one_that_the_expression_was_bound_in(spark, rows, in_zone):
    in_zone("Pacific/Apia")
    bound = bind_values(Moment(spark), rows, [F.expr("CAST(ts AS string)"), F.expr("current_timezone()")])
    before = value(rows, *bound)
    in_zone("America/New_York")
    assert value(rows, *bound) == before
    assert before["c1"] == "Pacific/Apia"


def test_a_function_and_a_variable_are_those_that_there_were(spark, rows):
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION is_large(x BIGINT) RETURNS BOOLEAN RETURN x > 1")
    spark.sql("DECLARE OR REPLACE VARIABLE least BIGINT = 1")
    moment = Moment(spark)
    bound = [bind_condition(moment, rows, F.expr(text)) for text in ("is_large(id) AND id < 9", "id >= least")]
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION is_large(x BIGINT) RETURNS BOOLEAN RETURN x > 9")
    spark.sql("SET VAR least = 2")
    assert [rows.filter(item.column).count() for item in bound] == [1, 2]


def test_the_text_is_as_the_user_wrote_it(spark, rows):
    bound = bind_condition(Moment(spark), rows, F.expr("ts < current_timestamp()"))
    assert bound.sql == "(ts < current_timestamp())"


@pytest.mark.parametrize("text", ["max(id)", "row_number() OVER (ORDER BY id)", "explode(array(1, 2))"])
def test_a_value_of_several_rows_is_refused(spark, rows, text):
    with pytest.raises(InvalidArgumentError, match="one row alone"):
        bind_values(Moment(spark), rows, [F.expr(text)])


def test_the_session_of_the_command_counts_not_the_active_one(spark, rows):
    other = spark.newSession()
    pydelta.disable(other)  # not the last of this process's sessions
    other.conf.set(ZONES, "Asia/Kathmandu")
    sessions = spark._jvm.org.apache.spark.sql.SparkSession
    there = other.range(1)
    sessions.setActiveSession(spark._jsparkSession)
    bound = bind_values(Moment(other), there, [F.expr("current_timezone()"), F.expr("current_date()")])
    assert value(there, *bound)["c0"] == "Asia/Kathmandu"
    assert sessions.active().equals(spark._jsparkSession)


@pytest.mark.parametrize("mode", ["none", "name"])
def test_later_scans_of_a_table_have_the_columns_that_an_expression_reads(spark, tmp_path, mode):
    path = str(tmp_path / "t")
    frame = spark.range(4).selectExpr("id", "named_struct('A', CAST(id AS int)) AS s", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").option("delta.columnMapping.mode", mode).save(path)
    snapshot = DeltaLog.for_table(path).snapshot()
    first = scan_dataframe(spark, snapshot, pinned=True).alias("t")
    bound = bind_condition(Moment(spark), first, F.expr("t.s.a > 0 AND p = 1"))
    columns = SparkColumns(first)
    columns.used_in(bound)
    later = columns.over(scan_dataframe(spark, snapshot, pinned=True, extra=Extra.ROW)).alias("other")
    assert sorted(row["id"] for row in later.filter(bound.column).collect()) == [1, 3]
    assert later.columns == [*first.columns, "__pydelta_row_index"]
