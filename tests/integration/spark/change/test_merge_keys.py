"""Keys of a MERGE: of any type, in any zone and calendar; what narrows the files to read never decides what happens.

The model is Spark's own join over rows in memory, of which no file is left out.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from pydelta.errors import InvalidArgumentError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

BERLIN = "Europe/Berlin"


@pytest.fixture
def setting(spark):
    """Sets settings of the session, and puts them back."""
    before = {}

    def put(name, value):
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield put
    for name, value in before.items():
        spark.conf.set(name, value)


def rows_of(spark, values, start=0):
    """``k`` and ``v``, the place of the key."""
    return spark.sql(" UNION ALL ".join(f"SELECT {value} AS k, {start + at} AS v" for at, value in enumerate(values)))


def keyed(spark, path, values, *, partitioned=False):
    """A table of such rows, in as many files as there are rows."""
    rows = rows_of(spark, values)
    writer = rows.repartitionByRange(len(values), "v").write.format("delta")
    (writer.partitionBy("k") if partitioned else writer).save(path)
    return path


def upsert(spark, path, source, condition="t.k = s.k"):
    table = DeltaTable.forPath(spark, path).alias("t")
    builder = table.merge(source.alias("s"), condition)
    return builder.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values={"v": "s.v"}).run()


def texts(frame):
    """Rows as Spark itself shows them: no value crosses to Python."""
    return sorted((str(row[0]), row[1]) for row in frame.select(F.col("k").cast("string"), "v").collect())


def expected(target, source, condition="t.k = s.k"):
    """What an upsert of ``v`` makes of rows in memory; its numbers of updated and inserted rows."""
    both = target.alias("t").join(source.alias("s"), F.expr(condition), "left")
    updated = both.where("s.v IS NOT NULL").count()
    inserted = source.alias("s").join(target.alias("t"), F.expr(condition), "left_anti")
    after = both.selectExpr("t.k AS k", "coalesce(s.v, t.v) AS v").unionAll(inserted.selectExpr("NULL AS k", "v"))
    return texts(after), (updated, inserted.count())


MOMENTS = {
    "the first of the hours that autumn has twice": "timestamp_micros(1729989000000000)",
    "the second of them": "timestamp_micros(1729992600000000)",
    "an hour that spring leaves out": "timestamp '2024-03-31 02:30:00'",
    "before the first standard time": "timestamp '1850-06-01 00:00:00'",
    "before the calendar changed": "timestamp '1500-03-01 12:00:00'",
    "in the days that were left out": "timestamp '1582-10-10 00:00:00'",
    "the year 1": "timestamp '0001-01-01 00:00:00Z'",
    "the end of the year 9999": "timestamp '9999-12-31 23:59:59.999999Z'",
}
OUTSIDE = {
    "before the year 1": "timestamp_micros(-62167219200000001)",
    "after the year 9999": "timestamp_micros(253402300800000000)",
}


@pytest.mark.damages_tables  # delta-rs and Python have no such moments
@pytest.mark.parametrize("partitioned", [False, True], ids=["one folder", "a partition for each"])
@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/Sao_Paulo"])
def test_moments_of_any_calendar_find_their_rows(spark, tmp_path, setting, zone, partitioned):
    setting("spark.sql.session.timeZone", zone)
    moments = list((MOMENTS if partitioned else MOMENTS | OUTSIDE).values())
    path = keyed(spark, str(tmp_path / "t"), moments, partitioned=partitioned)
    for start, part in enumerate((moments[:2], moments[4:7], moments[-2:], moments)):
        result = upsert(spark, path, rows_of(spark, part, 100 * start))
        assert (part, result.num_updated_rows, result.num_inserted_rows) == (part, len(part), 0)
    assert texts(spark.read.format("delta").load(path)) == texts(rows_of(spark, moments, 300))


DAYS = ["date '0001-01-01'", "date '1500-02-28'", "date '1582-10-04'", "date '1582-10-10'", "date '1582-10-15'"]
DAYS += ["date '1900-01-01'", "date '9999-12-31'"]
WALLS = ["timestamp_ntz '0001-01-01 00:00:00'", "timestamp_ntz '1500-01-01 00:00:00'"]
WALLS += ["timestamp_ntz '2024-03-31 02:30:00'", "timestamp_ntz '9999-12-31 23:59:59.999999'"]
WIDE = ["99999999999999999999.999999999999999999BD", "-99999999999999999999.999999999999999998BD", "0BD"]
WIDE = [f"CAST({value} AS decimal(38,18))" for value in WIDE]
ALIKE = {
    "days": DAYS,
    "days outside": ["date_from_unix_date(-719529)", "date_from_unix_date(2932897)", "date '2000-01-01'"],
    "clocks without a zone": WALLS,
    "decimals": WIDE,
    "texts": ["''", "'a'", "'a '", "'A'", "concat('a', char(0))", "'\\u00e9'", "'\\uffff'", "'\\U0001F600'"],
    "bytes that are no text": ["CAST(X'FF' AS string)", "CAST(X'C3' AS string)", "'z'"],
    "doubles": ["double('NaN')", "0D", "1.5D", "double('-Infinity')"],
    "structs": ["struct(1 AS a, 'x' AS b)", "struct(1 AS a, NULL AS b)", "struct(2 AS a, 'x' AS b)"],
    "booleans": ["true", "false"],
    "bytes": ["X'00'", "X'00FF'"],
}


@pytest.mark.damages_tables  # as above
@pytest.mark.parametrize("kind", list(ALIKE))
def test_a_key_of_any_type_finds_its_rows(spark, tmp_path, setting, kind):
    setting("spark.sql.session.timeZone", BERLIN)
    path = keyed(spark, str(tmp_path / "t"), ALIKE[kind])
    for condition in ("t.k = s.k", "s.k <=> t.k"):
        target, source = rows_of(spark, ALIKE[kind]), rows_of(spark, ALIKE[kind], 50)
        after, counts = expected(target, source, condition)
        result = upsert(spark, path, source, condition)
        assert (result.num_updated_rows, result.num_inserted_rows) == counts
        assert counts == (len(ALIKE[kind]), 0)
        assert texts(spark.read.format("delta").load(path)) == after


DAY, NIGHT = "date '2024-10-27'", "timestamp '2024-10-27 00:00:00'"
UNLIKE = {
    "a narrowing cast": (["300L", "44L", "45L"], ["CAST(45 AS tinyint)"], "CAST(t.k AS tinyint) = s.k", False),
    "a cast that wraps": (["300L", "7L"], ["CAST(44 AS tinyint)"], "CAST(t.k AS tinyint) = s.k", False),
    "a widening cast": (["1", "2", "300"], ["2L", "5000000000L"], "t.k = s.k", True),
    "a table of wider values": (["1L", "5000000000L"], ["1", "7"], "t.k = s.k", True),
    "whole numbers and decimals": (["1", "2", "300"], ["2.00BD", "2.50BD"], "t.k = s.k", True),
    "a decimal cut short": (["1.26BD", "1.30BD"], ["1.3BD"], "CAST(t.k AS decimal(2,1)) = s.k", False),
    "numbers and texts": (["1", "2", "30"], ["'2'", "' 30'", "'5'"], "t.k = s.k", True),
    "numbers and texts, not ANSI": (["1", "2", "30"], ["'2'", "'x'", "'30'"], "t.k = s.k", False),
    "texts and numbers": (["'01'", "'2'", "'x'"], ["1", "2"], "t.k = s.k", False),
    "days and moments": ([DAY, "date '1500-01-01'"], [NIGHT], "t.k = s.k", True),
    "moments and days": ([NIGHT, "timestamp '2024-10-27 01:00:00'"], [DAY], "t.k = s.k", True),
    "moments and their days": (["timestamp '2024-10-27 23:00:00'"], [DAY], "CAST(t.k AS date) = s.k", True),
    "floats and doubles": (["0.1F", "1.5F"], ["1.5D", "0.1D"], "t.k = s.k", True),
    "zeros of both signs": (["0D", "1D"], ["-0D"], "t.k = s.k", True),
    "texts in any case": (["'a'", "'B'"], ["'A'", "'b'"], "t.k = upper(s.k) OR t.k = lower(s.k)", True),
    "texts in a collation of the condition": (["'a'", "'B'"], ["'A'"], "t.k COLLATE UTF8_LCASE = s.k", True),
    "a sum of both": (["1", "2", "3"], ["4"], "t.k + 1 = s.k", True),
    "a key and more": (["1", "2", "3"], ["2", "3"], "t.k = s.k AND t.v < 2 AND s.v > 0", True),
    "a key that is null": (["1", "NULL"], ["CAST(NULL AS int)"], "t.k = s.k", True),
    "a key that is null, null-safe": (["1", "NULL"], ["CAST(NULL AS int)"], "t.k <=> s.k", True),
    "keys of which one is null, null-safe": (["1", "NULL", "3"], ["3", "CAST(NULL AS int)"], "t.k <=> s.k", True),
}  # fmt: skip


@pytest.mark.parametrize("case", list(UNLIKE))
def test_keys_that_are_not_alike_match_as_in_a_join(spark, tmp_path, setting, case):
    setting("spark.sql.session.timeZone", BERLIN)
    ours, theirs, condition, ansi = UNLIKE[case]
    setting("spark.sql.ansi.enabled", str(ansi).lower())
    path = keyed(spark, str(tmp_path / "t"), ours)
    source = rows_of(spark, theirs, 50)
    after, counts = expected(rows_of(spark, ours), source, condition)
    result = upsert(spark, path, source, condition)
    assert (result.num_updated_rows, result.num_inserted_rows) == counts
    assert texts(spark.read.format("delta").load(path)) == after


def test_padded_and_limited_texts_match_as_in_a_join(spark, setting):
    spark.sql("DROP TABLE IF EXISTS merge_sized")
    spark.sql("CREATE TABLE merge_sized (c char(5), w varchar(5), v int) USING delta")
    try:
        spark.sql("INSERT INTO merge_sized VALUES ('a', 'a', 1), ('b ', 'b ', 2), ('ccccc', 'ccccc', 3)")
        counts = []
        for column, key in (("c", "'a'"), ("c", "'b'"), ("w", "'b'"), ("w", "'b '"), ("w", "'ccccc '")):
            joined = f"SELECT * FROM merge_sized t JOIN (SELECT {key} AS k) s ON t.{column} = s.k"
            matches = spark.sql(joined).count()
            done = spark.sql(
                f"MERGE INTO merge_sized t USING (SELECT {key} AS k) s ON t.{column} = s.k "
                "WHEN MATCHED THEN UPDATE SET v = v + 10"
            ).first()
            assert (column, key, done["num_updated_rows"]) == (column, key, matches)
            counts.append(matches)
        assert set(counts) == {0, 1}
    finally:
        spark.sql("DROP TABLE merge_sized")


def test_a_key_that_fails_for_rows_which_are_left_out_narrows_nothing(spark, tmp_path):
    path = keyed(spark, str(tmp_path / "t"), ["1", "2"])
    condition = "s.v < 51 AND t.k = CAST(s.k AS int)"
    result = upsert(spark, path, rows_of(spark, ["'2'", "'x'"], 50), condition)
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 1)


def test_a_function_of_the_user_in_the_key_narrows_nothing_and_merges(spark, tmp_path):
    path = keyed(spark, str(tmp_path / "t"), ["1", "2", "3"])
    twice = F.udf(lambda value: value * 2, "int")
    source = rows_of(spark, ["1", "5"], 50).alias("s")
    table = DeltaTable.forPath(spark, path).alias("t")
    builder = table.merge(source, F.col("t.k") == twice(F.col("s.k")))
    result = builder.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values={"k": "s.k", "v": "s.v"}).run()
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_candidate_files) == (1, 1, 3)
    mine = table.merge(source, twice(F.col("t.k")) == F.col("s.k")).whenMatchedDelete().run()
    assert (mine.num_deleted_rows, mine.num_candidate_files) == (0, 4)


@pytest.mark.parametrize(
    ("ours", "theirs", "condition", "files"),
    [
        (["1", "2", "300"], ["2L"], "t.k = s.k", 1),
        (["1", "2", "300"], ["2BD"], "s.k = t.k", 1),
        (["1", "2", "300"], ["1L", "300L"], "t.k = s.k", 2),
        (["1", "2", "NULL", "300"], ["1", "300", "CAST(NULL AS int)"], "t.k <=> s.k", 3),
        (["'a'", "'b'", "'c'"], ["'a'", "'c'"], "t.k = s.k", 2),
        (["1L", "2L", "300L"], ["1"], "t.k = s.k + 1", 1),
        (["'a'", "'b'", "'c'"], ["'B'"], "t.k = lower(s.k)", 1),
        (["1.26BD", "2.30BD"], ["1.26BD"], "t.k = s.k", 1),
        (["300L", "44L"], ["CAST(44 AS tinyint)"], "CAST(t.k AS tinyint) = s.k", 2),
        ([MOMENTS["the year 1"], MOMENTS["before the calendar changed"]], [MOMENTS["the year 1"]], "t.k = s.k", 1),
        (["date '1500-02-28'", "date '9999-12-31'"], ["date '9999-12-31'"], "t.k = s.k", 1),
        (WIDE, WIDE[:1], "t.k = s.k", 1),
        (WIDE, WIDE[1:2], "t.k = s.k", 1),
        (["1", "2", "NULL", "30"], ["2", "3"], "t.k <=> s.k", 1),
        (["1", "2", "NULL", "30"], ["2", "CAST(NULL AS int)"], "s.k <=> t.k", 2),
        (["1", "2", "NULL", "30"], ["CAST(NULL AS int)"], "t.k <=> s.k", 1),
        (["1", "2", "NULL", "30"], ["CAST(NULL AS int)"], "t.k = s.k", 0),
    ],
)
@pytest.mark.damages_tables  # as above
def test_only_files_in_the_range_of_the_keys_are_read(spark, tmp_path, setting, ours, theirs, condition, files):
    setting("spark.sql.ansi.enabled", "false")
    path = keyed(spark, str(tmp_path / "t"), ours)
    assert upsert(spark, path, rows_of(spark, theirs, 50), condition).num_candidate_files == files


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("timestamp_micros(253402300800000000)", "+10000-01-01 00:00:00"),
        ("timestamp '0001-01-01 00:00:00'", "0001-01-01 00:00:00"),
        ("date_from_unix_date(-719529)", "-0001-12-31"),
        ("struct(date '1500-02-28' AS a)", "{1500-02-28}"),
        ("CAST(X'FF' AS string)", "k="),
    ],
)
@pytest.mark.damages_tables  # as above
def test_a_key_that_python_cannot_hold_is_named_all_the_same(spark, tmp_path, key, shown):
    path = keyed(spark, str(tmp_path / "t"), [key])
    with pytest.raises(InvalidArgumentError, match="2 rows of the source would change the same row") as caught:
        upsert(spark, path, rows_of(spark, [key, key]))
    assert shown in str(caught.value)


@pytest.mark.parametrize("condition", ["k = date '1582-10-10'", "k IN (date '1582-10-10', date '9999-12-31')"])
def test_a_day_that_was_left_out_is_deleted_and_updated(spark, tmp_path, setting, condition):
    for vectors in ("false", "true"):
        path = str(tmp_path / f"t{vectors}")
        writer = rows_of(spark, DAYS[:-1]).coalesce(1).write.format("delta")
        writer.option("delta.enableDeletionVectors", vectors).save(path)
        setting("spark.sql.parquet.filterPushdown", "true")
        table = DeltaTable.forPath(spark, path)
        assert table.update(condition, {"v": "-1"}).num_updated_rows == 1
        assert spark.conf.get("spark.sql.parquet.filterPushdown") == "true"
        assert table.delete(condition).num_deleted_rows == 1
        assert [row[1] for row in texts(table.toDF())] == [0, 1, 2, 4, 5]
