"""Compare the definitions that a stream reads its table with: find changes, and whether they are allowed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydelta.commands.stream.errors import SourceEvolutionBlockedError
from pydelta.commands.stream.schema_log import TrackedSchema
from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import Metadata, Protocol
from pydelta.protocol.schema import ArrayType, DataType, MapType, StructType, physical_name
from pydelta.protocol.types import parse_schema

__all__ = [
    "ALWAYS",
    "Allowed",
    "ChangeKind",
    "ColumnChange",
    "breaking_changes",
    "definitions_differ",
    "java_hash",
    "refusal",
]

ALWAYS: Final = "always"
_PREFIX: Final = "spark.databricks.delta.streaming."
_RENAME_AND_DROP: Final = "allowSourceColumnRenameAndDrop"


class ChangeKind(enum.Enum):
    """The kinds of column change that may affect the query. The value is the option that allows it."""

    RENAME = "allowSourceColumnRename"
    DROP = "allowSourceColumnDrop"
    TYPE = "allowSourceColumnTypeChange"


_NAMES: Final = {ChangeKind.RENAME: "RENAME", ChangeKind.DROP: "DROP", ChangeKind.TYPE: "TYPE WIDENING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """One column that was renamed, dropped or retyped.

    Args:
        kind: The kind of change.
        told: A description.
    """

    kind: ChangeKind
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The changes that the user allows a stream to follow.

    Args:
        options: The reader's options of ``ChangeKind``, by name.
        conf: The session's settings.
    """

    options: Mapping[str, str]
    conf: Mapping[str, str]

    def passes(self, kind: ChangeKind, version: int, source_path: str) -> bool:
        """Return whether changes of a kind may be followed up to a version.

        Args:
            kind: How columns changed.
            version: The version whose definition is read next.
            source_path: The source's folder in its checkpoint.
        """
        accepted = (ALWAYS, str(version))
        if self.options.get(kind.value, "").strip().lower() in accepted:
            return True
        for name in (kind.value, *(() if kind is ChangeKind.TYPE else (_RENAME_AND_DROP,))):
            everywhere = self.conf.get(_PREFIX + name, "").strip().lower()
            own = self.conf.get(f"{_PREFIX}{name}.ckpt_{java_hash(source_path)}", "").strip().lower()
            if everywhere == ALWAYS or own in accepted:
                return True
        return False


def definitions_differ(
    tracked: TrackedSchema, metadata: Metadata | None, protocol: Protocol | None, base: Metadata
) -> bool:
    """Return whether a commit's definition differs from the one that the stream reads with.

    It compares columns, partition columns, ``delta.`` properties and the protocol.

    Args:
        tracked: The definition that the stream reads with.
        metadata: The commit's metadata; None if it has none.
        protocol: Likewise.
        base: Metadata of the table, for fields that the entry lacks.
    """
    if protocol is not None:
        known = tracked.protocol(None)
        if known is not None and _protocol_key(known) != _protocol_key(protocol):
            return True
    if metadata is None:
        return False
    read = tracked.metadata(base)
    return (
        parse_schema(read.schema_string) != parse_schema(metadata.schema_string)
        or read.partition_columns != metadata.partition_columns
        or (tracked.configuration is not None and _delta_only(read) != _delta_only(metadata))
    )


def breaking_changes(old: StructType, new: StructType) -> list[ColumnChange]:
    """List the columns that were renamed, dropped or retyped from one schema to the next, including nested ones."""
    return list(_struct_changes(old, new, ""))


