"""An empty string in a partition column is null before anything is checked, on every route into a table."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from pydelta.errors import ConstraintViolatedError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

ROUTES = {
    "insert": lambda spark, path: spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, '')"),
    "static": lambda spark, path: spark.sql(f"INSERT INTO delta.`{path}` PARTITION (p = '') VALUES (2)"),
    "write": lambda spark, path: _rows(spark, 2).write.format("delta").mode("append").save(path),
    "overwrite": lambda spark, path: _rows(spark, 2).write.format("delta").mode("overwrite").save(path),
    "update": lambda spark, path: DeltaTable.forPath(spark, path).update("id = 1", {"p": F.substring("p", 2, 0)}),
    "sql update": lambda spark, path: spark.sql(f"UPDATE delta.`{path}` SET p = '' WHERE id = 1"),
    "merge": lambda spark, path: _merge(spark, path, 1),
    "merge insert": lambda spark, path: _merge(spark, path, 2),
    "stream": lambda spark, path: _stream(spark, path),
}


def _rows(spark, number):
    return spark.range(number, number + 1).select("id", F.lit("").alias("p"))


def _merge(spark, path, number):
    merge = DeltaTable.forPath(spark, path).alias("t").merge(_rows(spark, number).alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _stream(spark, path):
    source = f"{path}-source"
    _rows(spark, 2).write.format("delta").save(source)
    query = spark.readStream.format("delta").load(source).writeStream.format("delta")
    query.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True).start(path).awaitTermination()


@pytest.mark.parametrize(
    ("route", "rule"), [*((route, "NOT NULL") for route in ROUTES), ("write", "CHECK"), ("merge", "CHECK")]
)
def test_an_empty_text_breaks_the_rules_that_null_breaks(spark, tmp_path, route, rule):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, p STRING {rule.replace('CHECK', '')}) USING delta PARTITIONED BY (p)"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a')")
    if rule == "CHECK":
        spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT some CHECK (p IS NOT NULL)")
    version = DeltaLog.for_table(path).update().version
    with pytest.raises(Exception) as caught:
        ROUTES[route](spark, path)
    assert isinstance(caught.value, ConstraintViolatedError) or "DELTA_" in str(caught.value), caught.value
    assert DeltaLog.for_table(path).update().version == version
    assert [tuple(row) for row in spark.read.format("delta").load(path).collect()] == [(1, "a")]


def test_what_is_made_of_an_empty_partition_is_made_of_null(spark, tmp_path):
    path = str(tmp_path / "t")
    table = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("s", "STRING")
    table = table.addColumn("g", "STRING", generatedAlwaysAs="substring(s, 1, 1)").addColumn("p", "STRING")
    table.addColumn("n", "INT", generatedAlwaysAs="length(p)").partitionedBy("p", "g").execute()
    spark.sql("SELECT 1L id, '' s, '' p").write.format("delta").mode("append").save(path)
    spark.sql("SELECT 2L id, '' s, '' p, '' g, CAST(NULL AS INT) n").write.format("delta").mode("append").save(path)
    found = spark.read.format("delta").load(path).orderBy("id").select("id", "s", "g", "p", "n").collect()
    assert [tuple(row) for row in found] == [(1, "", None, None, None), (2, "", None, None, None)]
