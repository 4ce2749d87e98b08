"""Convert between PySpark's ``StructType`` and the log's by their common JSON ("Schema Serialization Format")."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import types as spark_types

from pydelta.engines.spark.errors import condition_of
from pydelta.errors import ParseError
from pydelta.errors.conditions import Condition
from pydelta.protocol.schema import StructType, parse_schema
from pydelta.protocol.sized_texts import sized_schema
from pydelta.protocol.types import plain_type

__all__ = ["from_spark", "make_field", "schema_of", "to_spark_schema"]


def from_spark(schema: spark_types.StructType) -> StructType:
    """Convert a PySpark schema to the log's.

    Raises:
        SchemaError: The format does not have one of its types.
    """
    return parse_schema(schema.json())


def to_spark_schema(schema: StructType) -> spark_types.StructType:
    """Convert the log's schema to PySpark's, including metadata. A user-defined type becomes the type of its values."""
    plain = plain_type(schema)
    assert isinstance(plain, StructType), "a schema is a struct"
    return spark_types.StructType.fromJson(schema_dict(plain))


def schema_dict(schema: StructType) -> dict[str, object]:
    """Return the schema's JSON as a dictionary."""
    decoded: dict[str, object] = json.loads(schema.to_json())
    return decoded


def schema_of(fields: Sequence[spark_types.StructField]) -> StructType:
    """Convert Spark fields to the log's schema."""
    return sized_schema(parse_schema(spark_types.StructType(list(fields)).json()))


def make_field(
    name: str,
    data_type: str | spark_types.DataType,
    nullable: bool,
    generated_as: str | None,
    comment: str | None,
    identity: Mapping[str, int | bool] | None = None,
) -> spark_types.StructField:
    """Return one column of a builder. The field's metadata records how its values are computed.

    Protocol: "Generated Columns", "Identity Columns".
    """
    if isinstance(data_type, str):
        text = data_type
        try:
            data_type = spark_types.DataType.fromDDL(text)
        except Exception as error:
            raise ParseError(
                f"The type {text!r} of column {name!r} is not an SQL type.",
                hint="For example int or decimal(10,2).",
                condition=_condition_of_type(text),
            ) from error
    metadata: dict[str, Any] = dict(identity or {})
    if generated_as is not None:
        metadata["delta.generationExpression"] = generated_as
    if comment is not None:
        metadata["comment"] = comment
    return spark_types.StructField(name, data_type, nullable, metadata)


def _condition_of_type(text: str) -> Condition | None:
    """Return Spark's condition for a column of an unknown type. For the type alone Spark would report another one."""
    try:
        spark_types.DataType.fromDDL(f"x {text}")
    except PySparkException as error:
        return condition_of(error)
    return None
