"""A MERGE asks each question once, by one clock, changes what its clauses say and nothing else, and adds up."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from test_bound_once import FEED, VECTORS, around_now, feed_of, generated_table, in_zone, save  # noqa: F401

from pydelta.engines.spark.change.merge import SparkMerge
from pydelta.errors import ConstraintViolatedError, DeltaEnvironmentError, RowsDoNotAddUpError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

VARIANTS = {"copied": {}, "vectors": VECTORS, "feed": FEED, "both": {**VECTORS, **FEED}}


@pytest.fixture(params=list(VARIANTS))
def properties(request):
    return VARIANTS[request.param]


@pytest.fixture
def by_jobs(spark):
    """Merges of any size are Spark's: it is its plans that a test takes apart."""
    spark.conf.set("spark.pydelta.local.maxBytes", "0")
    yield
    spark.conf.unset("spark.pydelta.local.maxBytes")


def rows_of(spark, path):
    return spark.read.format("delta").load(path).collect()


def files_below(path):
    return sorted(str(item) for item in path.rglob("*") if item.is_file())


# --- one clock -------------------------------------------------------------------------------------------------


def test_a_merge_by_the_clock_doubles_and_loses_no_row(spark, tmp_path, properties):
    path = str(tmp_path / "t")
    around_now(spark, path, **properties)
    source = spark.range(7000).selectExpr("id", "current_timestamp() AS seen").alias("s")
    result = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(source, "t.id = s.id AND t.ts <= now()")
        .whenMatchedUpdate("t.ts < current_timestamp() - INTERVAL 2 SECONDS", {"v": "1", "ts": "current_timestamp()"})
        .whenMatchedDelete("t.ts >= current_timestamp() - INTERVAL 2 SECONDS")
        .whenNotMatchedInsert("s.seen = current_timestamp()", {"id": "s.id + 10000", "ts": "now()", "v": "2"})
        .run()
    )
    rows = rows_of(spark, path)
    (instant,) = {row["ts"] for row in rows if row["v"] > 0}  # of conditions, values and source alike
    kept = {row["id"]: row["ts"] for row in rows if row["v"] == 0}
    assert all(at > instant for at in kept.values())
    updated = {row["id"] for row in rows if row["v"] == 1}
    inserted = {row["id"] - 10000 for row in rows if row["v"] == 2}
    assert len(rows) == len(kept) + len(updated) + len(inserted)
    assert inserted == {*kept, *range(6000, 7000)}
    gone = set(range(6000)) - kept.keys() - updated
    assert (result.num_updated_rows, result.num_deleted_rows) == (len(updated), len(gone))
    assert result.num_inserted_rows == len(inserted)
    assert len(gone) in (100, 101)  # a row for each 20 ms
    if "delta.enableChangeDataFeed" in properties:
        feed = feed_of(spark, path)
        assert {id_ for kind, id_ in feed if kind == "delete"} == gone
        assert {id_ for kind, id_ in feed if kind == "update_preimage"} == updated
        assert {id_ for kind, id_ in feed if kind == "update_postimage"} == updated
        assert {id_ - 10000 for kind, id_ in feed if kind == "insert"} == inserted


def test_defaults_and_generated_columns_see_the_clock_of_the_clauses(spark, tmp_path):
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("ts", "TIMESTAMP")
    builder = builder.addColumn("made", "TIMESTAMP", generatedAlwaysAs="ts + INTERVAL 1 DAY")
    builder.property("delta.feature.allowColumnDefaults", "supported").execute()
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN noted TIMESTAMP")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN noted SET DEFAULT current_timestamp()")
    source = spark.range(3).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    merge.whenNotMatchedInsert(values={"id": "s.id", "ts": "current_timestamp()"}).execute()
    found = spark.read.format("delta").load(path)
    assert found.where("noted = ts AND made = ts + INTERVAL 1 DAY").count() == 3


