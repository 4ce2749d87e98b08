"""Parameters wherever Spark's parser takes one: the log says what the statement says, or nothing is done."""

from __future__ import annotations

import pytest

from pydelta.api.sql.targets import log_for_name
from pydelta.errors import UnsupportedFeatureError

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark):
    for name in ("given", "given_more"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("CREATE TABLE given (a INT) USING delta")
    yield
    for name in ("given", "given_more"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def by_api(spark, text, **values):
    spark.sql(text, args=values)


def by_position(spark, text, **values):
    for name in values:
        text = text.replace(f":{name}", "?")
    spark.sql(text, args=list(values.values()))


def at_once(spark, text, **values):
    quoted = text.replace("'", "\\'")
    given = ", ".join(f"{value!r} AS {name}" for name, value in values.items())
    spark.sql(f"EXECUTE IMMEDIATE '{quoted}' USING {given}")


def newest(spark, name="given"):
    return log_for_name(spark, name).update()


@pytest.mark.parametrize("run", [by_api, by_position, at_once])
def test_definitions_take_parameters_into_the_log(spark, table, run):
    run(spark, "ALTER TABLE given ADD COLUMN IDENTIFIER(:n) INT", n="b")
    run(spark, "ALTER TABLE given SET TBLPROPERTIES ('own' = :v)", v="w'x")
    run(spark, "ALTER TABLE given ADD COLUMN c DECIMAL(:p, 2) COMMENT :c", p=12, c="a note")
    run(spark, "COMMENT ON TABLE given IS :c", c="of it")
    now = newest(spark)
    assert now.schema.names == ["a", "b", "c"] or now.schema.names == ("a", "b", "c")
    assert str(now.schema.field("c").data_type) == "decimal(12,2)"
    assert now.schema.field("c").metadata["comment"] == "a note"
    assert now.metadata.configuration["own"] == "w'x"
    assert now.metadata.description == "of it"
    assert spark.table("given").columns == ["a", "b", "c"]
    run(
        spark,
        "CREATE TABLE IDENTIFIER(:t) (IDENTIFIER(:n) VARCHAR(:l)) USING delta COMMENT :c TBLPROPERTIES ('k' = :v)",
        t="given_more", n="q", l=7, c="made", v="z",
    )  # fmt: skip
    made = newest(spark, "given_more")
    assert (list(made.schema.names), made.metadata.description, made.metadata.configuration["k"]) == (
        ["q"],
        "made",
        "z",
    )
    run(spark, "INSERT INTO given_more VALUES (:x)", x="text")
    assert spark.table("given_more").collect() == [("text",)]


def test_a_statement_that_the_engine_does_not_know_changes_neither_log_nor_entry(spark, table):
    unknown = "ALTER TABLE given DEFAULT COLLATION UTF8_LCASE"
    for text in (unknown, f"EXECUTE IMMEDIATE '{unknown}'"):
        with pytest.raises(UnsupportedFeatureError, match="Nothing was done"):
            spark.sql(text)
    with pytest.raises(UnsupportedFeatureError, match="Nothing was done"):
        spark.sql(f"BEGIN {unknown}; END")
    assert newest(spark).version == 0
    extended = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED given").collect()}
    assert "UTF8_LCASE" not in str(extended)
