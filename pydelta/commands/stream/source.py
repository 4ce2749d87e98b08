"""Find what a stream reads next, and the files between two of its offsets, from a table's log alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from pydelta.commands.change_feed import ChangedFile, version_from
from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.commits import ReadSchema, StreamCommit, definition_refusal, read_commit
from pydelta.commands.stream.errors import (
    SchemaLogBeginningError,
    SourceTableReplacedError,
    SourceVersionsMissingError,
)
from pydelta.commands.stream.event_time import EventTimes, TimeSlice
from pydelta.commands.stream.evolution import breaking_changes
from pydelta.commands.stream.offsets import BEFORE_FIRST, SCHEMA_CHANGE, SCHEMA_CHANGED, StreamOffset
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.tracking import SchemaTracking
from pydelta.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import CommitRecord, DeltaLog, Snapshot
from pydelta.protocol.actions import Action, CommitInfo, Metadata, Protocol
from pydelta.protocol.types import parse_schema
from pydelta.storage.readers import read_all

__all__ = ["Backlog", "StreamBatch", "TableStream"]

_log = logging.getLogger(__name__)
_AHEAD: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """The files between two offsets.

    Args:
        snapshot: The initial snapshot, if files of it are included.
        initial: These files, as rows of ``snapshot.files.core``; None if rows have another schema than the snapshot's.
        rows: Which rows of the snapshot's files, by their event time; None for all.
        snapshot_changed: The snapshot's files if rows have another schema than the snapshot's.
        changed: The other files: those of commits.
    """

    snapshot: Snapshot | None = None
    initial: pl.DataFrame | None = None
    rows: TimeSlice | None = None
    snapshot_changed: tuple[ChangedFile, ...] = ()
    changed: tuple[ChangedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The files that a stream has not read yet."""

    num_files: int
    size_bytes: int


