"""User-defined types, such as the vectors of Spark ML: the log keeps them, whatever is done to the table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.testing.objects import PythonOnlyPoint, PythonOnlyUDT

import pydelta
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.protocol.schema import physical_name
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

VECTOR = "org.apache.spark.ml.linalg.VectorUDT"
DENSE, SPARSE = Vectors.dense([1.0, 2.0]), Vectors.sparse(3, {0: 5.0})
SCHEMA = T.StructType([
    T.StructField("id", T.LongType()),
    T.StructField("v", VectorUDT()),
    T.StructField("inside", T.StructType([T.StructField("many", T.ArrayType(VectorUDT()))])),
])  # fmt: skip


def rows(spark, *numbers):
    data = [(number, DENSE if number % 2 else SPARSE, ([DENSE, None],)) for number in numbers]
    return spark.createDataFrame(data, SCHEMA)


def found(spark, path):
    frame = spark.read.format("delta").load(path)
    assert frame.schema["v"].dataType == VectorUDT()
    return sorted((row["id"], row["v"], row["inside"] and row["inside"]["many"]) for row in frame.collect())


def logged(path):
    """The classes of the user-defined types in the newest schema."""
    text = DeltaLog.for_table(path).update().metadata.schema_string
    fields = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
    return fields["v"].get("class"), fields["inside"]["fields"][0]["type"]["elementType"].get("class")


@pytest.mark.parametrize("mode", ["none", "name"])
def test_vectors_stay_vectors_through_every_change(spark, tmp_path, mode):
    path = str(tmp_path / "t")
    table = DeltaTable.create(spark).location(path).addColumns(SCHEMA)
    table.property("delta.columnMapping.mode", mode).execute()
    rows(spark, 1, 2).write.format("delta").mode("append").save(path)
    assert logged(path) == (VECTOR, VECTOR)
    assert found(spark, path) == [(1, DENSE, [DENSE, None]), (2, SPARSE, [DENSE, None])]
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN w INT")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN v COMMENT 'features'")
    with pytest.raises(SchemaError, match="v"):
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN v.more INT")
    if mode == "name":
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN w TO x")
    rows(spark, 3).withColumn("new", F.lit(1)).write.format("delta").mode("append").option("mergeSchema", True).save(
        path
    )
    merge = DeltaTable.forPath(spark, path).alias("t").merge(rows(spark, 2, 4).alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values={"id": "s.id", "v": "s.v"}).execute()
    spark.sql(f"UPDATE delta.`{path}` SET id = 5 WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert logged(path) == (VECTOR, VECTOR)
    assert found(spark, path) == [(2, SPARSE, [DENSE, None]), (4, SPARSE, None), (5, DENSE, [DENSE, None])]
    snapshot = DeltaLog.for_table(path).update()
    stats = [json.loads(add.stats)["nullCount"] for add in snapshot.files.adds(snapshot.files.core)]
    assert all(counts[physical_name(snapshot.schema.field("v"))] == 0 for counts in stats), "a vector is one value"


def test_a_new_column_of_vectors_comes_with_a_write_and_is_read_without_spark(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(1).write.format("delta").save(path)
    rows(spark, 1).write.format("delta").mode("append").option("mergeSchema", True).save(path)
    assert logged(path) == (VECTOR, VECTOR)
    opened = pydelta.open(path)
    before = opened.scan("id = 1")
    assert before["v"].to_pylist()[0]["values"] == [1.0, 2.0]
    opened.append(before.set_column(0, "id", pa.array([7])))
    assert found(spark, path)[-1] == (7, DENSE, [DENSE, None])
    assert logged(path) == (VECTOR, VECTOR)


def test_a_type_of_python_alone_is_kept_in_the_log_and_read_as_its_values(spark, tmp_path):
    path = str(tmp_path / "t")
    schema = T.StructType([T.StructField("id", T.LongType()), T.StructField("p", PythonOnlyUDT())])
    frame = spark.createDataFrame([(1, PythonOnlyPoint(1.0, 2.0))], schema)
    frame.write.format("delta").save(path)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN w INT")
    frame.write.format("delta").mode("append").save(path)
    kind = json.loads(DeltaLog.for_table(path).update().metadata.schema_string)["fields"][1]["type"]
    assert kind["type"] == "udt" and kind["pyClass"].endswith("PythonOnlyUDT")
    back = spark.read.format("delta").load(path)
    assert back.schema["p"].dataType == T.ArrayType(T.DoubleType(), False), "no code that a log names is run"
    assert [row["p"] for row in back.collect()] == [[1.0, 2.0]] * 2
