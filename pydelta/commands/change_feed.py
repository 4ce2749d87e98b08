"""Plan how to read the change data feed of a range of versions: which files, and how.

::

    a commit with cdc files   only those; each row has its change type
    any other commit          added files are inserts, removed ones deletes; a file that is removed and added with
                              another deletion vector gives only the rows in which the vectors differ

The engine reads the rows. Protocol: "Add CDC File", "Reader Requirements for AddCDCFile".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydelta.errors import (
    ChangeDataNotRecordedError,
    InvalidArgumentError,
    LogCorruptedError,
    SchemaMismatchError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import CommitRecord, DeltaLog, Snapshot
from pydelta.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    RemoveFile,
)
from pydelta.protocol.evolution import can_widen
from pydelta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    physical_name,
)
from pydelta.settings import TableProperties

__all__ = [
    "CHANGE_COLUMNS",
    "ChangePlan",
    "ChangeRange",
    "ChangedFile",
    "changed_files",
    "incompatibilities",
    "plan_changes",
    "refuse_reserved_names",
    "resolve_range",
    "version_from",
]

CHANGE_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns that the feed adds to the table's."""

_MERGE_COUNTS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRange:
    """The requested range of changes. Both ends are included; times are in epoch milliseconds.

    Args:
        starting_version, starting_timestamp_ms: One of the two; a time means the first version at or after it.
        ending_version, ending_timestamp_ms: At most one; a time means the last version at or before it. Without either,
            the newest version.
    """

    starting_version: int | None = None
    starting_timestamp_ms: int | None = None
    ending_version: int | None = None
    ending_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file with rows of the feed.

    Args:
        path: As the log spells it.
        partition_values: As in the action.
        size: Bytes.
        change_type: The change type of its rows; None if each row has its own (a cdc file).
        version: The commit's version.
        timestamp_ms: The commit's time.
        hides: A deletion vector whose rows are left out.
        only: Read only the rows that the first vector hides and the second (None: no vector) does not.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    change_type: str | None
    version: int
    timestamp_ms: int
    hides: DeletionVectorDescriptor | None = None
    only: tuple[DeletionVectorDescriptor, DeletionVectorDescriptor | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """The changes to read: ``snapshot`` has the schema, ``first`` and ``last`` are the resolved versions."""

    snapshot: Snapshot
    first: int
    last: int
    files: tuple[ChangedFile, ...]


def plan_changes(log: DeltaLog, asked: ChangeRange) -> ChangePlan:
    """Find the files of the feed over a range of versions.

    The rows have the newest schema of the table, or with column mapping the schema at the range's end.

    Args:
        log: The table.
        asked: The range.

    Raises:
        TableNotFoundError: There is no table.
        InvalidArgumentError: The range is invalid.
        VersionNotFoundError: The log does not reach the range.
        ChangeDataNotRecordedError: The feed was off at a version of the range; the error names it.
        SchemaMismatchError: A version of the range has columns that do not fit the schema of the rows.
    """
    newest = log.update()
    if newest.version < 0:
        raise TableNotFoundError.at(log.uri)
    first, last = resolve_range(log, asked)
    snapshot = newest if newest.column_mapping_mode == "none" else log.snapshot(version=last)
    start = log.snapshot(version=first)
    assert start.metadata is not None
    _require_feed(start.metadata, first)
    _require_fit(start.metadata, snapshot, first)
    files: list[ChangedFile] = []
    for record, actions in log.commits(first, last):
        changed = changed_files(record, actions)
        for action in actions:
            if isinstance(action, Metadata):
                _require_feed(action, record.version)
                _require_fit(action, snapshot, record.version)
                if record.version == first > 0 and any(file.change_type == "delete" for file in changed):
                    before = log.snapshot(version=first - 1).metadata
                    assert before is not None
                    _require_fit(before, snapshot, first - 1)
        files += changed
    return ChangePlan(snapshot=snapshot, first=first, last=last, files=tuple(files))


def resolve_range(log: DeltaLog, asked: ChangeRange) -> tuple[int, int]:
    """Return the first and the last version of a range.

    Raises:
        InvalidArgumentError: It has no beginning, two of them, two ends, or an end before the beginning.
        VersionNotFoundError: It begins after the newest version, or ends before the oldest.
    """
    by_version, by_time = asked.starting_version, asked.starting_timestamp_ms
    if (by_version is None) == (by_time is None):
        raise InvalidArgumentError(
            "The change data feed needs one of startingVersion and startingTimestamp.",
            hint='Set .option("startingVersion", 0), for example; both ends are included.',
            condition=Condition.of("DELTA_NO_START_FOR_CDC_READ")
            if by_version is None
            else Condition.of("DELTA_MULTIPLE_CDC_BOUNDARY", startingOrEnding="starting"),
        )
    if asked.ending_version is not None and asked.ending_timestamp_ms is not None:
        raise InvalidArgumentError(
            "endingVersion and endingTimestamp were both given.",
            hint="Give one of the two, or none for the newest.",
            condition=Condition.of("DELTA_MULTIPLE_CDC_BOUNDARY", startingOrEnding="ending"),
        )
    newest = log.update().version
    first = by_version if by_version is not None else version_from(log, by_time or 0)
    if first > newest:
        raise VersionNotFoundError(
            f"The changes were asked for from version {first} on, but the newest version is {newest}.",
            hint="Nothing has been committed there yet.",
            condition=Condition.of("DELTA_CDC_START_VERSION_AFTER_LATEST", start=first, latest=newest),
        )
    last = newest
    if asked.ending_version is not None:
        last = min(asked.ending_version, newest)
    elif asked.ending_timestamp_ms is not None:
        last = log.version_at(asked.ending_timestamp_ms, can_return_last=True, must_be_recreatable=False)
    if last < first:
        raise InvalidArgumentError(
            f"The range ends at version {last}, before version {first} where it begins.",
            hint="Swap the two ends.",
            condition=Condition.of("DELTA_INVALID_CDC_RANGE", start=first, end=last),
        )
    return first, last


def version_from(log: DeltaLog, timestamp_ms: int) -> int:
    """Find the first version at or after a time, or the one after the newest if all are older."""
    version = log.version_at(timestamp_ms, can_return_first=True, can_return_last=True, must_be_recreatable=False)
    [(record, _)] = log.commits(version, version)
    return version if record.timestamp_ms >= timestamp_ms else version + 1


def changed_files(record: CommitRecord, actions: Sequence[Action]) -> list[ChangedFile]:
    """Return the files of the feed for one commit. Pure.

    Args:
        record: Version and time of the commit.
        actions: The commit's actions.

    Raises:
        LogCorruptedError: A removed file lacks metadata that a reader needs.
    """
    version, time_ms = record.version, record.timestamp_ms
    recorded = [action for action in actions if isinstance(action, AddCDCFile)]
    if recorded:
        return [
            ChangedFile(
                path=action.path,
                partition_values=action.partition_values,
                size=action.size,
                change_type=None,
                version=version,
                timestamp_ms=time_ms,
            )
            for action in recorded
        ]
    if _changes_nothing(record.commit_info):
        return []
    adds = [action for action in actions if isinstance(action, AddFile) and action.data_change]
    removes = {action.path: action for action in actions if isinstance(action, RemoveFile) and action.data_change}
    found: list[ChangedFile] = []
    for add in adds:
        old = removes.pop(add.path, None)
        if old is None:
            found.append(_whole(add, add.partition_values, add.size, "insert", record))
            continue
        for change_type, more, less in (
            ("delete", add.deletion_vector, old.deletion_vector),
            ("insert", old.deletion_vector, add.deletion_vector),
        ):
            if more is not None and more != less:
                found.append(
                    ChangedFile(
                        path=add.path,
                        partition_values=add.partition_values,
                        size=add.size,
                        change_type=change_type,
                        version=version,
                        timestamp_ms=time_ms,
                        only=(more, less),
                    )
                )
    for remove in removes.values():
        if remove.partition_values is None or remove.size is None:
            raise LogCorruptedError(
                f"Version {version} removes {remove.path} without recording its size and partition values, so its rows "
                "cannot be read as deleted ones.",
                hint="Begin the range after this version.",
                condition=Condition.of("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", file=remove.path),
            )
        found.append(_whole(remove, remove.partition_values, remove.size, "delete", record))
    return found


def _whole(
    action: AddFile | RemoveFile, values: Mapping[str, str | None], size: int, change_type: str, record: CommitRecord
) -> ChangedFile:
    return ChangedFile(
        path=action.path,
        partition_values=values,
        size=size,
        change_type=change_type,
        version=record.version,
        timestamp_ms=record.timestamp_ms,
        hides=action.deletion_vector,
    )


def _changes_nothing(info: CommitInfo | None) -> bool:
    """Return whether a MERGE changed no row, in which case moved rows are not changes."""
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.get("operationMetrics")
    return isinstance(metrics, dict) and all(str(metrics.get(name)) == "0" for name in _MERGE_COUNTS)


def _require_feed(metadata: Metadata, version: int) -> None:
    if not TableProperties.parse(metadata.configuration).enable_change_data_feed:
        raise ChangeDataNotRecordedError(
            f"The change data feed of version {version} was not recorded: delta.enableChangeDataFeed was not true.",
            hint="Begin after this version, at one where the feed is on; earlier changes were not recorded.",
            condition=Condition.of("DELTA_MISSING_CHANGE_DATA", version=version, key="delta.enableChangeDataFeed"),
        )


def _require_fit(metadata: Metadata, snapshot: Snapshot, version: int) -> None:
    schema = parse_schema(metadata.schema_string)
    problems = list(incompatibilities(schema, snapshot.schema))
    if metadata.partition_columns != snapshot.partition_columns:
        problems.append(
            f"it is partitioned by ({', '.join(metadata.partition_columns)}), not by "
            f"({', '.join(snapshot.partition_columns)})"
        )
    if problems:
        raise SchemaMismatchError(
            f"The changes of version {version} do not fit the schema of version {snapshot.version}, in which they "
            f"would be read: {'; '.join(problems)}.",
            hint="Read the versions before and after the change of the schema one after the other; with column "
            "mapping, end the range before it.",
            condition=Condition.of(
                "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
                readSchema=snapshot.schema.tree(),
                readVersion=snapshot.version,
                incompatibleVersion=version,
            ),
        )


def incompatibilities(old: StructType, read: StructType, prefix: str = "") -> Iterable[str]:
    """List why rows of one schema cannot be read in another: columns missing, renamed or retyped. Pure."""
    by_name = {field.name.lower(): field for field in read.fields}
    for field in old.fields:
        name = f"{prefix}{field.name}"
        now = by_name.get(field.name.lower())
        if now is None:
            yield f"column {name} no longer exists"
        elif physical_name(now).lower() != physical_name(field).lower():
            yield f"column {name} is a different column of the same name"
        else:
            if field.nullable and not now.nullable:
                yield f"column {name} may be null"
            yield from _type_changes(field.data_type, now.data_type, name)


def _type_changes(old: DataType, now: DataType, name: str) -> Iterable[str]:
    if isinstance(old, StructType) and isinstance(now, StructType):
        yield from incompatibilities(old, now, f"{name}.")
    elif isinstance(old, ArrayType) and isinstance(now, ArrayType):
        yield from _type_changes(old.element_type, now.element_type, f"{name}.element")
    elif isinstance(old, MapType) and isinstance(now, MapType):
        yield from _type_changes(old.key_type, now.key_type, f"{name}.key")
        yield from _type_changes(old.value_type, now.value_type, f"{name}.value")
    elif old != now and not can_widen(old, now):
        yield f"column {name} is {old}, not {now}"


def refuse_reserved_names(fields: Iterable[StructField]) -> None:
    """Check that a table with these columns can have a feed.

    Raises:
        InvalidArgumentError: A column has the name of one of the feed's columns.
    """
    taken = [field.name for field in fields if field.name.lower() in CHANGE_COLUMNS]
    if taken:
        raise InvalidArgumentError(
            f"The table has columns called {', '.join(taken)}, which are names of the change data feed.",
            hint="Rename the columns, or leave delta.enableChangeDataFeed off.",
            condition=Condition.of("DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", columnList=taken),
        )
