"""Make the tables that Delta Kernel has calls for: it creates tables, appends rows and changes schemas."""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from matrix.answers import said
from matrix.cases import CASES, Case
from matrix.kernel import TYPES, Kernel, KernelError, kernel
from matrix.libraries import arrow_rows, nested_row, partitions, plain_columns, primitive_row

__all__ = ["printed", "schema_of", "write_by_kernel"]

_NOT_TRIED = {"deletionVectors", "checkConstraints"}
"""Features whose tables differ from others by what is done to them, which the kernel has no call for."""
_NAMES = {kind: name for name, kind in TYPES.items()}
_DAY = dt.date(1970, 1, 1)


def write_by_kernel(folder: Path) -> dict[str, str]:
    """Make the tables that the kernel has calls for; what says why one could not be made, otherwise nothing."""
    told = {}
    with kernel() as process:
        for number, case in enumerate(CASES):
            place = folder / str(number)
            try:
                told[case.name] = "" if _written(process, case, str(place)) else "no call for it was tried"
            except KernelError as error:
                told[case.name] = said(error, str(place))
            if told[case.name]:
                shutil.rmtree(place, ignore_errors=True)
    return told


def _written(process: Kernel, case: Case, place: str) -> bool:
    if case.name in _STEPS:
        _STEPS[case.name](process, case, place)
        return True
    columns = plain_columns(case)
    if columns is None or case.name in _NOT_TRIED or set(columns) != set(case.rows[0]):
        return False
    _create(process, case, place, pa.schema(list(columns.items())))
    for rows in (case.rows[:1], case.rows[1:]):
        _append(process, place, arrow_rows(columns, rows), partitions(case))
    return True


def _create(process: Kernel, case: Case, place: str, schema: pa.Schema) -> None:
    layout = {"partitioned": partitions(case), "clustered": ["id"] if case.clauses.startswith("CLUSTER") else []}
    process.ask(create=place, schema=schema_of(schema), properties=case.properties, **layout)


def _append(process: Kernel, place: str, table: pa.Table, by: list[str]) -> None:
    """Append rows in one commit, a file for each partition."""
    files: list[dict[str, Any]] = []
    for row in table.to_pylist():
        values = {field.name: printed(field.type, row[field.name]) for field in table.schema}
        partition = {name: values[name] for name in by}
        file = next((file for file in files if file["partition"] == partition), None)
        if file is None:
            files.append(file := {"partition": partition, "rows": []})
        file["rows"].append(list(values.values()))
    process.ask(append=place, files=files)


def _whole(table: pa.Table) -> Callable[[Kernel, Case, str], None]:
    def made(process: Kernel, case: Case, place: str) -> None:
        _create(process, case, place, table.schema)
        _append(process, place, table, [])

    return made


def _not_null(process: Kernel, case: Case, place: str) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    _create(process, case, place, schema)
    _append(process, place, pa.Table.from_pylist(case.rows, schema), [])


def _evolved(process: Kernel, case: Case, place: str) -> None:
    first = pa.schema([("id", pa.int32())])
    _create(process, case, place, first)
    _append(process, place, pa.Table.from_pylist(case.rows[:1], first), [])
    schema = process.ask(read=place)["schema"]
    schema["fields"].append(schema_of(pa.schema([("name", pa.string())]))["fields"][0])
    process.ask(alter=place, schema=schema)
    _append(process, place, pa.Table.from_pylist(case.rows[1:], first.append(pa.field("name", pa.string()))), [])


def _renamed(process: Kernel, case: Case, place: str) -> None:
    first = pa.schema([("id", pa.int32()), ("name", pa.string()), ("gone", pa.int32())])
    _create(process, case, place, first)
    rows = [{"id": row["id"], "name": row["a name"], "gone": 7} for row in case.rows[:2]]
    _append(process, place, pa.Table.from_pylist(rows, first), [])
    schema = process.ask(read=place)["schema"]
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "gone"]
    schema["fields"][1]["name"] = "a name"
    process.ask(alter=place, schema=schema)
    then = pa.schema([("id", pa.int32()), ("a name", pa.string())])
    _append(process, place, pa.Table.from_pylist(case.rows[2:], then), [])


def _widened(process: Kernel, case: Case, place: str) -> None:
    first, then = (pa.schema([("id", small), ("n", less)]) for small, less in _WIDTHS)
    _create(process, case, place, first)
    _append(process, place, pa.Table.from_pylist(case.rows[:1], first), [])
    schema = process.ask(read=place)["schema"]
    for field, wide in zip(schema["fields"], schema_of(then)["fields"], strict=True):
        field["type"] = wide["type"]
    process.ask(alter=place, schema=schema)
    _append(process, place, pa.Table.from_pylist(case.rows[1:], then), [])


_WIDTHS = ((pa.int32(), pa.int16()), (pa.int64(), pa.int32()))
_STEPS: dict[str, Callable[[Kernel, Case, str], None]] = {
    "every primitive type": _whole(primitive_row()),
    "nested types": _whole(nested_row()),
    "invariants": _not_null,
    "schema evolution": _evolved,
    "columnMapping (name)": _renamed,
    "columnMapping (id)": _renamed,
    "typeWidening": _widened,
}


def schema_of(schema: pa.Schema) -> dict[str, Any]:
    """Write an Arrow schema as a table's log has it."""
    return {"type": "struct", "fields": [_field(field) for field in schema]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _kind(field.type), "nullable": field.nullable, "metadata": {}}


def _kind(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(field) for field in kind]}
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _kind(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        of = {"keyType": _kind(kind.key_type), "valueType": _kind(kind.item_type)}
        return {"type": "map", **of, "valueContainsNull": True}
    return _NAMES[kind]


def printed(kind: pa.DataType, value: Any) -> Any:
    """Write a value as ``KernelTables.java`` reads it, the reverse of what ``arrow`` does."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return [printed(part.type, value[part.name]) for part in kind]
    if pa.types.is_map(kind):
        of = {"key": kind.key_type, "value": kind.item_type}
        keys, items = zip(*value, strict=True) if value else ((), ())
        return [[printed(of["key"], key) for key in keys], [printed(of["value"], item) for item in items]]
    if isinstance(value, list):
        return [printed(kind.value_type, item) for item in value]
    if isinstance(value, dt.datetime):
        return pa.scalar(value, kind).value
    if isinstance(value, dt.date):
        return (value - _DAY).days
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return value.hex() if isinstance(value, bytes) else value
