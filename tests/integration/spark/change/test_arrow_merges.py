"""The same merges by Spark and in this process: the same rows, feeds, ids, counts and errors.

More cases, and others each time: ``PYDELTA_ARROW_EXAMPLES=50``.
"""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pytest
from both_ways import ANSI, LIMIT, SHAPES, ZONE, make, session, twice
from generated_changes import ZONES, tables
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pydelta.tables import DeltaTable

__all__ = ["session"]

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("PYDELTA_ARROW_EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 2,
    derandomize=not EXAMPLES,
    phases=(Phase.explicit, Phase.generate),  # a smaller example takes minutes to find
    suppress_health_check=list(HealthCheck),
)
_NAMES = itertools.count()
KEYS = ["t.id = s.id", "t.id = s.id AND t.p = s.p", "s.i = t.i AND s.id < t.id", "t.s = s.s", "t.day = s.day",
        "t.m = s.m AND s.ok", "t.h = s.y", "t.t = s.t AND t.id = s.id", "t.b = s.b"]  # fmt: skip
VALUES = [
    {"d": "s.d + t.d"}, {"s": "concat(t.s, s.s)"}, {"i": "coalesce(s.i, t.i)"}, {"l": "s.i"}, {"f": "-s.f", "d": "s.d"},
    {"t": "s.t", "n": "s.n", "day": "s.day"}, {"m": "s.m", "w": "s.w", "b": "s.b"}, {"st": "s.st"}, {"y": "s.y"},
    {"d": "CASE WHEN s.d > t.d THEN s.d ELSE NULL END"}, {"l": "t.l + s.l"}, {"s": "upper(s.s)"}, {"st.a": "s.s"},
    {"p": "s.p"}, {"d": "0.1"}, {"d": "s.i / 2"}, {"h": "s.id"}, {"s": "s.st.a"},
]  # fmt: skip


def counts(result):
    return (
        result.version, result.num_source_rows, result.num_updated_rows, result.num_deleted_rows,
        result.num_inserted_rows,
    )  # fmt: skip


@pytest.mark.damages_tables
@given(
    data=st.data(),
    key=st.sampled_from(KEYS),
    values=st.sampled_from(VALUES),
    star=st.booleans(),
    alone=st.booleans(),
    deletes=st.booleans(),
    shape=st.sampled_from(list(SHAPES)),
    zone=st.sampled_from(ZONES),
    ansi=st.booleans(),
)
@few
def test_any_merge_leaves_the_same(session, tmp_path, data, key, values, star, alone, deletes, shape, zone, ansi):
    path = str(tmp_path / f"t{next(_NAMES)}")
    properties, partition_by = SHAPES[shape]
    make(session, path, data.draw(tables(rows=16)), partition_by=partition_by, **properties)
    source = session.createDataFrame(data.draw(tables(rows=12))).selectExpr("* except (id)", "id + 6 AS id")
    session.conf.set(ZONE, zone)
    session.conf.set(ANSI, str(ansi).lower())

    def run(copy):
        builder = DeltaTable.forPath(session, copy).alias("t").merge(source.alias("s"), key)
        if deletes:
            builder = builder.whenMatchedDelete("s.id % 3 = 0")
        builder = builder.whenMatchedUpdateAll() if star else builder.whenMatchedUpdate(set=values)
        builder = builder.whenNotMatchedInsertAll("s.id > 8")
        if alone:
            builder = builder.whenNotMatchedBySourceDelete("t.id = 2")
        return counts(builder.execute())

    twice(session, path, run, shape)


