"""Schemas: what fits, what merges, what is refused and how it is said."""

from __future__ import annotations

import pytest

from pydelta.errors import LogCorruptedError, SchemaError, SchemaMismatchError, UnsupportedFeatureError
from pydelta.protocol.evolution import only_assigned
from pydelta.protocol.paths import LogFileKind, parse_log_name, resolve_data_path
from pydelta.protocol.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    can_store,
    can_widen,
    check_write_compatible,
    logical_to_physical,
    merge_schemas,
    parse_schema,
    parse_type,
    physical_partition_columns,
    to_arrow_type,
    validate_names,
    without_void,
)
from pydelta.protocol.stats import indexed_leaves


def struct(**fields):
    return StructType(tuple(StructField(name, parse_type(kind)) for name, kind in fields.items()))


@pytest.mark.parametrize(
    ("data", "table", "fits"),
    [
        ("integer", "long", True), ("long", "integer", False), ("byte", "short", True), ("integer", "double", True),
        ("long", "double", False), ("float", "double", True), ("double", "float", False),
        ("integer", "decimal(10,0)", True),
        ("integer", "decimal(9,0)", False), ("decimal(5,2)", "decimal(7,3)", True),
        ("decimal(5,2)", "decimal(5,3)", False),
        ("date", "timestamp", True), ("timestamp", "date", False), ("string", "integer", False),
        ("integer", "string", False),
        ("void", "string", True), ("string", "string", True), ("boolean", "integer", False),
    ],
)  # fmt: skip
def test_what_a_write_may_cast(data, table, fits):
    assert can_store(parse_type(data), parse_type(table)) is fits


@pytest.mark.parametrize(
    ("old", "new", "widens"),
    [
        ("byte", "short", True), ("short", "byte", False), ("integer", "double", True), ("long", "double", False),
        ("date", "timestamp_ntz", True), ("date", "timestamp", False), ("integer", "decimal(10,0)", True),
        ("integer", "decimal(12,3)", False), ("long", "decimal(20,0)", True), ("decimal(5,2)", "decimal(7,4)", True),
        ("decimal(5,2)", "decimal(6,4)", False), ("string", "long", False), ("integer", "integer", False),
    ],
)  # fmt: skip
def test_what_type_widening_allows(old, new, widens):
    assert can_widen(parse_type(old), parse_type(new)) is widens


def test_a_mismatch_names_the_columns_and_shows_both_schemas():
    table = struct(id="long", name="string")
    with pytest.raises(SchemaMismatchError) as caught:
        check_write_compatible(table, struct(ID="string", extra="date", name="string"))
    text = str(caught.value)
    assert "column 'ID' is string in the data and long in the table" in text
    assert "column 'extra' (date) is not in the table" in text
    assert text.count("root") == 2
    assert "mergeSchema" in text


def test_names_compare_ignoring_case_and_a_missing_nullable_column_is_fine():
    check_write_compatible(struct(id="long", name="string"), struct(NAME="string"))
    required = StructType((StructField("id", PrimitiveType("long"), False), StructField("x", PrimitiveType("long"))))
    for data, condition in (
        (struct(x="long"), "DELTA_MISSING_NOT_NULL_COLUMN_VALUE"),
        (struct(x="long", y="long"), "DELTA_METADATA_MISMATCH"),
        (struct(x="date", y="long"), "DELTA_FAILED_TO_MERGE_FIELDS"),
    ):
        with pytest.raises(SchemaMismatchError, match="'id' is NOT NULL in the table and missing") as refused:
            check_write_compatible(required, data)
        assert refused.value.getCondition() == condition
    with pytest.raises(SchemaMismatchError, match="occurs twice"):
        check_write_compatible(struct(a="long"), StructType((*struct(a="long").fields, *struct(A="long").fields)))


