"""Values of one type in columns of another, as the session's store assignment policy has it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, NumberFormatException, PySparkException

from pydelta.errors import CastOverflowError, SchemaMismatchError
from tests.built_once import built_once

pytestmark = pytest.mark.spark

POLICY = "spark.sql.storeAssignmentPolicy"
AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


@contextmanager
def setting(spark, key, value):
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.unset(key)


@built_once
def one_row(spark, path):
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, c INT, s STRUCT<a: INT, b: STRING>) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1, named_struct('a', 1, 'b', 'x'))")


@pytest.fixture
def table(spark, tmp_path):
    return f"delta.`{one_row(spark, tmp_path / 'table')}`"


def values(spark, table, columns="id, c"):
    return sorted(tuple(row) for row in spark.sql(f"SELECT {columns} FROM {table}").collect())


def merge(value):
    source = f"(SELECT 1 AS id, {value} AS c)"
    return f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET c = s.c"


COMMANDS = ["INSERT OVERWRITE {t} SELECT 1, VALUE, NULL", "UPDATE {t} SET c = VALUE", merge("VALUE")]


@pytest.mark.parametrize("command", COMMANDS)
def test_ansi_casts_what_fits_and_says_what_does_not(spark, table, command):
    def run(value):
        spark.sql(command.format(t=table).replace("VALUE", value))

    for value, stored in (("'7'", 7), ("true", 1), ("8.9D", 8), ("TIMESTAMP_SECONDS(5)", 5), ("NULL", None)):
        run(value)
        assert values(spark, table) == [(1, stored)]
    for value, error in (
        ("'x'", NumberFormatException),
        ("3000000000L", ArithmeticException if command.startswith("INSERT") else CastOverflowError),
        ("array(1)", AnalysisException),
    ):
        with pytest.raises(error):
            run(value)
    assert values(spark, table) == [(1, None)]


@pytest.mark.parametrize("command", COMMANDS)
def test_legacy_never_fails_and_strict_refuses_what_could(spark, table, command):
    def run(value):
        spark.sql(command.format(t=table).replace("VALUE", value))

    with setting(spark, POLICY, "LEGACY"):
        run("'x'")
        assert values(spark, table) == [(1, None)]
        run("3000000000L")
        assert values(spark, table) == [(1, -1294967296)]
    with setting(spark, POLICY, "STRICT"):
        for value in ("'7'", "8L"):
            with pytest.raises(AnalysisException, match="CANNOT_UP_CAST"):
                run(value)
        run("CAST(9 AS TINYINT)")
    assert values(spark, table) == [(1, 9)]


def test_an_overflow_is_an_arithmetic_error_to_spark_users(spark, table):
    with pytest.raises(ArithmeticException, match="does not fit the column `c`") as caught:
        spark.sql(f"UPDATE {table} SET c = 3000000000L")
    assert caught.value.getCondition() == "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"


def test_insert_goes_through_structs_by_position_and_update_by_name(spark, table):
    spark.sql(f"INSERT INTO {table} SELECT 2, 2, named_struct('y', '5', 'x', 6)")
    spark.sql(f"INSERT INTO {table} BY NAME SELECT 3 AS id, named_struct('b', 'q', 'a', 8) AS s")
    spark.sql(f"UPDATE {table} SET s = named_struct('b', 'by name', 'a', '7') WHERE id = 1")
    assert values(spark, table, "id, s.a, s.b") == [(1, 7, "by name"), (2, 5, "6"), (3, 8, "q")]
    for value in ("named_struct('x', 1, 'y', 'q')", "named_struct('a', 1)"):
        with pytest.raises(SchemaMismatchError, match="field"):
            spark.sql(f"UPDATE {table} SET s = {value}")
    with pytest.raises(SchemaMismatchError, match="1 fields, but the column has 2: a, b"):
        spark.sql(f"INSERT INTO {table} SELECT 2, 2, named_struct('a', 1)")


def test_a_struct_of_chance_is_made_once_a_row(spark, table):
    chance = "if(rand() < 0.5, named_struct('b', 'q', 'a', 1L), NULL)"
    spark.sql(f"INSERT INTO {table} SELECT id, 1, named_struct('a', 1, 'b', 'x') FROM range(2, 60)")
    spark.sql(f"UPDATE {table} SET s = {chance}")
    found = {tuple(row) for row in spark.sql(f"SELECT s IS NULL, s.a, s.b FROM {table}").collect()}
    assert found == {(True, None, None), (False, 1, "q")}


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE {t} SET c = raise_error('refused')",
        "UPDATE {t} SET s.a = raise_error('refused')",
        "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET c = raise_error('refused')",
        "MERGE INTO {t} t USING (SELECT 9 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, c) VALUES (s.id, raise_error('refused'))",
    ],
)
def test_a_value_that_raises_an_error_raises_it_and_is_not_null(spark, table, command):
    with pytest.raises(PySparkException, match="refused"):
        spark.sql(command.format(t=table))
    assert values(spark, table) == [(1, 1)]
    spark.sql(f"UPDATE {table} SET c = NULL, s.a = NULL")
    assert values(spark, table, "c, s.a") == [(None, None)]


def test_parts_of_arrays_and_maps_are_cast(spark, tmp_path):
    table = f"delta.`{tmp_path}/parts`"
    spark.sql(f"CREATE TABLE {table} (l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT array(named_struct('x', '1'), NULL), map(5, named_struct('y', 2L))")
    spark.sql(f"UPDATE {table} SET m = map('k', named_struct('a', '3'))")
    assert values(spark, table, "l[0].a, l[1], m['k'].a") == [(1, None, 3)]


def test_appends_to_a_table_by_name_cast_too(spark):
    spark.sql("CREATE OR REPLACE TABLE cast_appends (id INT, s STRUCT<a: INT, b: STRING>) USING delta")
    try:
        rows = spark.sql("SELECT named_struct('b', 1, 'a', '5') AS s, '7' AS id")
        rows.write.format("delta").mode("append").saveAsTable("cast_appends")
        rows.writeTo("cast_appends").append()
        assert values(spark, "cast_appends", "id, s.a, s.b") == [(7, 5, "1")] * 2
        with setting(spark, POLICY, "STRICT"), pytest.raises(AnalysisException, match="CANNOT_UP_CAST"):
            rows.writeTo("cast_appends").append()
    finally:
        spark.sql("DROP TABLE cast_appends")


@pytest.mark.parametrize("how", ["sql", "by name", "insertInto"])
def test_new_columns_and_fields_come_with_the_setting(spark, table, how):
    rows = "SELECT 2 AS id, 5 AS c, named_struct('a', 1, 'b', 'y', 'more', 3) AS s, 1.5D AS extra"

    def write():
        if how == "insertInto":
            spark.sql(rows).write.insertInto(table)
        else:
            spark.sql(f"INSERT INTO {table} {'BY NAME' if how == 'by name' else ''} {rows}")

    with pytest.raises(SchemaMismatchError):
        write()
    with setting(spark, AUTO_MERGE, "true"):
        write()
    assert values(spark, table, "id, s.more, extra") == [(1, None, None), (2, 3, 1.5)]


def test_an_append_names_its_replacewhere_in_the_history_and_replaces_nothing(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(2).write.format("delta").save(path)
    spark.range(1).write.format("delta").mode("append").option("replaceWhere", "id = 1").save(path)
    assert values(spark, f"delta.`{path}`", "id") == [(0,), (0,), (1,)]
    last = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").first()
    assert "id = 1" in last["operationParameters"]["predicate"]
