"""Conditions that are read without Spark mean what Spark makes of them, and show the same texts."""

from __future__ import annotations

import json
import random
import re

import pytest

from pydelta.engines.spark.change import plain_conditions
from pydelta.engines.spark.change.plain_conditions import read_plain
from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, p INT, s STRING, day DATE, h SMALLINT, x DOUBLE, b BOOLEAN, `a-b` INT, `date` DATE, user STRING, "
    "c VARCHAR(3)"
)
NAMES = [
    "id",
    "p",
    "s",
    "day",
    "h",
    "x",
    "b",
    "a-b",
    "`a-b`",
    "date",
    "user",
    "c",
    "ID",
    "nope",
    "true",
    "current_date",
]
CONSTANTS = [
    "0", "-0", "3", "-7", "007", "-007", "2147483647", "-2147483648", "3000000000", "5L", "1.5", "'abc'", "''", "'x y'",
    "'3'", "NULL", "'2024-01-05'", "'2024-1-5'", "'2024-02-30'", "'0001-01-01'", "'it''s'", "\"q\"", "'a\\tb'",
    "DATE'2024-01-05'", "true",
]  # fmt: skip
OPERATORS = ["=", "<", "<=", ">", ">=", "==", "<>", "!=", "<=>"]


def text_of(rng):
    def term():
        space = rng.choice(["", " ", "  ", "\n"])
        if rng.random() < 0.3:
            between, joined = rng.choice([("BETWEEN", "AND"), ("between", "and"), ("NOT BETWEEN", "AND")])
            texts, dates = ["'abc'", "''", "'x y'"], ["'2024-01-05'", "'0001-01-01'"]
            constants = rng.choice([CONSTANTS, CONSTANTS[:8], texts, dates])
            name = rng.choice(NAMES + ["id", "p", "s", "day"] * 4)
            return f"{name} {space}{between} {rng.choice(constants)}{space} {joined} {rng.choice(constants)}"
        return f"{rng.choice(NAMES)}{space}{rng.choice(OPERATORS[:5] * 3 + OPERATORS)}{space}{rng.choice(CONSTANTS)}"

    joined = rng.choice([" AND ", " and ", " AND ", "\tAnd\n", "and", " OR "])
    text = joined.join(term() for _ in range(rng.choice([1, 1, 2, 3])))
    return rng.choice([text, text, text, f" {text} ", f"({text})", f"NOT {text}"])


def without_numbers(text):
    return re.sub(r"#\d+", "#", text)


@pytest.fixture(scope="module")
def snapshot(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("plain") / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (p, day)")
    return DeltaLog.for_table(path).update()


def test_what_is_read_here_is_what_spark_resolves(spark, snapshot, monkeypatch):
    rng = random.Random(11)
    texts = {text_of(rng) for _ in range(8000)}
    plain = {text: read_plain(text, snapshot.schema, {}) for text in texts}
    read = sorted(text for text, found in plain.items() if found is not None)
    assert len(read) > 100
    assert len([text for text in read if "between" in text.lower()]) > 20
    here = {text: SparkEngine(spark).bind_condition(snapshot, text) for text in read}
    monkeypatch.setattr("pydelta.engines.spark.engine.read_plain", lambda *_: None)
    with Jvm.of(spark).active():
        for text in read:
            found, expected = here[text], SparkEngine(spark).bind_condition(snapshot, text)
            assert found.native.tree is not expected.native.tree
            assert found.sql == expected.sql, text
            assert without_numbers(found.shown) == without_numbers(expected.shown), text
            assert found.as_given == expected.as_given, text
            assert found.references == expected.references, text
            assert list(map(str, found.conjuncts)) == list(map(str, expected.conjuncts)), text
            assert found.native.tree.exact(snapshot.schema) == expected.native.tree.exact(snapshot.schema), text


def test_what_spark_refuses_is_not_read_here(spark, snapshot, monkeypatch):
    rng = random.Random(12)
    texts = sorted({text_of(rng) for _ in range(150)})
    monkeypatch.setattr("pydelta.engines.spark.engine.read_plain", lambda *_: None)
    refused = 0
    for text in texts:
        try:
            with Jvm.of(spark).active():
                SparkEngine(spark).bind_condition(snapshot, text)
        except DeltaError:
            refused += 1
            assert plain_conditions.read_plain(text, snapshot.schema, {}) is None, text
    assert refused > 20


@pytest.mark.parametrize(
    "setting",
    ["spark.sql.ansi.enabled", "spark.sql.parser.escapedStringLiterals", "spark.sql.legacy.setopsPrecedence.enabled"],
)
def test_a_setting_that_may_change_a_text_s_meaning_leaves_it_to_spark(snapshot, setting):
    assert read_plain("p = 3", snapshot.schema, {"spark.sql.shuffle.partitions": "2"}) is not None
    assert read_plain("p = 3", snapshot.schema, {setting: "true"}) is None


def test_rows_that_spark_must_find_are_found_by_the_same_condition(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(0, 1000, 1, 2).selectExpr("id", "CAST(id % 4 AS INT) AS p").write.format("delta").partitionBy("p").save(
        path
    )
    spark.conf.set("spark.pydelta.local.maxBytes", "0")
    spark.conf.set("spark.pydelta.local.changesMaxBytes", "0")
    try:
        table = DeltaTable.forPath(spark, path)
        table.delete("id < 100 AND p = 1")
        table.delete("p = 2")
    finally:
        spark.conf.unset("spark.pydelta.local.maxBytes")
        spark.conf.unset("spark.pydelta.local.changesMaxBytes")
    assert spark.read.format("delta").load(path).count() == 1000 - 25 - 250
    assert spark.read.format("delta").load(path).where("p = 2 OR (id < 100 AND p = 1)").count() == 0


def test_the_history_shows_the_condition_as_spark_does(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(10).write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    table.delete("id = 3")
    table.delete("id = 4 OR id = 5")
    shown = [row.operationParameters["predicate"] for row in table.history(2).select("operationParameters").collect()]
    assert [without_numbers(json.loads(text)[0]) for text in shown] == ["((id#L = 4) OR (id#L = 5))", "(id#L = 3)"]
