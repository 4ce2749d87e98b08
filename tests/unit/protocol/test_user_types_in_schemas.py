"""User-defined types in a schema: they stay what they are, and compare as the type of their values."""

from __future__ import annotations

import json

import pytest

from pydelta.errors import SchemaError
from pydelta.protocol.column_mapping import without_mapping
from pydelta.protocol.evolution import can_store, merge_schemas, with_nullable_parts
from pydelta.protocol.schema import leaf_paths, logical_to_physical, parse_schema, without_void
from pydelta.protocol.schema_edits import add_field, change_type, map_fields
from pydelta.protocol.types import PrimitiveType, StructField, StructType, has_user_type, plain_type

VALUES = {
    "struct": {"type": "struct", "fields": [{"name": "x", "type": "byte", "nullable": False, "metadata": {}}]},
    "array": {"type": "array", "elementType": "double", "containsNull": False},
    "map": {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": False},
    "string": "string",
    "decimal": "decimal(5,2)",
}


def schema(values, *, nested):
    kind = {"type": "udt", "class": "a.B", "pyClass": "a.b", "sqlType": values}
    kind = {"type": "array", "elementType": kind, "containsNull": True} if nested else kind
    field = {"name": "v", "type": kind, "nullable": True, "metadata": {"comment": "c"}}
    return parse_schema(json.dumps({"type": "struct", "fields": [field]}))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_a_user_defined_type_survives_every_change_of_the_schema(values, nested):
    table = schema(values, nested=nested)
    text = table.to_json()
    assert '"udt"' in text and parse_schema(text) == table and has_user_type(table)
    plain = plain_type(table)
    assert '"udt"' not in plain.to_json() and plain == table and not has_user_type(plain)
    assert plain_type(table, lambda user: user["class"] == "a.B").to_json() == text
    assert can_store(plain, table) and can_store(table, plain)
    kept = [
        merge_schemas(table, plain),
        merge_schemas(StructType(()), table),
        map_fields(table, lambda field: field),
        without_mapping(table),
        logical_to_physical(table, "name"),
        without_void(table),
        with_nullable_parts(table),
        change_type(table, ("v",), plain.fields[0].data_type, widening=True),
        add_field(table, (), StructField("w", PrimitiveType("long"))),
    ]
    for number, changed in enumerate(kept):
        shown = json.loads(changed.to_json())["fields"][0]["type"]
        assert shown == json.loads(text)["fields"][0]["type"], number
    assert [path for path, _ in leaf_paths(table)] == [("v",)]


def test_no_column_is_added_inside_a_user_defined_type():
    with pytest.raises(SchemaError, match="v"):
        add_field(schema(VALUES["struct"], nested=False), ("v",), StructField("w", PrimitiveType("long")))
    with pytest.raises(SchemaError, match="user-defined"):
        change_type(schema(VALUES["struct"], nested=False), ("v", "x"), PrimitiveType("long"), widening=True)
