"""Columns of an Iceberg entry: their ids stay, and readers find them in files of every age."""

from __future__ import annotations

import decimal
import json
import os
import uuid
from dataclasses import replace

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

import pydelta
from pydelta.api.cli.iceberg import entry_lines
from pydelta.commands.alter.requests import (
    AddColumns,
    ChangeColumn,
    DropColumns,
    NewColumn,
    RenameColumn,
    SetProperties,
)
from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg
from pydelta.manifests.iceberg.footers import file_oddities
from pydelta.manifests.iceberg.name_mapping import find_name, ids_of, previous_mapping
from pydelta.manifests.iceberg.schema import EntrySchema, PreviousColumns, entry_schema, promotes
from pydelta.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
)
from pydelta.protocol.schema_edits import First
from pydelta.testing.commands import alter_table
from tests.iceberg.readers import all_rows, canonical, duckdb_rows, of_arrow, pyiceberg_rows

P = PrimitiveType
LONG, TEXT = P("long"), P("string")


def field(name: str, kind: DataType, **metadata: object) -> StructField:
    return StructField(name, kind, True, metadata)


def mapped(name: str, kind: DataType, number: int, physical: str | None = None, **more: object) -> StructField:
    marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical or f"col-{number}"}
    return StructField(name, kind, True, {**marks, **more})


def held(entry: EntrySchema) -> PreviousColumns:
    return PreviousColumns(schema=entry.schema, last_column_id=entry.last_column_id, name_mapping=entry.name_mapping)


def after(entry: EntrySchema, *fields: StructField, mode: str = "none", **options: object) -> EntrySchema:
    return entry_schema(
        StructType(fields),
        mode=mode,
        previous=held(entry),
        **options,  # type: ignore[arg-type]
    )


def ids(entry: EntrySchema) -> dict[str, int]:
    return {entry.schema.find_column_name(number): number for number in entry.schema.field_ids}  # type: ignore[misc]


NESTED = StructType(
    (
        field("id", LONG),
        field("st", StructType((field("x", LONG), field("in", StructType((field("z", TEXT),)))))),
        field("arr", ArrayType(StructType((field("q", LONG),)))),
        field("m", MapType(TEXT, ArrayType(LONG))),
    )
)


def test_ids_are_given_once_and_kept() -> None:
    first = entry_schema(NESTED, mode="none")
    assert first.restarts is None
    assert len(set(ids_of(previous_mapping(first.name_mapping, None)))) == first.last_column_id == 12
    again = after(first, *NESTED.fields)
    assert (again.schema, again.name_mapping, again.last_column_id) == (first.schema, first.name_mapping, 12)
    moved = after(first, *reversed(NESTED.fields), field("new", TEXT))
    assert ids(moved) == {**ids(first), "new": 13}
    assert [item.name for item in moved.schema.fields] == ["m", "arr", "st", "id", "new"]
    assert moved.restarts is None
    deeper = NESTED.fields[1].replace(data_type=StructType((field("y", LONG), field("x", LONG))))
    changed = after(first, NESTED.fields[0], deeper)
    assert ids(changed) == {"id": 1, "st": 2, "st.x": 3, "st.y": 13}
    assert changed.restarts is None


def test_without_a_name_mapping_the_schema_is_the_memory() -> None:
    first = entry_schema(NESTED, mode="none")
    again = entry_schema(NESTED, mode="none", previous=replace(held(first), name_mapping=None))
    assert (again.schema, again.name_mapping) == (first.schema, first.name_mapping)


