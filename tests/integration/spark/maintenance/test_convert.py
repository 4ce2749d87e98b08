"""Folders of Parquet files that Spark and pyarrow wrote, converted where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from pydelta.engines.spark.maintenance import convert as spark_convert
from pydelta.errors import InvalidArgumentError, SchemaError, StorageError, TableNotFoundError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


def _stats(path):
    snapshot = DeltaLog.for_table(path).update()
    return {add.path: json.loads(add.stats) for add in snapshot.files.adds(snapshot.files.core)}


def test_a_partitioned_folder(spark, tmp_path):
    path = str(tmp_path / "a folder")
    columns = (
        "id", "cast(id % 3 as int) as year", "if(id % 2 = 0, 'a/b', null) as name", "concat('v', id) as v",
        "cast(id as decimal(20,4)) as money", "timestamp_seconds(id) as at", "named_struct('x', id) as s",
    )  # fmt: skip
    rows = spark.range(12).selectExpr(*columns)
    rows.write.partitionBy("year", "name").parquet(path)
    expected = sorted(map(str, spark.read.parquet(path).collect()))
    files = {str(item) for item in Path(path).rglob("*")}
    table = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "year int, name string")
    assert {str(item) for item in Path(path).rglob("*")} - files == {
        str(item) for item in Path(path).glob("_delta_log*/**/*")
    } | {f"{path}/_delta_log"}
    frame = spark.read.format("delta").load(path)
    assert frame.columns == ["id", "v", "money", "at", "s", "year", "name"]
    assert sorted(map(str, frame.collect())) == expected
    assert frame.where("year = 1 and name is null").count() == 2
    for stats in _stats(path).values():
        assert stats["minValues"]["s"]["x"] == stats["minValues"]["id"]
        assert stats["nullCount"]["v"] == 0
        assert "at" not in stats["minValues"]  # INT96 has no bounds
    table.delete("id = 4")
    assert frame.count() == spark.read.format("delta").load(path).count() == 11


def test_twice_is_once(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).write.parquet(path)
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert DeltaTable.convertToDelta(spark, f"delta.`{path}`").history().count() == 1


def test_columns_are_merged_over_all_files_and_hidden_ones_are_left_out(spark, tmp_path):
    path = tmp_path / "t"
    path.mkdir()
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64()), "f": [1.0, float("nan")]}), path / "one.parquet")
    pq.write_table(pa.table({"a": pa.array([3, None], pa.int64()), "b": ["x", "y"]}), path / "two.parquet")
    (path / "_SUCCESS").write_bytes(b"")
    (path / ".hidden.parquet").write_bytes(b"no parquet at all")
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    rows = {(row["a"], row["b"]) for row in spark.read.format("delta").load(str(path)).collect()}
    assert rows == {(1, None), (2, None), (3, "x"), (None, "y")}
    stats = _stats(str(path))
    assert stats["two.parquet"] == {
        "numRecords": 2, "minValues": {"a": 3, "b": "x"}, "maxValues": {"a": 3, "b": "y"}, "nullCount": {"a": 1, "b": 0}
    }  # fmt: skip
    assert "f" not in stats["one.parquet"]["maxValues"]  # a NaN is above every bound


@pytest.mark.parametrize("many", [False, True], ids=["threads", "a job"])
def test_a_file_that_is_no_parquet_is_named_and_nothing_is_made(spark, tmp_path, monkeypatch, many):
    if many:
        monkeypatch.setattr(spark_convert, "_FEW", 0)
    path = tmp_path / "t"
    spark.range(3).coalesce(1).write.parquet(str(path))
    (path / "z.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(StorageError, match=r"z\.parquet"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert not DeltaLog.for_table(str(path)).table_exists()
    (path / "z.parquet").unlink()
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert sum(stats["numRecords"] for stats in _stats(str(path)).values()) == 3


def test_files_without_a_schema_in_common(spark, tmp_path):
    path = tmp_path / "t"
    path.mkdir()
    pq.write_table(pa.table({"a": [1]}), path / "one.parquet")
    pq.write_table(pa.table({"a": ["x"]}), path / "two.parquet")
    with pytest.raises(SchemaError, match=r"(?s)no schema in common.*BIGINT.*STRING"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert not DeltaLog.for_table(str(path)).table_exists()


def test_bad_input(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(3).selectExpr("id", "'x' as p").write.partitionBy("p").parquet(path)
    (tmp_path / "empty").mkdir()
    cases = [
        (f"parquet.`{path}`", None, InvalidArgumentError, "partition columns p"),
        (f"parquet.`{path}`", "p int", SchemaError, "'x'"),
        (f"parquet.`{path}`", "q string", InvalidArgumentError, "expected were q string"),
        (f"parquet.`{path}`", "p is what?", InvalidArgumentError, "not a list of columns"),
        ("some_table", None, InvalidArgumentError, "not a Parquet table"),
        (f"parquet.`{tmp_path}/empty`", None, TableNotFoundError, "no Parquet file"),
    ]
    for identifier, partitions, error, said in cases:
        with pytest.raises(error, match=said) as caught:
            DeltaTable.convertToDelta(spark, identifier, partitions)
        assert isinstance(caught.value, AnalysisException)
    assert not DeltaLog.for_table(path).table_exists()


@pytest.fixture
def parquet_table(spark):
    for name in ("of_parquet", "clone_of_parquet"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("CREATE TABLE of_parquet (a INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO of_parquet VALUES (1, 10), (2, 20)")
    yield "of_parquet"
    for name in ("of_parquet", "clone_of_parquet"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_of_the_catalog_becomes_a_delta_table(spark, parquet_table):
    spark.sql("CONVERT TO DELTA of_parquet")
    detail = spark.sql("DESCRIBE DETAIL of_parquet").first()
    assert (detail.format, detail.partitionColumns, detail.numFiles) == ("delta", ["p"], 2)
    spark.sql("UPDATE of_parquet SET a = 5 WHERE p = 10")
    assert sorted(tuple(row) for row in spark.table("of_parquet").collect()) == [(2, 20), (5, 10)]
    spark.sql("CONVERT TO DELTA of_parquet")
    assert DeltaTable.convertToDelta(spark, "of_parquet").toDF().count() == 2
    assert spark.sql("DESCRIBE HISTORY of_parquet").count() == 2, "a Delta table stays as it is"


@pytest.mark.parametrize("kind", ["SHALLOW", "DEEP"])
@pytest.mark.parametrize("by", ["name", "path"])
def test_clones_of_parquet(spark, parquet_table, tmp_path, kind, by):
    source = "of_parquet"
    if by == "path":
        source = f"parquet.`{tmp_path}/folder`"
        spark.table("of_parquet").write.partitionBy("p").parquet(f"{tmp_path}/folder")
    told = spark.sql(f"CREATE TABLE clone_of_parquet {kind} CLONE {source}").first()
    assert (told.source_num_of_files, told.num_copied_files) == (2, 2 if kind == "DEEP" else 0)
    spark.sql("DELETE FROM clone_of_parquet WHERE a = 1")
    assert [tuple(row) for row in spark.table("clone_of_parquet").collect()] == [(2, 20)]
    assert spark.sql("SELECT * FROM of_parquet").count() == 2, "the source stays as it is"
    history = spark.sql("DESCRIBE HISTORY clone_of_parquet").collect()[-1]
    assert history.operation == "CLONE" and history.operationParameters["sourceVersion"] == "-1"
    with pytest.raises(InvalidArgumentError, match="no versions"):
        spark.sql(f"CREATE OR REPLACE TABLE clone_of_parquet SHALLOW CLONE {source} VERSION AS OF 0")


@pytest.mark.parametrize("statement", ["CONVERT TO DELTA {}", "CREATE TABLE more_columns_cloned SHALLOW CLONE {}"])
def test_columns_that_only_the_catalog_knows_come_along(spark, statement):
    spark.sql("DROP TABLE IF EXISTS more_columns")
    spark.sql("CREATE TABLE more_columns (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO more_columns VALUES (1, 2)")
    spark.sql("ALTER TABLE more_columns ADD COLUMNS (later STRUCT<x: INT>)")
    try:
        spark.sql(statement.format("more_columns"))
        table = "more_columns_cloned" if "CLONE" in statement else "more_columns"
        assert spark.table(table).select("id", "later", "p").collect() == [(1, None, 2)]
        assert spark.table(table).schema["later"].nullable
    finally:
        spark.sql("DROP TABLE IF EXISTS more_columns_cloned")
        spark.sql("DROP TABLE more_columns")


def test_a_column_whose_value_only_the_catalog_has_is_refused(spark, tmp_path):
    spark.sql("DROP TABLE IF EXISTS kept_in_catalog")
    spark.sql(f"CREATE TABLE kept_in_catalog (id INT) USING parquet LOCATION '{tmp_path}/t'")
    spark.sql("INSERT INTO kept_in_catalog VALUES (1)")
    spark.sql("ALTER TABLE kept_in_catalog ADD COLUMNS (later INT DEFAULT 7)")
    try:
        with pytest.raises(UnsupportedFeatureError, match="'later' is in no file"):
            spark.sql("CONVERT TO DELTA kept_in_catalog")
        assert spark.table("kept_in_catalog").collect() == [(1, 7)]
        assert not (tmp_path / "t" / "_delta_log").exists()
    finally:
        spark.sql("DROP TABLE kept_in_catalog")