# --- once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["upsert", "insert", "all"])
def test_the_source_is_computed_once(spark, tmp_path, properties, kind):
    path, calls = str(tmp_path / "t"), str(tmp_path / "calls")
    save(spark.range(0, 50, 1, 2).selectExpr("id", "0L AS v"), path, **properties)

    @F.udf("long")
    def counted(value: int) -> int:
        import os

        with open(calls, "ab") as file:
            file.write(b"x")
        return os.path.getsize(calls)

    source = spark.range(25, 75, 1, 1).select("id", counted("id").alias("v")).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll()
    if kind != "insert":
        merge = merge.whenMatchedUpdateAll()
    if kind == "all":
        merge = merge.whenNotMatchedBySourceUpdate("t.id < 5", {"v": "-1"})
    merge.execute()
    rows = {row["id"]: row["v"] for row in rows_of(spark, path)}
    from_source = [value for value in rows.values() if value > 0]
    assert len(rows) == 75
    assert len(set(from_source)) == len(from_source) == (25 if kind == "insert" else 50)
    assert (tmp_path / "calls").stat().st_size == 50


def test_a_condition_that_changes_its_mind_is_asked_once(spark, tmp_path, properties):
    path, calls = str(tmp_path / "t"), str(tmp_path / "calls")
    save(spark.range(0, 500, 1, 1).selectExpr("id", "0L AS v"), path, **properties)

    @F.udf("boolean")
    def undecided(value: int) -> bool:  # the other way round when it is asked again
        import os

        with open(calls, "ab") as file:
            file.write(b"x")
        return (value < 250) == (os.path.getsize(calls) <= 500)

    source = spark.range(500).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    result = merge.whenMatchedDelete(undecided(F.col("t.id"))).whenMatchedUpdate(set={"v": "1"}).run()
    assert {row["id"]: row["v"] for row in rows_of(spark, path)} == dict.fromkeys(range(250, 500), 1)
    assert (result.num_deleted_rows, result.num_updated_rows) == (250, 250)


def test_a_source_that_reads_the_table_itself_sees_it_as_it_was(spark, tmp_path, properties):
    path = str(tmp_path / "t")
    save(spark.range(0, 20, 1, 2).selectExpr("id", "id AS v"), path, **properties)
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT id + 10 AS id, v FROM delta.`{path}`) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT *"
    )
    rows = {row["id"]: row["v"] for row in rows_of(spark, path)}
    assert rows == {n: n if n < 10 else 2 * n - 10 if n < 20 else n - 10 for n in range(30)}


def test_a_cached_source_is_merged_as_it_was_cached(spark, tmp_path):
    path = str(tmp_path / "t")
    save(spark.range(0), path)
    source = spark.range(3).selectExpr("id", "uuid() AS u", "current_timestamp() AS ts").cache()
    try:
        before = {(row["id"], row["u"], row["ts"]) for row in source.collect()}
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenNotMatchedInsertAll().withSchemaEvolution().execute()
        assert {(row["id"], row["u"], row["ts"]) for row in rows_of(spark, path)} == before
    finally:
        source.unpersist()


def test_kept_rows_that_are_lost_fail_the_merge_and_are_not_made_again(
    spark, tmp_path, properties, monkeypatch, by_jobs
):
    path = tmp_path / "t"
    save(spark.range(0, 50, 1, 2).selectExpr("id", "0L AS v"), str(path), **properties)
    before = files_below(path)
    write = SparkMerge.write

    def after_a_loss(self, *args, **options):
        for kept in list(spark.sparkContext._jsc.getPersistentRDDs().values()):
            kept.unpersist(True)
        return write(self, *args, **options)

    monkeypatch.setattr(SparkMerge, "write", after_a_loss)
    source = spark.range(25, 75, 1, 1).selectExpr("id", "1L AS v").alias("s")
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(source, "t.id = s.id")
    with pytest.raises(DeltaEnvironmentError, match="lost") as caught:
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert caught.value.retryable
    assert files_below(path) == before


# --- what was not to change ------------------------------------------------------------------------------------


def days(spark, path):
    return {row["id"]: str(row["day"]) for row in rows_of(spark, path)}


def test_generated_columns_of_other_rows_are_copied(spark, tmp_path, in_zone, properties):  # noqa: F811
    path = str(tmp_path / "t")
    in_zone("Pacific/Auckland")
    generated_table(spark, path, **properties)
    before = days(spark, path)
    in_zone("Pacific/Honolulu")  # where it is another day
    source = spark.sql("SELECT 1L AS id UNION ALL SELECT 7L").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"v": "t.v + 101"})
    merge.whenNotMatchedInsert(values={"id": "s.id", "ts": "timestamp'2030-01-01 23:00:00'", "v": "0"}).execute()
    assert days(spark, path) == {**before, 7: "2030-01-01"}
    if "delta.enableChangeDataFeed" in properties:
        feed = feed_of(spark, path)
        assert {kind: str(row["day"]) for (kind, id_), row in feed.items() if id_ == 1 and kind != "insert"} == {
            "update_preimage": before[1],
            "update_postimage": before[1],
        }
    DeltaTable.forPath(spark, path).update("id = 2", {"v": "v + 101"})
    assert days(spark, path) == {**before, 7: "2030-01-01"}