def merged(session, path, source, *, key="t.id = s.id"):
    return DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), key)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_merge_of_every_shape_runs_here(session, tmp_path, shape):
    path = str(tmp_path / "t")
    properties, partition_by = SHAPES[shape]
    rows = pa.table({"id": range(40), "p": [str(n % 3) for n in range(40)], "v": [n / 2 for n in range(40)]})
    make(session, path, rows, partition_by=partition_by, **properties)
    source = session.range(30, 50, 1, 3).selectExpr("id", "cast(id % 3 as string) p", "cast(id as double) v")

    def run(copy):
        first = merged(session, copy, source, key="t.id = s.id AND t.v < 19")
        first = first.whenMatchedDelete("s.id = 31").whenMatchedUpdate(set={"v": "s.v + t.v"})
        first = first.whenNotMatchedInsertAll("s.id <> 45").whenNotMatchedBySourceDelete("t.id = 0")
        second = merged(session, copy, source).whenNotMatchedInsertAll()
        return counts(first.execute()), counts(second.execute())

    assert twice(session, path, run, shape) == ("arrow", "arrow")


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_move_to_other_partitions_here(session, tmp_path, shape):
    path = str(tmp_path / "t")
    properties, partition_by = SHAPES[shape]
    rows = pa.table({"id": range(40), "p": [str(n % 3) for n in range(40)], "v": [n / 2 for n in range(40)]})
    make(session, path, rows, partition_by=partition_by, **properties)
    source = session.range(20, 60, 1, 3).selectExpr("id", "if(id = 21, NULL, cast(id % 5 as string)) p", "0D AS v")

    def run(copy):
        first = merged(session, copy, source).whenMatchedDelete("s.id = 25")
        first = first.whenMatchedUpdate("s.id < 24", set={"v": "s.v"}).whenMatchedUpdateAll().whenNotMatchedInsertAll()
        first = first.whenNotMatchedBySourceUpdate("t.id < 5", {"p": "'old'", "v": "t.v + 1"})
        second = merged(session, copy, source).whenMatchedUpdate(set={"p": "if(s.id = 30, '', t.p)"})
        return counts(first.execute()), counts(second.execute())

    assert twice(session, path, run, shape) == ("arrow", "arrow")


@pytest.mark.damages_tables
def test_two_rows_for_one_fail_the_same_way(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": [1, 2], "v": [1.0, 2.0]}))
    source = session.createDataFrame(pa.table({"id": [1, 1], "v": [5.0, 6.0]}))

    def run(copy):
        try:
            merged(session, copy, source).whenMatchedUpdateAll().execute()
        except Exception as error:  # noqa: BLE001 - both ways must say the same
            return str(error).replace(copy, "PATH")

    told = []

    def telling(copy):
        told.append(run(copy))
        return told[-1]

    twice(session, path, telling, "plain")
    assert "id=1" in told[0]


@pytest.mark.parametrize(
    ("key", "values", "step", "reason"),
    [
        ("upper(t.s) = s.s", {"v": "s.v"}, "scannedBy", "Upper"),
        ("t.id < s.id", {"v": "s.v"}, "scannedBy", "a merge without an equality of keys"),
        ("t.v = s.v", {"s": "s.s"}, "scannedBy", "a merge without an equality of keys"),
        ("t.id = s.id", {"s": "length(s.s)"}, "scannedBy", "Length"),
    ],
)
def test_what_only_spark_merges_says_why(session, tmp_path, key, values, step, reason):
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "s": ["a", "bb"], "v": [1.0, 2.0]})
    make(session, path, rows)
    merged(session, path, session.createDataFrame(rows.slice(1)), key=key).whenMatchedUpdate(set=values).execute()
    last = DeltaTable.forPath(session, path).history(1).collect()[0]
    if last["operation"] == "MERGE":  # else no row matched and nothing was committed
        assert last["operationMetrics"][step] == f"spark: {reason}"
    else:
        assert key == "t.id < s.id" or key.startswith("upper")


def test_a_source_beyond_the_limit_is_spark_s(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(10), "s": ["a"] * 10}))
    session.conf.set(LIMIT, "200k")
    source = session.range(20_000).selectExpr("id", "repeat('x', 50) AS s")
    told = merged(session, path, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]
    assert (told["num_updated_rows"], told["num_inserted_rows"]) == (10, 19_990)
    metrics = DeltaTable.forPath(session, path).history(1).collect()[0]["operationMetrics"]
    assert metrics["scannedBy"].startswith("spark: a source of ")
    assert LIMIT in metrics["scannedBy"]