def refusal(previous: TrackedSchema, current: TrackedSchema, allowed: Allowed) -> SourceEvolutionBlockedError | None:
    """Return why a stream may not continue after columns were renamed, dropped or retyped; None if it may.

    Args:
        previous: The definition before.
        current: The definition it reads with next.
        allowed: The changes that the user allows.
    """
    changes = breaking_changes(parse_schema(previous.schema_json), parse_schema(current.schema_json))
    path, version = current.source_path, current.version
    kinds = [kind for kind in ChangeKind if any(change.kind is kind for change in changes)]
    blocked = [kind for kind in kinds if not allowed.passes(kind, version, path)]
    if not blocked:
        return None
    shown = [change.told for change in changes if change.kind in blocked]
    options = [f'.option("{kind.value}", "{version}")' for kind in blocked]
    always = [f'.option("{kind.value}", "{ALWAYS}")' for kind in blocked]
    own = [f"{_PREFIX}{kind.value}.ckpt_{java_hash(path)}" for kind in blocked]
    return SourceEvolutionBlockedError(
        f"Between the versions {previous.version} and {version} columns of the table changed so that what the "
        f"query writes may have to change: {'; '.join(shown)}.",
        hint="Change the target of the query first, if necessary. Then continue with "
        f"{' '.join(options)} at readStream, or with the value {ALWAYS!r} for later changes, too; or set "
        f"{' and '.join(f'{_PREFIX}{kind.value}' for kind in blocked)} to {ALWAYS} for all streams, or with "
        f".ckpt_{java_hash(path)} after the name for this one.",
        version=version,
        condition=Condition.of(
            "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
            opType=_operation(kinds),
            previousSchemaChangeVersion=previous.version,
            currentSchemaChangeVersion=version,
            columnChangeDetails="\n".join(shown),
            unblockChangeOptions="\n".join(options),
            unblockStreamOptions="\n".join(always),
            unblockChangeConfs="\n".join(f"SET {name} = {version};" for name in own),
            unblockStreamConfs="\n".join(f'SET {name} = "{ALWAYS}";' for name in own),
            unblockAllConfs="\n".join(f'SET {_PREFIX}{kind.value} = "{ALWAYS}";' for kind in blocked),
        ),
    )


def java_hash(text: str) -> int:
    """Return the JVM's hash of a text, by which settings name a source.

    Example:
        >>> java_hash("file:/tmp/c/sources/0")
        -1232935388
    """
    value = 0
    data = text.encode("utf-16-be")
    for place in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[place : place + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _operation(kinds: Iterable[ChangeKind]) -> str:
    names = [_NAMES[kind] for kind in kinds]
    columns = [name for name in names if name != _NAMES[ChangeKind.TYPE]]
    parts = [f"{' AND '.join(columns)} COLUMN"] if columns else []
    return " AND ".join([*parts, *(name for name in names if name == _NAMES[ChangeKind.TYPE])])


def _protocol_key(protocol: Protocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _delta_only(metadata: Metadata) -> dict[str, str]:
    return {name: value for name, value in metadata.configuration.items() if name.startswith("delta.")}


def _struct_changes(old: StructType, new: StructType, prefix: str) -> Iterator[ColumnChange]:
    now = {physical_name(field).lower(): field for field in new.fields}
    for field in old.fields:
        name = f"{prefix}{field.name}"
        found = now.get(physical_name(field).lower())
        if found is None:
            yield ColumnChange(kind=ChangeKind.DROP, told=f"column {name} was dropped")
            continue
        if found.name != field.name:
            yield ColumnChange(kind=ChangeKind.RENAME, told=f"column {name} was renamed to {prefix}{found.name}")
        yield from _type_changes(field.data_type, found.data_type, f"{prefix}{found.name}")


def _type_changes(old: DataType, new: DataType, name: str) -> Iterator[ColumnChange]:
    if isinstance(old, StructType) and isinstance(new, StructType):
        yield from _struct_changes(old, new, f"{name}.")
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        yield from _type_changes(old.element_type, new.element_type, f"{name}.element")
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _type_changes(old.key_type, new.key_type, f"{name}.key")
        yield from _type_changes(old.value_type, new.value_type, f"{name}.value")
    elif old != new:
        yield ColumnChange(kind=ChangeKind.TYPE, told=f"column {name} was {old} and is {new}")
