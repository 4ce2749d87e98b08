"""Spark's own file formats stay out of the folders of Delta tables: the log would go, or know nothing of the files."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from pydelta.errors import UnsafeOperationError

pytestmark = pytest.mark.spark
CHECK = "spark.databricks.delta.formatCheck.enabled"


@pytest.fixture
def table(spark, tmp_path):
    path = tmp_path / "a lake" / "50% t"
    spark.range(3).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(str(path))
    return path


def _files(table) -> set[str]:
    return {str(file.relative_to(table)) for file in table.rglob("*")}


def test_spark_files_into_a_table_are_refused(spark, table):
    before, frame = _files(table), spark.range(2)
    for mode in ("append", "overwrite", "ignore", "error"):
        writers = {
            "parquet": lambda mode=mode: frame.write.mode(mode).parquet(str(table)),
            "json": lambda mode=mode: frame.write.json(str(table), mode=mode),
            "csv": lambda mode=mode: frame.write.mode(mode).csv(path=str(table)),
            "orc": lambda mode=mode: frame.write.mode(mode).orc(f"file:{table}"),
            "avro": lambda mode=mode: frame.write.format("avro").mode(mode).save(str(table)),
            "PARQUET": lambda mode=mode: frame.write.save(str(table), format="PARQUET", mode=mode),
            "text": lambda mode=mode: frame.write.mode(mode).format("text").option("path", str(table)).save(),
            "orc table": lambda mode=mode: frame.write.mode(mode).format("orc").saveAsTable("odd", path=str(table)),
        }
        for source, write in writers.items():
            with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at") as refused:
                write()
            assert isinstance(refused.value, AnalysisException)
            assert f"written as {source.split()[0].lower()}" in str(refused.value)
    with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at"):
        frame.write.mode("overwrite").parquet(str(table / "p=1"))
    with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at"):
        frame.write.mode("overwrite").parquet(str(table / "_delta_log" / "x"))
    for directory in (table, f"file://{table}", table / "p=1"):
        for how in ("USING parquet", "ROW FORMAT DELIMITED FIELDS TERMINATED BY ','"):
            with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at"):
                spark.sql(f"INSERT OVERWRITE DIRECTORY '{directory}' {how} SELECT 1")
    assert _files(table) == before


def test_a_name_of_spark_over_a_table_takes_no_rows(spark, table):
    spark.sql(f"CREATE TABLE seen_as_files (id BIGINT, p INT) USING parquet PARTITIONED BY (p) LOCATION '{table}'")
    spark.read.parquet(str(table)).createOrReplaceTempView("files_view")
    frame, before = spark.sql("SELECT 7L AS id, 1 AS p"), _files(table)
    try:
        for name in ("seen_as_files", "files_view", f"parquet.`{table}`", f"parquet.`file:{table}`"):
            for write in (
                lambda name=name: spark.sql(f"INSERT INTO {name} SELECT 7L, 1"),
                lambda name=name: spark.sql(f"INSERT OVERWRITE {name} SELECT 7L, 1"),
                lambda name=name: spark.sql(
                    f"FROM range(2) INSERT INTO {name} SELECT id, 1 INSERT INTO {name} SELECT id, 1"
                ),
                lambda name=name: frame.write.insertInto(name, overwrite=True),
            ):
                with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at"):
                    write()
        with pytest.raises(UnsafeOperationError, match="belongs to the Delta table at"):
            frame.write.format("parquet").mode("append").saveAsTable("seen_as_files")
        assert _files(table) == before
    finally:
        spark.sql("DROP TABLE seen_as_files")
        spark.catalog.dropTempView("files_view")


def test_other_folders_are_sparks(spark, table, tmp_path):
    spark.range(2).write.parquet(str(table.parent / "plain"))
    spark.range(2).write.mode("overwrite").parquet(str(table.parent / "plain"))
    spark.range(2).write.format("json").save(str(table / "_staged" / "x"))
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/dir' USING parquet SELECT 1 AS a")
    spark.range(2).write.format("noop").mode("overwrite").save()
    assert spark.read.parquet(str(table.parent / "plain")).count() == 2
    assert spark.read.json(str(table / "_staged" / "x")).count() == 2
    assert spark.read.parquet(f"{tmp_path}/dir").count() == 1


def test_the_check_can_be_switched_off(spark, table):
    spark.conf.set(CHECK, "false")
    try:
        spark.range(2).write.mode("append").parquet(str(table))
    finally:
        spark.conf.unset(CHECK)
    assert spark.read.format("delta").load(str(table)).count() == 3