def test_a_dropped_column_stays_named_since_files_have_it() -> None:
    first = entry_schema(NESTED, mode="none")
    dropped = after(first, NESTED.fields[0])
    names = previous_mapping(dropped.name_mapping, None)
    assert {item.names[0] for item in names} == {"id", "st", "arr", "m"}
    assert sorted(ids_of(names)) == list(range(1, 13))
    back = after(dropped, *NESTED.fields)
    assert back.restarts == "the column st was dropped and added again"
    assert len(set(ids_of(previous_mapping(back.name_mapping, None)))) == 12


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("byte", "integer", True), ("short", "long", True), ("long", "integer", False), ("float", "double", True),
        ("double", "float", False), ("integer", "double", False), ("date", "timestamp_ntz", False),
        ("decimal(5,2)", "decimal(9,2)", True), ("decimal(5,2)", "decimal(9,3)", False), ("integer", "string", False),
        ("integer", "decimal(20,0)", False), ("string", "binary", False), ("byte", "short", True),
    ],
)  # fmt: skip
def test_a_column_of_another_type_is_another_column(old: str, new: str, fits: bool) -> None:
    before, now = parse_type(old), parse_type(new)
    assert promotes(before, now) is fits
    first = entry_schema(StructType((field("a", before), field("l", ArrayType(before)))), mode="none")
    second = after(first, field("a", now), field("l", ArrayType(now)))
    assert (second.restarts is None) is fits
    assert (ids(second) == ids(first)) is fits
    if not fits:
        assert second.restarts == "the column a has another type"
        assert not {ids(second)["a"], ids(second)["l.element"]} & set(first.schema.field_ids)
    changed = field("a", now, **{"delta.typeChanges": [{"fromType": old, "toType": new}]})
    if fits:
        entry_schema(StructType((changed,)), mode="none")
    else:
        with pytest.raises(
            UnsupportedFeatureError, match=r"'a', which was widened from .*\n.*DROP FEATURE typeWidening"
        ):
            entry_schema(StructType((changed,)), mode="none")


def test_a_change_of_an_element_is_named() -> None:
    change = {"fromType": "integer", "toType": "double", "fieldPath": "element"}
    column = field("a", ArrayType(P("double")), **{"delta.typeChanges": [change]})
    with pytest.raises(UnsupportedFeatureError, match=r"'a.element', which was widened from integer to double"):
        entry_schema(StructType((column,)), mode="none")


def test_column_mapping_gives_the_ids() -> None:
    nested = {"delta.columnMapping.nested.ids": {"col-2.element": 5, "col-2.element.element": 6}}
    inner = StructType((mapped("x", LONG, 8, "x"),))
    fields = (
        mapped("id", LONG, 1),
        mapped("a", ArrayType(ArrayType(inner)), 2, **nested),
        mapped("m", MapType(TEXT, LONG), 3, **{"delta.columnMapping.nested.ids": {"col-3.key": 9, "col-3.value": 10}}),
    )
    entry = entry_schema(StructType(fields), mode="name")
    assert ids(entry) == {
        "id": 1, "a": 2, "a.element": 5, "a.element.element": 6, "a.element.element.x": 8, "m": 3, "m.key": 9,
        "m.value": 10,
    }  # fmt: skip
    assert find_name(previous_mapping(entry.name_mapping, None), "col-2") is not None
    renamed = after(entry, fields[0].replace(name="other"), *fields[1:], mode="name")
    assert ids(renamed) == {**{name: number for name, number in ids(entry).items() if name != "id"}, "other": 1}
    assert renamed.restarts is None
    assert renamed.name_mapping == entry.name_mapping


def test_ids_of_column_mapping_replace_others() -> None:
    first = entry_schema(StructType((field("a", LONG), field("b", LONG))), mode="none")
    same = after(first, mapped("a", LONG, 1, "a"), mapped("b", LONG, 2, "b"), mode="name")
    assert same.restarts is None
    other = after(first, mapped("a", LONG, 2, "a"), mapped("b", LONG, 1, "b"), mode="name")
    assert other.restarts == "the column a has another id"
    assert ids(other) == {"a": 2, "b": 1}
    assert {item.names: item.field_id for item in previous_mapping(other.name_mapping, None)} == {("a",): 2, ("b",): 1}


