"""The columns and the key that the schemas of change events name."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampType,
)

from jobs.changes.columns import changed_columns, columns_of, key_of, struct_of
from pydelta.errors import InvalidArgumentError

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def envelope(*fields: dict[str, object]) -> str:
    """Write the schema of a change of a table with these columns, as Kafka Connect writes it."""
    row = {"type": "struct", "fields": list(fields), "optional": True}
    return json.dumps({"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]})


def field(kind: str, name: str | None = None, **more: object) -> dict[str, object]:
    return {"type": kind, "optional": True, "field": "it", **({"name": name} if name else {}), **more}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (field("boolean"), BooleanType()),
        (field("int16"), ShortType()),
        (field("int32"), IntegerType()),
        (field("int64"), LongType()),
        (field("float"), FloatType()),
        (field("double"), DoubleType()),
        (field("bytes"), BinaryType()),
        (field("string"), StringType()),
        (field("string", "io.debezium.data.Uuid"), StringType()),
        (field("string", "io.debezium.time.IsoDate"), DateType()),
        (field("string", "io.debezium.time.IsoTimestamp"), TimestampType()),
        (field("string", "io.debezium.time.ZonedTimestamp"), TimestampType()),
        (
            field("bytes", DECIMAL, parameters={"scale": "2", "connect.decimal.precision": "12"}),
            DecimalType(12, 2),
        ),
        (field("bytes", DECIMAL, parameters={"scale": "0"}), DecimalType(38, 0)),
        (field("bytes", DECIMAL, parameters={"scale": "2", "connect.decimal.precision": "50"}), StringType()),
        (field("bytes", DECIMAL, parameters={"scale": "-2", "connect.decimal.precision": "5"}), StringType()),
        (field("array", items={"type": "int32"}), ArrayType(IntegerType())),
        (
            field("map", keys={"type": "string"}, values={"type": "int64"}),
            MapType(StringType(), LongType()),
        ),
        (field("struct", "io.debezium.data.VariableScaleDecimal", fields=[]), StringType()),
    ],
)
def test_a_type_of_connect_is_one_of_a_table_and_what_has_none_there_is_its_text(given, expected):
    assert columns_of(envelope(given)) == {"it": expected}


def test_the_key_is_that_of_the_record_and_a_table_without_one_is_refused():
    schema = {"type": "struct", "fields": [{"type": "int64", "field": "a"}, {"type": "string", "field": "b"}]}
    assert key_of(json.dumps(schema)) == ["a", "b"]
    for without in ("", '{"type": "string"}'):
        with pytest.raises(InvalidArgumentError, match="no primary key"):
            key_of(without)


def test_new_columns_and_other_types_are_told_apart_and_a_column_that_is_gone_stays_known():
    known = {"id": LongType(), "gone": StringType(), "wider": IntegerType()}
    changed = changed_columns(
        known,
        envelope(
            {"type": "int64", "field": "id"}, {"type": "int64", "field": "wider"}, {"type": "boolean", "field": "new"}
        ),
    )
    assert changed.added == {"new": BooleanType()}
    assert changed.retyped == {"wider": LongType()}
    assert struct_of({**known, **changed.retyped, **changed.added}).names == ["id", "gone", "wider", "new"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "A change has no schema"),
        ("oops", "not an object of JSON"),
        ("[1]", "not an object of JSON"),
        ('{"type": "struct", "fields": []}', "not that of a change"),
    ],
)
def test_what_is_not_the_schema_of_a_change_is_refused_with_what_the_connector_needs(schema, said):
    with pytest.raises(InvalidArgumentError, match=said) as raised:
        changed_columns({}, schema)
    assert "value.converter.schemas.enable=true" in str(raised.value.hint)
