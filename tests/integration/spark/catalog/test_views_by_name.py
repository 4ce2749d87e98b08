"""A view over a Delta table shows the columns that it was made with, by their names, whatever ALTER did since."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import SchemaMismatchError, UnsupportedFeatureError

pytestmark = pytest.mark.spark

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
VIEWS = {
    "star": "CREATE VIEW viewed.star AS SELECT * FROM t",
    "listed": "CREATE VIEW viewed.listed (x, y) AS SELECT * FROM viewed.t",
    "nested": "CREATE VIEW viewed.nested AS SELECT * FROM viewed.star",
    "cte": "CREATE VIEW viewed.cte AS WITH q AS (SELECT * FROM viewed.t) SELECT * FROM q WHERE a IN (SELECT a FROM q)",
    "old": "CREATE VIEW viewed.old AS SELECT * FROM viewed.t VERSION AS OF 1",
    "evolving": "CREATE VIEW viewed.evolving WITH SCHEMA EVOLUTION AS SELECT * FROM viewed.t",
    "typed": "CREATE VIEW viewed.typed WITH SCHEMA TYPE EVOLUTION AS SELECT * FROM viewed.t",
    "temporary": "CREATE OR REPLACE TEMP VIEW viewed_temporary AS SELECT * FROM viewed.t",
}
PERMANENT = [name for name in VIEWS if name != "temporary"]
REFUSED = "INCOMPATIBLE_VIEW_SCHEMA_CHANGE"
ROW = {"a": 1, "b": "one"}


@pytest.fixture
def views(spark):
    """A table of one row, with views of every kind that were made in its own database."""
    spark.sql("DROP DATABASE IF EXISTS viewed CASCADE")
    spark.sql("CREATE DATABASE viewed")
    spark.sql(f"CREATE TABLE viewed.t (a TINYINT, b STRING) USING delta {MAPPED}")
    spark.sql("INSERT INTO viewed.t VALUES (1, 'one')")
    spark.catalog.setCurrentDatabase("viewed")
    for text in VIEWS.values():
        spark.sql(text)
    spark.catalog.setCurrentDatabase("default")
    yield
    spark.catalog.dropTempView("viewed_temporary")
    spark.sql("DROP DATABASE viewed CASCADE")


def shown(spark, view):
    """The row of a view by name, or the condition with which reading it is refused."""
    try:
        return (
            spark.sql(f"SELECT * FROM {'viewed_temporary' if view == 'temporary' else f'viewed.{view}'}")
            .first()
            .asDict()
        )
    except AnalysisException as error:
        return error.getCondition()


def test_views_follow_their_columns_by_name_when_the_table_has_them_in_another_order(spark, views):
    spark.sql("ALTER TABLE viewed.t ALTER COLUMN b FIRST")
    spark.sql("ALTER TABLE viewed.t ADD COLUMN c INT FIRST")
    expected = dict.fromkeys(VIEWS, ROW) | {"listed": {"x": 1, "y": "one"}, "evolving": {"c": None, "b": "one", "a": 1}}
    assert {view: shown(spark, view) for view in VIEWS} == expected
    assert spark.sql("SELECT max(a), count(*) FROM viewed.nested").first() == (1, 1), "statistics answer by name, too"
    assert spark.table("viewed.star").select("b").first() == ("one",)


def test_a_view_without_one_of_its_columns_is_refused_and_one_that_evolves_shows_what_is_there(spark, views):
    spark.sql("ALTER TABLE viewed.t RENAME COLUMN a TO b2")
    spark.sql("ALTER TABLE viewed.t RENAME COLUMN b TO a")
    spark.sql("ALTER TABLE viewed.t RENAME COLUMN b2 TO b")
    swapped = {view: shown(spark, view) for view in ("typed", "evolving", "old")}
    assert swapped["evolving"] == {"b": 1, "a": "one"}
    assert swapped["typed"] == {"a": "one", "b": 1}
    assert swapped["old"] == ROW, "of an older version"
    spark.sql("ALTER TABLE viewed.t DROP COLUMN a")
    assert {view: shown(spark, view) for view in ("star", "listed", "nested", "typed", "temporary")} == dict.fromkeys(
        ("star", "listed", "nested", "typed", "temporary"), REFUSED
    )
    assert shown(spark, "evolving") == {"b": 1}


NESTED = {
    "struct": "s STRUCT<x: INT, y: STRING>",
    "list": "s ARRAY<STRUCT<x: INT, y: STRING>>",
    "map": "s MAP<STRING, STRUCT<x: INT, y: STRING>>",
    "deep": "s STRUCT<n: ARRAY<STRUCT<x: INT, y: STRING>>, m: INT>",
}
VALUE = "named_struct('x', 2, 'y', 'q')"
VALUES = {
    "struct": VALUE, "list": f"array({VALUE}, NULL)", "map": f"map('k', {VALUE})",
    "deep": f"named_struct('n', array({VALUE}), 'm', 3)",
}  # fmt: skip
PATHS = {"struct": "s", "list": "s.element", "map": "s.value", "deep": "s.n.element"}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("made", ["VIEW", "TEMP VIEW"])
def test_fields_within_columns_of_a_view_are_found_by_name_too(spark, views, kind, made):
    view = "viewed_fields" if made == "TEMP VIEW" else "viewed.fields"
    spark.sql(f"CREATE TABLE viewed.f (a INT, {NESTED[kind]}) USING delta {MAPPED}")
    spark.sql(f"INSERT INTO viewed.f SELECT 1, {VALUES[kind]} UNION ALL SELECT 2, NULL")
    spark.sql(f"CREATE {made} {view} AS SELECT * FROM viewed.f")
    try:
        before = spark.sql(f"SELECT * FROM {view} ORDER BY a").collect()
        for change in (f"ALTER COLUMN {PATHS[kind]}.y FIRST", f"ADD COLUMN {PATHS[kind]}.z INT"):
            spark.sql(f"ALTER TABLE viewed.f {change}")
            assert spark.sql(f"SELECT * FROM {view} ORDER BY a").collect() == before, change
        spark.sql(f"ALTER TABLE viewed.f DROP COLUMN {PATHS[kind]}.x")
        with pytest.raises(SchemaMismatchError, match="x', which the table lacks"):
            spark.sql(f"SELECT a FROM {view}")
    finally:
        spark.catalog.dropTempView("viewed_fields")


@pytest.mark.parametrize("kept", ["EVOLUTION", "TYPE EVOLUTION", "COMPENSATION", "BINDING"])
@pytest.mark.parametrize("columns", ["*", "a, s.x"])
def test_views_over_structs_of_every_schema_mode_follow_an_added_column(spark, views, kept, columns):
    spark.sql(f"CREATE TABLE viewed.f (a INT, s STRUCT<x: INT, y: STRING>) USING delta {MAPPED}")
    spark.sql(f"INSERT INTO viewed.f SELECT 1, {VALUE}")
    spark.sql(f"CREATE VIEW viewed.fields WITH SCHEMA {kept} AS SELECT {columns} FROM viewed.f")
    before = spark.sql("SELECT * FROM viewed.fields").first().asDict(recursive=True)
    spark.sql("ALTER TABLE viewed.f ADD COLUMN c INT")
    added = {"c": None} if (kept, columns) == ("EVOLUTION", "*") else {}
    assert spark.sql("SELECT * FROM viewed.fields").first().asDict(recursive=True) == before | added


def test_fields_of_a_view_that_swap_their_names_are_those_of_the_names(spark, views):
    spark.sql(f"CREATE TABLE viewed.f (s STRUCT<x: INT, y: INT>) USING delta {MAPPED}")
    spark.sql("INSERT INTO viewed.f SELECT named_struct('x', 1, 'y', 2)")
    spark.sql("CREATE VIEW viewed.fields AS SELECT * FROM viewed.f")
    for old, new in (("x", "z"), ("y", "x"), ("z", "y")):
        spark.sql(f"ALTER TABLE viewed.f RENAME COLUMN s.{old} TO {new}")
    assert spark.sql("SELECT s.x, s.y FROM viewed.fields").first() == (2, 1)


def test_a_widened_column_is_read_as_the_kind_of_the_view_says(spark, views):
    spark.sql("ALTER TABLE viewed.t ALTER COLUMN a TYPE INT")
    assert dict(spark.sql("SELECT * FROM viewed.star").dtypes)["a"] == "tinyint", "compensated"
    assert dict(spark.sql("SELECT * FROM viewed.typed").dtypes)["a"] == "int"
    assert dict(spark.sql("DESCRIBE viewed.typed").select("col_name", "data_type").collect())["a"] == "int"


def test_the_text_of_a_view_means_what_it_meant_under_the_settings_that_it_was_made_with(spark, views):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        spark.sql(
            "CREATE VIEW viewed.lenient AS SELECT CAST(b AS INT) AS n, date_format(timestamp_seconds(0), 'HH') AS h "
            "FROM viewed.t"
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")
    assert spark.sql("SELECT n, h FROM viewed.lenient").first() == (None, "09")
    assert spark.sql("SELECT date_format(timestamp_seconds(0), 'HH')").first() == ("00",)


def test_a_temporary_view_made_later_does_not_stand_in_for_the_table_of_a_view(spark, views):
    spark.sql("CREATE TEMP VIEW t AS SELECT 77 AS a, 'other' AS b")
    try:
        assert shown(spark, "star") == ROW
    finally:
        spark.catalog.dropTempView("t")


def test_a_view_with_more_columns_than_names_is_refused_by_the_statement_itself(spark, views):
    spark.sql("ALTER TABLE viewed.t ADD COLUMN c INT")
    with pytest.raises(AnalysisException) as refused:
        spark.sql("CREATE VIEW viewed.two (x, y) AS SELECT * FROM viewed.t")
    assert refused.value.getCondition() == "CREATE_VIEW_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"


def test_nothing_is_written_through_a_view_that_names_columns_otherwise(spark, views):
    spark.sql("CREATE TABLE viewed.u (b STRING, a STRING) USING delta")
    spark.sql("CREATE VIEW viewed.turned (a, b) AS SELECT * FROM viewed.u")
    spark.sql("ALTER TABLE viewed.u ALTER COLUMN a FIRST")
    with pytest.raises(UnsupportedFeatureError) as refused:
        spark.sql("INSERT INTO viewed.turned VALUES ('x', 'y')")
    assert refused.value.code == "DELTA_CANNOT_WRITE_INTO_VIEW"
    assert spark.table("viewed.u").count() == 0


def test_names_without_a_schema_are_found_on_the_path_of_the_session(spark, views):
    if not Jvm.of(spark).has_paths:
        pytest.skip("this Spark has no SET PATH, which came with 4.3")
    spark.sql("CREATE OR REPLACE TABLE default.t USING delta AS SELECT CAST(5 AS TINYINT) AS a, 'default' AS b")
    spark.conf.set("spark.sql.path.enabled", "true")
    try:
        spark.sql("SET PATH = spark_catalog.viewed, system.session, system.builtin")
        assert spark.sql("SELECT b FROM t").first() == ("one",)
        spark.sql("INSERT INTO t VALUES (2, 'two')")
        spark.sql("DELETE FROM t WHERE a = 1")
        spark.sql("UPDATE t SET b = upper(b)")
        spark.sql("MERGE INTO t USING (SELECT 3 AS a, 'x' AS b) s ON t.a = s.a WHEN NOT MATCHED THEN INSERT *")
        spark.sql("ALTER TABLE t ADD COLUMN c INT")
        spark.sql("CREATE VIEW viewed.by_path AS SELECT a FROM t")
        assert spark.sql("DESCRIBE HISTORY t").count() == 7
        spark.sql("SET PATH = spark_catalog.default, system.session, system.builtin")
        assert spark.sql("SELECT a FROM t").collect() == [(5,)]
        assert sorted(row.a for row in spark.sql("SELECT a FROM viewed.by_path").collect()) == [2, 3]
        spark.sql("SET PATH = spark_catalog.viewed, system.session, system.builtin")
        assert spark.sql("SELECT a, b FROM t ORDER BY a").collect() == [(2, "TWO"), (3, "x")]
        with pytest.raises(AnalysisException):
            spark.sql("SELECT * FROM nowhere_on_the_path")
    finally:
        Jvm.of(spark).state.catalogManager().clearSessionPath()
        spark.conf.unset("spark.sql.path.enabled")
        spark.sql("DROP TABLE default.t")
