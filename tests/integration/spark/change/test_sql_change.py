"""DELETE, UPDATE, MERGE and TRUNCATE in SQL: names however they are qualified, counts, and what is refused."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pydelta.errors import (
    BindError,
    ConflictingSetError,
    DeltaError,
    DuplicateInsertColumnError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)

pytestmark = pytest.mark.spark

BEGINNING = [(0, "v0", (0, 10)), (1, "v1", (1, 11)), (2, "v2", (2, 12)), (3, "v3", (3, 13))]


@pytest.fixture
def table(spark):
    spark.sql("DROP TABLE IF EXISTS sql_change")
    spark.sql(
        "CREATE TABLE sql_change USING delta AS SELECT id AS a, concat('v', id) AS b, "
        "named_struct('x', id, 'y', id + 10) AS s FROM range(4)"
    )
    yield "sql_change"
    spark.sql("DROP TABLE IF EXISTS sql_change")


def rows(spark):
    return sorted((row.a, row.b, tuple(row.s)) for row in spark.sql("SELECT a, b, s FROM sql_change").collect())


def one(frame):
    (row,) = frame.collect()
    return row.asDict()


DELETES = [
    ("DELETE FROM sql_change WHERE a = 1", {1}),
    ("DELETE FROM sql_change WHERE sql_change.a = 1", {1}),
    ("DELETE FROM default.sql_change WHERE default.sql_change.a >= 2", {2, 3}),
    ("DELETE FROM spark_catalog.default.sql_change AS q WHERE q.a >= 2 AND q.s.x < 3", {2}),
    ("DELETE FROM sql_change q WHERE b LIKE '%3' OR q.s.y = 10", {0, 3}),
    ("DELETE FROM sql_change WHERE A = 1", {1}),
    ("DELETE FROM Sql_Change AS Q WHERE q.A >= 1 AND Q.a < 3 AND S.X > 1", {2}),
    ("DELETE FROM sql_change WHERE a IS NULL", set()),
    ("DELETE FROM sql_change", {0, 1, 2, 3}),
]


@pytest.mark.parametrize(("statement", "gone"), DELETES)
def test_delete(spark, table, statement, gone):
    assert one(spark.sql(statement)) == {"num_affected_rows": len(gone)}
    assert rows(spark) == [row for row in BEGINNING if row[0] not in gone]


def test_delete_by_path_and_what_it_tells_when_explained(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    plan = spark.sql(f"EXPLAIN DELETE FROM delta.`{path}` WHERE id = 1").first()[0]
    assert "Execute Delta DELETE" in plan
    assert spark.sql(f"SELECT count(*) FROM delta.`{path}`").first()[0] == 3
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert spark.sql(f"SELECT count(*) FROM delta.`{path}`").first()[0] == 2


def test_update(spark, table):
    assert one(spark.sql("UPDATE sql_change AS q SET q.b = upper(q.b), s.x = a * 100 WHERE q.a IN (1, 2)")) == {
        "num_affected_rows": 2
    }
    assert rows(spark) == [BEGINNING[0], (1, "V1", (100, 11)), (2, "V2", (200, 12)), BEGINNING[3]]
    spark.sql("UPDATE default.sql_change SET default.sql_change.b = NULL WHERE default.sql_change.s.y = 13")
    assert rows(spark)[3] == (3, None, (3, 13))
    assert one(spark.sql("UPDATE sql_change SET b = 'all'"))["num_affected_rows"] == 4
    assert {row[1] for row in rows(spark)} == {"all"}


@pytest.mark.parametrize("mapped", ["none", "name"])
def test_names_in_conditions_ignore_case_those_of_partitions_too(spark, tmp_path, mapped):
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(
        f"CREATE TABLE {table} (id INT, g STRING, v STRING) USING delta PARTITIONED BY (g) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapped}')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'x'), (4, 'c', 'y')")
    assert one(spark.sql(f"DELETE FROM {table} WHERE ID = 1 AND Id < 4")) == {"num_affected_rows": 1}
    assert one(spark.sql(f"DELETE FROM {table} WHERE G = 'b'")) == {"num_affected_rows": 1}
    assert one(spark.sql(f"UPDATE {table} SET V = 'u' WHERE G = 'c' AND ID = 3")) == {"num_affected_rows": 1}
    counts = one(
        spark.sql(
            f"MERGE INTO {table} T USING (SELECT 4 AS Id, 'm' AS V) S ON t.ID = s.id AND T.G = 'c' "
            "WHEN MATCHED AND T.V = 'y' THEN UPDATE SET V = S.v || t.G"
        )
    )
    assert counts["num_updated_rows"] == 1
    new = spark.sql("SELECT 3 AS Id, 'c' AS G, 'w' AS V").write.format("delta").mode("overwrite")
    new.option("replaceWhere", "ID = 3 AND G = 'c'").save(str(tmp_path / "t"))
    assert sorted(map(tuple, spark.sql(f"SELECT * FROM {table}").collect())) == [(3, "c", "w"), (4, "c", "mc")]


USING = "MERGE INTO sql_change t USING (SELECT 1 AS a) s ON t.a = s.a WHEN"


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        (
            "UPDATE sql_change SET b = '1', b = '2'",
            ConflictingSetError,
            "[DELTA_CONFLICT_SET_COLUMN] UPDATE sets 'b' twice",
        ),
        ("UPDATE sql_change q SET b = '1', q.B = '2'", ConflictingSetError, "sets 'b' twice"),
        ("UPDATE sql_change SET s.x = 1, s.X = 2", ConflictingSetError, "sets 's.x' twice"),
        ("UPDATE sql_change SET s.x = 1, s = null", ConflictingSetError, "sets 's.x' and 's', which overlap"),
        (
            f"{USING} MATCHED THEN UPDATE SET b = '1', t.b = '2'",
            ConflictingSetError,
            "WHEN MATCHED UPDATE sets 'b' twice",
        ),
        (f"{USING} MATCHED THEN UPDATE SET s = null, S.y = 2", ConflictingSetError, "sets 's' and 's.y'"),
        (f"{USING} NOT MATCHED BY SOURCE THEN UPDATE SET a = 1, A = 2", ConflictingSetError, "sets 'a' twice"),
        (
            f"{USING} NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)",
            DuplicateInsertColumnError,
            "[DELTA_DUPLICATE_COLUMNS_ON_INSERT] WHEN NOT MATCHED INSERT sets 'a' twice",
        ),
        (f"{USING} NOT MATCHED THEN INSERT (a, b, a) VALUES (1, 'b', 2)", DuplicateInsertColumnError, "'a' twice"),
    ],
)
def test_a_column_that_is_set_twice_is_refused(spark, table, statement, error, said):
    with pytest.raises(error) as caught:
        spark.sql(statement)
    assert said in str(caught.value)
    assert rows(spark) == BEGINNING


def test_a_default_in_update_and_merge(spark):
    spark.sql("DROP TABLE IF EXISTS sql_default")
    spark.sql("CREATE TABLE sql_default (a INT, b STRING DEFAULT 'none') USING delta")
    try:
        spark.sql("INSERT INTO sql_default VALUES (1, 'x'), (2, 'y')")
        spark.sql("UPDATE sql_default SET b = DEFAULT WHERE a = 1")
        spark.sql(
            "MERGE INTO sql_default t USING (SELECT 2 AS a UNION ALL SELECT 3) s ON t.a = s.a "
            "WHEN MATCHED THEN UPDATE SET b = DEFAULT WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)"
        )
        assert {tuple(row) for row in spark.table("sql_default").collect()} == {(1, "none"), (2, "none"), (3, "none")}
    finally:
        spark.sql("DROP TABLE sql_default")


def test_merge_with_every_clause(spark, table):
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW sql_source AS SELECT * FROM VALUES (1L, 'one', true), (2L, 'two', false), "
        "(8L, 'eight', true), (9L, 'nine', false) AS s(a, b, good)"
    )
    counts = one(
        spark.sql(
            "MERGE INTO sql_change USING sql_source ON sql_change.a = sql_source.a "
            "WHEN MATCHED AND sql_source.good THEN UPDATE SET sql_change.b = sql_source.b, s.x = 0 "
            "WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED AND good THEN INSERT (a, b, s) VALUES (sql_source.a, b, named_struct('x', 1L, 'y', 2L)) "
            "WHEN NOT MATCHED BY SOURCE AND sql_change.a = 3 THEN DELETE "
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET b = 'alone'"
        )
    )
    assert counts == {"num_affected_rows": 5, "num_updated_rows": 2, "num_deleted_rows": 2, "num_inserted_rows": 1}
    assert rows(spark) == [(0, "alone", (0, 10)), (1, "one", (0, 11)), (8, "eight", (1, 2))]


def test_merge_from_a_query_over_the_table_itself_and_a_cte(spark, table):
    spark.sql(
        "WITH doubled AS (SELECT a, concat(b, b) AS b, s FROM sql_change WHERE a > 1) "
        "MERGE INTO default.sql_change AS t USING doubled AS d ON t.a = d.a WHEN MATCHED THEN UPDATE SET *"
    )
    assert rows(spark) == [*BEGINNING[:2], (2, "v2v2", (2, 12)), (3, "v3v3", (3, 13))]


def test_merge_with_names_in_full_on_both_sides(spark, table):
    spark.sql("DROP TABLE IF EXISTS sql_source_table")
    spark.sql("CREATE TABLE sql_source_table USING delta AS SELECT 1L AS a, 'full' AS b")
    try:
        spark.sql(
            "MERGE INTO default.sql_change USING spark_catalog.default.sql_source_table "
            "ON default.sql_change.a = spark_catalog.default.sql_source_table.a "
            "WHEN MATCHED AND default.sql_source_table.b = 'full' THEN "
            "UPDATE SET default.sql_change.b = default.sql_source_table.b"
        )
    finally:
        spark.sql("DROP TABLE sql_source_table")
    assert rows(spark)[1] == (1, "full", (1, 11))


def test_merge_with_schema_evolution(spark, table):
    spark.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO sql_change t USING (SELECT 1L AS a, 'n' AS b, 5 AS fresh) s ON t.a = s.a "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert spark.table("sql_change").columns == ["a", "b", "s", "fresh"]
    assert spark.sql("SELECT b, fresh, s.y FROM sql_change WHERE a = 1").first() == ("n", 5, 11)


def test_truncate_keeps_the_history(spark, table):
    assert spark.sql("TRUNCATE TABLE sql_change").columns == []
    assert rows(spark) == []
    assert spark.sql("SELECT count(*) FROM sql_change VERSION AS OF 0").first()[0] == 4


MISTAKES = {
    "DELETE FROM sql_change WHERE nope = 1": (BindError, "nope.*columns are: a, b, s"),
    "DELETE FROM sql_change WHERE a IN (SELECT 1)": (InvalidArgumentError, "subquery.*MERGE"),
    "DELETE FROM sql_change WHERE rand() > 0.5": (InvalidArgumentError, "deterministic"),
    "UPDATE sql_change SET nope = 1": (BindError, "nope"),
    "UPDATE sql_change SET a = DATE'2020-01-01'": (AnalysisException, "DATATYPE_MISMATCH.CAST"),
    "UPDATE sql_change SET s.x = DEFAULT": (BindError, "DEFAULT"),
    "MERGE INTO sql_change t USING (SELECT 1 a UNION ALL SELECT 1) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 'x'":
        (InvalidArgumentError, "a=1"),
    "MERGE INTO sql_change t USING (SELECT 1 AS a) s ON t.nope = s.a WHEN MATCHED THEN DELETE": (BindError, "nope"),
    "TRUNCATE TABLE sql_change PARTITION (a = 1)": (UnsupportedFeatureError, "DELETE FROM"),
}  # fmt: skip


@pytest.mark.parametrize("statement", MISTAKES)
def test_mistakes_are_named_and_change_nothing(spark, table, statement):
    kind, words = MISTAKES[statement]
    with pytest.raises(kind, match=f"(?s){words}") as caught:
        spark.sql(statement)
    assert isinstance(caught.value, PySparkException)
    assert rows(spark) == BEGINNING


def test_other_tables_are_sparks(spark):
    spark.sql("DROP TABLE IF EXISTS sql_other")
    spark.sql("CREATE TABLE sql_other USING parquet AS SELECT 1 AS a")
    try:
        for statement in ("DELETE FROM sql_other WHERE a = 1", "UPDATE sql_other SET a = 2"):
            with pytest.raises(Exception, match=r"(?i)not support|UNSUPPORTED") as caught:
                spark.sql(statement)
            assert not isinstance(caught.value, DeltaError)
        spark.sql("INSERT INTO sql_other VALUES (2)")
        assert spark.table("sql_other").count() == 2
    finally:
        spark.sql("DROP TABLE sql_other")


@pytest.mark.parametrize("named", ["sql_change.a", "default.sql_change.a", "spark_catalog.default.sql_change.a"])
def test_an_update_sets_a_column_by_a_subquery_over_the_row_itself(spark, table, named):
    other = "VALUES (1, 'one'), (3, 'three') AS o(k, word)"
    spark.sql(f"UPDATE default.sql_change SET b = (SELECT max(word) FROM {other} WHERE k = {named})")
    assert [(a, b) for a, b, _ in rows(spark)] == [(0, None), (1, "one"), (2, None), (3, "three")]


def test_a_table_inside_a_subquery_keeps_its_own_name(spark, table):
    """``default.sql_change`` inside is the table inside: nothing of the row around it."""
    spark.sql("UPDATE default.sql_change SET b = (SELECT min(b) FROM sql_change WHERE default.sql_change.a > 1)")
    assert {b for _, b, _ in rows(spark)} == {"v2"}


@pytest.mark.parametrize("value", ["max(a)", "count(*)", "min(b) || 'x'", "row_number() OVER (ORDER BY a)"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sql_change SET b = {}",
        "UPDATE sql_change SET b = {} WHERE a = 1",
        "MERGE INTO sql_change t USING (SELECT 1L AS a) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = {}",
        "MERGE INTO sql_change t USING (SELECT 1L i) s ON t.a = s.i WHEN NOT MATCHED BY SOURCE THEN UPDATE SET b = {}",
        "MERGE INTO sql_change t USING sql_change s ON t.a = s.a + 9 WHEN NOT MATCHED THEN INSERT (b) VALUES ({})",
    ],
)
def test_what_needs_other_rows_is_not_set_even_where_statistics_would_answer_it(spark, table, statement, value):
    if "USING" in statement and "INSERT" not in statement:
        value = value.replace("(a)", "(t.a)").replace("BY a", "BY t.a")
    with pytest.raises(DeltaError) as refused:
        spark.sql(statement.format(value))
    assert refused.value.code == "UNSUPPORTED_EXPR_FOR_OPERATOR"
    assert rows(spark) == BEGINNING
