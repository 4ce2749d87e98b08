"""What comes in without a JVM is read the same by Spark, delta-rs and Polars, and by the way through a session."""

from __future__ import annotations

import polars as pl
import pytest
from arrow_rows import Generator, canonical_rows, shown
from deltalake import DeltaTable as RsTable

import pydelta
from pydelta.engines.spark.types import to_spark_schema
from pydelta.protocol.actions import Protocol
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]  # Python, by which all are compared, ends with year 9999

PROTOCOL = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("timestampNtz",), writer_features=("timestampNtz",)
)


def made(folder, schema):
    built = TableBuilder(open_store(str(folder)), columns={}, protocol=PROTOCOL)
    built.metadata = built.metadata.replace(schema_string=schema.to_json())
    built.commit()
    return str(folder)


@pytest.mark.parametrize("seed", [3, 21])
def test_every_reader_and_both_ways_in_have_the_same_rows(spark, tmp_path, seed):
    generator = Generator(seed)
    schema = generator.schema()
    path, other = made(tmp_path / "t", schema), made(tmp_path / "u", schema)
    table = pydelta.open(path)
    expected = {}
    for first in (1, 6):
        rows = generator.rows(schema, range(first, first + 5), spoil=False)
        table.append(rows.table)
        expected |= {row["id"]: shown(row) for row in rows.values}
    assert canonical_rows(table.scan(), schema) == expected
    assert canonical_rows(spark.read.format("delta").load(path).toArrow(), schema) == expected
    assert canonical_rows(RsTable(path).to_pyarrow_table(), schema) == expected
    assert sorted(pl.read_delta(path)["id"].to_list()) == sorted(expected)
    spark.createDataFrame(table.scan(), to_spark_schema(schema)).write.format("delta").mode("append").save(other)
    assert canonical_rows(pydelta.open(other).scan(), schema) == expected
