"""What icebergCompatV1 and V2 allow: a table of cases."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pydelta.errors import UnsupportedFeatureError
from pydelta.protocol.actions import AddFile, DeletionVectorDescriptor, Metadata, Protocol
from pydelta.protocol.column_mapping import mapped_metadata
from pydelta.protocol.iceberg_compat import (
    NESTED_IDS,
    check_added,
    check_definition,
    check_files_made_for,
    nested_parts,
    with_compat_tag,
)
from pydelta.protocol.schema import logical_to_physical, parse_schema, to_arrow
from pydelta.protocol.types import parse_type
from pydelta.settings.table import iceberg_compat_version

MAPPED = {"delta.columnMapping.mode": "name"}
V1, V2 = {"delta.enableIcebergCompatV1": "true"}, {"delta.enableIcebergCompatV2": "true"}
PLAIN = Protocol(min_reader_version=2, min_writer_version=7, writer_features=("columnMapping", "icebergCompatV2"))
VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": ARRAY, "valueContainsNull": True}
STRUCT = {"type": "struct", "fields": [{"name": "x", "type": MAP, "nullable": True, "metadata": {}}]}


def definition(*, column="long", field=None, partitions=(), **configuration):
    fields = [{"name": "c", "type": column, "nullable": True, "metadata": field or {}}]
    return Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=partitions,
        configuration=configuration,
    )


def widened(old, new):
    return {"delta.typeChanges": [{"fromType": old, "toType": new}]}


CASES = {
    "off": ({}, {}, PLAIN, None),
    "V2": ({}, V2 | MAPPED, PLAIN, None),
    "by id": ({}, V2 | {"delta.columnMapping.mode": "id"}, PLAIN, None),
    "without mapping": ({}, V2, PLAIN, "WRONG_REQUIRED_TABLE_PROPERTY"),
    "both": ({}, V1 | V2 | MAPPED, PLAIN, "VERSION_MUTUAL_EXCLUSIVE"),
    "V3": ({}, {"delta.enableIcebergCompatV3": "true"} | MAPPED, PLAIN, "COMPAT_VERSION_NOT_SUPPORTED"),
    "V1 with vectors": ({}, V1 | MAPPED, VECTORS, "INCOMPATIBLE_TABLE_FEATURE"),
    "V2 with the feature alone": ({}, V2 | MAPPED, VECTORS, None),
    "V2 with vectors": (
        {},
        V2 | MAPPED | {"delta.enableDeletionVectors": "true"},
        VECTORS,
        "DELETION_VECTORS_SHOULD_BE_DISABLED",
    ),
    "V1 array": ({"column": ARRAY}, V1 | MAPPED, PLAIN, "UNSUPPORTED_DATA_TYPE"),
    "V2 array": ({"column": ARRAY}, V2 | MAPPED, PLAIN, None),
    "V1 map in a struct": ({"column": STRUCT}, V1 | MAPPED, PLAIN, "UNSUPPORTED_DATA_TYPE"),
    "V2 map in a struct": ({"column": STRUCT}, V2 | MAPPED, PLAIN, None),
    "void": ({"column": "void"}, V2 | MAPPED, PLAIN, "UNSUPPORTED_DATA_TYPE"),
    "variant": ({"column": "variant"}, V2 | MAPPED, PLAIN, "UNSUPPORTED_DATA_TYPE"),
    "decimal": ({"column": "decimal(38,3)"}, V2 | MAPPED, PLAIN, None),
    "int to long": ({"field": widened("integer", "long")}, V2 | MAPPED, PLAIN, None),
    "longer decimal": (
        {"column": "decimal(9,2)", "field": widened("decimal(5,2)", "decimal(9,2)")},
        V2 | MAPPED,
        PLAIN,
        None,
    ),
    "more digits behind the point": (
        {"column": "decimal(9,3)", "field": widened("decimal(5,2)", "decimal(9,3)")},
        V2 | MAPPED,
        PLAIN,
        "UNSUPPORTED_TYPE_WIDENING",
    ),
    "date to time": (
        {"column": "timestamp_ntz", "field": widened("date", "timestamp_ntz")},
        V2 | MAPPED,
        PLAIN,
        "UNSUPPORTED_TYPE_WIDENING",
    ),
    "int to double": (
        {"column": "double", "field": widened("integer", "double")},
        V1 | MAPPED,
        PLAIN,
        "UNSUPPORTED_TYPE_WIDENING",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_definition(name):
    given, configuration, protocol, refused = CASES[name]
    after = definition(**given, **configuration)
    if refused is None:
        check_definition(after, protocol, None)
        return
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_definition(after, protocol, None)
    assert caught.value.condition.name == f"DELTA_ICEBERG_COMPAT_VIOLATION.{refused}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [((), ("c",), False), (("c",), ("C",), False), (("c",), ("d",), True), (("c",), (), True)],
)
def test_a_partitioned_table_is_replaced_by_one_of_the_same_columns(old, new, refused):
    before, after = (definition(partitions=parts, **V2, **MAPPED) for parts in (old, new))
    if refused:
        with pytest.raises(UnsupportedFeatureError, match=r"partitioned by \(c\)"):
            check_definition(after, PLAIN, before)
    else:
        check_definition(after, PLAIN, before)
    check_definition(after, PLAIN, definition(partitions=old))


def added(**given):
    return AddFile(
        path="f",
        partition_values={},
        size=1,
        modification_time=0,
        data_change=True,
        **{"stats": '{"numRecords":3}'} | given,
    )


def test_files_count_their_rows_and_have_no_vector():
    vector = DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=2, cardinality=1)
    check_added([added()], V2)
    for wrong in (
        added(stats=None),
        added(stats="{}"),
        added(stats="["),
        added(stats="[]"),
        added(deletion_vector=vector),
    ):
        check_added([wrong], {})
        with pytest.raises(UnsupportedFeatureError, match="file f "):
            check_added([wrong], V2)


def test_older_files_are_refused_with_the_way_out():
    check_files_made_for(2, 0, table="t")
    check_files_made_for(0, 3, table="t")
    with pytest.raises(UnsupportedFeatureError, match="3 files of the table") as caught:
        check_files_made_for(2, 3, table="t")
    assert "enableIcebergCompatV2" in caught.value.hint


def test_files_of_the_second_version_are_marked():
    assert with_compat_tag(added(), V1).tags is None
    assert with_compat_tag(added(tags={"a": "b"}), V2).tags == {"a": "b", "ICEBERG_COMPAT_VERSION": "2"}


def test_the_property_decides():
    assert [
        iceberg_compat_version(given) for given in ({}, V1, V2, V1 | V2, {"delta.enableIcebergCompatV2": "false"})
    ] == [
        0,
        1,
        2,
        2,
        0,
    ]


def test_parts_are_named_down_to_the_next_struct():
    assert list(nested_parts(parse_type("long"), "p")) == []
    found = parse_schema(definition(column=MAP).schema_string).fields[0].data_type
    assert list(nested_parts(found, "p")) == ["p.key", "p.value", "p.value.element"]


def test_elements_keys_and_values_get_ids_that_files_carry():
    made = mapped_metadata(definition(column=MAP, **V2), None, fresh=True)
    column = parse_schema(made.schema_string).fields[0]
    name = column.metadata["delta.columnMapping.physicalName"]
    assert column.metadata[NESTED_IDS] == {f"{name}.key": 2, f"{name}.value": 3, f"{name}.value.element": 4}
    assert made.configuration["delta.columnMapping.maxColumnId"] == "4"
    kind = to_arrow(logical_to_physical(parse_schema(made.schema_string), "name")).field(0).type
    ids = [
        field.metadata[b"PARQUET:field_id"] for field in (kind.key_field, kind.item_field, kind.item_type.value_field)
    ]
    assert ids == [b"2", b"3", b"4"]
    assert pa.types.is_map(kind)
    again = mapped_metadata(made, made)
    assert again == made
    replaced = mapped_metadata(definition(column=MAP, **V2, **MAPPED), made, fresh=True)
    assert parse_schema(replaced.schema_string).fields[0].metadata[NESTED_IDS] == column.metadata[NESTED_IDS]


def test_a_version_without_ids_for_parts_gives_none():
    made = mapped_metadata(definition(column=ARRAY, **MAPPED), None, fresh=True)
    assert NESTED_IDS not in parse_schema(made.schema_string).fields[0].metadata