def test_each_clause_decides_of_a_generated_column_for_itself(spark, tmp_path, in_zone):  # noqa: F811
    path = str(tmp_path / "t")
    in_zone("Pacific/Auckland")
    generated_table(spark, path)
    before = days(spark, path)
    in_zone("Pacific/Honolulu")
    source = spark.range(5).alias("s")

    def merge(day):
        return (
            DeltaTable.forPath(spark, path)
            .alias("t")
            .merge(source, "t.id = s.id")
            .whenMatchedUpdate("s.id = 0", {"ts": "timestamp'2031-01-01 23:00:00'", "day": f"date'{day}'"})
            .whenMatchedUpdate("s.id = 1", {"ts": "timestamp'2032-01-01 23:00:00'"})
            .whenMatchedUpdate("s.id = 2", {"v": "101"})
            .whenNotMatchedInsert("s.id = 3", {"id": "s.id", "ts": "timestamp'2033-01-01 22:00:00'"})
            .whenNotMatchedInsert(
                values={"id": "s.id", "ts": "timestamp'2034-01-01 22:00:00'", "day": "date'2034-01-01'"}
            )
        )

    with pytest.raises(ConstraintViolatedError, match="'day' must equal its generation expression"):
        merge("2031-01-02").execute()
    assert days(spark, path) == before
    merge("2031-01-01").execute()
    assert days(spark, path) == {0: "2031-01-01", 1: "2032-01-01", 2: before[2], 3: "2033-01-01", 4: "2034-01-01"}


def test_an_insert_that_no_row_can_pass_changes_nothing(spark, tmp_path, properties):
    path = str(tmp_path / "t")
    save(spark.range(0, 10, 1, 1).selectExpr("id", "0L AS v"), path, **properties)
    source = spark.range(5, 15, 1, 1).selectExpr("id", "1L AS v").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll("1 = 0").run()  # Spark drops that part of the plan
    assert (result.num_updated_rows, result.num_inserted_rows) == (5, 0)
    assert {row["id"]: row["v"] for row in rows_of(spark, path)} == {n: int(n > 4) for n in range(10)}


# --- rows that do not add up -----------------------------------------------------------------------------------


def forgets_a_change(merge, files, places, **options):
    merge._changes = merge._changes.where("__pydelta_c_row <> 3")
    return places


def forgets_a_pair(merge, files, places, **options):
    merge._paired = merge._paired.where("__pydelta_c_source <> 3")
    return places


def doubles_a_pair(merge, files, places, **options):
    merge._changes = merge._changes.unionAll(merge._changes.where("__pydelta_c_row = 3"))
    return places


def doubles_a_source_row(merge, files, places, **options):
    twice = merge._source.selectExpr("*", "explode(IF(id = 70, array(1, 2), array(1))) AS twice")
    merge._source = twice.drop("twice").alias("s")
    return places


@pytest.mark.parametrize("fault", [forgets_a_change, forgets_a_pair, doubles_a_pair, doubles_a_source_row])
def test_a_merge_whose_rows_do_not_add_up_leaves_no_trace(spark, tmp_path, properties, monkeypatch, by_jobs, fault):
    path = tmp_path / "t"
    save(spark.range(0, 50, 1, 1).selectExpr("id", "0L AS v"), str(path), **properties)
    before, write = files_below(path), SparkMerge.write

    def faulty(self, files, places, **options):
        return write(self, files, fault(self, files, places), **options)

    monkeypatch.setattr(SparkMerge, "write", faulty)
    source = spark.range(0, 75, 1, 1).selectExpr("id", "1L AS v").alias("s")
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(source, "t.id = s.id")
    with pytest.raises(RowsDoNotAddUpError, match="do not add up") as caught:
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert caught.value.hint
    assert files_below(path) == before
    monkeypatch.undo()
    result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_source_rows) == (50, 25, 75)
