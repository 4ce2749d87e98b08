"""Read a table's log into a ``ShownTable``: its versions, files, last runs, twin and newest commits. Writes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from pydelta.commands.run import Context, run
from pydelta.commands.vacuum.command import Vacuum, VacuumProgress
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.errors import DeltaError, ProtocolError, StorageError, TableNotFoundError, VersionNotFoundError
from pydelta.errors.redaction import hide_text, hide_value
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.log.history import CommitRecord
from pydelta.log.segment import read_listing
from pydelta.log.side_files import read_hint
from pydelta.manifests import MANY_FILES, read_state
from pydelta.protocol.actions import AddFile, Metadata, RemoveFile
from pydelta.protocol.features import implied_features
from pydelta.protocol.names import path_text
from pydelta.protocol.paths import LOG_DIR
from pydelta.protocol.reader_notes import reader_notes
from pydelta.protocol.types import ArrayType, DataType, MapType, StructField, StructType
from pydelta.settings.clock import Deadline, epoch_ms
from pydelta.tools.ui.commits import Detail, commit_state, describe_commit
from pydelta.tools.ui.formats import duration, of
from pydelta.tools.ui.values import (
    CommitState,
    GarbageState,
    LastRun,
    ShownIceberg,
    ShownPlace,
    ShownSums,
    ShownTable,
    Trouble,
    TwinState,
)

__all__ = ["MANY_SMALL", "Reader", "TwinOf", "measure_garbage", "read_detail", "sum_files"]

MANY_SMALL: Final = 100
"""Number of small files from which the page reports them."""
_LATE_CHECKPOINT: Final = 5
"""A table is reported after this many checkpoint intervals without a checkpoint."""
_DEFAULT_TARGET: Final = 128 * 1024 * 1024
_KEPT_COMMITS: Final = 1000
_MOST_NESTED: Final = 10_000
_LONGEST_COMMENT: Final = 2000
_SYNC_ENABLED: Final = "pydelta.sync.enabled"

TwinOf = Callable[[str, DeltaLog], Mapping[str, Any]]
"""Takes the name and log of a registered table, and returns the fields of a ``TwinState``."""


@dataclass(slots=True)
class _Known:
    """Values derived from one snapshot, and the commits read so far."""

    snapshot: Snapshot | None = None
    sums: ShownSums | None = None
    table_id: str | None = None
    newest: int = -1
    commits: list[CommitState] = field(default_factory=list)


class Reader:
    """Reads one table repeatedly, deriving unchanged values only once. Not thread-safe.

    Args:
        place: Location of the table.
        options: Storage options.
        commits: Number of commits to read the first time.
        log: A log to use instead of that of ``place``.
    """

    def __init__(
        self,
        place: ShownPlace,
        *,
        options: Mapping[str, str] | None = None,
        commits: int = 100,
        log: DeltaLog | None = None,
    ) -> None:
        self.place = place
        self._options = options
        self._commits = commits
        self._log = log
        self._known = _Known()

    @property
    def snapshot(self) -> Snapshot | None:
        """The version that was read last; None before the first."""
        return self._known.snapshot

    @property
    def log(self) -> DeltaLog:
        """The table's log.

        Raises:
            DeltaError: The location cannot be opened.
        """
        if self._log is None:
            self._log = DeltaLog.for_table(self.place.uri, options=self._options)
        return self._log

    def read(self, twin_of: TwinOf | None = None) -> ShownTable:
        """Read the newest version. Errors become troubles of the state."""
        began = epoch_ms()
        try:
            snapshot = self.log.update()
            if snapshot.version < 0:
                raise TableNotFoundError(
                    f"There is no Delta table at {self.place.uri}.",
                    hint="If it was dropped, take it off the list, or drop its entry in the metastore.",
                )
            self._take(snapshot)
        except (DeltaError, OSError, ValueError, ArithmeticError, pl.exceptions.PolarsError) as error:
            return ShownTable(place=self.place, read_ms=began, troubles=(Trouble.of(error),))
        state = self._state(snapshot, began)
        state, troubles = self._with_entries(state, twin_of)
        found = sorted([*troubles, *find_troubles(state, snapshot)], key=lambda trouble: -trouble.weight)
        return dataclasses.replace(state, troubles=tuple(found))

    def _take(self, snapshot: Snapshot) -> None:
        """Update the derived values for a new snapshot."""
        known = self._known
        if known.snapshot is snapshot:
            return
        assert snapshot.metadata is not None
        if known.table_id != snapshot.metadata.id or known.newest > snapshot.version:
            known = _Known(table_id=snapshot.metadata.id)
        limit = snapshot.version - known.newest if known.commits else self._commits
        records: Sequence[CommitRecord] = self.log.history(limit=limit)
        while known.commits and records[-1].version > known.newest + 1 and len(records) == limit:
            limit *= 2  # Other writers may commit in between, and no commit may be left out.
            records = self.log.history(limit=limit)
        fresh = [commit_state(record) for record in records if known.newest < record.version <= snapshot.version]
        known.commits = [*fresh, *known.commits][: max(_KEPT_COMMITS, self._commits)]
        known.newest = snapshot.version
        known.sums = sum_files(snapshot, self.log.settings.optimize_min_file_bytes)
        known.snapshot = snapshot
        self._known = known

    def _state(self, snapshot: Snapshot, began: int) -> ShownTable:
        metadata, protocol, commits = snapshot.metadata, snapshot.protocol, self._known.commits
        assert metadata is not None
        assert protocol is not None
        return ShownTable(
            place=self.place,
            read_ms=began,
            version=snapshot.version,
            timestamp_ms=snapshot.timestamp_ms,
            table_id=metadata.id,
            description=hide_text(metadata.description) if metadata.description else None,
            columns=tuple((item.name, str(item.data_type)) for item in snapshot.schema.fields),
            comments=column_comments(snapshot.schema),
            nested=_nested(snapshot.schema),
            required=tuple(item.name for item in snapshot.schema.fields if not item.nullable),
            partition_columns=snapshot.partition_columns,
            clustering_columns=snapshot.clustering_columns,
            properties={name: str(hide_value(name, value)) for name, value in metadata.configuration.items()},
            features=tuple(sorted(implied_features(protocol))),
            protocol=f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
            files=self._known.sums,
            checkpoint=_last_checkpoint(self.log),
            optimize=_last(commits, "OPTIMIZE"),
            vacuum=_last(commits, "VACUUM END", "VACUUM"),
            looked_back=len(commits),
            garbage=_said_by_vacuum(commits),
            writers={hide_text(app): (txn.version, txn.last_updated) for app, txn in snapshot.set_transactions.items()},
            commits=tuple(commits),
        )

    def _with_entries(self, state: ShownTable, twin_of: TwinOf | None) -> tuple[ShownTable, list[Trouble]]:
        """Add what readers of the manifests and of the metastore's entries see."""
        if twin_of is None or not self.place.registered:
            twin, troubles = self._published(state)
            return dataclasses.replace(state, twin=twin), troubles
        try:
            found = dict(twin_of(self.place.name, self.log))
        except DeltaError as error:
            trouble = Trouble.of(error)
            twin = TwinState(name=None, state="unknown", problem=trouble.what)
            return dataclasses.replace(state, twin=twin), [trouble]
        iceberg, native_behind = found.pop("iceberg", None), found.pop("native_behind", None)
        return dataclasses.replace(
            state,
            twin=TwinState(**found),
            iceberg=None if iceberg is None else ShownIceberg(**iceberg),
            native_behind=native_behind,
        ), []

    def _published(self, state: ShownTable) -> tuple[TwinState | None, list[Trouble]]:
        try:
            published = read_state(self.log.store)
        except StorageError as error:
            return None, [Trouble.of(error)]
        if published is None or state.version is None:
            return None, []
        behind = max(state.version - published.version, 0)
        seconds = 0.0
        if behind:
            unseen = [commit for commit in state.commits if commit.version > published.version]
            seconds = max((state.read_ms - min(commit.timestamp_ms for commit in unseen)) / 1000, 0) if unseen else 0.0
        return TwinState(
            name=None, state="behind" if behind else "current", manifest_version=published.version,
            lag_versions=behind, lag_seconds=seconds,
        ), []  # fmt: skip


