"""Spark's cache over our scans: a commit of this session rebuilds it, a version that was named stays."""

from __future__ import annotations

import contextlib
import io

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RsTable
from deltalake import write_deltalake
from pyspark.sql import functions as F

from pydelta.engines.spark.catalog.entries import create_entry
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.caches import _Entries, refresh_caches

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]


def _is_cached(frame) -> bool:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain()
    return "InMemoryTableScan" in out.getvalue() or "In-memory" in out.getvalue()


def _delete(spark, path, condition) -> int:
    """A commit, and what the engine does after each commit of its own."""
    RsTable(path).delete(condition)
    snapshot = log_for_path(spark, path).update()
    return refresh_caches(spark, snapshot.table_uri)


@pytest.fixture
def path(spark, tmp_path):
    spark.catalog.clearCache()
    target = str(tmp_path / "t")
    write_deltalake(target, pa.table({"id": list(range(10))}))
    yield target
    spark.catalog.clearCache()


@pytest.fixture
def pinned(spark):
    spark.conf.set("spark.pydelta.read.pinned", "true")
    yield
    spark.conf.unset("spark.pydelta.read.pinned")


def _load(spark, path):
    return spark.read.format("delta").load(path)


def test_cache_by_path_then_delete_then_read(spark, path):
    old = _load(spark, path).cache()
    assert old.count() == 10
    assert _is_cached(_load(spark, path))
    assert _delete(spark, path, "id < 4") == 1
    assert _load(spark, path).count() == 6
    assert _is_cached(_load(spark, path)), "the entry was rebuilt, not dropped"
    assert _is_cached(old)
    assert old.count() == 6, "what is cached follows"


def test_cache_table_by_name_then_delete_then_read(spark, path):
    spark.sql("DROP TABLE IF EXISTS cached_t")
    create_entry(spark, ("cached_t",), log_for_path(spark, path).update())
    try:
        spark.sql("CACHE TABLE cached_t")
        assert spark.catalog.isCached("cached_t")
        assert spark.table("cached_t").count() == 10
        assert _delete(spark, path, "id < 4") == 1
        assert spark.table("cached_t").count() == 6
        assert spark.sql("SELECT count(*) FROM cached_t").first()[0] == 6
        assert spark.catalog.isCached("cached_t")
        spark.sql("UNCACHE TABLE cached_t")
        assert not spark.catalog.isCached("cached_t")
    finally:
        spark.sql("DROP TABLE IF EXISTS cached_t")


def test_the_catalogs_own_cache_calls(spark, path):
    spark.sql("DROP TABLE IF EXISTS cached_c")
    create_entry(spark, ("cached_c",), log_for_path(spark, path).update())
    try:
        spark.catalog.cacheTable("cached_c")
        assert spark.catalog.isCached("cached_c")
        _delete(spark, path, "id = 0")
        assert spark.catalog.isCached("cached_c")
        assert spark.table("cached_c").count() == 9
        spark.catalog.uncacheTable("cached_c")
        assert not spark.catalog.isCached("cached_c")
    finally:
        spark.sql("DROP TABLE IF EXISTS cached_c")


def test_cache_of_a_temporary_view_then_delete_then_read(spark, path):
    _load(spark, path).where("id > 1").createOrReplaceTempView("cached_v")
    spark.sql("CACHE TABLE cached_v")
    assert spark.table("cached_v").count() == 8
    assert _delete(spark, path, "id < 4") == 1
    assert spark.table("cached_v").count() == 6
    assert _is_cached(spark.table("cached_v"))


def test_cache_over_a_named_version_stays(spark, path):
    frame = spark.read.format("delta").option("versionAsOf", 0).load(path).cache()
    assert frame.count() == 10
    assert _delete(spark, path, "id < 4") == 0
    assert _is_cached(spark.read.format("delta").option("versionAsOf", 0).load(path))
    assert frame.count() == 10


def test_an_aggregate_over_the_table_is_rebuilt_too(spark, path):
    _load(spark, path).groupBy().sum("id").cache().collect()
    assert _delete(spark, path, "id = 9") == 1
    again = _load(spark, path).groupBy().sum("id")
    assert _is_cached(again)
    assert again.first()[0] == 36


def test_cache_over_other_tables_is_left_alone(spark, path, tmp_path):
    other = str(tmp_path / "other")
    write_deltalake(other, pa.table({"id": [1]}))
    _load(spark, other).cache().count()
    assert _delete(spark, path, "id < 4") == 0
    assert _is_cached(_load(spark, other))


def test_an_entry_whose_table_changed_its_columns_is_dropped(spark, path):
    _load(spark, path).cache().count()
    write_deltalake(path, pa.table({"id": [1], "x": [2]}), mode="append", schema_mode="merge")
    snapshot = log_for_path(spark, path).update()
    assert refresh_caches(spark, snapshot.table_uri) == 1
    frame = _load(spark, path)
    assert not _is_cached(frame)
    assert frame.count() == 11


# --- frames that were cached --------------------------------------------------------------------------------

LAYOUTS = {"plain": "false", "vectors": "true"}


@pytest.fixture(params=list(LAYOUTS))
def table(request, spark, tmp_path):
    """Ten rows, with deletion vectors and without: a commit changes the shape of the scan, or does not."""
    spark.catalog.clearCache()
    target = str(tmp_path / "own")
    frame = spark.range(10).selectExpr("id", "id % 2 AS p").coalesce(1)
    frame.write.format("delta").option("delta.enableDeletionVectors", LAYOUTS[request.param]).save(target)
    yield target
    spark.catalog.clearCache()


