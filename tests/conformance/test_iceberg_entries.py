"""Every table that other engines wrote, through its Iceberg entry: the rows that PyIceberg and DuckDB read, and bounds.

Most tables are read by both. The others are refused by name, or a reader has a known fault; each is listed here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import StaticTable

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg
from tests.iceberg.orders import orders
from tests.iceberg.readers import duck

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PYDELTA_CONFORMANCE", ROOT.parent / "shared" / "conformance"))
GOLDEN, TRINO = "golden__golden-tables__", "trino__resources__"
REFUSED = {
    "delta-rs__data__delta-0.8.0-numeric-partition": "the partition value 9.9 of type double",
    "delta-rs__data__spark-variant-checkpoint": "variant",
    "duckdb__variant__basic": "variant",
    f"{GOLDEN}spark-variant-checkpoint": "variant",
    f"{GOLDEN}table-with-columnmapping-mode-id": "without ids for its parts",
    "golden__spark__variant-stats-nested-no-checkpoint": "variant",
    "golden__spark__variant-stats-no-checkpoint": "variant",
    "golden__spark__variant-stats-state-reconstruction": "variant",
    "kernel-rs__data__void-column": "void",
    "kernel-rs__golden_data__table-with-columnmapping-mode-id": "without ids for its parts",
    f"{TRINO}databricks131__timestamp_ntz_partition": "in the log is not a valid timestamp_ntz",
    f"{TRINO}databricks153__type_widening": "was widened from byte to double",
    f"{TRINO}databricks153__type_widening_nested": "was widened from short to double",
    f"{TRINO}databricks153__variant_types": "variant",
    f"{TRINO}deltalake__allow_column_defaults": "EXISTS_DEFAULT",
    f"{TRINO}deltalake__partition_values_parsed_all_types": "the partition value 10.2 of type double",
    f"{TRINO}deltalake__partitions": "the partition value 3.14159",
    f"{TRINO}deltalake__write_stats_as_json_partition_column_mapping_id": "without ids for its parts",
    f"{TRINO}deltalake__write_stats_as_json_partition_column_mapping_name": "without ids for its parts",
}
"""Tables that are refused, with a part of the message."""
FAULTS = {
    (f"{GOLDEN}parquet-all-types", "pyiceberg"): "null arrays of structs are read as empty ones",
    (f"{GOLDEN}parquet-all-types-legacy-format", "pyiceberg"): "null arrays of structs are read as empty ones",
    (f"{GOLDEN}parquet-all-types-legacy-format", "duckdb"): "lists of two levels are an internal error",
    (f"{TRINO}databricks73__old_timestamps", "pyiceberg"): "INT96 times beyond nanoseconds wrap around",
    (f"{TRINO}databricks73__pruning__timestamp", "pyiceberg"): "INT96 times beyond nanoseconds wrap around",
}
"""Faults of readers."""
MADE_UP = ("kernel-rs__data__parsed-stats",)
"""Tables whose statistics are made up: of a column that no file has."""


@cache
def _cases() -> list[dict[str, Any]]:
    path = FOLDER / "index.json"
    return [case for case in json.loads(path.read_text()) if case["expect"] == "rows"] if path.exists() else []


@cache
def _canon() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_canon", FOLDER / "canon.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_corpus_is_there() -> None:
    assert len(_cases()) == 226, f"no conformance tables in {FOLDER}: set PYDELTA_CONFORMANCE to the folder"
    ids = {case["id"] for case in _cases()}
    assert set(REFUSED) <= ids
    assert {name for name, _ in FAULTS} <= ids


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_both_readers_find_the_rows(case: dict[str, Any], tmp_path: Path) -> None:
    name = case["id"]
    shutil.copytree(FOLDER / "tables" / name, tmp_path / "t")
    log = DeltaLog.for_table(str(tmp_path / "t"))
    if name in REFUSED:
        with pytest.raises(DeltaError) as raised:
            publish_iceberg(log)
        assert REFUSED[name] in str(raised.value)
        return
    result = publish_iceberg(log)
    location = result.entry.metadata_location
    for reader, read in (("pyiceberg", _by_pyiceberg), ("duckdb", _by_duckdb)):
        if (name, reader) in FAULTS:
            assert result.int96 or "INT96" not in FAULTS[name, reader], "its times are told"
            continue
        assert _difference(case, read(location)) is None, reader
    if (name, "pyiceberg") not in FAULTS and name not in MADE_UP:
        _check_bounds(StaticTable.from_metadata(location))


def _by_pyiceberg(location: str) -> pa.Table:
    return StaticTable.from_metadata(location).scan().to_arrow()


def _by_duckdb(location: str) -> pa.Table:
    return duck().sql(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table()


def _difference(case: dict[str, Any], found: pa.Table) -> str | None:
    if found.num_rows != case["rows"]:
        return f"{found.num_rows} rows, expected {case['rows']}"
    if case.get("rows_hash") is None or _canon().canon(found) == case["rows_hash"]:
        return None
    return f"the rows differ; columns {found.schema.names}"


def _check_bounds(table: StaticTable) -> None:
    """Check that each file's rows are within its bounds, in every order that an engine may use."""
    schema = table.schema()
    for task in table.scan().plan_files():
        file = task.file
        if not file.lower_bounds and not file.upper_bounds and not file.null_value_counts:
            continue
        scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        rows = scan.to_table([task]).to_pylist()
        for bounds, is_lower in ((file.lower_bounds, True), (file.upper_bounds, False)):
            for number, content in (bounds or {}).items():
                bound = from_bytes(schema.find_type(number), content)  # type: ignore[arg-type]
                for value in _values(rows, schema.find_column_name(number)):
                    for one, other in zip(orders(bound), orders(value), strict=True):
                        assert one <= other if is_lower else one >= other, (file.file_path, number, bound, value)
        for number, nulls in (file.null_value_counts or {}).items():
            values = _values(rows, schema.find_column_name(number), nulls=True)
            if not task.delete_files:
                assert nulls == values.count(None), (file.file_path, number)


def _values(rows: list[dict[str, Any]], name: str | None, *, nulls: bool = False) -> list[Any]:
    assert name is not None
    found = []
    for row in rows:
        value: Any = row
        rest = name
        while value is not None and rest:  # Names may have dots.
            part = next(part for part in value if rest == part or rest.startswith(f"{part}."))
            value, rest = value[part], rest[len(part) + 1 :]
        found.append(value)
    return found if nulls else [value for value in found if value is not None and value == value]
