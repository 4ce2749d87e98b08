"""Spark's cache over our scans: a commit of this session rebuilds it, a version that was named stays."""

from __future__ import annotations

import contextlib
import io

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RsTable
from deltalake import write_deltalake

from pydelta.spark.catalog_entries import create_entry
from pydelta.spark.facade import log_for_path
from pydelta.spark.refresh import refresh_after_commit

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
    return refresh_after_commit(spark, snapshot.table_uri, snapshot.metadata.id)


@pytest.fixture
def path(spark, tmp_path):
    spark.catalog.clearCache()
    target = str(tmp_path / "t")
    write_deltalake(target, pa.table({"id": list(range(10))}))
    yield target
    spark.catalog.clearCache()


def _load(spark, path):
    return spark.read.format("delta").load(path)


def test_cache_by_path_then_delete_then_read(spark, path):
    old = _load(spark, path).cache()
    assert old.count() == 10
    assert _is_cached(_load(spark, path))
    assert _delete(spark, path, "id < 4") == 1
    assert _load(spark, path).count() == 6
    assert _is_cached(_load(spark, path)), "the entry was rebuilt, not dropped"
    assert old.count() == 10, "a frame stays at its version"


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
    assert refresh_after_commit(spark, snapshot.table_uri, snapshot.metadata.id) == 1
    frame = _load(spark, path)
    assert not _is_cached(frame)
    assert frame.count() == 11
