"""Convert PySpark's ``StructType`` to the log's and back, by their shared JSON ("Schema Serialization Format")."""

from __future__ import annotations

import json

from pyspark.sql import types as spark_types

from pydelta.protocol.schema import StructType, parse_schema

__all__ = ["from_spark", "to_spark_schema"]


def from_spark(schema: spark_types.StructType) -> StructType:
    """A PySpark schema -> the log's.

    Raises:
        SchemaError: A type that the format does not have.
    """
    return parse_schema(schema.json())


def to_spark_schema(schema: StructType) -> spark_types.StructType:
    """The log's schema -> PySpark's, metadata kept."""
    return spark_types.StructType.fromJson(schema_dict(schema))


def schema_dict(schema: StructType) -> dict[str, object]:
    """The schema's JSON as a dictionary."""
    decoded: dict[str, object] = json.loads(schema.to_json())
    return decoded