def _ids(frame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def _entries(spark) -> int:
    return len(_Entries(spark).all())


def test_a_cached_frame_shows_what_this_session_commits(spark, table):
    frame, made_before = _load(spark, table).cache(), _load(spark, table)
    derived = frame.where("p = 1").select("id").persist()
    assert (frame.count(), derived.count()) == (10, 5)
    steps = (
        (f"DELETE FROM delta.`{table}` WHERE id < 5", [5, 6, 7, 8, 9]),
        (f"UPDATE delta.`{table}` SET id = id + 100 WHERE id = 5", [6, 7, 8, 9, 105]),
        (f"INSERT INTO delta.`{table}` VALUES (50, 0)", [6, 7, 8, 9, 50, 105]),
        (
            f"MERGE INTO delta.`{table}` t USING (SELECT 6L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
            [7, 8, 9, 50, 105],
        ),
        (f"INSERT OVERWRITE delta.`{table}` VALUES (1, 1), (2, 0)", [1, 2]),
    )
    for statement, expected in steps:
        spark.sql(statement)
        odd = [item for item in expected if item % 2]
        assert _ids(_load(spark, table)) == expected, statement
        assert _ids(frame) == expected, statement
        assert frame.count() == len(expected)
        assert frame.where("p = 1").count() == len(odd), "no count from the statistics of an older version"
        assert frame.agg({"id": "max"}).first()[0] == max(expected)
        assert _ids(frame.where("p = 1")) == _ids(derived) == odd
        assert _ids(frame.join(_load(spark, table), "id").select("id")) == expected
        assert _ids(made_before) == expected, "the same plan as the cached one, and so the same entry"
        assert _is_cached(frame) and _is_cached(derived) and _is_cached(_load(spark, table))
        assert _entries(spark) == 4, "two keys each, however many commits"


def test_a_frame_that_is_not_cached_stays_at_its_version_where_the_session_says_so(spark, table, pinned):
    frame = _load(spark, table)
    assert frame.count() == 10
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 5")
    assert (frame.count(), len(frame.collect()), frame.where("id >= 0").count()) == (10, 10, 10)
    assert _ids(_load(spark, table)) == [5, 6, 7, 8, 9]
    later = _load(spark, table)
    assert _ids(frame.join(later, "id").select("id")) == [5, 6, 7, 8, 9]
    assert _ids(frame.select("id").exceptAll(later.select("id"))) == [0, 1, 2, 3, 4]


def test_what_is_unpersisted_is_gone_under_both_keys(spark, table):
    for unpersist in (lambda frame: frame.unpersist(), lambda frame: _load(spark, table).unpersist()):
        frame = _load(spark, table).cache()
        rows = frame.count()
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id = {10 - rows}")
        assert frame.count() == rows - 1
        assert _entries(spark) == 2
        unpersist(frame)
        assert _entries(spark) == 0
        assert not _is_cached(frame)
        assert not _is_cached(_load(spark, table))
        assert frame.count() == rows - 1
        assert _load(spark, table).count() == rows - 1


def test_a_cached_join_of_two_tables_follows_both(spark, table, path):
    joined = _load(spark, table).join(_load(spark, path).withColumnRenamed("id", "other"), F.expr("id = other")).cache()
    assert joined.count() == 10
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 2")
    assert _ids(joined) == [2, 3, 4, 5, 6, 7, 8, 9]
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id > 8")
    assert _ids(joined) == [2, 3, 4, 5, 6, 7, 8], "the first table does not go back"
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 5")
    assert _ids(joined) == [2, 3, 4, 6, 7, 8]


def test_a_cached_self_join_of_two_versions_follows_where_none_was_named(spark, table):
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 0")
    named = spark.read.format("delta").option("versionAsOf", 0).load(table)
    gone = named.select("id").exceptAll(_load(spark, table).select("id")).cache()
    assert _ids(gone) == [0]
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    assert _ids(gone) == [0, 1]
    assert named.count() == 10


def test_a_frame_built_on_one_that_is_unpersisted_shows_the_newest_rows(spark, table):
    frame = _load(spark, table).cache()
    derived = frame.where("p = 1").cache()
    assert (frame.count(), derived.count()) == (10, 5)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 5")
    frame.unpersist()  # before any of the two is read anew
    assert derived.count() == 3
    assert _load(spark, table).where("p = 1").count() == 3
    derived.unpersist()
    assert _entries(spark) == 0


def test_views_and_names_share_the_entry_of_a_cached_frame(spark, table):
    frame = _load(spark, table).cache()
    frame.createOrReplaceTempView("over_cached")
    frame.count()
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 5")
    assert _is_cached(spark.table("over_cached"))
    assert _ids(spark.table("over_cached")) == _ids(frame) == [5, 6, 7, 8, 9]
    assert spark.sql("SELECT count(*) FROM over_cached").first()[0] == 5
    spark.catalog.dropTempView("over_cached")


def test_refresh_brings_what_another_program_committed(spark, path):
    spark.sql("DROP TABLE IF EXISTS refreshed")
    spark.sql(f"CREATE TABLE refreshed USING delta LOCATION '{path}'")
    frame = _load(spark, path).cache()
    try:
        for rows, refresh in (
            (9, lambda: spark.sql("REFRESH TABLE refreshed")),
            (8, lambda: spark.catalog.refreshTable("refreshed")),
            (7, lambda: spark.sql(f"REFRESH TABLE delta.`{path}`")),
        ):
            before = frame.count()
            RsTable(path).delete(f"id = {rows}")
            assert frame.count() == before
            assert _load(spark, path).count() == rows
            refresh()
            assert frame.count() == rows
    finally:
        spark.sql("DROP TABLE refreshed")