@pytest.mark.parametrize(
    "kind", [ArrayType(LONG), MapType(TEXT, LONG), StructType((mapped("l", ArrayType(LONG), 2),))], ids=str
)
def test_parts_without_ids_are_refused_where_files_have_ids(kind: DataType) -> None:
    fields = (mapped("id", LONG, 7), mapped("a", kind, 1))
    with pytest.raises(UnsupportedFeatureError, match=r"without ids for its parts.*\n.*enableIcebergCompatV2"):
        entry_schema(StructType(fields), mode="name")
    entry = entry_schema(StructType(fields), mode="name", omit=True)
    assert ids(entry) == {"id": 7}
    assert entry.left_out == ("a",)
    again = after(entry, *fields, mode="name", omit=True)
    assert (again.name_mapping, again.restarts, again.last_column_id) == (
        entry.name_mapping, None, entry.last_column_id
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (P("variant"), "v"), (P("void"), "v"), (P("interval day to second"), "v"), (ArrayType(P("variant")), "v"),
        (MapType(TEXT, StructType((field("w", P("void")),))), "v"), (StructType(()), "v"),
        (StructType((field("w", P("void")), field("x", LONG))), "v.w"), (StructType((field("w", P("void")),)), "v"),
    ],
)  # fmt: skip
def test_columns_that_iceberg_lacks_are_refused_or_left_out(kind: DataType, left: str) -> None:
    schema = StructType((field("id", LONG), field("v", kind)))
    with pytest.raises(UnsupportedFeatureError, match=r"cannot hold 'v.*\n.*'pydelta.iceberg.unsupported' = 'omit'"):
        entry_schema(schema, mode="none")
    entry = entry_schema(schema, mode="none", omit=True)
    assert entry.left_out == (left,)
    assert left not in ids(entry)
    again = after(entry, *schema.fields, omit=True)
    assert (again.schema, again.name_mapping, again.restarts) == (entry.schema, entry.name_mapping, None)


def test_nothing_is_left() -> None:
    with pytest.raises(SchemaError, match="none of the table's columns"):
        entry_schema(StructType((field("v", P("void")),)), mode="none", omit=True)


@pytest.mark.parametrize(
    "fields",
    [
        (field("a.b", LONG), field("a", StructType((field("b", LONG),)))),
        (field("A.B", LONG), field("a", StructType((field("b", LONG),)))),
        (field("l.element", LONG), field("l", ArrayType(LONG))),
    ],
)
def test_full_names_that_clash_are_refused(fields: tuple[StructField, ...]) -> None:
    with pytest.raises(SchemaError, match="same full name in Iceberg"):
        entry_schema(StructType(fields), mode="none")


def test_defaults_of_old_files_are_refused() -> None:
    entry_schema(StructType((field("a", LONG, EXISTS_DEFAULT="NULL"),)), mode="none")
    with pytest.raises(UnsupportedFeatureError, match="find NULL"):
        entry_schema(StructType((field("a", LONG, EXISTS_DEFAULT="7"),)), mode="none")


def test_comments_and_user_types_are_kept() -> None:
    user = parse_type({"type": "udt", "class": "c", "sqlType": "double"})
    entry = entry_schema(StructType((field("a", LONG, comment="what"), field("u", user))), mode="none")
    assert str(entry.schema.find_field("a").doc) == "what"
    assert str(entry.schema.find_type("u")) == "double"
    assert Schema.model_validate_json(entry.schema.model_dump_json()) == entry.schema


# --- through the readers ---------------------------------------------------------------------------------------


ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)),
        "st": [{"x": 1, "y": "a"}, {"x": 2, "y": None}],
        "f": pa.array([1.5, 2.5], pa.float32()),
    }
)


def published(table: pydelta.LocalTable, **options: bool):
    log = DeltaLog.for_table(table._log.uri)
    result = publish_iceberg(log, IcebergOptions(**options))
    assert all_rows(result.entry) == of_arrow(table.scan())
    return result


def changed(table: pydelta.LocalTable, change: object) -> None:
    alter_table(table._log, change)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["name", "upgraded"])
