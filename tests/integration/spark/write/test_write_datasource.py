"""The Python data source ``delta`` as a writer: what reaches it when the session's routes do not catch a write."""

from __future__ import annotations

import json

import pytest

from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.log import DeltaLog
from pydelta.protocol.schema import parse_schema
from pydelta.settings import Settings
from pydelta.testing.commands import create_table

pytestmark = pytest.mark.spark


def save(df, path, mode="append", **options):
    """Past the routes: Spark's own writer, which finds the data source registered as delta."""
    writer = df._jdf.write().format("delta").mode(mode)
    for key, value in options.items():
        writer = writer.option(key, value)
    writer.save(str(path))


def rows(spark, path):
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


def test_appends_and_overwrites_make_one_version_each(spark, tmp_path):
    path = tmp_path / "t"
    save(spark.range(3), path)
    save(spark.range(3, 5), path)
    assert rows(spark, path) == [(i,) for i in range(5)]
    save(spark.range(7, 8), path, mode="overwrite")
    assert rows(spark, path) == [(7,)]
    assert DeltaLog.for_table(str(path)).update().version == 2


def test_columns_are_matched_by_name_and_partitions_kept(spark, tmp_path):
    path = tmp_path / "t"
    spark.createDataFrame([(1, "a", 1.5)], "id long, p string, x double").write.format("delta").partitionBy("p").save(
        str(path)
    )
    save(spark.createDataFrame([("b", 2)], "P string, ID int"), path)
    assert rows(spark, path) == [(1, "a", 1.5), (2, "b", None)]


def test_what_it_cannot_check_it_refuses_by_name(spark, tmp_path):
    path = str(tmp_path / "t")
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    create_table(
        DeltaLog.for_table(path),
        TableDefinition(
            schema=parse_schema(json.dumps({"type": "struct", "fields": [field]})),
            properties={"delta.constraints.small": "id < 10"},
        ),
        mode=CreateMode.CREATE,
        settings=Settings(),
    )
    with pytest.raises(Exception, match=r"delta\.constraints\.small"):
        save(spark.range(3), path)
    assert DeltaLog.for_table(path).update().version == 0


def test_not_null_holds(spark, tmp_path):
    path = str(tmp_path / "t")
    field = {"name": "id", "type": "long", "nullable": False, "metadata": {}}
    create_table(
        DeltaLog.for_table(path),
        TableDefinition(schema=parse_schema(json.dumps({"type": "struct", "fields": [field]}))),
        mode=CreateMode.CREATE,
        settings=Settings(),
    )
    save(spark.range(2), path)
    with pytest.raises(Exception, match="NOT NULL"):
        save(spark.sql("select cast(null as long) id"), path)
    assert DeltaLog.for_table(path).update().version == 1


def test_a_write_without_a_path_is_refused(spark):
    with pytest.raises(Exception, match="without a path"):
        spark.range(1)._jdf.write().format("delta").mode("append").save()
