"""Conditions and values that name columns by frames of the table itself, and rows of the source that meet one row."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from pydelta.errors import InvalidArgumentError
from pydelta.tables import DeltaTable


@pytest.fixture
def table(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql("SELECT id, id * 10 AS v, 'n' AS `a.b` FROM range(6)").write.format("delta").save(path)
    return DeltaTable.forPath(spark, path)


def rows(table):
    return sorted((row["id"], row["v"]) for row in table.toDF().collect())


def test_columns_of_to_df_serve_as_condition_and_value_of_delete_and_update(spark, table):
    frame, older = table.toDF(), table.toDF()
    table.delete(frame["id"] == 0)
    table.delete((frame.id == 1) & F.col("v").isNotNull() & (older["`a.b`"] == "n"))
    table.update(frame["id"] == 2, {"v": frame["v"] + older["id"], "`a.b`": F.upper(frame["`a.b`"])})
    assert rows(table) == [(2, 22), (3, 30), (4, 40), (5, 50)]
    named = table.alias("t")
    named.update(named.toDF()["id"] == 3, {"v": named.toDF().alias("other")["v"] + F.col("t.v")})
    assert rows(table)[1] == (3, 60)
    assert [row["a.b"] for row in table.toDF().orderBy("id").collect()] == ["N", "n", "n", "n"]


def test_columns_of_to_df_serve_in_every_clause_of_a_merge(spark, table):
    frame, source = table.toDF(), spark.sql("SELECT id + 4 AS id, id AS v FROM range(3)")
    (
        table.merge(source, frame["id"] == source["id"])
        .whenMatchedUpdate(frame["v"] < 50, {"v": frame["v"] + source["v"] + 1})
        .whenMatchedDelete(frame["id"] == 5)
        .whenNotMatchedInsert(values={"id": source["id"], "v": source["v"]})
        .whenNotMatchedBySourceUpdate(frame["id"] == 0, {"v": frame["v"] - 1})
        .whenNotMatchedBySourceDelete(frame["id"] == 1)
        .execute()
    )
    assert rows(table) == [(0, -1), (2, 20), (3, 30), (4, 41), (6, 2)]


@pytest.mark.parametrize("alias", [None, "t", "s"])
def test_a_column_that_may_be_the_tables_and_the_sources_is_refused(spark, table, alias):
    target = table.alias(alias) if alias else table
    frame = target.toDF()
    source = frame.filter("id < 2") if alias != "s" else frame.filter("id < 2").alias("s")
    for condition in (frame["id"] == source["id"], (F.lit(0) < source["v"]) & F.expr("false")):
        with pytest.raises(InvalidArgumentError, match="ambiguous: it is the table's and the source's") as refused:
            target.merge(source, condition)
        assert refused.value.getCondition() == "AMBIGUOUS_REFERENCE"
    assert len(rows(table)) == 6


def test_a_source_of_the_tables_own_rows_is_told_from_the_table_by_aliases_and_by_what_a_clause_may_read(spark, table):
    target = table.alias("t")
    frame = target.toDF()
    source = frame.filter("id < 2").alias("s")
    (
        target.merge(source, (frame["id"] == source["id"]) & (source["v"] < 10))
        .whenMatchedUpdate(source["id"] == 0, {"v": frame["v"] + source["v"] + 7})
        .whenNotMatchedInsert(frame["id"] == 1, {"id": source["id"] + 10, "v": frame["v"]})
        .whenNotMatchedBySourceUpdate(frame["id"] == 5, {"v": frame["v"] + 1})
        .execute()
    )
    assert rows(table) == [(0, 7), (1, 10), (2, 20), (3, 30), (4, 40), (5, 51), (11, 10)]


def test_a_column_of_another_frame_is_still_an_error_and_changes_nothing(spark, table):
    table.toDF()
    other = spark.range(3)
    with pytest.raises(Exception, match=r"MISSING_ATTRIBUTES|does not fit|cannot be resolved"):
        table.delete(other["id"] == 1)
    assert len(rows(table)) == 6


TWICE = "(SELECT 1L AS id, 1 AS k UNION ALL SELECT 1L, 2)"


@pytest.mark.parametrize(
    ("clauses", "allowed"),
    [
        ("WHEN MATCHED THEN DELETE", True),
        ("WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", True),
        ("WHEN MATCHED AND s.k > 0 THEN DELETE", False),
        ("WHEN MATCHED AND s.k = 1 THEN DELETE WHEN MATCHED THEN DELETE", False),
        ("WHEN MATCHED AND s.k = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 0", False),
        ("WHEN MATCHED THEN UPDATE SET v = 0", False),
    ],
)
@pytest.mark.parametrize("key", ["t.id = s.id", "t.id + 0 = s.id + 0 AND rint(t.id) = s.id"])
def test_rows_of_the_source_that_meet_one_row_are_allowed_for_one_delete_without_a_condition_alone(
    spark, table, clauses, allowed, key
):
    path = table.detail().first()["location"]
    text = f"MERGE INTO delta.`{path}` t USING {TWICE} s ON {key} {clauses}"
    if allowed:
        assert spark.sql(text).first()["num_deleted_rows"] == 1
        assert len(rows(table)) == 5
        return
    with pytest.raises(InvalidArgumentError, match="multiple source rows matched"):
        spark.sql(text)
    assert len(rows(table)) == 6


def test_a_merge_with_a_change_feed_takes_names_with_dots(spark, tmp_path):
    path = str(tmp_path / "dots")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (`a.b` BIGINT, `c.d e` INT) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1), (2, 2)")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT id, uuid() AS x FROM range(1, 8, 6)) s ON t.`a.b` = s.id "
        "WHEN MATCHED THEN UPDATE SET `c.d e` = 9 WHEN NOT MATCHED THEN INSERT (`a.b`) VALUES (s.id)"
    )
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(path)
    found = sorted((row["a.b"], row["c.d e"], row["_change_type"]) for row in feed.collect())
    assert found == [(1, 1, "update_preimage"), (1, 9, "update_postimage"), (7, None, "insert")]
