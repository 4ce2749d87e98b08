"""Rows that the driver has already are written without a job of Spark's, and are the same rows as by one."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest
from pyspark.sql import Observation, Row
from pyspark.sql import functions as F

from pydelta.engines.spark.calls import Calls
from pydelta.engines.spark.write import in_driver as here
from pydelta.errors import ConstraintViolatedError, RowsDoNotAddUpError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

LIMIT = "spark.pydelta.local.maxBytes"
COLUMNS = (
    "b BOOLEAN, y TINYINT, h SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(10,2), w DECIMAL(38,0), s STRING, "
    "x BINARY, day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, a ARRAY<INT>, k MAP<STRING, INT>, st STRUCT<a: INT, b: STRING>, "
    "v VARIANT, c VARCHAR(3), p STRING, q INT"
)
ROWS = f"""
    (true, 1, 2, 3, 4, CAST('NaN' AS FLOAT), -0.0D, 1.50, {"9" * 38}, 'é', X'00FF', DATE'0001-01-01',
     TIMESTAMP'9999-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'1500-02-28 00:00:00', array(1, NULL), map('a', 1, 'b', NULL),
     named_struct('a', 1, 'b', NULL), parse_json('{{"a": [1, "x"]}}'), 'abc', 'a b/é', 1),
    ({", ".join(["NULL"] * 17)}, parse_json('1'), NULL, NULL, NULL),
    (false, -128, -32768, -2147483648, -9223372036854775808, -1.5, CAST('-Infinity' AS DOUBLE), -0.01, 0, '', X'',
     DATE'1582-10-14', TIMESTAMP'1850-01-01 00:00:00Z', TIMESTAMP_NTZ'9999-12-31 23:59:59', array(), map(),
     named_struct('a', NULL, 'b', ''), parse_json('null'), '', '', 2)