def test_every_alter_is_read_by_every_engine(tmp_path, mode) -> None:
    given = {"delta.columnMapping.mode": "name"} if mode == "name" else {}
    widening = {"delta.enableTypeWidening": "true"}
    table = pydelta.LocalTable.create(tmp_path / "t", ROWS, properties={**given, **widening})
    published(table)
    if mode == "upgraded":
        changed(table, SetProperties(properties={"delta.columnMapping.mode": "name"}))
        published(table)
    rows = ROWS.to_pylist()

    def renamed(old: str, new: str):
        return lambda row: {new if name == old else name: value for name, value in row.items()}

    def without(name: str):
        return lambda row: {other: value for other, value in row.items() if other != name}

    odd = "odd . \"'é` name"
    steps = [
        (AddColumns(columns=(NewColumn(path=("b",), data_type=LONG),)), lambda row: {**row, "b": None}),
        (
            AddColumns(columns=(NewColumn(path=("st", "z"), data_type=TEXT),)),
            lambda row: {**row, "st": {**row["st"], "z": None}},
        ),
        (RenameColumn(path=("b",), name=odd), renamed("b", odd)),
        (RenameColumn(path=("st", "x"), name="X2"), lambda row: {**row, "st": renamed("x", "X2")(row["st"])}),
        (ChangeColumn(path=("id",), data_type=LONG), dict),
        (ChangeColumn(path=("f",), data_type=P("double")), dict),
        (ChangeColumn(path=("price",), data_type=DecimalType(12, 2)), dict),
        (DropColumns(paths=(("st", "y"),)), lambda row: {**row, "st": without("y")(row["st"])}),
        (DropColumns(paths=(("f",),)), without("f")),
        (AddColumns(columns=(NewColumn(path=("f",), data_type=TEXT),)), lambda row: {**row, "f": None}),
        (ChangeColumn(path=("price",), position=First()), dict),
    ]
    for step, changes in steps:
        changed(table, step)
        rows = [changes(row) for row in rows]
        result = publish_iceberg(table._log)
        assert not result.full or isinstance(step, ChangeColumn), step
        assert all_rows(result.entry) == canonical(rows, sorted(rows[0])), step
        table.append(pa.Table.from_pylist(rows[:2], schema=table.schema))
        rows = [*rows, *rows[:2]]
        result = publish_iceberg(table._log)
        assert all_rows(result.entry) == canonical(rows, sorted(rows[0])), step
    snapshots = StaticTable.from_metadata(result.entry.metadata_location).metadata.snapshots
    assert len(snapshots) >= 2 * len(steps)


LISTED = ("l", pa.list_(pa.struct([("y", pa.int64())])))


def test_renamed_fields_deep_in_arrays_are_refused(tmp_path) -> None:
    """PyIceberg casts such arrays by the names of their fields."""
    kind = pa.list_(pa.list_(pa.struct([("x", pa.int64())])))
    rows = pa.table({"id": [1], "ll": pa.array([[[{"x": 1}]]], kind)})
    table = pydelta.LocalTable.create(tmp_path / "t", rows, properties={"delta.enableIcebergCompatV2": "true"})
    with pytest.raises(UnsupportedFeatureError, match=r"'ll', which has fields with other names"):
        published(table)
    assert published(pydelta.LocalTable.create(tmp_path / "plain", rows)).left_out == ()


def test_nested_ids_of_compatibility_are_read_by_every_engine(tmp_path) -> None:
    rows = pa.table(
        {
            "id": [1, 2],
            "l": pa.array([[1, None], None], pa.list_(pa.int64())),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "ll": pa.array([[[1], None], []], pa.list_(pa.list_(pa.int64()))),
            "ls": pa.array([[{"x": 1, "l": [{"y": 2}]}], []], pa.list_(pa.struct([("x", pa.int64()), LISTED]))),
        }
    )  # PyIceberg reads null arrays of structs as empty ones.
    table = pydelta.LocalTable.create(tmp_path / "t", rows, properties={"delta.enableIcebergCompatV2": "true"})
    published(table)
    changed(table, RenameColumn(path=("l",), name="renamed"))
    table.append(table.scan())
    published(table)


