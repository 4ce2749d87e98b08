"""Describe a catalog entry in Spark's own classes, for its in-memory catalog and for a Hive Metastore."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydelta.engines.spark.catalog.objects import copy_of, text_map
from pydelta.engines.spark.jvm import Jvm
from pydelta.manifests.native_entry import NativeEntry, hive_type_or_none
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, plain_type

__all__ = ["hive_table", "session_table"]

_SERDE: Final = (
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
)


def session_table(jvm: Jvm, table: Any, wanted: NativeEntry) -> Any:
    """Describe the entry for Spark's in-memory catalog in Spark's own form."""
    location = jvm.location_uri(wanted.location)
    properties = text_map(jvm, table.properties())
    shown = {key: value for key, value in wanted.parameters.items() if not key.startswith("spark.sql.")}
    storage = copy_of(
        table.storage(),
        locationUri=jvm.option.apply(location),
        properties=jvm.scala_map({"path": str(jvm.path(location).toString())}),
    )
    return copy_of(
        table,
        storage=storage,
        schema=jvm.struct(wanted.fields.to_json()),
        partitionColumnNames=jvm.seq(wanted.partition_columns),
        properties=jvm.scala_map(wanted.kept(properties) | shown),
        comment=jvm.option.apply(wanted.comment),
    )


def hive_table(jvm: Jvm, table: Any, wanted: NativeEntry, parameters: Mapping[str, str]) -> Any:
    """Describe the entry for a metastore in Hive's form, with Spark's schema in its parameters."""
    location = jvm.location_uri(wanted.location)
    some = jvm.option.apply
    serde = text_map(jvm, table.storage().properties())
    storage = copy_of(
        table.storage(),
        locationUri=some(location),
        inputFormat=some(_SERDE[0]),
        outputFormat=some(_SERDE[1]),
        serde=some(_SERDE[2]),
        properties=jvm.scala_map({**serde, "path": str(jvm.path(location).toString()), "serialization.format": "1"}),
    )
    own_partitions = {str(name).lower() for name in jvm.to_list(table.partitionColumnNames())}
    fields = _hive_fields(wanted.fields)
    names = {item["name"] for item in fields}
    return copy_of(
        table,
        storage=storage,
        schema=jvm.struct(json.dumps({"type": "struct", "fields": fields})),
        # A metastore refuses to change partition keys, so a foreign entry that has some keeps them.
        partitionColumnNames=table.partitionColumnNames()
        if own_partitions and own_partitions <= names
        else jvm.seq([]),
        properties=jvm.scala_map({**parameters, **wanted.parameters}),
        comment=some(wanted.comment),
    )


def _hive_fields(schema: StructType) -> list[dict[str, Any]]:
    """Return columns whose Spark types print like Hive's. A type that Hive lacks becomes string."""
    fields = []
    for field in schema.fields:
        comment = {"comment": str(field.metadata["comment"])} if field.metadata.get("comment") else {}
        kind = _as_hive(plain_type(field.data_type)).to_dict()
        fields.append({"name": field.name.lower(), "type": kind, "nullable": True, "metadata": comment})
    return fields


def _as_hive(data_type: DataType) -> DataType:
    """Convert to a type that Hive has under the same name."""
    if hive_type_or_none(data_type) is None:
        return PrimitiveType("string")
    if isinstance(data_type, StructType):
        if not all(re.fullmatch(r"\w+", item.name) for item in data_type.fields):
            return PrimitiveType("string")  # Hive cannot parse such a name back.
        return StructType(tuple(StructField(item.name, _as_hive(item.data_type)) for item in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_as_hive(data_type.element_type))
    if isinstance(data_type, MapType):
        return MapType(_as_hive(data_type.key_type), _as_hive(data_type.value_type))
    return PrimitiveType("timestamp") if data_type == PrimitiveType("timestamp_ntz") else data_type
