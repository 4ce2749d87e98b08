"""DESCRIBE and SHOW of a Delta table beside those of a Parquet table of the same definition: as Spark lays them out."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from pydelta.api.sql import describe as describe_sql
from pydelta.api.sql.targets import log_for_name
from pydelta.engines.spark.catalog.entries import drop_table
from pydelta.engines.spark.catalog.lookup import look_up
from pydelta.errors import BindError, InvalidArgumentError
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

DELTA, PARQUET = "shown_delta", "shown_parquet"
DEFINITION = """(a INT COMMENT 'the a', `B b` STRING, c STRUCT<x: INT, y: ARRAY<STRING>>, v VARCHAR(10),
    big STRUCT<{many}>, p DATE, q INT) USING {format} PARTITIONED BY (p, q)
    COMMENT 'it\\'s this' TBLPROPERTIES ('k' = 'v', 'my.token' = 'hidden')"""
MANY = ", ".join(f"f{number}: INT" for number in range(40))


@pytest.fixture(scope="module")
def tables(spark):
    properties = "'delta.columnMapping.mode' = 'name', 'k'"
    for name, kind in ((DELTA, "delta"), (PARQUET, "parquet")):
        text = DEFINITION.format(many=MANY, format=kind)
        if kind == "delta":
            text = text.replace("'k'", properties)
        spark.sql(f"CREATE TABLE {name} {text}")
        frame = spark.table(name)
        rows = spark.sql("SELECT * FROM VALUES (1, date'2024-01-02', 1), (2, date'2024-01-01', 10), (3, null, null),"
                         " (4, date'2024-01-02', 2) AS t(a, p, q)")  # fmt: skip
        nulls = [f"cast(null AS {kind_of.simpleString()}) AS `{column}`" for column, kind_of in
                 ((f.name, f.dataType) for f in frame.schema.fields if f.name not in ("a", "p", "q"))]  # fmt: skip
        ordered = [f"`{column}`" for column in frame.columns]
        rows.selectExpr("*", *nulls).selectExpr(*ordered).write.insertInto(name)
    yield
    drop_table(spark, (DELTA,))
    spark.sql(f"DROP TABLE {PARQUET}")


def both(spark, statement):
    ours, theirs = (spark.sql(statement.format(name)) for name in (DELTA, PARQUET))
    assert ours.schema == theirs.schema, "names, types, nullability and comments of the columns"
    return [tuple(row) for row in ours.collect()], [tuple(row) for row in theirs.collect()]


def test_describe(spark, tables):
    ours, theirs = both(spark, "DESCRIBE {}")
    assert ours == theirs
    assert ("v", "varchar(10)", None) in ours
    assert any("more fields" in row[1] for row in ours if row[0] == "big"), "long types are cut as Spark does"


def test_describe_extended(spark, tables):
    ours, theirs = both(spark, "DESCRIBE EXTENDED {}")
    differ = {"Table", "Created Time", "Provider", "Table Properties", "Location", "Partition Provider"}
    assert [row for row in ours if row[0] not in differ] == [row for row in theirs if row[0] not in differ]
    kept = [row[0] for row in theirs if row[0] != "Partition Provider"]
    assert [row[0] for row in ours] == kept, "the same rows in the same order"
    shown = dict(row[:2] for row in ours)
    assert (shown["Provider"], shown["Type"], shown["Comment"]) == ("delta", "MANAGED", "it's this")
    assert "k=v" in shown["Table Properties"]
    assert "hidden" not in shown["Table Properties"]
    assert "pydelta" not in str(ours), "what the entry is known by is nobody's business"


@pytest.mark.parametrize("statement", ["DESCRIBE {} a", "DESCRIBE EXTENDED {} A", "DESCRIBE {} c", "DESCRIBE {} q"])
def test_describe_a_column(spark, tables, statement):
    ours, theirs = both(spark, statement)
    assert ours == theirs


def test_show_columns(spark, tables):
    ours, theirs = both(spark, "SHOW COLUMNS IN {}")
    assert ours == theirs