@pytest.mark.parametrize("of", [ArrayType, lambda part: MapType(PrimitiveType("string"), part)])
def test_new_fields_in_arrays_and_maps_are_told_from_types_that_do_not_go_together(of):
    table, more = (StructType((StructField("l", of(struct(**fields))),)) for fields in ({"a": "long"}, MORE))
    other = StructType((StructField("l", of(struct(a="string", b="date"))),))
    with pytest.raises(SchemaMismatchError, match="with fields that are not in the table") as caught:
        check_write_compatible(table, more)
    assert caught.value.code == "DELTA_METADATA_MISMATCH"
    assert "mergeSchema" in str(caught.value)
    with pytest.raises(SchemaMismatchError, match=r"in the data and .* in the table") as caught:
        check_write_compatible(table, other)
    assert caught.value.code == "DELTA_FAILED_TO_MERGE_FIELDS"


MORE = {"a": "long", "b": "date"}


def test_merging_adds_new_columns_at_the_end_and_keeps_the_table_s_spelling():
    inner = StructType((StructField("a", PrimitiveType("long")),))
    wider = StructType((StructField("A", PrimitiveType("integer")), StructField("b", PrimitiveType("date"), False)))
    table = StructType(
        (StructField("Id", PrimitiveType("long")), StructField("s", inner), StructField("v", PrimitiveType("void")))
    )
    data = StructType(
        (
            StructField("new", PrimitiveType("string"), False),
            StructField("S", wider),
            StructField("v", ArrayType(inner)),
        )
    )
    merged = merge_schemas(table, data)
    assert merged.names == ("Id", "s", "v", "new")
    assert merged.field("s").data_type.names == ("a", "b")
    assert merged.field("s").data_type.field("a").data_type == PrimitiveType("long")
    assert merged.field("s").data_type.field("b").nullable
    assert merged.field("new").nullable
    assert merged.field("v").data_type == ArrayType(inner)


def test_merging_types_that_do_not_go_together_names_the_nested_column():
    with pytest.raises(SchemaMismatchError, match=r"'m\.value'"):
        merge_schemas(
            StructType((StructField("m", MapType(PrimitiveType("string"), PrimitiveType("long"))),)),
            StructType((StructField("m", MapType(PrimitiveType("string"), PrimitiveType("date"))),)),
        )


def test_types_that_are_cast_later_stay_those_of_the_table():
    table = StructType((StructField("a", PrimitiveType("integer"), True),))
    data = StructType((StructField("a", PrimitiveType("string"), True), StructField("b", PrimitiveType("long"), True)))
    with pytest.raises(SchemaMismatchError):
        merge_schemas(table, data)
    merged = merge_schemas(table, data, casts=True)
    assert [(field.name, str(field.data_type)) for field in merged.fields] == [("a", "integer"), ("b", "long")]


def test_a_merge_adds_only_what_its_clauses_assign():
    inner = StructType((StructField("x", PrimitiveType("long"), True), StructField("y", PrimitiveType("long"), True)))
    data = StructType((StructField("S", inner, True), StructField("b", PrimitiveType("long"), True)))
    assert only_assigned(data, set(), all_columns=True) == data
    assert only_assigned(data, set(), all_columns=False).names == ()
    assert only_assigned(data, {("b",), ("nope",)}, all_columns=False).names == ("b",)
    part = only_assigned(data, {("s", "y")}, all_columns=False).fields[0]
    assert (part.name, part.data_type.names) == ("S", ("y",))


def test_widening_is_recorded_and_only_where_allowed():
    table, data = struct(a="integer"), struct(a="long")
    with pytest.raises(SchemaMismatchError):
        merge_schemas(table, data)
    changes = merge_schemas(table, data, allow_widening=True).field("a").metadata["delta.typeChanges"]
    assert changes == [{"fromType": "integer", "toType": "long"}]


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{", "a}", "a(", "a)", "a\nb", "a\tb", "a=b", ""])
def test_names_that_parquet_does_not_take_are_named(name):
    schema = StructType((StructField(name, PrimitiveType("long")),))
    with pytest.raises(SchemaError):
        validate_names(schema)
    if name:
        validate_names(schema, column_mapping=True)


def test_two_names_equal_but_for_case_are_refused_at_any_depth():
    inner = StructType((*struct(a="long").fields, *struct(A="long").fields))
    with pytest.raises(SchemaError, match=r"s\.element\.A"):
        validate_names(StructType((StructField("s", ArrayType(inner)),)))