"""


@pytest.fixture
def limit(spark):
    """Sets the bound; it is put back afterwards."""
    yield lambda text: spark.conf.set(LIMIT, text)
    spark.conf.unset(LIMIT)


@pytest.fixture
def jobs(spark):
    """Counts the jobs of what a function does."""
    tracker = spark.sparkContext.statusTracker()

    def count(do):
        group = f"here-{id(do)}"
        spark.sparkContext.setJobGroup(group, "counted")
        try:
            do()
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        return len(tracker.getJobIdsForGroup(group))

    return count


def state(spark, path):
    frame = spark.read.format("delta").load(path)
    names = [
        f"hex({name})" if kind == "binary" else f"to_json({name})" if kind == "variant" else name
        for name, kind in frame.dtypes
    ]
    rows = frame.selectExpr(f"CAST(struct({', '.join(names)}) AS STRING) AS row").toArrow()
    return Counter(rows.column("row").to_pylist())


def statistics(path):
    snapshot = DeltaLog.for_table(path).update()
    names = re.compile("col-[0-9a-f-]{36}")  # of mapped columns, others in each table
    return {names.sub("col", add.stats) for add in snapshot.files.adds(snapshot.files.core)}


@pytest.mark.damages_tables  # years that the other engine's Python cannot hold
@pytest.mark.parametrize(
    "properties", ["", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true')"]
)
def test_values_of_every_type_are_what_a_job_writes(spark, tmp_path, limit, monkeypatch, properties):
    seen = []
    real = here.run_task
    monkeypatch.setattr(here, "run_task", lambda *args, **more: seen.append(1) or real(*args, **more))
    found = []
    for number, bound in enumerate(("0", "64m")):
        path = str(tmp_path / f"t{number}")
        spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (p, q) {properties}")
        limit(bound)
        spark.sql(f"INSERT INTO delta.`{path}` VALUES {ROWS}")
        found.append((state(spark, path), statistics(path)))
    assert seen == [1]
    assert found[0] == found[1]


def test_a_table_gets_one_file_and_a_history_that_counts(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, s STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    [record, _] = DeltaLog.for_table(path).history()
    metrics = record.commit_info.fields["operationMetrics"]
    assert (record.commit_info.operation, metrics["numFiles"], metrics["numOutputRows"]) == ("WRITE", "1", "3")


FRAMES = {
    "a range": (lambda spark: spark.range(1000), True),
    "a range with a condition": (lambda spark: spark.range(1000).where("id % 3 = 1"), True),
    "columns of a range": (lambda spark: spark.range(100).selectExpr("id * 2 AS id", "'é' AS s", "rand() AS r"), True),
    "a limit": (lambda spark: spark.range(1000).limit(7), True),
    "a list": (lambda spark: spark.createDataFrame([(1, "a"), (2, None)], "id long, s string"), True),
    "an empty list": (lambda spark: spark.createDataFrame([], "id long, s string"), True),
    "rows": (lambda spark: spark.createDataFrame([Row(id=1, s=Row(a=[1, 2], b={"x": 1.5}))]), True),
    "columns of a list": (lambda spark: spark.createDataFrame([(1,), (2,)], "id long").selectExpr("-id AS id"), True),
    "a list with more rows": (
        lambda spark: spark.createDataFrame(spark.sparkContext.parallelize([2, 3]).map(lambda n: (n,)), "id long"),
        True,
    ),
    "a range of some parts": (lambda spark: spark.range(0, 100, 1, 5), False),
    "a list of some parts": (
        lambda spark: spark.createDataFrame(spark.sparkContext.parallelize([(1,), (2,)], 5), "id long"),
        False,
    ),
    "a long range": (lambda spark: spark.range(1_000_000), False),
    "a long list": (lambda spark: spark.createDataFrame([("x" * 3_000_000,)] * 2, "s string"), False),
    "a shuffle": (lambda spark: spark.range(100).repartition(3), False),
    "a sum": (lambda spark: spark.range(100).groupBy((F.col("id") % 3).alias("id")).count(), False),
    "more rows from each": (lambda spark: spark.range(10).selectExpr("explode(sequence(0, id)) AS id"), False),
    "a function of Python's": (
        lambda spark: spark.range(10).select(F.udf(lambda n: n + 1, "long")("id").alias("id")),
        False,
    ),
    "an observation": (lambda spark: spark.range(10).observe(Observation(), F.count("*").alias("n")), False),
    "two together": (lambda spark: spark.range(5).union(spark.range(5)), False),
}


@pytest.mark.parametrize("name", FRAMES)
def test_small_frames_are_written_here_as_by_a_job(spark, tmp_path, limit, monkeypatch, name):
    build, here_too = FRAMES[name]
    seen = []
    real = here.run_task
    monkeypatch.setattr(here, "run_task", lambda *args, **more: seen.append(1) or real(*args, **more))
    frame = build(spark)
    found = []
    for number, bound in enumerate(("0", "64m")):
        limit(bound)
        path = str(tmp_path / f"t{number}")
        frame.write.format("delta").save(path)
        table = spark.read.format("delta").load(path)
        found.append((table.drop("r").dtypes, state(spark, path) if "r" not in table.columns else table.count()))
    assert seen == [1] * here_too
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name, (_, here_too) in FRAMES.items() if here_too])
def test_rows_that_the_driver_has_need_no_job(spark, tmp_path, jobs, name):
    path = str(tmp_path / "t")
    frame = FRAMES[name][0](spark)
    count = jobs(lambda: frame.write.format("delta").save(path))
    if name in ("columns of a range", "a list with more rows"):  # Random numbers, and a Python function.
        assert count > 0
    else:
        assert count == 0


def test_long_texts_in_few_rows_do_not_cross_as_one_answer(spark, tmp_path, monkeypatch):
    answers = []
    real = Calls.rows_at_hand

    def seen(calls, rows, **bounds):
        answers.append(real(calls, rows, **bounds))
        return answers[-1]

    monkeypatch.setattr(Calls, "rows_at_hand", seen)
    path = str(tmp_path / "t")
    text = "repeat('x', 3000000)"
    spark.sql(f"SELECT * FROM VALUES ({text}), ({text}), ({text}), ('y') AS v(s)").write.format("delta").save(path)
    assert answers == [(None, 4)]
    lengths = spark.read.format("delta").load(path).selectExpr("length(s) AS n")
    assert Counter(row.n for row in lengths.collect()) == {3_000_000: 3, 1: 1}


def test_a_cached_list_is_computed_once(spark, tmp_path, jobs):
    calls = spark.sparkContext.accumulator(0)

    def counted(row):
        calls.add(1)
        return row

    rows = spark.sparkContext.parallelize([(1,), (2,)]).map(counted).cache()
    frame = spark.createDataFrame(rows, "id long")
    assert frame.count() == 2
    frame.write.format("delta").save(str(tmp_path / "t"))
    assert calls.value == 2
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 2


def test_what_may_differ_between_two_evaluations_is_evaluated_once(spark, tmp_path):
    path, calls = str(tmp_path / "t"), spark.sparkContext.accumulator(0)

    def once(number):
        calls.add(1)
        return (number, time.time_ns())

    frame = spark.createDataFrame(spark.sparkContext.parallelize(range(10)).map(once), "id long, at long")
    frame.write.format("delta").save(path)
    assert calls.value == 10
    assert spark.read.format("delta").load(path).count() == 10


def test_rows_that_must_be_computed_are_a_job_s(spark, tmp_path, jobs, monkeypatch):
    monkeypatch.setattr(here, "run_task", lambda *args, **more: pytest.fail("written here"))
    path = str(tmp_path / "t")
    spark.range(5).repartition(1).write.format("delta").save(path)
    assert jobs(lambda: spark.sql(f"INSERT INTO delta.`{path}` SELECT id + 1 FROM delta.`{path}`")) > 0
    assert spark.read.format("delta").load(path).count() == 10


def test_a_bound_of_zero_and_more_bytes_than_the_bound_are_a_job_s(spark, tmp_path, limit, monkeypatch):
    monkeypatch.setattr(here, "run_task", lambda *args, **more: pytest.fail("written here"))
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT) USING delta")
    for bound in ("0", "10"):
        limit(bound)
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (1), (2), (3)")
    assert spark.read.format("delta").load(path).count() == 6


def test_what_fails_here_is_said_as_a_job_says_it(spark, tmp_path, limit):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT NOT NULL, s STRING) USING delta")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (id > 0)")
    for text in ("(-1, 'a')", "(NULL, 'a')"):
        said = []
        for bound in ("0", "64m"):
            limit(bound)
            with pytest.raises(ConstraintViolatedError) as caught:
                spark.sql(f"INSERT INTO delta.`{path}` VALUES {text}")
            said.append(str(caught.value))
        assert said[0] == said[1]
    assert DeltaLog.for_table(path).update().version == 1


def test_a_file_that_holds_other_rows_is_not_committed(spark, tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT) USING delta")
    real = Calls.rows_at_hand

    def fewer(calls, rows, **bounds):
        table, count = real(calls, rows, **bounds)
        return table, count + 1

    monkeypatch.setattr(Calls, "rows_at_hand", fewer)
    with pytest.raises(RowsDoNotAddUpError, match="4 rows, but gave only 3"):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (1), (2), (3)")
    assert DeltaLog.for_table(path).update().version == 0