def test_show_partitions(spark, tables):
    shown = spark.sql(f"SHOW PARTITIONS {DELTA}")
    columns = spark.table(DELTA).select("p", "q")
    assert [(item.name, item.dataType) for item in shown.schema] == [(x.name, x.dataType) for x in columns.schema]
    every = columns.distinct().orderBy(F.asc_nulls_last("p"), F.asc_nulls_last("q")).collect()
    assert shown.collect() == every
    assert every[-1] == (None, None)
    for spec in ("p = '2024-01-02'", "q = 10", "q = '010'", "p = '2024-01-02', q = 2", "q = 99", "q = null"):
        theirs = spark.sql(f"SHOW PARTITIONS {PARQUET} PARTITION ({spec})".replace("'010'", "10")).count()
        assert spark.sql(f"SHOW PARTITIONS {DELTA} PARTITION ({spec})").count() == theirs, spec


def test_show_tblproperties(spark, tables):
    ours, theirs = both(spark, "SHOW TBLPROPERTIES {}")
    assert [row for row in ours if not row[0].startswith("delta.")] == theirs
    assert ours == sorted(ours)
    assert ("delta.columnMapping.mode", "name") in ours
    assert dict(ours)["my.token"] == "*********(redacted)"
    for key in ("k", "nope"):
        ours, theirs = both(spark, "SHOW TBLPROPERTIES {} ('" + key + "')")
        assert ours == [(found, text.replace(PARQUET, DELTA)) for found, text in theirs]


def test_show_create_table(spark, tables):
    ours, theirs = both(spark, "SHOW CREATE TABLE {}")
    text = ours[0][0]
    expected = theirs[0][0].replace(PARQUET, DELTA).replace("USING parquet", "USING delta")
    expected = expected.replace(" COLLATE UTF8_BINARY", "").replace(
        "'k' =", "'delta.columnMapping.mode' = 'name',\n  'k' ="
    )
    assert text.replace(" COLLATE UTF8_BINARY", "") == expected


def test_the_statement_that_show_create_table_gives_makes_the_same_table(spark, tables, tmp_path):
    table = DeltaTable.create(spark).tableName("shown_source").location(str(tmp_path / "a")).comment("x 'y' \\ z")
    table.addColumn("id", "bigint", nullable=False, comment="it's").addColumn("at", "timestamp").addColumn(
        "day", "date", generatedAlwaysAs="CAST(at AS DATE)"
    ).addColumn("weird `name`".replace("`", ""), "string").property("delta.columnMapping.mode", "name").clusterBy(
        "id"
    ).execute()
    text = spark.sql("SHOW CREATE TABLE shown_source").first()[0]
    assert f"LOCATION 'file:{tmp_path}/a'" in text
    spark.sql(text.replace("shown_source", "shown_copy").replace("/a'", "/b'"))
    again = spark.sql("SHOW CREATE TABLE shown_copy").first()[0]
    assert again.replace("shown_copy", "shown_source").replace("/b'", "/a'") == text
    for name in ("shown_source", "shown_copy"):
        drop_table(spark, (name,))


def test_a_path_and_what_is_not_there(spark, tables, tmp_path):
    target = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(target)
    by_path = f"delta.`{target}`"
    entry, snapshot = look_up(spark, ("delta", target)), log_for_name(spark, by_path).update()
    shown = {row[0]: row[1] for row in describe_sql.describe_table(spark, entry, snapshot, extended=True).collect()}
    assert (shown["id"], shown["Provider"], shown["Location"]) == ("bigint", "delta", f"file:{target}")
    assert "LOCATION" not in describe_sql.show_create_table(spark, entry, snapshot).first()[0]
    with pytest.raises(InvalidArgumentError, match="not partitioned"):
        describe_sql.show_partitions(spark, entry, snapshot)
    with pytest.raises(BindError, match="no column 'iid'") as caught:
        describe_sql.describe_table(spark, entry, snapshot, column=("iid",))
    assert "Did you mean 'id'" in caught.value.hint
    delta = look_up(spark, (DELTA,))
    newest = log_for_name(spark, DELTA).update()
    with pytest.raises(InvalidArgumentError, match="nested"):
        describe_sql.describe_table(spark, delta, newest, column=("c", "x"))
    with pytest.raises(BindError, match="not a partition column"):
        describe_sql.show_partitions(spark, delta, newest, {"a": "1"})
