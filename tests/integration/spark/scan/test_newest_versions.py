"""A frame shows the newest version of its tables each time it is planned, within one query a single one."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RsTable
from deltalake import write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pydelta import DeltaTable, disable, enable
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.newest import follow_newest
from pydelta.errors import DeltaEnvironmentError, SchemaMismatchError
from pydelta.storage import registry
from pydelta.storage.local import LocalStore

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]
CHANGED = "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"


@pytest.fixture
def path(spark, tmp_path):
    spark.catalog.clearCache()
    target = str(tmp_path / "t")
    write_deltalake(target, pa.table({"id": list(range(10)), "p": [1] * 10}))
    yield target
    spark.catalog.clearCache()


def _load(spark, path, **options):
    return spark.read.format("delta").options(**options).load(path)


def _ids(frame):
    return sorted(row[0] for row in frame.select("id").collect())


def _replace(spark, path, *columns, **options):
    rows = spark.range(3).selectExpr(*columns)
    rows.write.format("delta").mode("overwrite").options(overwriteSchema=True).save(path, **options)


@pytest.fixture
def linked(monkeypatch):
    """A file system whose folders are what options link them to: neither the session nor another reader knows them."""

    def opened(uri, options):
        at = urlsplit(uri)
        link = options.get(f"fs.viewfs.mounttable.{at.netloc}.link./d")
        if link is None:
            raise DeltaEnvironmentError(f"{uri} has no link.", hint="Give the option.")
        return LocalStore(link + at.path.removeprefix("/d"))

    monkeypatch.setitem(registry._REGISTERED, "viewfs", opened)


@pytest.mark.parametrize("kind", ["rows", "a count", "a view"])
def test_a_frame_that_moves_keeps_the_options_of_its_reader(spark, path, linked, kind):
    lake = f"lake{abs(hash((path, kind)))}"
    options = {f"fs.viewfs.mounttable.{lake}.link./d": Path(path).parent.as_uri()}
    frame = _load(spark, f"viewfs://{lake}/d/t", **options)
    if kind == "a view":
        frame.createOrReplaceTempView("linked")

        def seen():
            return spark.sql("SELECT count(id), min(id) FROM linked").first()

    elif kind == "a count":

        def seen():
            return frame.count(), frame.agg(F.min("id")).first()[0]

    else:

        def seen():
            ids = _ids(frame)
            return len(ids), ids[0]

    assert tuple(seen()) == (10, 0)
    RsTable(path).delete("id < 7")
    assert tuple(seen()) == (3, 7)
    assert _ids(_load(spark, f"viewfs://{lake}/d/t@v0", **options)) == list(range(10))


CHANGES = {
    "this session deletes": lambda spark, path: DeltaTable.forPath(spark, path).delete("id < 7"),
    "another program deletes": lambda spark, path: RsTable(path).delete("id < 7"),
    "it overwrites": lambda spark, path: (
        spark.range(7, 10).withColumn("p", F.lit(1).cast("long")).write.format("delta").mode("overwrite").save(path)
    ),
    "it merges": lambda spark, path: spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 7 id) s ON t.id < s.id WHEN MATCHED THEN DELETE"
    ),
    "vectors hide rows": lambda spark, path: (
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 7"),
    ),
    "it is partitioned": lambda spark, path: (
        spark.range(7, 10).withColumn("p", F.lit(1).cast("long")).write.format("delta").mode("overwrite")
        .option("overwriteSchema", True).partitionBy("p").save(path)
    ),
    "it is made again": lambda spark, path: (
        shutil.rmtree(path), write_deltalake(path, pa.table({"id": [7, 8, 9], "p": [1] * 3}))
    ),
    "columns are added and reordered": lambda spark, path: (
        spark.range(7, 10).selectExpr("'x' AS more", "1L AS p", "id").write.format("delta").mode("overwrite")
        .option("overwriteSchema", True).save(path)
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_frame_that_is_kept_over_a_change_shows_the_rows_of_afterwards(spark, path, change):
    frame = _load(spark, path)
    derived, counted = frame.where("p = 1").select("id"), frame.agg(F.max("id"), F.count("*"))
    assert frame.count() == 10
    CHANGES[change](spark, path)
    assert (frame.count(), _ids(frame)) == (3, [7, 8, 9])
    assert (_ids(derived), counted.collect()) == ([7, 8, 9], [(9, 3)])
    assert [(row.id, row.p) for row in frame.orderBy("id").take(1)] == [(7, 1)]
    assert frame.select("id", "_metadata.file_name").count() == 3
    assert frame.columns == ["id", "p"]


LOST = {
    "a column is dropped": lambda spark, path: _replace(spark, path, "id"),
    "a type changes": lambda spark, path: _replace(spark, path, "id", "CAST(id AS STRING) AS p"),
    "a type grows": lambda spark, path: _replace(spark, path, "id", "CAST(id AS DECIMAL(30, 0)) AS p"),
    "a name changes its case": lambda spark, path: _replace(spark, path, "id", "1L AS P"),
    "the table is gone": lambda spark, path: shutil.rmtree(path),
    "a column is renamed": lambda spark, path: (
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN p TO q"),
    ),
    "a column is dropped and added again": lambda spark, path: (
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN p"),
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN p BIGINT"),
    ),
}


@pytest.mark.parametrize("change", list(LOST))
def test_a_frame_whose_columns_are_no_more_is_refused_by_the_engines_own_error(spark, path, change):
    frame = _load(spark, path)
    LOST[change](spark, path)
    for action in (frame.collect, frame.count, frame.select("id").collect):
        with pytest.raises(SchemaMismatchError) as raised:
            action()
        assert isinstance(raised.value, AnalysisException)
        assert raised.value.getCondition() == CHANGED


def test_a_struct_that_gained_a_field_is_read_as_it_was(spark, tmp_path):
    path = str(tmp_path / "t")
    narrow, wide = "named_struct('a', 1)", "named_struct('a', 2, 'b', 3)"
    spark.sql(f"SELECT 1 AS id, {narrow} AS s, array({narrow}) AS l").write.format("delta").save(path)
    frame = _load(spark, path)
    later = spark.sql(f"SELECT 2 AS id, {wide} AS s, array({wide}) AS l").write.format("delta").mode("append")
    later.option("mergeSchema", True).save(path)
    assert [(row.id, row.s.asDict(), row.l[0].asDict()) for row in frame.orderBy("id").collect()] == [
        (1, {"a": 1}, {"a": 1}),
        (2, {"a": 2}, {"a": 2}),
    ]


def test_a_join_of_two_frames_made_at_different_times_reads_one_version(spark, path):
    first = _load(spark, path)
    inner = spark.sql(f"SELECT id FROM delta.`{path}` WHERE id IN (SELECT id FROM delta.`{path}` WHERE id < 8)")
    RsTable(path).delete("id < 5")
    second = _load(spark, path)
    RsTable(path).delete("id = 5")
    assert _ids(first.join(second, "id")) == [6, 7, 8, 9]
    assert first.exceptAll(second).count() == 0
    assert _ids(inner) == [6, 7]


def test_a_join_with_a_named_version_reads_both(spark, path):
    now, then = _load(spark, path), _load(spark, path, versionAsOf=0)
    RsTable(path).delete("id < 5")
    assert _ids(then.join(now, "id", "left_anti")) == [0, 1, 2, 3, 4]
    assert (then.count(), now.count()) == (10, 5)


def test_overwriting_a_table_with_what_is_made_of_it_reads_one_version(spark, path):
    frame = _load(spark, path)
    RsTable(path).delete("id < 5")
    both = frame.select("id", "p").unionByName(frame.selectExpr("id + 100 AS id", "p"))
    both.write.format("delta").mode("overwrite").save(path)
    assert _ids(frame) == [5, 6, 7, 8, 9, 105, 106, 107, 108, 109]


def test_a_merge_reads_its_source_from_the_target_at_the_version_that_it_changes(spark, path):
    frame = _load(spark, path)
    RsTable(path).delete("id < 5")
    source = frame.selectExpr("id + 3 AS id", "p + 1 AS p")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert sorted(map(tuple, frame.select("id", "p").collect())) == [
        (5, 1), (6, 1), (7, 1), (8, 2), (9, 2), (10, 2), (11, 2), (12, 2),
    ]  # fmt: skip
    assert _ids(source) == [8, 9, 10, 11, 12, 13, 14, 15]


def test_a_frame_that_was_collected_keeps_that_plan_as_sparks_own_frames_do(spark, path):
    frame = _load(spark, path)
    assert len(frame.collect()) == 10
    RsTable(path).delete("id < 5")
    assert (len(frame.collect()), frame.count(), len(frame.select("id").collect())) == (10, 5, 5)


def test_what_another_program_changes_leaves_a_cached_frame_until_it_is_let_go(spark, path):
    frame = _load(spark, path).cache()
    assert frame.count() == 10
    RsTable(path).delete("id < 5")
    assert (frame.count(), _ids(frame.where("id > 2"))) == (10, [3, 4, 5, 6, 7, 8, 9])
    assert _load(spark, path).count() == 5
    frame.unpersist()
    assert (frame.count(), _ids(frame.where("id > 2"))) == (5, [5, 6, 7, 8, 9])


def test_a_frame_cached_after_another_program_changed_the_table_is_found_again(spark, path):
    frame = _load(spark, path)
    RsTable(path).delete("id < 5")
    frame.cache()
    assert frame.count() == 5
    RsTable(path).delete("id = 5")
    assert (frame.count(), frame.where("id > 5").count()) == (5, 4)
    DeltaTable.forPath(spark, path).delete("id = 6")
    assert (frame.count(), frame.where("id > 5").count()) == (3, 3)
    frame.unpersist()


def test_rows_that_were_kept_by_a_checkpoint_stay(spark, path):
    kept = _load(spark, path).localCheckpoint()
    RsTable(path).delete("id < 5")
    assert kept.count() == 10


def test_a_frame_stays_at_its_version_where_the_session_says_so(spark, path):
    spark.conf.set("spark.pydelta.read.pinned", "true")
    try:
        frame = _load(spark, path)
        RsTable(path).delete("id < 5")
        assert (frame.count(), len(frame.collect()), _load(spark, path).count()) == (10, 10, 5)
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN p")
        assert frame.select("p").count() == 10
    finally:
        spark.conf.unset("spark.pydelta.read.pinned")


def test_a_batch_of_a_stream_stays_as_it_is_and_a_static_side_is_read_again(spark, path, tmp_path):
    seen, static = [], _load(spark, path)

    def batch(frame, number):
        before = frame.count()
        spark.range(100, 103).withColumn("p", F.lit(1).cast("long")).write.format("delta").mode("append").save(path)
        seen.append((before, frame.count(), frame.join(static, "id").count(), static.count()))

    stream = spark.readStream.format("delta").load(path).writeStream.foreachBatch(batch)
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert seen == [(10, 10, 10, 13)]


def test_a_clone_of_the_session_moves_frames_too(spark, path):
    frame = _load(spark, path)
    other = spark.newSession()
    RsTable(path).delete("id < 5")
    numbers = other.range(20)
    assert numbers.join(frame, "id").count() == 5


def test_sessions_made_before_the_first_read_share_one_rule(spark):
    """A server's threads make sessions while others read for the first time."""
    context = spark.sparkContext
    root = SparkSession(context, Jvm.of(spark).view.org.apache.spark.sql.classic.SparkSession(context._jsc.sc()))
    enable(root)
    try:
        children = [SparkSession(context, root._jsparkSession.newSession()) for _ in range(2)]
        for session in (root, *children):
            jvm = Jvm.of(session)
            offered = jvm.session.extensions().buildPlanNormalizationRules(jvm.session)
            assert _count(jvm, offered) == 1
            follow_newest(jvm)
            assert _count(jvm, jvm.state.planNormalizationRules()) == 1
    finally:
        disable(root)


def _count(jvm, rules):
    return [str(rule.getClass().getSimpleName()) for rule in jvm.to_list(rules)].count("PydeltaNewestVersions")