def test_nested_columns_without_column_mapping(tmp_path) -> None:
    rows = pa.table(
        {
            "id": [1, 2],
            "l": pa.array([[1, None], None], pa.list_(pa.int64())),
            "m": pa.array([[("a", {"v": 1})], []], pa.map_(pa.string(), pa.struct([("v", pa.int16())]))),
        }
    )
    table = pydelta.LocalTable.create(tmp_path / "t", rows)
    published(table)
    changed(table, AddColumns(columns=(NewColumn(path=("m", "value", "w"), data_type=TEXT),)))
    result = publish_iceberg(table._log)
    expected = [(1, (1, None), (("a", {"v": 1, "w": None}),)), (2, None, ())]
    assert all_rows(result.entry) == expected
    table.append(rows)
    assert all_rows(publish_iceberg(table._log).entry) == sorted(expected * 2)


def test_files_of_row_tracking_are_read(tmp_path) -> None:
    for number, mode in enumerate(("none", "name")):
        properties = {"delta.enableRowTracking": "true", "delta.columnMapping.mode": mode}
        table = pydelta.LocalTable.create(tmp_path / str(number), ROWS, properties=properties)
        table.append(ROWS)
        table.update("id = 1", set={"f": "9"})
        table.optimize()
        published(table)


def test_other_columns_by_overwriting(tmp_path) -> None:
    table = pydelta.LocalTable.create(tmp_path / "t", pa.table({"a": [1, 2], "b": ["x", "y"]}))
    first = published(table)
    table.overwrite(pa.table({"b": [1.5], "c": [True]}), overwrite_schema=True)
    second = published(table)
    assert second.reason == "the column b has another type"
    assert first.entry.location == second.entry.location
    table.overwrite(pa.table({"a": [1], "c": [True]}), overwrite_schema=True)
    assert published(table).reason == "the column a was dropped and added again"


# --- ids in files without column mapping -----------------------------------------------------------------------


def marked(*names: tuple[str, int | None]) -> pa.Table:
    columns = [
        pa.field(name, pa.int64(), metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for name, number in names
    ]
    return pa.table({name: [position] for position, (name, _) in enumerate(names)}, schema=pa.schema(columns))


def test_ids_that_delta_rs_copies_are_the_columns_ids(tmp_path) -> None:
    """DuckDB finds columns by the ids in files, whatever the name mapping says."""
    deltalake.write_deltalake(str(tmp_path / "t"), marked(("x", 2), ("y", 1)))
    table = pydelta.open(tmp_path / "t")
    result = published(table)
    assert StaticTable.from_metadata(result.entry.metadata_location).schema().find_field("x").field_id == 2
    table.append(pa.table({"x": [5], "y": [6]}))
    published(table)


def test_ids_for_some_columns_only_are_refused(tmp_path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), marked(("x", 2), ("y", None)))
    with pytest.raises(UnsupportedFeatureError, match=r"'y', which has no id, although others.*\n.*AS SELECT"):
        publish_iceberg(DeltaLog.for_table(str(tmp_path / "t")))


def footer_and_entry(path, rows: pa.Table, schema: StructType, **options):
    pq.write_table(rows, path, **options)
    return pq.ParquetFile(path).metadata, entry_schema(schema, mode="none")


