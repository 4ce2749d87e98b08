"""Follow the definition of a stream's table over renamed, dropped and retyped columns, with its schema log.

::

    readStream.load    open_tracking: the DataFrame reads with the newest entry
    the query starts   begin: the entry is this source's, and its user allows the change
    a commit changes   the batch ends before it; when that is done: evolve, and the query stops for a restart
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydelta.commands.stream.errors import (
    SchemaLocationConflictError,
    SourceDefinitionChangedError,
    SourceFrameOutdatedError,
)
from pydelta.commands.stream.evolution import Allowed, definitions_differ, refusal
from pydelta.commands.stream.schema_log import SchemaLog, TrackedSchema
from pydelta.errors import VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.files import FileTable
from pydelta.log.replay import State
from pydelta.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from pydelta.protocol.types import parse_schema

__all__ = ["SchemaTracking", "check_separate", "open_tracking", "tracked_snapshot"]

_FILES: Final = (AddFile, RemoveFile, AddCDCFile)


class SchemaTracking:
    """One query's view of its schema log.

    Args:
        log: The schema log.
        read: The snapshot whose columns the DataFrame has.
        entry: The entry that it was made from; None if the log was empty.
        number: The entry's number; -1 if the log was empty.
    """

    def __init__(self, log: SchemaLog, read: Snapshot, entry: TrackedSchema | None, number: int) -> None:
        assert read.metadata is not None, "a stream reads a table"
        self._log = log
        self._base: Metadata = read.metadata
        self._protocol = read.protocol
        self._source_path = ""
        self._number = number
        self.entry = entry

    @property
    def location(self) -> str:
        """The log's folder."""
        return self._log.store.root

    def copy(self) -> SchemaTracking:
        """Return a copy for another query over the same DataFrame."""
        twin = object.__new__(SchemaTracking)
        twin.__dict__.update(self.__dict__)
        return twin

    def begin(self, source_path: str, allowed: Allowed) -> None:
        """Check that the log belongs to this source and that its last change is allowed.

        Args:
            source_path: The source's folder in the query's checkpoint.
            allowed: The changes that the user allows.

        Raises:
            SchemaLocationConflictError: The log belongs to another source.
            SourceFrameOutdatedError: It has a later schema than the DataFrame.
            SourceEvolutionBlockedError: Columns were renamed, dropped or retyped, and the user does not allow that.
        """
        self._source_path = source_path
        found = self._log.newest()
        if found is None:
            return
        number, newest = found
        self._log.check_table(newest, self._base.id)
        if newest.source_path != source_path:
            raise SchemaLocationConflictError.at(self._log.store.root, self._log.store.root)
        if number != self._number and definitions_differ(newest, self._base, self._protocol, self._base):
            raise SourceFrameOutdatedError(
                f"The schema log has the table's columns as of version {newest.version}, and the DataFrame of this "
                "query was made before.",
                hint="Create the DataFrame again with spark.readStream, and start the query with it.",
                version=newest.version,
            )
        self._number, self.entry = number, newest
        previous = self._log.at(number - 1 if newest.previous is None else newest.previous)
        blocked = None if previous is None else refusal(previous, newest, allowed)
        if blocked is not None:
            raise blocked

    def changed_by(self, version: int, metadata: Metadata | None, protocol: Protocol | None) -> bool:
        """Return whether a commit changes the table's definition from the one that the stream reads with."""
        if self.entry is None or version <= self.entry.version:
            return False
        return definitions_differ(self.entry, metadata, protocol, self._base)

    def initialize(self, version: int, metadata: Metadata, protocol: Protocol) -> None:
        """Write the log's first entry.

        Raises:
            SourceDefinitionChangedError: Its definition differs from the DataFrame's.
        """
        entry = TrackedSchema.of(version, metadata, protocol, source_path=self._source_path)
        self._write(entry)
        if definitions_differ(entry, self._base, self._protocol, self._base):
            raise _changed(
                entry,
                f"The stream begins with version {version}, whose columns, properties or protocol are not those of the "
                "DataFrame. The schema log has them.",
            )

    def evolve(self, version: int, metadata: Metadata | None, protocol: Protocol | None) -> None:
        """Write the definition of a commit, and stop the query, so that it is started again with it.

        Raises:
            SourceDefinitionChangedError: Always.
            SchemaLocationConflictError: Another query wrote to the log at the same time.
        """
        assert self.entry is not None, "a change is found by comparing with an entry"
        kept = self.entry.protocol(self._protocol)
        assert kept is not None
        entry = TrackedSchema.of(
            version, metadata or self.entry.metadata(self._base), protocol or kept, source_path=self._source_path
        )
        self._write(entry)
        raise _changed(
            entry,
            f"Version {version} changes the table's columns, properties or protocol. All rows before it were given, "
            "and the schema log has the new definition.",
        )

    def _write(self, entry: TrackedSchema) -> None:
        self._log.add(self._number + 1, entry, table=self._log.store.root)
        self._number, self.entry = self._number + 1, entry


