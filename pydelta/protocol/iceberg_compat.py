"""Check the guarantees of ``icebergCompatV1`` and ``icebergCompatV2`` for converters to Iceberg. Pure.

::

    rule                                            V1   V2
    column mapping, mode name or id                 yes  yes   a new table gets mode name automatically
    deletion vectors                                V1: the feature must be absent; V2: they must be turned off
    partition columns in the data files             yes  yes   after the data columns
    numRecords of every file                        yes  yes
    arrays and maps                                 no   yes   with ids for element, key and value
    timestamps in files                             int64 (never INT96), microseconds
    partitioned table replaced by another spec      no   no

The property decides, not the feature: a table that lists the feature with the property off has no obligations.
Protocol: "Iceberg Compatibility V1", "Iceberg Compatibility V2".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydelta.errors import UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import AddFile, Metadata, Protocol
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, StructType, parse_schema, parse_type
from pydelta.settings.table import ICEBERG_COMPAT, iceberg_compat_version

__all__ = [
    "NESTED_IDS",
    "check_added",
    "check_definition",
    "check_files_made_for",
    "nested_parts",
    "with_compat_tag",
]

NESTED_IDS: Final = "delta.columnMapping.nested.ids"
_TAG: Final = "ICEBERG_COMPAT_VERSION"
_NOT_KEPT: Final = ("delta.enableIcebergCompatV3", "delta.enableIcebergWriterCompatV1")
_SIMPLE: Final = frozenset(
    [
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "boolean",
        "timestamp",
        "timestamp_ntz",
        "date",
    ]
)
_WHOLE: Final = ("byte", "short", "integer", "long")


def nested_parts(data_type: DataType, prefix: str) -> Iterator[str]:
    """Yield the names of elements, keys and values down to the next struct, as used in ``nested.ids``.

    Args:
        data_type: The column's type.
        prefix: Its physical name.
    """
    if isinstance(data_type, ArrayType):
        parts = {"element": data_type.element_type}
    elif isinstance(data_type, MapType):
        parts = {"key": data_type.key_type, "value": data_type.value_type}
    else:
        return
    for name, part in parts.items():
        yield f"{prefix}.{name}"
        yield from nested_parts(part, f"{prefix}.{name}")


def check_definition(after: Metadata, protocol: Protocol, before: Metadata | None) -> None:
    """Check that a table's definition satisfies its compatibility version.

    Args:
        after: The definition that the commit sets.
        protocol: The protocol that the commit sets.
        before: The current definition; None for a new table.

    Raises:
        UnsupportedFeatureError: It breaks a rule. Names the rule and what to do.
    """
    _refuse_unknown(after)
    version = iceberg_compat_version(after.configuration)
    if not version:
        return
    configuration = after.configuration
    if version == 2 and configuration.get(ICEBERG_COMPAT.format(1), "").strip().lower() == "true":
        raise _violation(
            version,
            "both versions of Iceberg compatibility are turned on",
            f"Set {ICEBERG_COMPAT.format(1)} to false.",
            Condition.of("DELTA_ICEBERG_COMPAT_VIOLATION.VERSION_MUTUAL_EXCLUSIVE", version=version),
        )
    mode = configuration.get("delta.columnMapping.mode", "none").strip().lower()
    if mode not in ("name", "id"):
        raise _violation(
            version,
            f"delta.columnMapping.mode is {mode!r}",
            "Set it to name, too.",
            Condition.of(
                "DELTA_ICEBERG_COMPAT_VIOLATION.WRONG_REQUIRED_TABLE_PROPERTY",
                version=version,
                key="delta.columnMapping.mode",
                requiredValue="name",
                actualValue=mode,
            ),
        )
    _check_vectors(version, configuration, protocol)
    if before is not None and iceberg_compat_version(before.configuration):
        _check_partitions(version, before.partition_columns, after.partition_columns)
    schema = parse_schema(after.schema_string)
    _check_types(schema, "", version, after.schema_string)
    _check_widening(schema, "", version)


def _check_vectors(version: int, configuration: Mapping[str, str], protocol: Protocol) -> None:
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if version == 1 and "deletionVectors" in listed:
        raise _violation(
            version,
            "the table has the feature deletionVectors",
            "Use icebergCompatV2, or drop the feature.",
            Condition.of(
                "DELTA_ICEBERG_COMPAT_VIOLATION.INCOMPATIBLE_TABLE_FEATURE", version=version, feature="deletionVectors"
            ),
        )
    if configuration.get("delta.enableDeletionVectors", "").strip().lower() == "true":
        raise _violation(
            version,
            "deletion vectors are turned on",
            "Set delta.enableDeletionVectors to false.",
            Condition.of("DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_SHOULD_BE_DISABLED", version=version),
        )


def _check_partitions(version: int, old: Sequence[str], new: Sequence[str]) -> None:
    """Refuse to replace a partitioned table by one with other partition columns."""
    if old and [name.lower() for name in old] != [name.lower() for name in new]:
        raise _violation(
            version,
            f"the table is partitioned by ({', '.join(old)}), but its replacement by ({', '.join(new)})",
            "Keep the partition columns, or drop the table and create it again.",
            Condition.of(
                "DELTA_ICEBERG_COMPAT_VIOLATION.REPLACE_TABLE_CHANGE_PARTITION_NAMES",
                version=version,
                prevPartitionSpec=old,
                newPartitionSpec=new,
            ),
        )


def check_added(adds: Iterable[AddFile], configuration: Mapping[str, str]) -> None:
    """Check that each file states its row count and has no deletion vector.

    Raises:
        UnsupportedFeatureError: A file fails a check. The error names it.
    """
    version = iceberg_compat_version(configuration)
    if not version:
        return
    for add in adds:
        if add.deletion_vector is not None:
            raise _violation(
                version,
                f"the file {add.path} has a deletion vector",
                "REORG TABLE … APPLY (PURGE) first.",
                Condition.of("DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_NOT_PURGED", version=version),
            )
        if _records(add) is None:
            raise _violation(
                version,
                f"the file {add.path} does not say how many rows it holds",
                "Write its rows again with this engine, which counts them.",
                Condition.of("DELTA_ICEBERG_COMPAT_VIOLATION.REWRITE_DATA_FAILED", version=version),
            )


def check_files_made_for(version: int, others: int, *, table: str) -> None:
    """Check that no file was written before the compatibility was enabled.

    Args:
        version: The enabled compatibility version; 0 for none.
        others: The number of files written without it.
        table: For the message.

    Raises:
        UnsupportedFeatureError: Such files exist.
    """
    if version and others:
        raise UnsupportedFeatureError(
            f"icebergCompatV{version} cannot be turned on: {others} files of the table were not written for it.",
            features=(f"icebergCompatV{version}",),
            hint="Make a new table of its rows: CREATE TABLE … TBLPROPERTIES "
            f"('{ICEBERG_COMPAT.format(version)}' = 'true') AS SELECT …",
            table=table,
            condition=Condition.of(
                "DELTA_ICEBERG_COMPAT_VIOLATION.FILES_NOT_ICEBERG_COMPAT", version=version, addFilesWithoutTag=others
            ),
        )


def with_compat_tag(add: AddFile, configuration: Mapping[str, str]) -> AddFile:
    """Tag a file as written under the active IcebergCompat version, as the reference engine does for V2."""
    version = iceberg_compat_version(configuration)
    if version < 2 or (add.tags or {}).get(_TAG):
        return add
    return add.replace(tags={**(add.tags or {}), _TAG: str(version)})


def _records(add: AddFile) -> int | None:
    try:
        found = json.loads(add.stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _refuse_unknown(after: Metadata) -> None:
    """Refuse properties whose guarantees this engine does not implement."""
    for name in _NOT_KEPT:
        if after.configuration.get(name, "").strip().lower() == "true":
            raise UnsupportedFeatureError(
                f"{name} is true, but this engine does not implement its guarantees.",
                features=(name.removeprefix("delta.enable"),),
                hint="Use delta.enableIcebergCompatV2, or leave the property out.",
                condition=Condition.of(
                    "DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED", version=name[-1], maxVersion="2"
                ),
            )


def _check_types(data_type: DataType, path: str, version: int, schema: str) -> None:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            _check_types(field.data_type, f"{path}.{field.name}" if path else field.name, version, schema)
    elif isinstance(data_type, ArrayType) and version > 1:
        _check_types(data_type.element_type, f"{path}.element", version, schema)
    elif isinstance(data_type, MapType) and version > 1:
        _check_types(data_type.key_type, f"{path}.key", version, schema)
        _check_types(data_type.value_type, f"{path}.value", version, schema)
    elif not isinstance(data_type, DecimalType) and getattr(data_type, "name", None) not in _SIMPLE:
        nested = isinstance(data_type, ArrayType | MapType)
        raise _violation(
            version,
            f"column {path} is {data_type}",
            "Use icebergCompatV2, which supports arrays and maps." if nested else "Cast it to another type.",
            Condition.of(
                "DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_DATA_TYPE",
                version=version,
                dataType=str(data_type),
                schema=schema,
            ),
        )


def _check_widening(data_type: DataType, path: str, version: int) -> None:
    """Refuse type changes that Iceberg does not support."""
    if isinstance(data_type, ArrayType):
        _check_widening(data_type.element_type, f"{path}.element", version)
    elif isinstance(data_type, MapType):
        _check_widening(data_type.key_type, f"{path}.key", version)
        _check_widening(data_type.value_type, f"{path}.value", version)
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            there = f"{path}.{field.name}" if path else field.name
            for change in field.metadata.get("delta.typeChanges", ()):
                old, new = str(change.get("fromType")), str(change.get("toType"))
                if not _iceberg_widens(old, new):
                    raise _violation(
                        version,
                        f"column {there} was widened from {old} to {new}, which Iceberg does not support",
                        "Write the rows to a new table.",
                        Condition.of(
                            "DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_TYPE_WIDENING",
                            version=version,
                            fieldPath=there,
                            prevType=old,
                            newType=new,
                        ),
                    )
            _check_widening(field.data_type, there, version)


def _iceberg_widens(old: str, new: str) -> bool:
    """Return whether Iceberg reads ``old`` as ``new``: integers, float as double, decimals of the same scale."""
    if old in _WHOLE and new in _WHOLE:
        return True
    if (old, new) == ("float", "double"):
        return True
    kinds = parse_type(old), parse_type(new)
    return all(isinstance(kind, DecimalType) for kind in kinds) and _scale(kinds[0]) == _scale(kinds[1])


def _scale(data_type: Any) -> int:
    return int(data_type.scale)


def _violation(version: int, what: str, hint: str, condition: Condition) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"The table cannot be compatible with Iceberg (icebergCompatV{version}): {what}.",
        features=(f"icebergCompatV{version}",),
        hint=hint,
        condition=condition,
    )