def test_footers_that_readers_take_otherwise(tmp_path) -> None:
    xy = StructType((field("x", LONG), field("y", LONG)))
    found = file_oddities(*footer_and_entry(tmp_path / "a", marked(("x", 2), ("y", 1)), xy))
    assert found.other_ids == ("x", "y")
    found = file_oddities(*footer_and_entry(tmp_path / "b", marked(("x", 1), ("y", 2), ("more", 3)), xy))
    assert found == type(found)()
    found = file_oddities(*footer_and_entry(tmp_path / "c", marked(("x", None), ("y", None), ("more", None)), xy))
    assert (found.unnamed, found.other_ids) == ((("more",),), ())
    found = file_oddities(*footer_and_entry(tmp_path / "d", marked(("x", 1), ("y", None)), xy))
    assert found.other_ids == ("y",)
    times = StructType((field("t", P("timestamp")), field("s", StructType((field("n", P("timestamp_ntz")),)))))
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    rows = pa.table({"t": moment, "s": pa.StructArray.from_arrays([pa.array([0], pa.timestamp("us"))], ["n"])})
    found = file_oddities(*footer_and_entry(tmp_path / "e", rows, times, use_deprecated_int96_timestamps=True))
    assert found.int96 == ("t", "s.n")
    assert file_oddities(*footer_and_entry(tmp_path / "f", rows, times)).int96 == ()
    nested = StructType((field("l", ArrayType(LONG)), field("m", MapType(TEXT, StructType((field("v", LONG),))))))
    kinds = pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.struct([("v", pa.int64())])))])
    rows = pa.table({"l": [[1]], "m": [[("a", {"v": 1})]]}, schema=kinds)
    for compliant in (True, False):
        options = {"use_compliant_nested_type": compliant}
        found = file_oddities(*footer_and_entry(tmp_path / "g", rows, nested, **options))
        assert found == type(found)()


def test_files_with_other_ids_are_refused(tmp_path) -> None:
    """Rows that come from Parquet with field ids keep them when delta-rs appends them."""
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"x": [1], "y": [2]}))
    table = pydelta.open(tmp_path / "t")
    published(table)
    deltalake.write_deltalake(str(tmp_path / "t"), marked(("x", 2), ("y", 1)), mode="append")
    with pytest.raises(UnsupportedFeatureError, match=r"other field ids than the table for 'x', 'y'.*\n.*OVERWRITE"):
        published(table)
    table.overwrite(table.scan())
    published(table)


def test_columns_that_were_dropped_before_the_entry(tmp_path) -> None:
    table = pydelta.LocalTable.create(tmp_path / "t", ROWS)
    changed(table, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    changed(table, DropColumns(paths=(("st", "y"), ("f",))))
    expected = [{"id": row["id"], "price": row["price"], "st": {"x": row["st"]["x"]}} for row in ROWS.to_pylist()]
    for _ in range(2):
        result = publish_iceberg(table._log)
        assert all_rows(result.entry) == canonical(expected, sorted(expected[0]))
        row = {"id": 7, "price": None, "st": {"x": 5}}
        table.append(pa.Table.from_pylist([row], schema=table.schema))
        expected.append(row)


def test_times_as_int96_are_told(tmp_path) -> None:
    moment = pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": [1], "t": moment})
    table = pydelta.LocalTable.create(tmp_path / "t", rows)
    assert published(table).int96 == ()
    added(tmp_path / "t", rows, 1, use_deprecated_int96_timestamps=True)
    result = publish_iceberg(table._log)
    assert result.int96 == ("t",)
    assert any("INT96" in line for line in entry_lines(result))


def added(folder, rows: pa.Table, version: int, **options: object) -> None:
    path = folder / "old.parquet"
    pq.write_table(rows, path, **options)
    add = {"path": "old.parquet", "partitionValues": {}, "size": os.path.getsize(path),
           "modificationTime": 9_000_000_000_000, "dataChange": True}  # fmt: skip
    (folder / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"add": add}))


def test_lists_of_old_writers_are_read(tmp_path) -> None:
    rows = pa.table({"id": [1, 2], "l": pa.array([[1, 2], None], pa.list_(pa.int64()))})
    table = pydelta.LocalTable.create(tmp_path / "t", rows.schema)
    added(tmp_path / "t", rows, 1, use_compliant_nested_type=False)
    result = published(table)
    assert pyiceberg_rows(result.entry.location) == duckdb_rows(result.entry.location) == of_arrow(rows)
    assert uuid.UUID(result.entry.table_id)