class TableStream:
    """One query's stream over a table. For one thread.

    Args:
        log: The table.
        options: The requested options.
        read: The snapshot whose columns the rows have.
        starting_timestamp_ms: ``startingTimestamp`` in epoch milliseconds.
        tracking: The query's schema log, after ``begin``.
    """

    def __init__(
        self,
        log: DeltaLog,
        options: SourceOptions,
        read: Snapshot,
        *,
        starting_timestamp_ms: int | None = None,
        tracking: SchemaTracking | None = None,
    ) -> None:
        assert read.metadata is not None, "a stream reads a table"
        self.log = log
        self.options = options
        self.read = ReadSchema(
            table_id=read.metadata.id,
            version=read.version,
            schema=read.schema,
            partition_columns=read.partition_columns,
            mapped=read.column_mapping_mode != "none",
        )
        self._definition = read.metadata
        self._starting_timestamp_ms = starting_timestamp_ms
        self._tracking = tracking
        self._until: int | None = None
        self._commits: dict[int, StreamCommit] = {}
        self._tallies: dict[int, Backlog] = {}
        self._initial: tuple[Snapshot, pl.DataFrame] | None = None
        self._checked = False
        self._event_column: str | None = None
        self._times: tuple[int, EventTimes] | None = None

    def order_by(self, column: str) -> None:
        """Read the initial snapshot in the order of an event time column, slice by slice."""
        self._event_column = column

    # -- how far ------------------------------------------------------------------------------------------------

    def stop_at_newest(self) -> None:
        """Stop at the version that is currently the newest (``AvailableNow``)."""
        self._until = self._newest()

    def latest(self, start: StreamOffset | None, budget: AdmissionBudget) -> StreamOffset | None:
        """Return where the next batch ends.

        Args:
            start: Where the last batch ended; None for the first one.
            budget: The files and bytes that it may take.

        Returns:
            The offset; ``start`` itself if nothing is new; None while the starting version does not exist yet.

        Raises:
            StreamStoppedError: The stream may not skip what it found.
            TableNotFoundError: The table no longer exists.
            VersionNotFoundError: The starting version does not exist.
        """
        newest = self._newest()
        if start is None:
            at = self._beginning(newest)
            self._begin_tracking(at.version, at.version, newest)
            if self.options.from_latest:
                return at  # An empty batch records the beginning.
            if at.version > newest:
                return None
        else:
            at = self._of_this_table(start, newest)
            self._begin_tracking(at.version, at.version, newest)
            if at.index == SCHEMA_CHANGE:
                return replace(at, index=SCHEMA_CHANGED)
        if at.is_initial and self._event_column is not None:
            end = self._event_times(at).end_after(at.event_time)
            if end is not None:
                return replace(at, event_time=end)
            at = self._at(at.version + 1)
            if start is None:
                return at
        elif at.is_initial:
            self._check_order(at)
            sizes = self._initial_files(at.version)[1]["size"]
            taken = budget.take(sizes[at.index + 1 :].to_list())
            if at.index + taken + 1 < len(sizes):
                return replace(at, index=at.index + taken)
            at = self._at(at.version + 1)
            if start is None:
                return at  # The first batch's end must differ from its beginning.
        self._check_definition(at.version, newest)
        while at.version <= newest:
            commit = self._commit(at.version, newest)
            if commit.version > at.version:  # Versions are missing, and the stream may skip them.
                at = self._at(commit.version)
            if commit.redefines:
                if at.index == SCHEMA_CHANGED:
                    # All earlier batches are done, but the query died before it recorded the change.
                    self._evolve(commit)
                return replace(at, index=SCHEMA_CHANGE)
            index = commit.advance(at.taken, budget)
            if index is not None:
                return replace(at, index=index)
            at = self._at(at.version + 1)
        return at

    def backlog(self, consumed: StreamOffset | None) -> Backlog:
        """Count files and bytes that were not read yet; commits that would stop the stream count as empty."""
        newest = self._newest(capped=False)
        at = consumed if consumed is not None else self._beginning(newest)
        files = size = 0
        if at.is_initial:
            by_time = self._event_column is not None
            left = self._event_times(at).between(at.event_time, None) if by_time else self._initial_files(at.version)[1]
            rest = left["size"][at.taken + 1 :]
            files, size = len(rest), int(rest.sum() or 0)
            at = self._at(at.version + 1)
        for version in [known for known in self._tallies if known < at.version]:
            del self._tallies[version]
        version = at.version
        while version <= newest:
            commit = None
            if version not in self._tallies or (version == at.version and at.index >= 0):
                commit = self._commit(version, newest)
                for skipped in range(version, commit.version):
                    self._tallies[skipped] = Backlog(num_files=0, size_bytes=0)
                version = commit.version
            if commit is None:
                tally = self._tallies[version]
            else:
                rest_of = () if commit.refusal is not None else commit.files
                if version == at.version and not commit.whole:
                    rest_of = rest_of[at.taken + 1 :]
                elif version == at.version and at.index >= 0:
                    rest_of = ()
                tally = Backlog(num_files=len(rest_of), size_bytes=sum(file.size for file in rest_of))
                if version != at.version or at.index < 0:
                    self._tallies[version] = tally
                if version >= at.version + _AHEAD:  # Do not cache files that far ahead of the stream.
                    self._commits.pop(version, None)
            files, size = files + tally.num_files, size + tally.size_bytes
            version += 1
        return Backlog(num_files=files, size_bytes=size)

    # -- what ---------------------------------------------------------------------------------------------------

    def batch(self, start: StreamOffset | None, end: StreamOffset) -> StreamBatch:
        """Find the files between two offsets, the same ones on each call.

        Args:
            start: Where the last batch ended; None for the first one.
            end: A result of ``latest``.

        Raises:
            As ``latest``.
        """
        newest = self._newest(capped=False)
        self._of_this_table(end, newest)
        at = self._beginning_of(end) if start is None else self._of_this_table(start, newest)
        last = end.version if end.is_initial or end.index > BEFORE_FIRST else end.version - 1
        self._begin_tracking(at.version, max(at.version, last), newest)
        snapshot: Snapshot | None = None
        rows: TimeSlice | None = None
        initial: pl.DataFrame | None = None
        if at.is_initial:
            snapshot, files = self._initial_files(at.version)
            within = end.is_initial and end.version == at.version
            if self._event_column is not None:
                upto = end.event_time if within else None
                initial = self._included(self._event_times(at).between(at.event_time, upto))
                rows = TimeSlice(column=self._event_column, first=at.event_time, end=upto)
            else:
                self._check_order(end)
                self._check_order(at)
                initial = self._included(files.slice(at.index + 1, end.index - at.index if within else None))
            at = end if within else self._at(at.version + 1)
        changed: list[ChangedFile] = []
        if at.position < end.position:
            self._check_definition(at.version, newest)
        while at.position < end.position:
            commit = self._commit(at.version, newest)
            if commit.version > end.version or (commit.version == end.version and end.at_change):
                break
            if commit.redefines:
                raise _no_single_schema(at.version, end.version, commit.version)
            after = at.taken if commit.version == at.version else -1
            chosen = commit.after(after, end.index if commit.version == end.version else None)
            changed += [file for file in chosen if not self.options.excludes(file.path)]
            at = end if commit.version == end.version else self._at(commit.version + 1)
        as_changed = self.options.change_feed or (snapshot is not None and snapshot.metadata != self._definition)
        if as_changed and initial is not None and snapshot is not None:
            inserted = tuple(_inserted(snapshot, initial))
            if rows is None:
                return StreamBatch(changed=(*inserted, *changed))
            return StreamBatch(rows=rows, snapshot_changed=inserted, changed=tuple(changed))
        return StreamBatch(snapshot=snapshot, initial=initial, rows=rows, changed=tuple(changed))

    def finish(self, end: StreamOffset) -> None:
        """Record that everything up to an offset is done, and release cached commits of earlier versions.

        Raises:
            SourceDefinitionChangedError: The offset is at a change of the definition, which is now in the schema log.
        """
        if end.at_change and self._tracking is not None:
            commit = self._commit(end.version, self._newest(capped=False))
            if commit.redefines:
                self._evolve(commit)
        for version in [known for known in self._commits if known < end.version]:
            del self._commits[version]
        if not end.is_initial:
            self._initial = None

    # -- parts --------------------------------------------------------------------------------------------------

    def _newest(self, *, capped: bool = True) -> int:
        snapshot = self.log.update()
        if snapshot.metadata is None:
            raise TableNotFoundError(
                f"The table at {self.log.uri} that the stream reads no longer exists.",
                hint="Restore it, or stop the query; its checkpoint cannot be used for another table.",
            )
        if snapshot.metadata.id != self.read.table_id:
            raise SourceTableReplacedError(
                f"Another table is at {self.log.uri}: its id is {snapshot.metadata.id}, but the stream reads "
                f"{self.read.table_id}.",
                hint="Start the query again with another checkpointLocation.",
            )
        if capped and self._until is not None:
            return min(self._until, snapshot.version)
        return snapshot.version

    def _at(self, version: int) -> StreamOffset:
        return StreamOffset(table_id=self.read.table_id, version=version)

    def _of_this_table(self, offset: StreamOffset, newest: int) -> StreamOffset:
        if offset.table_id != self.read.table_id:
            raise SourceTableReplacedError(
                f"The checkpoint belongs to a table with the id {offset.table_id}, but the one at {self.log.uri} "
                f"has {self.read.table_id}.",
                hint="Start the query with another checkpointLocation; this one belongs to another table, or to the "
                "one that was here before.",
            )
        most = self.log.update().version + 1
        if offset.version > max(most, newest + 1) and self.options.fail_on_data_loss:
            raise SourceVersionsMissingError(
                f"The checkpoint has read up to version {offset.version - 1}, but the newest version is {most - 1}.",
                hint="The table was restored to an older state. Start the query with another checkpointLocation, or "
                "set failOnDataLoss to false to wait for versions that come after the checkpoint's.",
            )
        return offset

    def _beginning(self, newest: int) -> StreamOffset:
        """Return where a stream without a checkpoint begins."""
        if self.options.from_latest:
            return self._at(newest + 1)
        first = self.options.starting_version
        if self._starting_timestamp_ms is not None:
            first = version_from(self.log, self._starting_timestamp_ms)
        if first is None:
            return replace(self._at(newest), is_initial=True)
        if first > newest + (self._starting_timestamp_ms is None):
            raise VersionNotFoundError(
                f"The stream is set to begin at version {first}, but the newest version is {newest}.",
                hint='Give an existing version or time, or startingVersion "latest" to read only later commits.',
            )
        return self._at(first)

    def _beginning_of(self, end: StreamOffset) -> StreamOffset:
        """Return where the first batch began, derived from its end; an end in a commit is past the snapshot."""
        if end.is_initial:
            return replace(end, index=-1, event_time=None)
        if self.options.from_latest:
            if end.index == BEFORE_FIRST:
                return end  # ``latest`` records the beginning as an empty batch.
            raise InvalidArgumentError(
                f"The first batch of the query was planned up to file {end.index} of version {end.version} but did "
                f"not finish, and startingVersion=latest does not show where it began.",
                hint="Set startingVersion to the number of the version at which the query should begin.",
            )
        if self.options.starting_version is None and self._starting_timestamp_ms is None:
            return replace(self._at(max(end.version - 1, 0)), is_initial=True)
        return self._beginning(self._newest(capped=False))

    def _initial_files(self, version: int) -> tuple[Snapshot, pl.DataFrame]:
        if self._initial is None or self._initial[0].version != version:
            try:
                snapshot = self.log.snapshot(version=version)
            except VersionNotFoundError as error:
                raise SourceVersionsMissingError(
                    f"The stream has not read all of its initial snapshot, and version {version} can no longer be "
                    "rebuilt.",
                    hint="Start the query with another checkpointLocation, and raise delta.logRetentionDuration if "
                    "it takes that long.",
                ) from error
            assert snapshot.metadata is not None
            rows = replace(self.options, change_feed=False)  # A snapshot needs no recorded changes.
            refusal = definition_refusal(snapshot.metadata, version, rows, self.read, columns=not self._follows)
            if refusal is not None:
                raise refusal
            self._initial = (snapshot, snapshot.files.core.sort("modification_time", "path"))
        return self._initial

    def _event_times(self, at: StreamOffset) -> EventTimes:
        if at.index > BEFORE_FIRST:
            raise self._other_order("without withEventTimeOrder")
        assert self._event_column is not None
        if self._times is None or self._times[0] != at.version:
            snapshot, files = self._initial_files(at.version)
            self._times = (at.version, EventTimes.of(snapshot, files, self._event_column, self.options))
        return self._times[1]

    def _check_order(self, at: StreamOffset) -> None:
        if at.event_time is not None:
            raise self._other_order("with withEventTimeOrder and a watermark")

    @staticmethod
    def _other_order(how: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"The query has read a part of its initial snapshot {how}, and the order cannot change before its end.",
            hint="Start it as before until the snapshot is read, or with another checkpointLocation.",
        )

    def _evolve(self, commit: StreamCommit) -> None:
        assert self._tracking is not None, "it found the change"
        self._tracking.evolve(commit.version, commit.metadata, commit.protocol)

    @property
    def _follows(self) -> bool:
        return self._tracking is not None and self._tracking.entry is not None

    def _begin_tracking(self, first: int, last: int, newest: int) -> None:
        """Begin an empty schema log with a definition that can read all versions from first to last."""
        if self._tracking is None or self._follows or first > newest:
            return
        try:
            snapshot = self.log.snapshot(version=first)
        except VersionNotFoundError:
            return  # Reading the missing versions raises the error.
        metadata, protocol = snapshot.metadata, snapshot.protocol
        assert metadata is not None and protocol is not None
        last = min(last, newest)
        for version in range(first + 1, last + 1):
            for action in self.log.actions(version):
                if isinstance(action, Protocol):
                    protocol = action
                elif isinstance(action, Metadata) and action.id == metadata.id:
                    old, new = parse_schema(metadata.schema_string), parse_schema(action.schema_string)
                    if breaking_changes(old, new):
                        raise _no_single_schema(first, last, version)
                    metadata = action
        self._tracking.initialize(last, metadata, protocol)

    def _check_definition(self, version: int, newest: int) -> None:
        """Check the definition at the version where reading begins; commits show later definitions."""
        if self._checked or version > newest:
            return
        self._checked = True
        if not self.options.change_feed and not self.read.mapped:
            return  # Columns are only added, and are null in older files.
        try:
            metadata = self.log.snapshot(version=version).metadata
        except VersionNotFoundError:
            if self.options.change_feed and self.options.fail_on_data_loss:
                raise self._missing(version, min(self.log.held().commits, default=newest)) from None
            return
        assert metadata is not None
        refusal = definition_refusal(metadata, version, self.options, self.read, columns=not self._follows)
        if refusal is not None:
            raise refusal

    def _commit(self, version: int, newest: int) -> StreamCommit:
        """Return a version as the stream sees it, or the next existing one if versions may be lost."""
        found = self._commits.get(version)
        if found is not None:
            return found
        try:
            read = self._fetch(version, min(version + _AHEAD - 1, newest))
        except VersionNotFoundError:
            held = self.log.held().commits
            later = min((known for known in held if known >= version), default=None)
            if later is None or later == version or self.options.fail_on_data_loss:
                raise self._missing(version, later) from None
            _log.warning("versions %d to %d of %s are missing and were not read", version, later - 1, self.log.uri)
            return self._commit(later, newest)
        for record, actions in read:
            self._commits[record.version] = read_commit(record, actions, self.options, self.read, self._tracking)
        return self._commits[version]

    def _fetch(self, first: int, last: int) -> Sequence[tuple[CommitRecord, Sequence[Action]]]:
        if self.options.change_feed:  # Its rows contain the time of their commit.
            return self.log.commits(first, last)
        versions = range(first, last + 1)
        lines = read_all(self.log.actions, versions)
        return [
            (CommitRecord(version=version, timestamp_ms=0, commit_info=_info(actions)), actions)
            for version, actions in zip(versions, lines, strict=True)
        ]

    def _missing(self, version: int, first: int | None) -> SourceVersionsMissingError:
        begins = "holds no later one" if first is None else f"continues at version {first}"
        return SourceVersionsMissingError(
            f"The stream is at version {version}, which is no longer in the log; the log {begins}.",
            hint="Start the query with another checkpointLocation to read the table from the beginning, or set "
            "failOnDataLoss to false to continue without the missing versions. Raise delta.logRetentionDuration "
            "above the longest time that the query may be stopped.",
        )

    def _included(self, files: pl.DataFrame) -> pl.DataFrame:
        if self.options.exclude is None:
            return files
        kept = [not self.options.excludes(path) for path in files["path"]]
        return files.filter(pl.Series(kept, dtype=pl.Boolean))


def _no_single_schema(first: int, last: int, version: int) -> SchemaLogBeginningError:
    return SchemaLogBeginningError(
        f"The batch from version {first} to {last} was planned without the stream's schema log, and version {version} "
        "renames, drops or retypes columns: no single schema reads it.",
        hint="Start the query without schemaTrackingLocation until it has passed the version, if it can; or with "
        "another checkpointLocation.",
        version=version,
        condition=Condition.of("DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA", a=first, b=last),
    )


def _info(actions: Sequence[Action]) -> CommitInfo | None:
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def _inserted(snapshot: Snapshot, files: pl.DataFrame) -> list[ChangedFile]:
    """Return files of the initial snapshot as a commit would add them."""
    return [
        ChangedFile(
            path=add.path,
            partition_values=add.partition_values,
            size=add.size,
            change_type="insert",
            version=snapshot.version,
            timestamp_ms=snapshot.timestamp_ms,
            hides=add.deletion_vector,
        )
        for add in snapshot.files.adds(files)
    ]
