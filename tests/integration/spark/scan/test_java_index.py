"""Scans in the JVM: walks over plans call Python for some nodes only, and an index answers Spark without Python."""

from __future__ import annotations

import gc
import time
import weakref

import polars as pl
import pytest
from pyspark.sql import functions as F

import pydelta
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.index import find_index
from pydelta.engines.spark.scan.refresh import all_scans_in, indexes_in, map_expressions, transform

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path):
    target = str(tmp_path / "t\N{LATIN SMALL LETTER U WITH DIAERESIS} 1")
    pydelta.LocalTable.create(target, pl.DataFrame({"id": [1, 2], "v": ["a", "b"]}))
    return target


@pytest.fixture
def jvm(spark):
    return Jvm.of(spark)


def _plan(spark, text):
    return spark.sql(text)._jdf.queryExecution().analyzed()


def test_a_walk_calls_for_the_given_kinds_in_subqueries_too(spark, jvm):
    plan = _plan(spark, "SELECT id FROM (SELECT 1 AS id) WHERE id IN (SELECT max(id) FROM range(3)) LIMIT 5")
    every, some = [], []
    assert transform(jvm, plan, lambda _, name: every.append(name)).equals(plan)
    transform(jvm, plan, lambda _, name: some.append(name), ("Aggregate", "Filter"))
    assert {"GlobalLimit", "Project", "Filter", "Aggregate", "Range"} <= set(every)
    assert sorted(some) == ["Aggregate", "Filter"]


def test_a_walk_replaces_nodes_and_expressions(spark, jvm):
    plan = _plan(spark, "SELECT id + 1 AS n FROM range(3) LIMIT 2")
    without = transform(jvm, plan, lambda node, _: node.child().child(), ("GlobalLimit",))
    assert [row.n for row in jvm.frame(without).collect()] == [1, 2, 3]
    two = jvm.expression(F.lit(2))
    (item,) = jvm.to_list(without.projectList())
    changed = transform(jvm, item, lambda _node, _name: two, ("Literal",))
    assert changed.child().right().child().equals(two)
    names = []
    map_expressions(jvm, without, lambda _, name: names.append(name))
    assert names == ["Alias"]


def test_the_first_error_of_a_walk_is_raised_and_ends_it(spark, jvm):
    seen = []

    def failing(_, name):
        seen.append(name)
        raise KeyError(name)

    plan = _plan(spark, "SELECT id FROM range(3) LIMIT 2")
    with pytest.raises(KeyError, match="GlobalLimit"):
        transform(jvm, plan, failing)
    assert seen == ["GlobalLimit"]


def test_scans_of_one_version_are_equal(spark, jvm, path):
    frames = [spark.read.format("delta").load(path) for _ in range(2)]
    frames.append(spark.read.format("delta").option("versionAsOf", 0).load(path))
    pydelta.open(path).append(pl.DataFrame({"id": [3], "v": ["c"]}))
    frames.append(spark.read.format("delta").load(path))
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
    first, second, named, later = (plan.collectLeaves().head().relation().location() for plan in plans)
    assert first.equals(second)
    assert first.hashCode() == second.hashCode()
    assert first.equals(named)
    assert not first.equals(later)
    assert not first.equals(None)
    assert [bool(index.isTimeTravel()) for index in (first, named)] == [False, True]
    assert "version=0" in str(first.toString())
    assert find_index(first) is not find_index(second)
    assert [find_index(index).version_and_id[0] for index in (first, named, later)] == [0, 0, 1]
    roots = [str(item.toString()) for item in jvm.to_list(first.rootPaths())]
    assert roots[0].endswith("t\N{LATIN SMALL LETTER U WITH DIAERESIS} 1")
    assert roots[1] == f"{roots[0]}/_delta_log"
    assert len(list(first.inputFiles())) == 1
    assert first.sizeInBytes() < later.sizeInBytes()


def test_scans_are_found_in_subqueries(spark, jvm, path):
    plan = _plan(spark, f"SELECT 1 WHERE 2 IN (SELECT id FROM delta.`{path}`)")
    assert indexes_in(jvm, plan) == []
    assert [index.version_and_id[0] for index in all_scans_in(jvm, plan)] == [0]
    assert all_scans_in(jvm, _plan(spark, "SELECT 1 WHERE 2 IN (SELECT id FROM range(3))")) == []


def test_the_object_of_an_index_ends_with_it(spark, jvm, path):
    frame = spark.read.format("delta").load(path)
    (index,) = indexes_in(jvm, frame._jdf.queryExecution().analyzed())
    known = weakref.ref(index)
    del frame, index
    until = time.monotonic() + 60
    while known() is not None and time.monotonic() < until:
        pydelta.open(path).append(pl.DataFrame({"id": [4], "v": ["d"]}))
        spark.read.format("delta").load(path).collect()  # Caches of plans and of recent scans move on.
        gc.collect()
        jvm.view.java.lang.System.gc()
        time.sleep(0.2)
    assert known() is None
