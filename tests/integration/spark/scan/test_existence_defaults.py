"""A column may have a value for files that were written before it: tables that others converted from Parquet say so."""

from __future__ import annotations

import json

import pytest

import pydelta
from pydelta.errors import UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable
from pydelta.txn import Operation, start_transaction

pytestmark = pytest.mark.damages_tables  # delta-rs and Trino read NULL there
COLUMN = {"name": "c", "type": "long", "nullable": True, "metadata": {"EXISTS_DEFAULT": "7"}}


@pytest.fixture
def path(spark, tmp_path):
    """Two files without the column, and one in which it is null."""
    where = str(tmp_path / "t")
    spark.range(4).repartition(2).write.format("delta").save(where)
    log = DeltaLog.for_table(where)
    txn = start_transaction(log)
    schema = json.loads(txn.snapshot.metadata.schema_string)
    schema["fields"].append(COLUMN)
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=json.dumps(schema)))
    txn.commit([], Operation(name="CHANGE COLUMN"))
    spark.sql(f"INSERT INTO delta.`{where}` VALUES (4, NULL)")
    return where


def rows(spark, path):
    return {row.id: row.c for row in spark.read.format("delta").load(path).collect()}


def test_old_files_give_the_default_and_later_ones_what_they_hold(spark, path):
    expected = {0: 7, 1: 7, 2: 7, 3: 7, 4: None}
    assert rows(spark, path) == expected
    assert {row.id for row in spark.table(f"delta.`{path}`").where("c = 7").collect()} == {0, 1, 2, 3}
    assert spark.read.format("delta").load(path).selectExpr("count(c)", "min(c)").first() == (4, 7)


def test_whatever_rewrites_old_files_keeps_the_default(spark, path):
    table = DeltaTable.forPath(spark, path)
    table.delete("id = 1")
    table.update("id = 2", {"c": "c + 1"})
    assert rows(spark, path) == {0: 7, 2: 8, 3: 7, 4: None}
    table.optimize().executeCompaction()
    assert DeltaLog.for_table(path).update().num_files == 1
    assert rows(spark, path) == {0: 7, 2: 8, 3: 7, 4: None}


def test_without_a_session_such_a_table_is_refused(path):
    table = pydelta.open(path)
    for step in (table.scan, lambda: table.delete("id = 1"), table.optimize):
        with pytest.raises(UnsupportedFeatureError, match="default for old files"):
            step()
