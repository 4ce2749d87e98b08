"""``DataFrame.inputFiles``: the files that a query reads, and not those that its filters rule out."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F


@pytest.fixture
def path(spark, tmp_path):
    place = str(tmp_path / "a table")
    rows = spark.range(0, 6, 1, 1).selectExpr("id", "id % 3 AS g")
    rows.write.format("delta").partitionBy("g").save(place)
    rows.selectExpr("id + 100 AS id", "g").write.format("delta").mode("append").save(place)
    return place


def test_partitions_and_statistics_rule_files_out(spark, path):
    frame = spark.read.format("delta").load(path)
    assert len(frame.inputFiles()) == 6
    assert len(frame.where("g = 1").inputFiles()) == 2
    assert len(frame.where("id > 50").inputFiles()) == 3
    (one,) = frame.where("g = 1 AND id > 50").select("id").inputFiles()
    assert one.startswith("file:///") and "/a%20table/g=1/part-" in one


def test_files_of_a_join_with_other_sources(spark, path, tmp_path):
    other = str(tmp_path / "other")
    spark.range(3).selectExpr("id AS g").coalesce(1).write.parquet(other)
    joined = spark.read.format("delta").load(path).where("id > 50").join(spark.read.parquet(other), "g")
    found = joined.inputFiles()
    assert sum("a%20table" in file for file in found) == 3
    assert sum("other" in file for file in found) == 1


def test_files_of_a_filter_that_holds_a_query(spark, path):
    frame = spark.read.format("delta").load(path)
    frame.createOrReplaceTempView("input_files_view")
    found = spark.sql("SELECT * FROM input_files_view WHERE g = (SELECT max(g) FROM input_files_view) AND id > 50")
    assert len(found.inputFiles()) == 3
    assert len(frame.where(F.col("g") == 7).inputFiles()) == 0
