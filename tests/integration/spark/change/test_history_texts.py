"""What the history says of conditions, counts and definitions."""

from __future__ import annotations

import json
import re

import pytest

import pydelta.engines.spark.engine as engine_module
from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable


def entry(spark, name):
    row = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").first()
    assert row is not None
    return row


def predicates(spark, name, key="predicate"):
    """The texts without the numbers of columns."""
    found = json.loads(entry(spark, name).operationParameters[key])
    texts = [item if isinstance(item, str) else item.get("predicate", "") for item in found]
    return [re.sub(r"#\d+L?", "#", text) for text in texts]


@pytest.fixture
def table(spark):
    spark.sql("CREATE OR REPLACE TABLE texts (id INT, v STRING, n DOUBLE) USING delta")
    spark.sql("INSERT INTO texts SELECT id, 'a', id FROM range(0, 10, 1, 1)")
    yield "texts"
    spark.sql("DROP TABLE texts")


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("id = 1 + 1", "(id# = 2)"),
        ("v LIKE 'a%' AND id = 3", "(StartsWith(v#, a) AND (id# = 3))"),
        ("coalesce(n, 0) = 4", "(coalesce(n#, 0.0) = 4.0)"),
        ("NOT (id <> 5)", "(id# = 5)"),
    ],
)
def test_a_condition_is_shown_as_spark_plans_it(spark, table, condition, text):
    spark.sql(f"UPDATE {table} SET v = 'z' WHERE {condition}")
    assert predicates(spark, table) == [text]


PLAIN = (
    "b = CAST(5 AS TINYINT)", "5 = i", "i = 5", "l = 5", "i < 2 + 3", "f = 1.5F", "x >= -0.0", "x = double('NaN')",
    "d = 1.50BD", "d > 1", "s = 'a b'", "s < ''", "day = DATE'2024-02-29'", "day <= '2024-02-29'",
    "at > '2024-02-29 01:02:03.5'", "at = TIMESTAMP'1500-01-01 00:00:00'", "ntz = TIMESTAMP_NTZ'2024-01-01 00:00:00'",
    "bin = X'00FF'", "i = 5 AND s = 'x'", "i = 5 AND (s = 'x' AND l < 7)", "c = 'ab'", "s COLLATE UTF8_LCASE = 'A'",
    "req = 3", "i = NULL", "flag = true", "flag", "req IS NULL", "i = 5 AND i = 5", "i > 5 AND i <= 5",
    "i > 1 AND i > 2", "l > 1 OR l = 0", "l = 5.0", "s = 5", "i <=> 5", "i <=> NULL", "NOT (i < 3)", "i IN (1, 2)",
    "i IN (1)", "n.i = 4", "at = '2024-01-01' AND at < TIMESTAMP'2025-01-01 00:00:00'", "i = rand(3) * 0",
)  # fmt: skip


@pytest.fixture(scope="module")
def all_types(spark):
    spark.sql(
        "CREATE TABLE shown_types (b TINYINT, i INT, l BIGINT, f FLOAT, x DOUBLE, d DECIMAL(10, 2), s STRING, "
        "day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, bin BINARY, flag BOOLEAN, c CHAR(4), "
        "req INT NOT NULL, n STRUCT<i: INT>) USING delta"
    )
    yield DeltaLog.for_table(DeltaTable.forName(spark, "shown_types").detail().first()["location"]).update()
    spark.sql("DROP TABLE shown_types")


@pytest.mark.parametrize("condition", PLAIN)
def test_what_is_shown_without_the_optimizer_is_what_it_would_show(spark, all_types, condition, monkeypatch):
    engine = SparkEngine(spark)
    texts = []
    for decide in (engine_module.is_shown_as_it_is, lambda tree: False):
        monkeypatch.setattr(engine_module, "is_shown_as_it_is", decide)
        try:
            texts.append(re.sub(r"#\d+L?", "#", engine.bind_condition(all_types, condition).shown))
        except InvalidArgumentError as error:  # one that is not deterministic
            texts.append(type(error))
    assert texts[0] == texts[1]


def test_plain_comparisons_do_not_ask_the_optimizer(spark, all_types, monkeypatch):
    monkeypatch.setattr(engine_module, "shown", None)
    for condition in ("i = 2 + 3", "l > 1 AND s = 'x'"):
        SparkEngine(spark).bind_condition(all_types, condition)


def test_columns_of_one_name_differ_by_their_numbers(spark, table):
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT CAST(id AS INT) AS id FROM range(8, 12)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 8 THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET v = 'n' "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE"
    )
    row = entry(spark, table)
    (text,) = json.loads(row.operationParameters["predicate"])
    numbers = re.findall(r"#(\d+)", text)
    assert len(set(numbers)) == 2
    assert f"(id#{numbers[1]} = 8)" in row.operationParameters["matchedPredicates"]
    counts = row.operationMetrics
    names = ("MatchedUpdated", "MatchedDeleted", "NotMatchedBySourceUpdated", "NotMatchedBySourceDeleted", "Inserted")
    assert [counts[f"numTargetRows{name}"] for name in names] == ["0", "1", "1", "1", "2"]
    assert int(counts["materializeSourceTimeMs"]) >= 0


def test_rows_of_the_table_itself_are_no_blind_append(spark, table):
    assert entry(spark, table).isBlindAppend is True
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 1")
    assert entry(spark, table).isBlindAppend is False
    spark.sql(f"INSERT INTO {table} SELECT 1, 'a', (SELECT max(n) FROM {table})")
    assert entry(spark, table).isBlindAppend is False


def test_a_definition_says_what_it_is_not(spark, table):
    spark.sql(f"CREATE OR REPLACE TABLE {table} (id INT) USING delta")
    found = entry(spark, table).operationParameters
    assert found == {
        "isManaged": "true",
        "description": None,
        "partitionBy": "[]",
        "clusterBy": "[]",
        "properties": "{}",
    }


def test_every_row_goes(spark, table):
    spark.sql(f"DELETE FROM {table}")
    assert predicates(spark, table) == ["true"]
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 1)")
    DeltaTable.forName(spark, table).delete()
    assert predicates(spark, table) == ["true"]
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 1)")
    spark.sql(f"TRUNCATE TABLE {table}")
    row = entry(spark, table)
    assert (row.operation, row.operationParameters, row.operationMetrics["numRemovedFiles"]) == ("TRUNCATE", {}, "1")


def test_counts_of_commands_may_be_null(spark, table):
    frame = spark.sql(f"DELETE FROM {table} WHERE id = 1")
    assert (frame.schema["num_affected_rows"].nullable, frame.first()[0]) == (True, 1)


def test_a_property_that_is_not_there_is_unset_without_an_error(spark, table):
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = '1')")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('mine')")
    row = entry(spark, table)
    assert (row.operation, row.operationParameters["ifExists"]) == ("UNSET TBLPROPERTIES", "true")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('mine')")
    assert entry(spark, table).version == row.version
