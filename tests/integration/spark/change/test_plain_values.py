"""Values of an UPDATE that are read without Spark are those that Spark resolves."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PySparkException

from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.spark.change.plain_values import read_plain_values
from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, other BIGINT, p INT, q INT, s STRING, t STRING, day DATE, h SMALLINT, x DOUBLE, y DOUBLE, b BOOLEAN, "
    "user STRING, current_date DATE, `null` INT, `true` BOOLEAN, c VARCHAR(3)"
)
NAMES = ["id", "other", "p", "q", "s", "t", "day", "h", "x", "y", "b", "user", "current_date", "null", "true", "c"]
ODD_NAMES = ["ID", "nope", "`id`", "current_user", "default", "`null`", "interval", "t.id"]
NUMBERS = ["0", "-0", "3", "-7", "007", "2147483647", "3000000000", "5L", "1.5"]
CONSTANTS = [*NUMBERS, "'abc'", "''", "'x y'", "'3'", "NULL"]
DATES = ["'2024-01-05'", "DATE'2024-01-05'", "true", "'it''s'", '"q"', "'a\\tb'"]


def text_of(rng):
    names = NAMES * 3 + ODD_NAMES
    space = rng.choice(["", " ", "  ", "\n"])
    one = rng.choice([*names, *CONSTANTS, *DATES])
    first = rng.choice(["id", "other", "p", "q", "x", "y"] * 12 + names)
    last = rng.choice(NUMBERS * 8 + CONSTANTS + names)
    added = f"{first}{space}{rng.choice('+-+-*/%')}{space}{last}"
    turned = f"{rng.choice(CONSTANTS)}{space}+{space}{rng.choice(names)}"
    text = rng.choice([one, added, added, turned, f"- {one}", f"{one} 1", f"{one} AS y"])
    return rng.choice([text, text, text, f" {text} ", f"({text})"])


@pytest.fixture(scope="module")
def snapshot(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("plain") / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (p, day)")
    return DeltaLog.for_table(path).update()


def drawn(seed, count):
    rng = random.Random(seed)
    targets = NAMES + ["id", "p", "s", "x"] * 5
    return sorted({(rng.choice(targets), text_of(rng)) for _ in range(count)})


def test_what_is_read_here_is_what_spark_resolves(spark, snapshot, monkeypatch):
    monkeypatch.setattr("pydelta.engines.spark.engine.read_plain_values", lambda *_: None)
    plain = {pair: read_plain_values([pair], snapshot.schema, {}) for pair in drawn(21, 25_000)}
    read = {pair: found for pair, found in plain.items() if found is not None}
    assert len(read) > 150
    assert len([pair for pair in read if "+" in pair[1]]) > 20
    for pair, found in read.items():
        with Jvm.of(spark).active():
            bound = SparkEngine(spark).bind_update(snapshot, None, [pair]).native
        assert bound.plain is None
        assert found == bound.exact(snapshot.schema), pair


def test_what_spark_refuses_is_not_read_here(spark, snapshot, monkeypatch):
    monkeypatch.setattr("pydelta.engines.spark.engine.read_plain_values", lambda *_: None)
    refused = 0
    for pair in drawn(22, 200):
        try:
            with Jvm.of(spark).active():
                SparkEngine(spark).bind_update(snapshot, None, [pair]).native.exact(snapshot.schema)
        except (DeltaError, NotHere):
            refused += 1
            assert read_plain_values([pair], snapshot.schema, {}) is None, pair
        except PySparkException:
            assert read_plain_values([pair], snapshot.schema, {}) is None, pair
    assert refused > 50


@pytest.mark.parametrize(
    ("given", "conf"),
    [
        ([("id", "7"), ("id", "8")], {}),
        ([], {}),
        ([("ID", "7")], {}),
        ([("id", 7)], {}),
        ([("id", "7"), ("x", "1.5")], {}),
        ([("id", "7")], {"spark.sql.ansi.enabled": "false"}),
    ],
    ids=["twice", "nothing", "another case", "no text", "one of two", "a setting"],
)
def test_what_is_not_plain_in_all_its_parts_is_left_to_spark(snapshot, given, conf):
    assert read_plain_values(given, snapshot.schema, conf) is None
    assert read_plain_values([("id", "7"), ("p", "q - 1")], snapshot.schema, {}).keys() == {"id", "p"}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


@pytest.fixture
def table(spark, path):
    frame = spark.range(0, 1000, 1, 2).selectExpr("id", "id * 2 AS v", "CAST(id AS STRING) AS s")
    frame.write.format("delta").save(path)
    return DeltaTable.forPath(spark, path)


def rows(table):
    return sorted(map(tuple, table.toDF().collect()))


@pytest.mark.parametrize("limit", ["0", None])
@pytest.mark.parametrize("condition", ["id BETWEEN 10 AND 19", "id % 100 = 7", None])
def test_spark_computes_the_same_values_where_it_has_to(spark, table, limit, condition):
    expected = [
        (row, row * 2 - 7, "a b") if condition is None or (row % 100 == 7 if "%" in condition else 10 <= row < 20)
        else (row, row * 2, str(row)) for row in range(1000)
    ]  # fmt: skip
    names = ["spark.pydelta.local.maxBytes", "spark.pydelta.local.changesMaxBytes"] if limit else []
    for name in names:
        spark.conf.set(name, limit)
    try:
        table.update(condition, {"v": "v - 7", "s": "'a b'"})
    finally:
        for name in names:
            spark.conf.unset(name)
    assert rows(table) == expected


def test_a_sum_that_overflows_is_refused_as_spark_refuses_it(spark, path, table):
    table.update("id = 3", {"v": str(2**31 - 1)})
    table.update("id = 3", {"id": "id + 1", "v": "id"})  # values of the row before it changes
    assert [row for row in rows(table) if row[2] == "3"] == [(4, 3, "3")]
    spark.sql(f"UPDATE delta.`{path}` SET v = {2**63 - 1} WHERE s = '3'")
    before = rows(table)
    with pytest.raises(Exception, match=r"(?i)overflow"):
        table.update("s = '3'", {"v": "v + 1"})
    assert rows(table) == before
