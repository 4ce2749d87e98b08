"""Partition columns of an Iceberg entry: every type of value, as both readers see it and filter by it."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import StaticTable

import pydelta
from pydelta.commands.alter.requests import RenameColumn
from pydelta.errors import LogCorruptedError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg
from pydelta.manifests.iceberg.partitions import partition_records, partition_spec
from pydelta.manifests.iceberg.schema import entry_schema
from pydelta.protocol.schema import PrimitiveType, StructField, StructType, parse_type
from pydelta.testing.commands import alter_table
from tests.iceberg.readers import all_rows, canonical, duckdb_rows, of_arrow, pyiceberg_rows

UTC = dt.UTC
MOMENT = dt.datetime(2024, 5, 31, 12, 30, 15, 250000)
DIGITS = "1234567890123456789012345678.0123456789"
CASES: dict[str, list[tuple[str | None, Any]]] = {
    "string": [
        ("a", "a"), ("x/y=z %20é", "x/y=z %20é"), ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("", None), ("'\"`\\", "'\"`\\"), ("\n\t", "\n\t"), ("\U0010ffff", "\U0010ffff"), ("null", "null"),
    ],
    "long": [("7", 7), ("-9223372036854775808", -(1 << 63)), ("+08", 8)],
    "integer": [("2147483647", (1 << 31) - 1), ("-1", -1)],
    "short": [("-300", -300), ("7", 7)],
    "byte": [("-128", -128), ("7", 7)],
    "float": [("0.1", 0.10000000149011612), ("-0.0", -0.0), ("NaN", math.nan), ("Infinity", math.inf),
        ("1e30", 1.0000000150474662e30)],
    "double": [("0.5", 0.5), ("-Infinity", -math.inf), ("NaN", math.nan), ("2.5E-1", 0.25), ("0", 0.0)],
    "boolean": [("true", True), ("false", False), ("TRUE", True)],
    "date": [("2024-05-31", dt.date(2024, 5, 31)), ("1500-01-01", dt.date(1500, 1, 1)),
        ("9999-12-31", dt.date(9999, 12, 31))],
    "timestamp": [
        ("2024-05-31 12:30:15.25", MOMENT.replace(tzinfo=UTC)),
        ("2024-05-31T12:30:15.250000Z", MOMENT.replace(tzinfo=UTC)),
        ("2024-05-31T14:30:15.25+02:00", MOMENT.replace(tzinfo=UTC)),
        ("1969-12-31 23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ],
    "timestamp_ntz": [("2024-05-31 12:30:15.25", MOMENT), ("2024-05-31 12:30:15.250000", MOMENT),
        ("1600-01-01 00:00:00", dt.datetime(1600, 1, 1))],
    "binary": [("abc", b"abc"), ("é/=", "é/=".encode())],
    "decimal(5,2)": [("1.50", decimal.Decimal("1.50")), ("-999.99", decimal.Decimal("-999.99")),
        ("2", decimal.Decimal("2.00")), ("1E+2", decimal.Decimal("100.00"))],
    "decimal(38,10)": [(DIGITS, decimal.Decimal(DIGITS)), ("0", decimal.Decimal("0E-10"))],
}  # fmt: skip


def table_of(folder: Path, kind: str, texts: list[str | None]) -> None:
    """Write a table whose log spells the partition values exactly so."""
    (folder / "_delta_log").mkdir(parents=True)
    fields = [
        {"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("id", "long"), ("p", kind))
    ]
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"],
                "writerFeatures": ["timestampNtz"],
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["p"],
                "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {},
            }
        },
    ]  # fmt: skip
    for number, text in enumerate(texts):
        name = f"f{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), folder / name)
        add = {"path": name, "partitionValues": {"p": text}, "size": os.path.getsize(folder / name),
               "modificationTime": 1, "dataChange": True, "stats": '{"numRecords":1}'}  # fmt: skip
        actions.append({"add": add})
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def same(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("kind", CASES)
def test_values_of_every_type(tmp_path: Path, kind: str) -> None:
    cases = [*CASES[kind], (None, None)]
    table_of(tmp_path / "t", kind, [text for text, _ in cases])
    log = DeltaLog.for_table(str(tmp_path / "t"))
    entry = publish_iceberg(log).entry
    rows = [{"id": number, "p": value} for number, (_, value) in enumerate(cases)]
    assert all_rows(entry) == canonical(rows, ["id", "p"])
    iceberg = StaticTable.from_metadata(entry.metadata_location)
    for _, value in cases:
        expected = [row["id"] for row in rows if row["p"] == value]
        if value is None:
            condition, where = IsNull("p"), "p IS NULL"
        elif same(value) == "NaN" or (isinstance(value, float) and math.isinf(value)):
            continue
        else:
            condition, where = EqualTo("p", value), f"p = {literal(value, kind)}"
        assert sorted(iceberg.scan(row_filter=condition).to_arrow()["id"].to_pylist()) == expected, value
        assert sorted(row[0] for row in duckdb_rows(entry.location, where)) == expected, where


def literal(value: Any, kind: str) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, dt.datetime):
        return f"{'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'} '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float) and kind == "float":
        return f"CAST({value!r} AS FLOAT)"
    return f"CAST('{value}' AS {kind})" if isinstance(value, decimal.Decimal) else str(value)


@pytest.mark.parametrize("kind", ["variant", "void"])
def test_a_partition_column_cannot_be_left_out(kind: str) -> None:
    schema = StructType((StructField("id", PrimitiveType("long")), StructField("p", parse_type(kind))))
    entry = entry_schema(schema, mode="none", omit=True)
    with pytest.raises(UnsupportedFeatureError, match="cannot leave out 'p'"):
        partition_spec(entry, ["p"])


def test_a_text_that_is_not_a_value() -> None:
    entry = entry_schema(StructType((StructField("p", PrimitiveType("long")),)), mode="none")
    with pytest.raises(LogCorruptedError, match="'x' in the log is not a valid long"):
        partition_records(pl.DataFrame({"p": ["x"]}), partition_spec(entry, ["P"]), entry)


@pytest.mark.parametrize("text", ["0.1", "1e300", "16777217"])
def test_a_double_that_pyiceberg_rounds(text: str) -> None:
    entry = entry_schema(StructType((StructField("p", PrimitiveType("double")),)), mode="none")
    with pytest.raises(UnsupportedFeatureError, match="of type double: PyIceberg reads it as"):
        partition_records(pl.DataFrame({"p": [text]}), partition_spec(entry, ["p"]), entry)


def fields(spec: PartitionSpec) -> list[tuple[int, int, str]]:
    return [(item.source_id, item.field_id, item.name) for item in spec.fields]


def test_a_spec_stays_until_the_columns_change() -> None:
    names = ("a", "b", "c")
    entry = entry_schema(StructType(tuple(StructField(name, PrimitiveType("long")) for name in names)), mode="none")
    none = partition_spec(entry, [])
    assert (none.spec_id, none.fields) == (0, ())
    one = partition_spec(entry, ["b"], [none])
    assert (one.spec_id, fields(one)) == (1, [(2, 1000, "b")])
    two = partition_spec(entry, ["c", "b"], [none, one])
    assert (two.spec_id, fields(two)) == (2, [(3, 1001, "c"), (2, 1000, "b")])
    assert partition_spec(entry, ["b"], [none, one, two]) is one
    assert partition_spec(entry, [], [two, one, none]) is none


def test_a_spec_gives_its_name_away() -> None:
    """A field may only have the name of a column if it is of this column."""

    def mapped(name: str, number: int) -> StructField:
        marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p{number}"}
        return StructField(name, PrimitiveType("long"), True, marks)

    first = entry_schema(StructType((mapped("a", 1), mapped("b", 2))), mode="name")
    spec = partition_spec(first, ["a"])
    renamed = entry_schema(StructType((mapped("c", 1), mapped("b", 2))), mode="name")
    assert partition_spec(renamed, ["c"], [spec]) is spec
    taken = entry_schema(StructType((mapped("c", 1), mapped("a", 3))), mode="name")
    other = partition_spec(taken, ["c"], [spec])
    assert (other.spec_id, fields(other)) == (1, [(1, 1000, "c")])


def test_other_partition_columns_and_names_are_read(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "day": ["a", None, "b/é"], "n": [1, 1, 2]})
    properties = {"delta.columnMapping.mode": "name"}
    table = pydelta.LocalTable.create(tmp_path / "t", rows, partition_by=["day"], properties=properties)

    def check() -> Any:
        result = publish_iceberg(table._log)
        assert all_rows(result.entry) == of_arrow(table.scan())
        return result

    check()
    alter_table(table._log, RenameColumn(path=("day",), name="tag . x"))
    check()
    table.append(pa.table({"id": [4], "tag . x": ["new"], "n": [3]}))
    check()
    pydelta.LocalTable.create(tmp_path / "t", table.scan(), partition_by=["n"], mode="replace", properties=properties)
    location = check().entry.metadata_location
    table.append(pa.table({"id": [5], "tag . x": ["q"], "n": [3]}))
    check()
    assert len(StaticTable.from_metadata(location).specs()) == 2
    assert [row[0] for row in duckdb_rows(location, "n = 1")] == [1, 2]
    assert pyiceberg_rows(location, EqualTo("n", 1)) == duckdb_rows(location, "n = 1")


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()], ids=["read on", "begun again"])
def test_no_earlier_partition_has_the_name_of_another_column(tmp_path: Path, kind: pa.DataType) -> None:
    """Iceberg's own library opens no table whose partition field has the name of a column that it is not made from."""
    mapped = {"delta.columnMapping.mode": "name"}  # Ids are the table's then, and the entry's before.
    place = str(tmp_path / "t")
    first = pa.table({"id": [1, 2], "d": ["a", "b"], "s": ["x", "y"]})
    publish_iceberg(pydelta.LocalTable.create(place, first, partition_by=["d"])._log)
    second = pa.table({"id": [3, 4], "s": pa.array([5, 6]).cast(kind), "d": ["a", "b"]})
    table = pydelta.LocalTable.create(place, second, partition_by=["s"], properties=mapped, mode="replace")
    entry = publish_iceberg(table._log).entry
    assert all_rows(entry) == of_arrow(table.scan())
    metadata = StaticTable.from_metadata(entry.metadata_location).metadata
    columns = {column.name: column.field_id for column in metadata.schema().fields}
    assert columns == {"id": 1, "s": 2, "d": 3}
    fields = [field for spec in metadata.partition_specs for field in spec.fields]
    assert all(columns.get(field.name, field.source_id) == field.source_id for field in fields)
    names = [[field.name for field in spec.fields] for spec in metadata.partition_specs]
    assert names == ([["d_1000"], ["s"]] if kind == pa.string() else [["s"]])
    for snapshot in metadata.snapshots:
        rows = StaticTable.from_metadata(entry.metadata_location).scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert of_arrow(rows) == of_arrow(table.scan(version=int(snapshot.summary["pydelta.version"])))