def test_void_stays_out_of_files_and_inside_an_array_it_is_refused():
    assert without_void(struct(a="long", v="void")).names == ("a",)
    with pytest.raises(SchemaError, match="array<void>"):
        without_void(StructType((StructField("a", ArrayType(PrimitiveType("void"))),)))
    with pytest.raises(SchemaError, match="Every column"):
        without_void(struct(v="void"))


def test_physical_names_replace_logical_ones_at_any_depth():
    def mapped(name, kind, number):
        metadata = {"delta.columnMapping.physicalName": f"col-{number}", "delta.columnMapping.id": number}
        return StructField(name, kind, True, metadata)

    inner = StructType((mapped("x", PrimitiveType("long"), 3),))
    schema = StructType((mapped("p", PrimitiveType("date"), 1), mapped("s", ArrayType(inner), 2)))
    physical = logical_to_physical(schema, "name")
    assert physical.names == ("col-1", "col-2")
    assert physical.fields[1].data_type.element_type.names == ("col-3",)
    assert physical.fields[0].metadata["parquet.field.id"] == 1
    assert logical_to_physical(schema, "none") is schema
    assert physical_partition_columns(schema, ["P"], "name") == ("col-1",)
    assert physical_partition_columns(schema, ["p"], "none") == ("p",)


@pytest.mark.parametrize("text", ["", "{", '"long"', '{"type":"struct"}', '{"type":"struct","fields":[{"name":"a"}]}'])
def test_a_damaged_schema_is_a_damaged_log(text):
    with pytest.raises(LogCorruptedError, match="schema"):
        parse_schema(text)


def test_a_type_outside_of_the_protocol_is_kept_and_has_no_arrow_form():
    kind = parse_type("geometry(4326)")
    assert parse_schema(StructType((StructField("g", kind),)).to_json()).fields[0].data_type == kind
    with pytest.raises(UnsupportedFeatureError, match="geometry"):
        to_arrow_type(kind)
    assert to_arrow_type(DecimalType(10, 2)).precision == 10


def test_indexed_leaves_are_the_first_or_the_named_ones_and_never_partitions():
    schema = StructType(
        (*struct(p="date", a="long").fields, StructField("s", struct(x="long", y="long")), *struct(b="long").fields)
    )

    def paths(**how):
        return [".".join(path) for path, _ in indexed_leaves(schema, partition_columns=["P"], **how)]

    assert paths(num_indexed=2) == ["a", "s.x"]
    assert paths(num_indexed=-1) == ["a", "s.x", "s.y", "b"]
    assert paths(num_indexed=0) == []
    assert paths(num_indexed=1, stats_columns=["S", "`b`"]) == ["s.x", "s.y", "b"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000001.json", LogFileKind.COMMIT),
        ("00000000000000000001.crc", LogFileKind.CHECKSUM),
        ("00000000000000000001.checkpoint.parquet", LogFileKind.CHECKPOINT_CLASSIC),
        ("00000000000000000001.checkpoint.0000000001.0000000002.parquet", LogFileKind.CHECKPOINT_PART),
        ("00000000000000000001.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", LogFileKind.CHECKPOINT_V2),
        ("00000000000000000001.00000000000000000003.compacted.json", LogFileKind.COMPACTED),
        ("_last_checkpoint", None), ("1.json", None), (".00000000000000000001.json.crc", None),
        ("00000000000000000001.json.tmp", None),
    ],
)  # fmt: skip
def test_log_names_are_recognised(name, kind):
    found = parse_log_name(name)
    assert (found.kind if found else None) is kind


def test_a_path_that_leaves_the_table_is_refused_and_absolute_ones_are_kept():
    for path in ("../x.parquet", "a/../../x", "%2E%2E/x"):
        with pytest.raises(LogCorruptedError, match="outside"):
            resolve_data_path("s3a://b/t", path)
    assert resolve_data_path("s3a://b/t", "s3a://other/x%20y") == "s3a://other/x y"
    assert resolve_data_path("file:///a%20b", "p=a%2520b/f") == "file:///a b/p=a%20b/f"
