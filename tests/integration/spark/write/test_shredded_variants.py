"""Variants whose fields lie in columns of their own: what others shredded is read, what is written is whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pydelta
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.tables import DeltaTable
from pydelta.txn import Operation, start_transaction

SHREDDING = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.forceShreddingSchemaForTest": "a int, b string",
}
ROWS = {1: '{"a":1,"b":"x"}', 2: '{"a":"not a number","c":[1,2]}', 3: None, 4: "7"}


@pytest.fixture
def table(spark, tmp_path):
    """A table with one file of Spark's own Parquet writer, whose variants are shredded."""
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, v VARIANT) USING delta "
        "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    )
    values = ", ".join(f"({key}, {'NULL' if text is None else repr(text)})" for key, text in ROWS.items())
    for name, value in SHREDDING.items():
        spark.conf.set(name, value)
    try:
        frame = spark.sql(f"SELECT CAST(id AS BIGINT) AS id, parse_json(v) AS v FROM VALUES {values} AS t(id, v)")
        frame.coalesce(1).write.parquet(f"{tmp_path}/plain")
    finally:
        for name in SHREDDING:
            spark.conf.unset(name)
    (file,) = Path(tmp_path, "plain").glob("*.parquet")
    data = file.read_bytes()
    Path(path, "shredded.parquet").write_bytes(data)
    add = AddFile(
        path="shredded.parquet", partition_values={}, size=len(data), modification_time=0, data_change=True,
        stats='{"numRecords":4}',
    )  # fmt: skip
    start_transaction(DeltaLog.for_table(path)).commit([add], Operation(name="WRITE"))
    return path


def rows(spark, path):
    return {row["id"]: row["v"] for row in spark.sql(f"SELECT id, to_json(v) AS v FROM delta.`{path}`").collect()}


def columns(path):
    """The leaves of the variants in each live file."""
    files = DeltaLog.for_table(path).update().files
    return [
        {field.name for field in pq.read_schema(Path(path, add.path)).field("v").type} for add in files.adds(files.core)
    ]


def test_what_another_engine_shredded_is_read(spark, table):
    assert columns(table) == [{"metadata", "value", "typed_value"}]
    assert rows(spark, table) == ROWS
    found = spark.sql(f"SELECT id FROM delta.`{table}` WHERE try_variant_get(v, '$.a', 'int') = 1").collect()
    assert [row["id"] for row in found] == [1]


def test_it_is_rewritten_whole_by_every_command(spark, table):
    spark.sql(f"UPDATE delta.`{table}` SET id = 10 WHERE id = 4")
    assert rows(spark, table) == {10 if key == 4 else key: text for key, text in ROWS.items()}
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")
    spark.sql(f"INSERT INTO delta.`{table}` SELECT 5, parse_json('[null]')")
    DeltaTable.forPath(spark, table).optimize().executeCompaction()
    left = {1: ROWS[1], 2: ROWS[2], 10: ROWS[4], 5: "[null]"}
    assert rows(spark, table) == left
    assert columns(table) == [{"metadata", "value"}]


def test_optimize_alone_keeps_every_value(spark, table):
    spark.sql(f"INSERT INTO delta.`{table}` SELECT 5, parse_json('1.5')")
    DeltaTable.forPath(spark, table).optimize().executeCompaction()
    assert rows(spark, table) == {**ROWS, 5: "1.5"}
    assert columns(table) == [{"metadata", "value"}]


def test_without_a_jvm_it_is_refused_and_not_read_in_part(table):
    with pytest.raises(DeltaError):
        pydelta.open(table).scan()
    with pytest.raises(DeltaError):
        pydelta.open(table).delete("id = 1")
    assert DeltaLog.for_table(table).update().version == 1