def column_comments(schema: StructType) -> dict[str, str]:
    """Return the comments of columns, and of the parts of nested ones, by dotted path."""
    found = {}
    for path, item in _paths(schema):
        text = item.metadata.get("comment")
        if isinstance(text, str) and text:
            found[path_text(path)] = hide_text(text[:_LONGEST_COMMENT])
    return found


def _nested(schema: StructType) -> tuple[str, ...]:
    inner = (path_text(path) for path, _ in _paths(schema) if len(path) > 1)
    return tuple(itertools.islice(inner, _MOST_NESTED))


def _paths(kind: DataType, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
    if isinstance(kind, StructType):
        for item in kind.fields:
            yield (*prefix, item.name), item
            yield from _paths(item.data_type, (*prefix, item.name))
    elif isinstance(kind, ArrayType):
        yield from _paths(kind.element_type, (*prefix, "element"))
    elif isinstance(kind, MapType):
        yield from _paths(kind.key_type, (*prefix, "key"))
        yield from _paths(kind.value_type, (*prefix, "value"))


def sum_files(snapshot: Snapshot, min_bytes: int | None) -> ShownSums:
    """Count a snapshot's files with columnar operations.

    Args:
        snapshot: The snapshot.
        min_bytes: Size from which OPTIMIZE leaves a file unchanged; None for the table's target size.
    """
    small_below = min_bytes or snapshot.properties.target_file_size_bytes or _DEFAULT_TARGET
    core = snapshot.files.core
    keys = [name for name in core.columns if name.startswith(PV_PREFIX)]
    is_small = pl.col("size") < small_below
    parts = (
        core.group_by(keys) if keys else core.with_columns(all=pl.lit(value=True)).group_by("all")
    ).agg(files=pl.len(), small=is_small.sum())  # fmt: skip
    removed = snapshot.tombstones()
    return ShownSums(
        live=core.height,
        live_bytes=int(core["size"].sum()),
        small=int(parts.filter(pl.col("small") > 1)["small"].sum()),
        small_below_bytes=small_below,
        with_vectors=core.height - core["dv_id"].null_count(),
        removed=removed.height,
        removed_bytes=int(removed["size"].sum()),
        most_in_partition=int(str(parts["files"].max() or 0)),
    )


def _last_checkpoint(log: DeltaLog) -> LastRun | None:
    """Find the newest complete checkpoint. Listing starts at the hint, which may be older than that checkpoint."""
    hint = read_hint(log.store)
    starts = [f"{hint.version:020d}", ""] if hint is not None else [""]
    for start in starts:
        listing = read_listing(log.store.list_from(start, prefix=LOG_DIR))
        if listing.checkpoints:
            newest = listing.checkpoints[0]
            return LastRun(version=newest.version, timestamp_ms=newest.files[0].modification_time_ms)
    return None


def _last(commits: Sequence[CommitState], *operations: str) -> LastRun | None:
    found = next((commit for commit in commits if (commit.operation or "").upper() in operations), None)
    return LastRun(version=found.version, timestamp_ms=found.timestamp_ms) if found is not None else None


def _said_by_vacuum(commits: Sequence[CommitState]) -> GarbageState | None:
    """Describe what the last VACUUM left: no garbage if it finished, otherwise what it planned to delete."""
    for commit in commits:
        operation = (commit.operation or "").upper()
        if operation == "VACUUM END":
            source = f"nothing was left by the VACUUM of version {commit.version}; later garbage is not counted"
            return GarbageState(files=0, bytes=0, timestamp_ms=commit.timestamp_ms, source=source)
        if operation == "VACUUM START":
            files, size = (commit.metrics.get(name, "") for name in ("numFilesToDelete", "sizeOfDataToDelete"))
            return GarbageState(
                files=int(files) if files.isdecimal() else None,
                bytes=int(size) if size.isdecimal() else None,
                timestamp_ms=commit.timestamp_ms,
                source=f"the VACUUM of version {commit.version} meant to delete these, and has not ended",
            )
    return None


def _iceberg_troubles(iceberg: ShownIceberg, name: str) -> list[Trouble]:
    if iceberg.is_bad:
        what = f"The Iceberg entry {iceberg.name}: {iceberg.problem or iceberg.state}"
        return [Trouble(what=what, next=f"catalog_sync status {name} says more.", weight=2)]
    if iceberg.lag_versions:
        waiting = f", for {duration(iceberg.lag_seconds)}" if iceberg.lag_seconds else ""
        what = f"The Iceberg entry {iceberg.name} is {of(iceberg.lag_versions, 'version')} behind{waiting}."
        return [Trouble(what=what, next=f"Run catalog_sync sync {name}")]
    if iceberg.state == "not synced":
        return [Trouble(what="The table asks for an Iceberg entry and has none.", next=f"Run catalog_sync sync {name}")]
    return []


def find_troubles(state: ShownTable, snapshot: Snapshot) -> list[Trouble]:
    """List the problems of a readable table."""
    found, sums, twin, name = [], state.files, state.twin, state.place.name
    assert sums is not None
    assert state.version is not None
    if twin is not None and twin.state in ("blocked", "no table"):
        found.append(
            Trouble(
                what=f"The twin cannot be brought to version {state.version}: {twin.problem or twin.state}",
                next=f"catalog_sync verify {name} says more; readers of the twin see version {twin.seen_version}.",
                weight=2,
            )
        )
    elif twin is not None and twin.lag_versions:
        waiting = f", for {duration(twin.lag_seconds)}" if twin.lag_seconds else ""
        what = "The manifests are" if twin.name is None else f"The twin {twin.name} is"
        command = f"pydelta generate {state.place.uri}" if twin.name is None else f"catalog_sync sync {name}"
        found.append(Trouble(what=f"{what} {of(twin.lag_versions, 'version')} behind{waiting}.", next=f"Run {command}"))
    elif twin is not None and twin.state == "not synced" and state.properties.get(_SYNC_ENABLED, "").lower() == "true":
        found.append(
            Trouble(
                what=f"The table asks for a twin ({_SYNC_ENABLED}) and has none.", next=f"Run catalog_sync sync {name}"
            )
        )
    if state.iceberg is not None:
        found += _iceberg_troubles(state.iceberg, name)
    if state.native_behind:
        what = "The metastore shows other columns or properties of the table than its newest version has."
        found.append(Trouble(what=what, next=f"Run catalog_sync sync {name}"))
    assert snapshot.metadata is not None
    found += [
        Trouble(what=note, next="Read the table with an engine that reads it right, such as Spark.")
        for note in reader_notes(snapshot.metadata)
    ]
    if sums.small >= MANY_SMALL:
        found.append(Trouble(what=f"{of(sums.small, 'small file')} could be merged.", next="OPTIMIZE the table."))
    if twin is not None and twin.seen_version is not None and sums.most_in_partition > MANY_FILES:
        found.append(
            Trouble(
                what=f"A partition has {sums.most_in_partition} files: readers are slow beyond {MANY_FILES}.",
                next="OPTIMIZE it.",
            )
        )
    since = state.version - (state.checkpoint.version if state.checkpoint is not None else -1)
    if since > _LATE_CHECKPOINT * snapshot.properties.checkpoint_interval:
        found.append(
            Trouble(
                what=f"No checkpoint for {since} commits, though delta.checkpointInterval is "
                f"{snapshot.properties.checkpoint_interval}.",
                next=f"Run pydelta checkpoint {state.place.uri}",
            )
        )
    return found


def read_detail(log: DeltaLog, version: int, *, shows_values: bool = True) -> Detail:
    """Read one commit and explain it.

    Args:
        log: The table.
        version: The version.
        shows_values: Whether the lines may have the statistics of files, which are values of rows.

    Raises:
        VersionNotFoundError: The log has no such commit.
        DeltaError: The commit cannot be read.
    """
    [(record, actions)] = log.commits(version, version)
    before = None
    if version > 0 and any(isinstance(action, Metadata) for action in actions):
        with contextlib.suppress(VersionNotFoundError, ProtocolError):  # The log no longer has the version.
            before = log.snapshot(version=version - 1).metadata
    if not shows_values:
        actions = [
            action.replace(stats=None) if isinstance(action, (AddFile, RemoveFile)) else action for action in actions
        ]
    return describe_commit(record, actions, before)


class _TooLongError(DeltaError):
    """A listing took longer than allowed."""

    code = "PYDELTA_LISTING_TOO_LONG"


def measure_garbage(log: DeltaLog, *, seconds: float, inventory: Inventory | None = None) -> GarbageState:
    """List a table or read an inventory, and count what VACUUM would delete. Deletes and writes nothing.

    Args:
        log: The table.
        seconds: Maximum duration.
        inventory: A list of files to use instead of a listing.

    Raises:
        DeltaError: It took too long, or the table cannot be read.
    """
    deadline = Deadline(seconds)

    def stop_late(progress: VacuumProgress) -> None:
        if not deadline.remaining():
            raise _TooLongError(
                f"Listing the table took longer than {seconds:.0f} s ({progress.listed} files so far): its garbage is "
                "not known.",
                hint="Give pydelta ui an --inventory, or more time with --garbage-seconds.",
            )

    result = run(Vacuum(dry_run=True, inventory=inventory, progress=stop_late), Context(log))
    return GarbageState(
        files=result.files.height,
        bytes=result.bytes,
        noncurrent_bytes=result.noncurrent_bytes,
        timestamp_ms=epoch_ms(),
        source="an inventory" if inventory is not None else "a listing of the table",
    )
