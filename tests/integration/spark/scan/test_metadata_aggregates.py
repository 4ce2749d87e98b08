"""``count(*)``, ``min`` and ``max`` from the log: the same answers as a scan's, in one row that nothing is read for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark
SETTING = "spark.pydelta.read.metadataQuery"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def plan_of(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def reads_files(frame) -> bool:
    return "FileScan" in plan_of(frame)


def both(spark, run):
    """What a query gives with statistics and by a scan; and whether the first one read files."""
    frame = run()
    answered, read = [tuple(row) for row in frame.collect()], reads_files(frame)
    spark.conf.set(SETTING, "false")
    try:
        other = run()
        assert reads_files(other), "switched off it scans"
        scanned = [tuple(row) for row in other.collect()]
        assert frame.schema == other.schema, "names, types and nullability"
    finally:
        spark.conf.unset(SETTING)
    assert repr(answered) == repr(scanned)
    return answered, read


def check(spark, path, select, *, answered: bool):
    rows, read = both(spark, lambda: spark.sql(f"SELECT {select.replace('$t', f'delta.`{path}`')}"))
    assert read is not answered, (select, rows)
    return rows


ROWS = """
    SELECT id, CAST(id % 100 AS tinyint) AS small, CAST(id * 3 - 50 AS smallint) AS short, CAST(-id AS int) AS number,
        CASE WHEN id = 7 THEN -9223372036854775808 ELSE 9223372036854775807 - id END AS wide,
        date_add(DATE'2020-02-28', CAST(id AS int)) AS day,
        CASE WHEN id < 3 THEN CAST(null AS bigint) ELSE id END AS some, CAST(null AS int) AS never,
        concat('text ', id) AS text, CAST(id AS double) / 3 AS ratio, CAST(id AS decimal(10,2)) AS price,
        timestamp_micros(id) AS at, id % 2 = 0 AS even, named_struct('a', id) AS s,
        CAST(id % 3 AS int) AS p, concat("it's ", chr(97 + id % 3)) AS q
    FROM range(60)"""


def write(spark, path, rows=ROWS, partitions=("p", "q")):
    spark.sql(rows).coalesce(1).write.format("delta").partitionBy(*partitions).save(path)


def test_exact_statistics_are_the_answer(spark, path):
    write(spark, path)
    for select in (
        "count(*) FROM $t",
        "count(1) AS n, min(id), max(id) + 1 AS next, max(id) - min(id), min(small), max(small), "
        "min(short), max(short), min(number), max(number), min(wide), max(wide), min(day), max(day), "
        "min(some), max(some), min(p), max(p), min(q), max(q), min(never), max(never) FROM $t",
        "count(*), max(day) FROM $t WHERE p = 1",
        "count(*), min(id) FROM $t WHERE p IN (0, 2) AND q LIKE '%c'",
        "count(*), max(id) FROM $t WHERE p > 99",
        "count(*) FROM $t WHERE CAST(p AS string) = '1' OR q IS NULL",
        "max(x.d) FROM (SELECT day AS d, id FROM $t) x",
        "* FROM (SELECT max(id) AS m FROM $t) CROSS JOIN (SELECT count(*) AS n FROM $t)",
    ):
        check(spark, path, select, answered=True)


def test_what_only_a_scan_can_tell(spark, path):
    write(spark, path)
    for select in (
        "min(text), count(*) FROM $t",
        "max(ratio) FROM $t",
        "min(price) FROM $t",
        "max(at) FROM $t",
        "max(even) FROM $t",
        "max(s.a) FROM $t",
        "count(some) FROM $t",
        "count(DISTINCT id) FROM $t",
        "sum(id) FROM $t",
        "max(id + 1) FROM $t",
        "count(*) FILTER (WHERE id > 3) FROM $t",
        "count(*) FROM $t WHERE id > 3",
        "count(*) FROM $t WHERE p = 1 AND id > 3",
        "p, count(*) FROM $t GROUP BY p ORDER BY p",
        "count(*) FROM $t a JOIN $t b ON a.id = b.id",
        "count(*) FROM (SELECT * FROM $t LIMIT 7)",
        "count(*) FROM (SELECT DISTINCT p FROM $t)",
        "count(*) FROM (SELECT explode(array(1, 2)) FROM $t)",
        "(SELECT count(*) FROM $t a WHERE a.p = b.p) AS n FROM $t b ORDER BY n",
    ):
        frame = spark.sql(f"SELECT {select.replace('$t', f'delta.`{path}`')}")
        assert reads_files(frame), select


def test_values_that_statistics_hide(spark, path):
    """Each of these would be wrong if the bounds in the log were taken for values."""
    spark.sql("""SELECT * FROM VALUES
        (CAST('NaN' AS double), -0.0D, repeat('a', 40) || 'z', timestamp'2024-01-01 00:00:00.123456'),
        (1.0D, 0.0D, repeat('a', 40), timestamp'2024-01-01 00:00:00.123999') AS v(nan, zero, long, at)""").coalesce(
        1
    ).write.format("delta").save(path)
    rows = check(spark, path, "max(nan), min(zero), max(long), min(at), max(at) FROM $t", answered=False)
    assert (str(rows[0][0]), len(rows[0][2]), rows[0][4].microsecond) == ("nan", 41, 123999)


def test_an_empty_table(spark, path):
    write(spark, path, ROWS + " WHERE false")
    check(spark, path, "count(*), min(id), max(day), max(p) FROM $t", answered=True)


def test_live_vectors_leave_the_count(spark, path):
    write(spark, path)
    DeltaTable.forPath(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    DeltaTable.forPath(spark, path).delete("id = 59")
    assert DeltaLog.for_table(path).update().files.has_live_vectors()
    assert check(spark, path, "count(*) FROM $t", answered=True) == [(59,)]
    assert check(spark, path, "max(p) FROM $t", answered=True) == [(2,)]
    assert check(spark, path, "max(id) FROM $t", answered=False) == [(58,)]
    assert check(spark, path, "count(*), max(q) FROM $t WHERE p = 2", answered=True) == [(19, "it's c")]
    assert check(spark, path, "count(*) FROM $t WHERE p IN (0, 1)", answered=True) == [(40,)]
    assert check(spark, path, "count(*) FROM $t WHERE q IS NULL", answered=True) == [(0,)]
    check(spark, path, "count(*) FROM $t WHERE p = 2 AND id > 3", answered=False)
    assert spark.read.format("delta").load(path).count() == 59


def test_column_mapping_and_widening(spark, path):
    write(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN id TO `the id`")
    assert check(spark, path, "count(*), max(`the id`), min(p) FROM $t", answered=True) == [(60, 59, 0)]
    spark.sql("SELECT 1 AS added, 5L AS `the id`, 0 AS p, 'x' AS q").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).save(path)
    assert check(spark, path, "max(added) FROM $t", answered=False) == [(1,)]


def test_files_of_other_writers(spark, path):
    """Statistics that are missing, or said to be wide."""
    spark.range(10).coalesce(1).write.format("delta").save(path)
    commit = Path(path, "_delta_log", "00000000000000000000.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    (add,) = (line["add"] for line in lines if "add" in line)
    wide = {**json.loads(add["stats"]), "tightBounds": False, "maxValues": {"id": 11}}
    for stats, counted in ((wide, True), ({**wide, "numRecords": None}, False), (None, False)):
        add["stats"] = None if stats is None else json.dumps(stats)
        commit.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
        DeltaLog.clear_cache()
        check(spark, path, "max(id) FROM $t", answered=False)
        check(spark, path, "count(*) FROM $t", answered=counted)


def test_frames(spark, path):
    write(spark, path)
    frame = spark.read.format("delta").load(path)
    for run in (
        lambda: frame.agg(F.max("id"), F.count("*")),
        lambda: frame.where("p = 1").select("id", "p").agg(F.min("id").alias("least")),
        lambda: frame.agg({"day": "max"}),
        lambda: frame.selectExpr("count(*)", "max(id) + 1"),
        lambda: frame.select(F.count("*").alias("n")),
        lambda: frame.select([F.max("id"), F.lit(1)]),
    ):
        _, read = both(spark, run)
        assert not read
    spark.sparkContext.setJobGroup("counted", "no job is run")
    assert frame.count() == 60
    assert frame.where("p = 1").withColumn("x", F.rand()).count() == 20
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("counted") == []
    assert frame.select("id", "id").count() == 60
    assert reads_files(frame.select(F.count("some")))
    assert frame.where("id < 5").count() == 5
    assert frame.limit(3).count() == 3
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_an_older_version_is_answered_and_a_frame_shows_the_newest(spark, path):
    spark.range(4).write.format("delta").save(path)
    frame = spark.read.format("delta").load(path)
    spark.range(6).write.format("delta").mode("append").save(path)
    assert check(spark, path, "count(*) FROM $t VERSION AS OF 0", answered=True) == [(4,)]
    assert frame.count() == 10
    assert spark.read.format("delta").load(path).count() == 10


def test_a_view_of_an_answer_shows_later_versions(spark, path):
    spark.range(4).write.format("delta").save(path)
    spark.sql(f"SELECT count(*) AS n, max(id) AS m FROM delta.`{path}`").createOrReplaceTempView("answered_view")
    cached = spark.sql(f"SELECT count(*) AS n FROM delta.`{path}`")
    assert spark.sql("SELECT * FROM answered_view").collect() == [(4, 3)]
    spark.range(10).write.format("delta").mode("append").save(path)
    assert spark.sql("SELECT * FROM answered_view").collect() == [(14, 9)]
    assert cached.collect() == [(14,)]
    spark.catalog.dropTempView("answered_view")


def test_caching_a_frame_by_counting_it_fills_the_cache(spark, path):
    spark.range(4).write.format("delta").save(path)
    frame = spark.read.format("delta").load(path).cache()
    try:
        assert frame.count() == 4
        assert "InMemoryTableScan" in plan_of(frame)
        stored = [item for item in spark.sparkContext._jsc.sc().getRDDStorageInfo() if item.numCachedPartitions() > 0]
        assert stored
    finally:
        frame.unpersist()
