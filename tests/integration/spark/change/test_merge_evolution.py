"""MERGE that evolves the schema: by `*` and by names, of columns, structs, arrays and maps."""

from __future__ import annotations

import pytest

from pydelta.errors import BindError, SchemaMismatchError
from tests.built_once import built_once

pytestmark = pytest.mark.spark

NESTED = "id INT, s STRUCT<a: INT, n: INT>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
NAMED = (
    "WHEN MATCHED THEN UPDATE SET s = q.s, l = q.l, m = q.m "
    "WHEN NOT MATCHED THEN INSERT (id, s, l, m) VALUES (q.id, q.s, q.l, q.m)"
)


@built_once
def two_rows(spark, path):
    spark.sql(f"CREATE TABLE delta.`{path}` ({NESTED}) USING delta")
    spark.sql(
        f"INSERT INTO delta.`{path}` VALUES (1, named_struct('a', 1, 'n', 1), array(named_struct('a', 1)), "
        "map('k', named_struct('a', 1))), (2, NULL, NULL, NULL)"
    )


@pytest.fixture
def table(spark, tmp_path):
    return f"delta.`{two_rows(spark, tmp_path / 'table')}`"


def merge(table, source, clauses, evolving=True):
    how = "WITH SCHEMA EVOLUTION" if evolving else ""
    return f"MERGE {how} INTO {table} t USING ({source}) q ON t.id = q.id {clauses}"


def found(spark, table, columns):
    return [tuple(row) for row in spark.sql(f"SELECT {columns} FROM {table} ORDER BY id").collect()]


@pytest.mark.parametrize("clauses", [UPSERT, NAMED])
def test_structs_arrays_and_maps_get_new_fields(spark, table, clauses):
    source = (
        "SELECT explode(array(1, 9)) AS id, named_struct('c', '3', 'a', 5L, 'n', 2) AS s, "
        "array(named_struct('b', 4, 'a', 6), NULL) AS l, map('k', named_struct('b', 7, 'a', 8)) AS m"
    )
    with pytest.raises(SchemaMismatchError, match="field 'c'"):
        spark.sql(merge(table, source, clauses, evolving=False))
    spark.sql(merge(table, source, clauses))
    changed = (5, 2, "3", 6, 4, None, 8, 7)
    assert found(spark, table, "id, s.a, s.n, s.c, l[0].a, l[0].b, l[1], m['k'].a, m['k'].b") == [
        (1, *changed),
        (2, *[None] * 8),
        (9, *changed),
    ]
    assert found(spark, table, "id, s IS NULL, l IS NULL, m IS NULL")[1] == (2, True, True, True)


def test_fields_that_the_source_lacks_stay_with_a_star_and_become_null_by_name(spark, table):
    source = "SELECT 1 AS id, named_struct('a', 5) AS s"
    spark.sql(merge(table, source, "WHEN MATCHED THEN UPDATE SET *"))
    assert found(spark, table, "id, s.a, s.n")[0] == (1, 5, 1)
    spark.sql(merge(table, source, "WHEN MATCHED THEN UPDATE SET s = q.s"))
    assert found(spark, table, "id, s.a, s.n")[0] == (1, 5, None)
    with pytest.raises(SchemaMismatchError, match="lacks the field 'n'"):
        spark.sql(merge(table, source, "WHEN MATCHED THEN UPDATE SET s = q.s", evolving=False))


def test_only_columns_that_clauses_name_are_added(spark, table):
    source = "SELECT 1 AS id, 1.5D AS extra, 7 AS other, named_struct('a', 5, 'n', 2, 'c', 3, 'd', 4) AS s"
    named = "WHEN MATCHED THEN UPDATE SET t.extra = q.other, s.c = q.s.c"
    with pytest.raises(BindError, match="no column 'extra'"):
        spark.sql(merge(table, source, named, evolving=False))
    spark.sql(merge(table, source, named))
    assert found(spark, table, "id, extra, s") == [(1, 7.0, (1, 1, 3)), (2, None, None)]
    assert "other" not in spark.table(table).columns
    with pytest.raises(BindError, match="no column 'nope'"):
        spark.sql(merge(table, source, "WHEN MATCHED THEN UPDATE SET nope = 1"))


def test_the_setting_evolves_and_types_stay_those_of_the_table(spark, table):
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        spark.sql(merge(table, "SELECT '9' AS id, true AS extra", UPSERT, evolving=False))
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert found(spark, table, "id, extra, s") == [(1, None, (1, 1)), (2, None, None), (9, True, None)]


def test_a_merge_that_changes_no_row_and_brings_a_column_makes_a_version_with_it(spark, table):
    before = found(spark, table, "*")
    spark.sql(merge(table, "SELECT 1 AS id, 'new' AS more", "WHEN NOT MATCHED THEN INSERT *"))
    assert found(spark, table, "*") == [(*row, None) for row in before]
    assert spark.sql(f"DESCRIBE HISTORY {table}").first()["operation"] == "MERGE"
    versions = spark.sql(f"DESCRIBE HISTORY {table}").count()
    spark.sql(merge(table, "SELECT 1 AS id, 'new' AS more", "WHEN NOT MATCHED THEN INSERT *"))
    assert spark.sql(f"DESCRIBE HISTORY {table}").count() == versions


def test_a_struct_that_is_null_on_both_sides_stays_null_and_fields_of_the_table_alone_stay(spark, tmp_path):
    path = tmp_path / "nulls"
    kept, brought = (
        "STRUCT<a: INT, b: INT, n: STRUCT<x: INT, y: INT>>",
        "STRUCT<a: INT, c: INT, n: STRUCT<x: INT, z: INT>>",
    )
    old = "named_struct('a', 1, 'b', 2, 'n', named_struct('x', 3, 'y', 4))"
    new = "named_struct('a', 9, 'c', 8, 'n', named_struct('x', 7, 'z', 6))"
    hollow = "named_struct('a', 9, 'c', 8, 'n', NULL)"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, s {kept}) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, NULL), (2, {old}), (3, NULL), (4, {old}), (5, {old})")
    rows = {1: "NULL", 2: "NULL", 3: new, 4: new, 5: hollow, 6: "NULL", 7: hollow}
    source = " UNION ALL ".join(f"SELECT {n} AS id, CAST({value} AS {brought}) AS s" for n, value in rows.items())
    spark.sql(merge(f"delta.`{path}`", source, UPSERT))
    read = spark.sql(f"SELECT id, s FROM delta.`{path}`").collect()
    assert {row.id: row.s and row.s.asDict(recursive=True) for row in read} == {
        1: None,
        2: {"a": None, "b": 2, "n": {"x": None, "y": 4, "z": None}, "c": None},
        3: {"a": 9, "b": None, "n": {"x": 7, "y": None, "z": 6}, "c": 8},
        4: {"a": 9, "b": 2, "n": {"x": 7, "y": 4, "z": 6}, "c": 8},
        5: {"a": 9, "b": 2, "n": {"x": None, "y": 4, "z": None}, "c": 8},
        6: None,
        7: {"a": 9, "b": None, "n": None, "c": 8},
    }
