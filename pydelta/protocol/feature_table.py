"""List the table features of the protocol: whether readers need them, what enables them, how to drop them.

Readers, writers, properties, ADD and DROP FEATURE and the page docs/reference/protocol.md are derived from these rows.
Protocol: "Table Features", "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydelta.protocol.actions import Metadata
from pydelta.protocol.feature_removal import (
    Removal,
    constraints,
    domains,
    live_vectors,
    mapped_columns,
    uses_mapping,
    uses_v2_checkpoints,
    uses_vectors,
    uses_widening,
    widened_columns,
)
from pydelta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructType

__all__ = ["FEATURES", "Feature", "Trigger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The definition that enables a feature when a table is created or altered.

    Args:
        text: Description for people, in Markdown.
        holds: Whether a table's metadata and schema match.
    """

    text: str
    holds: Callable[[Metadata, StructType], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One table feature.

    Args:
        name: As the protocol spells it.
        reads: Whether this engine reads tables that list it for readers; None if only writers must know it.
        writes: Whether this engine writes to tables that list it. The writer refuses parts that are *active* but that
            it does not enforce.
        legacy_reader, legacy_writer: The versions that imply it without listing it.
        requires: Features that must be listed with it.
        enabled_by: What enables it; None if only ``delta.feature.<name>`` does.
        removal: How to drop it; None if it cannot be dropped.
    """

    name: str
    reads: bool | None
    writes: bool
    legacy_reader: int | None = None
    legacy_writer: int | None = None
    requires: tuple[str, ...] = ()
    enabled_by: Trigger | None = None
    removal: Removal | None = None

    @property
    def reader(self) -> bool:
        """Whether readers must know it too, not only writers."""
        return self.reads is not None


def _set(name: str, *values: str) -> Trigger:
    """Match tables in which a property has one of these values."""

    def holds(metadata: Metadata, schema: StructType) -> bool:
        return metadata.configuration.get(name, "").strip().lower() in values

    return Trigger(text=" or ".join(f"`{name} = {value}`" for value in values), holds=holds)


def _begins(prefix: str) -> Trigger:
    """Match tables with a property whose name has this prefix."""

    def holds(metadata: Metadata, schema: StructType) -> bool:
        return any(name.startswith(prefix) for name in metadata.configuration)

    return Trigger(text=f"a property `{prefix}…`", holds=holds)


def _type(name: str) -> Trigger:
    """Match schemas with a column of this type, at any depth."""

    def holds(metadata: Metadata, schema: StructType) -> bool:
        return name in _leaf_types(schema)

    return Trigger(text=f"a column of type `{name}`", holds=holds)


def _fields(prefix: str) -> Trigger:
    """Match schemas with a top-level column whose metadata has a key with this prefix."""

    def holds(metadata: Metadata, schema: StructType) -> bool:
        return any(key.startswith(prefix) for field in schema.fields for key in field.metadata)

    return Trigger(text=f"a column with `{prefix}{'…' if prefix.endswith('.') else ''}`", holds=holds)


def _leaf_types(data_type: DataType) -> Iterable[str]:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _leaf_types(field.data_type)
    elif isinstance(data_type, ArrayType):
        yield from _leaf_types(data_type.element_type)
    elif isinstance(data_type, MapType):
        yield from _leaf_types(data_type.key_type)
        yield from _leaf_types(data_type.value_type)
    elif isinstance(data_type, PrimitiveType):
        yield data_type.name


_WIDENING: Final = Removal(properties=("delta.enableTypeWidening",), problem=widened_columns, used_by=uses_widening)

_ALL: Final = (
    Feature(name="appendOnly", reads=None, writes=True, legacy_writer=2, enabled_by=_set("delta.appendOnly", "true")),
    Feature(name="invariants", reads=None, writes=True, legacy_writer=2, enabled_by=_fields("delta.invariants")),
    Feature(
        name="checkConstraints",
        reads=None,
        writes=True,
        legacy_writer=3,
        enabled_by=_begins("delta.constraints."),
        removal=Removal(problem=constraints),
    ),
    Feature(
        name="changeDataFeed",
        reads=None,
        writes=True,
        legacy_writer=4,
        enabled_by=_set("delta.enableChangeDataFeed", "true"),
    ),
    Feature(
        name="generatedColumns",
        reads=None,
        writes=True,
        legacy_writer=4,
        enabled_by=_fields("delta.generationExpression"),
    ),
    Feature(
        name="columnMapping",
        reads=True,
        writes=True,
        legacy_reader=2,
        legacy_writer=5,
        enabled_by=_set("delta.columnMapping.mode", "name", "id"),
        removal=Removal(properties=("delta.columnMapping.",), problem=mapped_columns, used_by=uses_mapping),
    ),
    Feature(name="identityColumns", reads=None, writes=True, legacy_writer=6, enabled_by=_fields("delta.identity.")),
    Feature(
        name="deletionVectors",
        reads=True,
        writes=True,
        enabled_by=_set("delta.enableDeletionVectors", "true"),
        removal=Removal(properties=("delta.enableDeletionVectors",), problem=live_vectors, used_by=uses_vectors),
    ),
    Feature(
        name="rowTracking",
        reads=None,
        writes=True,
        requires=("domainMetadata",),
        enabled_by=_set("delta.enableRowTracking", "true"),
        removal=Removal(properties=("delta.enableRowTracking", "delta.rowTrackingSuspended", "delta.rowTracking.")),
    ),
    Feature(name="timestampNtz", reads=True, writes=True, enabled_by=_type("timestamp_ntz")),
    Feature(name="domainMetadata", reads=None, writes=True, removal=Removal(problem=domains)),
    Feature(
        name="v2Checkpoint",
        reads=True,
        writes=True,
        enabled_by=_set("delta.checkpointPolicy", "v2"),
        removal=Removal(properties=("delta.checkpointPolicy",), used_by=uses_v2_checkpoints),
    ),
    Feature(name="clustering", reads=None, writes=True, requires=("domainMetadata",)),
    Feature(name="vacuumProtocolCheck", reads=True, writes=True, removal=Removal()),
    Feature(
        name="inCommitTimestamp",
        reads=None,
        writes=True,
        enabled_by=_set("delta.enableInCommitTimestamps", "true"),
        removal=Removal(
            properties=(
                "delta.enableInCommitTimestamps",
                "delta.inCommitTimestampEnablementVersion",
                "delta.inCommitTimestampEnablementTimestamp",
            )
        ),
    ),
    Feature(
        name="typeWidening",
        reads=True,
        writes=True,
        enabled_by=_set("delta.enableTypeWidening", "true"),
        removal=_WIDENING,
    ),
    Feature(name="typeWidening-preview", reads=True, writes=True, removal=_WIDENING),
    Feature(name="variantType", reads=True, writes=True, enabled_by=_type("variant")),
    Feature(name="variantType-preview", reads=True, writes=True),
    Feature(
        name="variantShredding",  # Shredded files are read. Files are written unshredded, which every reader accepts.
        reads=True,
        writes=True,
        requires=("variantType",),
        enabled_by=_set("delta.enableVariantShredding", "true"),
    ),
    Feature(name="variantShredding-preview", reads=True, writes=True),
    Feature(name="allowColumnDefaults", reads=None, writes=True, enabled_by=_fields("CURRENT_DEFAULT")),
    Feature(
        name="icebergCompatV1",
        reads=None,
        writes=True,
        requires=("columnMapping",),
        enabled_by=_set("delta.enableIcebergCompatV1", "true"),
    ),
    Feature(
        name="icebergCompatV2",
        reads=None,
        writes=True,
        requires=("columnMapping",),
        enabled_by=_set("delta.enableIcebergCompatV2", "true"),
    ),
    Feature(
        name="materializePartitionColumns",
        reads=None,
        writes=True,
        enabled_by=_set("delta.enableMaterializePartitionColumnsFeature", "true"),
        removal=Removal(properties=("delta.enableMaterializePartitionColumnsFeature",)),
    ),
    Feature(
        name="checkpointProtection",
        reads=None,
        writes=True,
        removal=Removal(properties=("delta.requireCheckpointProtectionBeforeVersion",)),
    ),
    Feature(name="collations", reads=None, writes=False, requires=("domainMetadata",)),
    Feature(name="collations-preview", reads=None, writes=False, requires=("domainMetadata",)),
)

FEATURES: Final[Mapping[str, Feature]] = {feature.name: feature for feature in _ALL}
