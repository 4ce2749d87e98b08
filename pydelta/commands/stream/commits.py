"""Decide what a stream reads from one commit: the files whose rows it returns, or why it stops. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydelta.commands.change_feed import ChangedFile, changed_files, incompatibilities
from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.errors import (
    SourceColumnsRenamedError,
    SourceRowsChangedError,
    SourceRowsRemovedError,
    SourceSchemaChangedError,
    SourceTableReplacedError,
)
from pydelta.commands.stream.evolution import ChangeKind, breaking_changes
from pydelta.commands.stream.offsets import BEFORE_FIRST
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.tracking import SchemaTracking
from pydelta.errors import ChangeDataNotRecordedError, DeltaError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import CommitRecord
from pydelta.protocol.actions import Action, AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from pydelta.protocol.schema import StructType, parse_schema, physical_name
from pydelta.settings import TableProperties

__all__ = ["ReadSchema", "StreamCommit", "definition_refusal", "read_commit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSchema:
    """The table definition that a stream's rows have.

    Args:
        table_id: The table's id in its metadata.
        version: The version of the definition.
        schema: The columns.
        partition_columns: Their names, in order.
        mapped: Whether the columns' names in files may differ from their own.
    """

    table_id: str
    version: int
    schema: StructType
    partition_columns: tuple[str, ...]
    mapped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommit:
    """One commit as a stream sees it.

    Args:
        version: Its version.
        files: The files whose rows it adds to the stream, in order.
        whole: Whether the files must be taken together.
        last_index: The index at which nothing of the commit is left.
        redefines: It changes the table's definition, and the stream's schema log follows: a batch ends before it.
        metadata, protocol: Those in the commit.
        refusal: Why the stream may not pass it.
    """

    version: int
    files: tuple[ChangedFile, ...] = ()
    whole: bool = False
    last_index: int = BEFORE_FIRST
    redefines: bool = False
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    refusal: DeltaError | None = field(default=None, compare=False)

    @property
    def size_bytes(self) -> int:
        """Total bytes of the files."""
        return sum(file.size for file in self.files)

    def advance(self, index: int, budget: AdmissionBudget) -> int | None:
        """Take files after an index, as many as the budget allows.

        Args:
            index: The last file that was taken; ``BEFORE_FIRST`` for none.
            budget: The limits, from which the files are subtracted.

        Returns:
            The index of the last file taken; None when nothing of the commit is left.

        Raises:
            DeltaError: The stream may not pass the commit.
        """
        rest = self.after(index)
        if not rest:
            return None
        sizes = [file.size for file in rest]
        if self.whole:
            return None if budget.take_whole(sizes) else index
        taken = budget.take(sizes)
        return None if taken == len(sizes) else index + taken

    def after(self, index: int, upto: int | None = None) -> Sequence[ChangedFile]:
        """Return the files after an index, up to and including another; None for all that follow.

        Raises:
            DeltaError: The stream may not pass the commit.
            UnsupportedFeatureError: An index is in the middle of files that belong together.
        """
        if self.refusal is not None:
            raise self.refusal
        if not self.whole:
            return self.files[index + 1 : None if upto is None else upto + 1]
        for end in (index, upto):
            if end is not None and BEFORE_FIRST < end < self.last_index:
                raise UnsupportedFeatureError(
                    f"The checkpoint is at file {end} of version {self.version}, in the middle of changes that "
                    "belong together.",
                    features=("splitting a commit of the change feed",),
                    hint="Continue with the engine that wrote the checkpoint until it has passed this version.",
                )
        if index > BEFORE_FIRST or upto == BEFORE_FIRST:
            return ()
        return self.files


def read_commit(
    record: CommitRecord,
    actions: Sequence[Action],
    options: SourceOptions,
    read: ReadSchema,
    tracking: SchemaTracking | None = None,
) -> StreamCommit:
    """Decide what a stream reads from one commit. Pure; any problem with the commit becomes its ``refusal``.

    Args:
        record: Version and time of the commit.
        actions: The commit's actions.
        options: What the stream may skip.
        read: The definition that its rows have.
        tracking: The stream's schema log, which follows other definitions.
    """
    metadata = next((action for action in actions if isinstance(action, Metadata)), None)
    protocol = next((action for action in actions if isinstance(action, Protocol)), None)
    follows = tracking is not None and tracking.entry is not None
    same_table = metadata is None or metadata.id == read.table_id
    if same_table and tracking is not None and tracking.changed_by(record.version, metadata, protocol):
        return StreamCommit(version=record.version, redefines=True, metadata=metadata, protocol=protocol)
    refusal = None
    if metadata is not None:
        refusal = definition_refusal(metadata, record.version, options, read, columns=not follows)
    if refusal is not None:
        return StreamCommit(version=record.version, refusal=refusal)
    try:
        if options.change_feed:
            return _changes(record, actions)
        return _rows(record, actions, options)
    except DeltaError as error:
        return StreamCommit(version=record.version, refusal=error)


def _rows(record: CommitRecord, actions: Sequence[Action], options: SourceOptions) -> StreamCommit:
    adds = [action for action in actions if isinstance(action, AddFile) and action.data_change]
    removed = next((action for action in actions if isinstance(action, RemoveFile) and action.data_change), None)
    if removed is not None:
        if options.skip_change_commits:
            return StreamCommit(version=record.version)
        if not options.ignore_changes and (adds or not options.ignore_deletes):
            raise _change_refusal(record, removed, changes=bool(adds))
    files = tuple(
        ChangedFile(
            path=add.path,
            partition_values=add.partition_values,
            size=add.size,
            change_type="insert",
            version=record.version,
            timestamp_ms=record.timestamp_ms,
            hides=add.deletion_vector,
        )
        for add in adds
    )
    return StreamCommit(version=record.version, files=files, last_index=len(files) - 1)


def _changes(record: CommitRecord, actions: Sequence[Action]) -> StreamCommit:
    files = tuple(changed_files(record, actions))
    recorded = sum(isinstance(action, AddCDCFile) for action in actions)
    moved = [action for action in actions if isinstance(action, (AddFile, RemoveFile)) and action.data_change]
    inserts = not recorded and all(isinstance(action, AddFile) for action in moved)
    return StreamCommit(
        version=record.version,
        files=files,
        whole=not inserts,
        last_index=0 if recorded else len(moved) - 1,  # Recorded changes are never split, so any index is past them.
    )


def _change_refusal(record: CommitRecord, removed: RemoveFile, *, changes: bool) -> DeltaError:
    operation = record.commit_info.operation if record.commit_info is not None else None
    by = f" ({operation})" if operation else ""
    if changes:
        return SourceRowsChangedError(
            f"Version {record.version}{by} changes rows of the table, for example of {removed.path}, but a stream "
            "returns only rows that were added.",
            hint="Set skipChangeCommits to true to leave such commits out, or ignoreChanges to true to get all rows "
            "of the files they write; readChangeFeed returns the changes themselves.",
            version=record.version,
        )
    return SourceRowsRemovedError(
        f"Version {record.version}{by} removes rows from the table, for example those of {removed.path}, but a stream "
        "cannot take back rows that it returned.",
        hint="Set ignoreDeletes to true to pass commits that only remove rows; readChangeFeed returns the changes.",
        version=record.version,
    )


def definition_refusal(
    metadata: Metadata, version: int, options: SourceOptions, read: ReadSchema, *, columns: bool = True
) -> DeltaError | None:
    """Return why a stream cannot read rows of a version with this definition; None if it can.

    Args:
        metadata: The definition.
        version: The version that has it.
        options: What the stream reads.
        read: The definition that its rows have.
        columns: Whether to compare columns; False if a schema log follows them.
    """
    if metadata.id != read.table_id:
        return SourceTableReplacedError(
            f"Version {version} replaced the table: its id is {metadata.id}, but the stream reads {read.table_id}.",
            hint="Start the query again with another checkpointLocation.",
            version=version,
        )
    if options.change_feed and not TableProperties.parse(metadata.configuration).enable_change_data_feed:
        return ChangeDataNotRecordedError(
            f"The change data feed of version {version} was not recorded: delta.enableChangeDataFeed was not true.",
            hint="Begin after this version, with startingVersion and another checkpointLocation; these changes were "
            "not recorded.",
            version=version,
        )
    problems = list(_misfits(metadata, version, read)) if columns else []
    if not problems:
        return None
    schema = parse_schema(metadata.schema_string)
    message = (
        f"The columns of version {version} do not fit those that the stream reads (of version {read.version}): "
        f"{'; '.join(problems)}."
    )
    old, new = (read.schema, schema) if version > read.version else (schema, read.schema)
    if read.mapped and any(change.kind is not ChangeKind.TYPE for change in breaking_changes(old, new)):
        return SourceColumnsRenamedError(
            message,
            hint="Start the query with another checkpointLocation to read all rows with the table's new columns. To "
            "follow such changes, give readStream a schemaTrackingLocation below the checkpointLocation from the "
            "beginning.",
            version=version,
            condition=Condition.of(
                "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
                readSchema=read.schema.tree(),
                incompatibleSchema=schema.tree(),
            ),
        )
    return SourceSchemaChangedError(
        message,
        hint="Start the query again from the same checkpoint: it then reads with the table's new columns."
        if version > read.version
        else "Start the query again; if it stops here once more, a column was retyped since: start it with another "
        "checkpointLocation.",
        version=version,
        condition=Condition.of(
            "DELTA_SCHEMA_CHANGED_WITH_VERSION",
            version=version,
            readSchema=read.schema.tree(),
            dataSchema=schema.tree(),
        ),
    )


def _misfits(metadata: Metadata, version: int, read: ReadSchema) -> Iterable[str]:
    schema = parse_schema(metadata.schema_string)
    new = {field.name.lower() for field in schema.fields} - {field.name.lower() for field in read.schema.fields}
    known = StructType(tuple(field for field in schema.fields if field.name.lower() not in new))
    later = version > read.version
    for column in schema.fields:
        if column.name.lower() in new:
            yield f"column {column.name} {'is new' if later else 'is not there any more'}"
    yield from incompatibilities(known, read.schema)
    if later and read.mapped:
        present = {physical_name(field).lower() for field in schema.fields}
        for column in read.schema.fields:
            if physical_name(column).lower() not in present:
                yield f"column {column.name} was dropped"
    if metadata.partition_columns != read.partition_columns:
        yield (
            f"it is partitioned by ({', '.join(metadata.partition_columns)}), not by "
            f"({', '.join(read.partition_columns)})"
        )