def _changed(entry: TrackedSchema, message: str) -> SourceDefinitionChangedError:
    return SourceDefinitionChangedError(
        message,
        hint="Start the query again from the same checkpoint, with a DataFrame made by spark.readStream again.",
        version=entry.version,
        condition=Condition.of(
            "DELTA_STREAMING_METADATA_EVOLUTION",
            schema=parse_schema(entry.schema_json).tree(),
            config=json.dumps(entry.configuration or {}),
            protocol=entry.protocol_json or "",
        ),
    )


def open_tracking(log: DeltaLog, schema_log: SchemaLog, newest: Snapshot) -> tuple[SchemaTracking, Snapshot]:
    """Open a source's schema log, and merge consecutive changes without rows in between.

    Args:
        log: The table.
        schema_log: The source's log.
        newest: The newest snapshot of the table.

    Returns:
        The tracking, and the snapshot whose columns the rows have.

    Raises:
        SchemaLogDamagedError, SchemaLogOfTableError: The log cannot be used for this table.
        SchemaLocationConflictError: Another query wrote to the log at the same time.
    """
    assert newest.metadata is not None, "a stream reads a table"
    found = schema_log.newest()
    if found is None:
        return SchemaTracking(schema_log, newest, None, -1), newest
    number, entry = found
    schema_log.check_table(entry, newest.metadata.id)
    merged = _merged(log, entry, newest)
    if merged is not None:
        previous = number - 1 if entry.previous is None else entry.previous
        entry, number = replace(merged, previous=previous), number + 1
        schema_log.add(number, entry, table=log.uri)
    read = tracked_snapshot(newest, entry)
    return SchemaTracking(schema_log, read, entry, number), read


def tracked_snapshot(newest: Snapshot, entry: TrackedSchema) -> Snapshot:
    """Return a snapshot without files that has an entry's definition."""
    assert newest.metadata is not None
    state = State(protocol=entry.protocol(newest.protocol), metadata=entry.metadata(newest.metadata))
    return Snapshot(version=entry.version, state=state, files=FileTable(root=newest.table_uri))


def check_separate(locations: Sequence[str], table: str) -> None:
    """Check that no two sources of a query share a schema log.

    Raises:
        SchemaLocationConflictError: Two do.
    """
    for location in locations:
        if locations.count(location) > 1:
            raise SchemaLocationConflictError.at(location, table)


def _merged(log: DeltaLog, entry: TrackedSchema, newest: Snapshot) -> TrackedSchema | None:
    """Return the entry merged with the definitions of the next versions without files; None if there are none."""
    assert newest.metadata is not None
    version, metadata, protocol = entry.version, entry.metadata(newest.metadata), entry.protocol(newest.protocol)
    while version <= newest.version:
        try:
            actions = log.actions(version)
        except VersionNotFoundError:
            break
        defining = [action for action in actions if isinstance(action, (Metadata, Protocol))]
        if not defining or any(isinstance(action, _FILES) for action in actions):
            break
        if version > entry.version:
            for action in defining:
                if isinstance(action, Metadata):
                    metadata = action
                else:
                    protocol = action
        version += 1
    last = version - 1
    if last <= entry.version or protocol is None or metadata.id != entry.table_id:
        return None
    return TrackedSchema.of(last, metadata, protocol, source_path=entry.source_path)
