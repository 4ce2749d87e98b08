"""A list becomes the same rows with and without the Python worker between PySpark and the JVM."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from pydelta.api.routing import local_lists
from pydelta.engines.spark.jvm import Jvm

pytestmark = pytest.mark.spark

SCHEMA = (
    "b boolean, i int, l long, d double, m decimal(20,3), s string, x binary, day date, t timestamp, n timestamp_ntz, "
    "a array<int>, k map<string, double>, st struct<a: int, b: array<string>>"
)


def value(rng, kind):
    made = {
        "b": lambda: rng.random() < 0.5,
        "i": lambda: rng.choice([0, -(2**31), 2**31 - 1, rng.randrange(1000)]),
        "l": lambda: rng.choice([2**63 - 1, -(2**63), rng.randrange(10**12)]),
        "d": lambda: rng.choice([0.1, -0.0, float("inf"), float("nan"), rng.random()]),
        "m": lambda: Decimal(rng.randrange(-(10**12), 10**12)).scaleb(-3),
        "s": lambda: rng.choice(["", "é中", "a\x00b", "x" * rng.randrange(50), "\U0001f600"]),
        "x": lambda: rng.choice([b"", b"\x00\xff", bytearray(b"abc")]),
        "day": lambda: dt.date(rng.randrange(1, 9999), 1, 1) + dt.timedelta(rng.randrange(300)),
        "t": lambda: dt.datetime(rng.randrange(1900, 2200), 3, 28, 2, 30, 0, rng.randrange(10**6), dt.UTC),
        "n": lambda: dt.datetime(rng.randrange(1900, 2200), 10, 31, 2, 30, 0, rng.randrange(10**6)),
        "a": lambda: [rng.choice([None, 1, -1]) for _ in range(rng.randrange(4))],
        "k": lambda: {str(number): rng.choice([None, 1.5]) for number in range(rng.randrange(3))},
        "st": lambda: rng.choice([Row(a=1, b=["x", None]), (None, []), {"a": 2, "b": None}]),
    }
    return None if rng.random() < 0.15 else made[kind]()


def rows(seed, count):
    rng = random.Random(seed)
    kinds = ["b", "i", "l", "d", "m", "s", "x", "day", "t", "n", "a", "k", "st"]
    return [tuple(value(rng, kind) for kind in kinds) for _ in range(count)]


def chain(spark, frame):
    """The kinds of RDD that the frame's rows come through."""
    jvm = Jvm.of(spark)
    (leaf,) = jvm.to_list(frame._jdf.queryExecution().analyzed().collectLeaves())
    rdd, kinds = leaf.rdd(), []
    while True:
        kinds.append(str(rdd.getClass().getSimpleName()))
        above = jvm.to_list(rdd.dependencies())
        if not above:
            return kinds
        rdd = above[0].rdd()


@pytest.mark.parametrize(("seed", "count"), [(1, 0), (2, 1), (3, 2), (4, 7), (5, 100), (6, 5000)])
def test_rows_of_every_type_arrive_as_through_the_worker(spark, monkeypatch, seed, count):
    data = rows(seed, count)
    direct = spark.createDataFrame(data, SCHEMA)
    monkeypatch.setattr(local_lists, "_is_pickled", lambda _: False)
    through = spark.createDataFrame(data, SCHEMA)
    assert "PythonRDD" not in chain(spark, direct)
    assert "PythonRDD" in chain(spark, through)
    assert direct.schema == through.schema
    assert direct.rdd.getNumPartitions() == through.rdd.getNumPartitions()
    assert repr(direct.collect()) == repr(through.collect())
    assert direct.count() == count


def test_inferred_types_and_names_arrive_as_through_the_worker(spark, monkeypatch):
    data = [Row(id=1, s="a", more={"x": 1}), Row(id=2, s=None, more=None)]
    direct = spark.createDataFrame(data)
    named = spark.createDataFrame([(1, "a"), (2, "b")], ["id", "s"])
    monkeypatch.setattr(local_lists, "_is_pickled", lambda _: False)
    assert direct.collect() == spark.createDataFrame(data).collect()
    assert named.collect() == spark.createDataFrame([(1, "a"), (2, "b")], ["id", "s"]).collect()


def test_rows_of_an_rdd_still_go_through_the_worker(spark):
    frame = spark.createDataFrame(spark.sparkContext.parallelize([1, 2, 3]).map(lambda n: (n * 2,)), "id long")
    assert [row.id for row in frame.collect()] == [2, 4, 6]
    assert "PythonRDD" in chain(spark, frame)


EXPRESSIONS = (
    "i", "l", "d", "m", "s", "x", "day", "t", "n", "a", "k", "st", "NOT b AS q", "i + 1 AS q", "l - i AS q",
    "d / 2 AS q", "CAST(m AS decimal(10,1)) AS q", "upper(s) || '!' AS q", "hex(x) AS q",
    "day + INTERVAL 1 MONTH AS q", "st.b[0] AS q", "date_trunc('HOUR', t) AS q", "CAST(t AS STRING) AS q",
    "CAST(n AS TIMESTAMP) AS q", "try_element_at(a, 1) AS q", "map_keys(k) AS q", "size(a) AS q",
    "coalesce(i, -1) AS q", "st.a IS NULL AS q", "parse_json('[1]') AS q", "x IS NULL AS q",
    "named_struct('one', s, 'two', d) AS q", "transform(a, e -> e * 2L) AS q", "CAST(s AS INT) AS q",
    "current_date() AS q", "INTERVAL '1' DAY * 2 IS NULL AS q", "d > 0 AND i < 5 AS q", "s LIKE '%x%' AS q",
    "CASE WHEN b THEN s ELSE 'é' END AS q",
)  # fmt: skip
CONDITIONS = ("true", "b", "i % 2 = 0", "s LIKE '%x%' OR s IS NULL", "d > 0.1", "day < DATE'2000-01-01'", "size(a) > 1")


def written(spark, frame, path):
    """What a write leaves: the rows as text, or the kind of its error, which may be any row's."""
    try:
        frame.write.format("delta").save(path)
    except PySparkException as error:
        return type(error).__name__, error.getCondition()
    table = spark.read.format("delta").load(path)
    texts = [f"to_json({name})" if kind == "variant" else name for name, kind in table.dtypes]
    return table.dtypes, sorted(repr(row) for row in table.selectExpr(*texts).collect())


@pytest.mark.damages_tables  # years that the other engine's Python cannot hold
@pytest.mark.parametrize("seed", range(12))
def test_columns_and_conditions_over_lists_are_written_as_by_a_job(spark, tmp_path, seed):
    rng = random.Random(100 + seed)
    frame = spark.createDataFrame(rows(seed, rng.choice([1, 5, 200])), SCHEMA)
    chosen = rng.sample(EXPRESSIONS, 4)
    named = [text.replace(" AS q", f" AS q{place}") for place, text in enumerate(chosen)]
    frame = frame.where(rng.choice(CONDITIONS)).selectExpr(*named)
    if rng.random() < 0.3:
        frame = frame.limit(500)
    found = []
    for bound in ("0", "64m"):
        spark.conf.set("spark.pydelta.local.maxBytes", bound)
        try:
            found.append(written(spark, frame, str(tmp_path / bound)))
        finally:
            spark.conf.unset("spark.pydelta.local.maxBytes")
    assert found[0] == found[1]
