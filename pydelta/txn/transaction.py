"""Provide transactions: a snapshot to read from and a commit at the end.

::

    txn = start_transaction(log)
    files = txn.read_files(partition_filters=[…])      recorded as read
    txn.commit([*removes, *adds], Operation(name="DELETE"))
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import polars as pl

from pydelta.errors import (
    CommitStateUnknownError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
    UnsafeOperationError,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.load import commit_info
from pydelta.log.row_ids import BASE_ROW_ID, with_row_ids
from pydelta.log.runs import gathered, joined, other_than
from pydelta.protocol import features
from pydelta.protocol.actions import Action, AddFile, Metadata, Protocol, SetTransaction
from pydelta.protocol.iceberg_compat import check_added, check_definition, check_files_made_for, with_compat_tag
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.protocol.row_tracking import with_materialized_names
from pydelta.protocol.schema import parse_schema, physical_name
from pydelta.settings.clock import epoch_ms
from pydelta.settings.table import TableProperties, iceberg_compat_version
from pydelta.storage.backoff import Backoff
from pydelta.storage.interface import ObjectInfo
from pydelta.storage.probe import ensure_safe
from pydelta.txn.commit import (
    POST_COMMIT,
    PREPARE,
    READ,
    SILENT,
    Attempts,
    Observer,
    Published,
    author,
    engine_info,
    landed,
    publish,
)
from pydelta.txn.footprint import Isolation, Operation, ReadPredicate, ReadSet, Staged, key_frame, matcher_for
from pydelta.txn.hooks import Hook, HookContext, HookFailure, run_hooks
from pydelta.txn.prepare import (
    Base,
    Intention,
    check_staged,
    check_stats_columns,
    row_id_high_water_mark,
    with_kept_enablement,
)

if TYPE_CHECKING:
    from pydelta.predicate import Expr

__all__ = ["Begin", "CommitObserver", "Committed", "OptimisticTransaction", "TransactionState", "start_transaction"]

_FEATURE: Final = "delta.feature."
_PRESERVED: Final = "delta.rowTracking.preserved"
_APPLY_ATTEMPTS: Final = 4
_LONG_MS: Final = 60_000
"""A clean-up deletes only files older than a retention of hours, so transactions of up to a minute need no check."""


CommitObserver: TypeAlias = Callable[[Snapshot], None]
"""Called with the state at the new version after a commit, for example to update the caches of a session."""


class TransactionState(enum.Enum):
    """The progress of a transaction. Only an ``OPEN`` one accepts reads and commits."""

    OPEN = "open"
    COMMITTED = "committed"
    LOST = "lost"
    """It was refused or lost to another commit. Nothing of it is in the log."""
    UNKNOWN = "unknown"
    """It ended during its commit. Look for ``txn_id`` in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A landed commit.

    Args:
        version: The new version.
        snapshot: The state at it.
        attempts: The number of times a commit file was put; 1 without a race.
        hook_failures: Hooks that failed afterwards. The commit stands regardless.
    """

    version: int
    snapshot: Snapshot
    attempts: int
    hook_failures: tuple[HookFailure, ...] = ()


class OptimisticTransaction:
    """One attempt to move a table from the snapshot that was read to a new version. For one thread, used once.

    Everything on which the outcome depends must be read through it: ``read_files``, ``read_whole_table``,
    ``mark_read``, ``txn_version``. A transaction that read no file and only adds some is a blind append. It does not
    conflict with rows of other writers.

    Args:
        log: The table's log.
        snapshot: The snapshot to read; None for the newest version.
        observer: Called when a phase begins.
        backoff: Pauses between attempts; None for those of the settings.
        hooks: Names and hooks to run afterwards; None for the built-in and installed ones.
        clock: Epoch milliseconds.
    """

    def __init__(
        self,
        log: DeltaLog,
        snapshot: Snapshot | None = None,
        *,
        observer: Observer = SILENT,
        backoff: Backoff | None = None,
        hooks: Sequence[tuple[str, Hook]] | None = None,
        clock: Callable[[], int] = epoch_ms,
    ) -> None:
        self.log = log
        self._read_ms = None if snapshot is not None else clock()
        self.snapshot = log.update() if snapshot is None else snapshot
        self.txn_id = str(uuid.uuid4())
        self.state = TransactionState.OPEN
        self._observers: tuple[CommitObserver, ...] = ()
        self._observer = observer
        self._backoff = backoff or Backoff(first_ms=log.settings.commit_backoff_ms)
        self._hooks = hooks
        self._clock = clock
        self._predicates: list[ReadPredicate] = []
        self._files: list[pl.DataFrame] = []
        self._app_ids: set[str] = set()
        self._whole_table = False
        self._exactly = False
        self._brings_back = False
        self._rows_stand_alone = False
        self._transaction: SetTransaction | None = None
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        observer.at(READ)

    @property
    def table_exists(self) -> bool:
        """Whether the table existed in the snapshot that was read."""
        return self.snapshot.version >= 0

    @property
    def counts_as_version(self) -> bool:
        """Whether its commit counts as an application's version; see ``commit_once``."""
        return self._transaction is not None

    @property
    def surely_not_landed(self) -> bool:
        """Whether nothing of it can be in the log, so that the files written for it may be deleted."""
        return self.state in (TransactionState.OPEN, TransactionState.LOST)

    @property
    def metadata(self) -> Metadata | None:
        """The table's metadata after this transaction."""
        return self._metadata or self.snapshot.metadata

    @property
    def protocol(self) -> Protocol | None:
        """The table's protocol after this transaction, as far as it was set explicitly."""
        return self._protocol or self.snapshot.protocol

    @property
    def reads(self) -> ReadSet:
        """Everything read so far."""
        metadata = self.snapshot.metadata
        return ReadSet(
            predicates=tuple(self._predicates),
            files=pl.concat([key_frame(()), *self._files]),
            app_ids=frozenset(self._app_ids),
            whole_table=self._whole_table,
            exactly=self._exactly,
            brings_back=self._brings_back,
            rows_stand_alone=self._rows_stand_alone,
            matcher=matcher_for(metadata, root=self.snapshot.table_uri, mode=self.snapshot.column_mapping_mode),
            root=self.snapshot.table_uri,
            metadata=metadata,
        )

    def read_files(
        self,
        partition_filters: Sequence[Expr] = (),
        data_filters: Sequence[Expr] = (),
        *,
        time_zone: str = "UTC",
    ) -> pl.DataFrame:
        """Find the files that may hold rows that satisfy all conjuncts. Conditions and files count as read.

        Args:
            partition_filters: Conjuncts on partition columns only.
            data_filters: Other conjuncts, for which statistics exclude files.
            time_zone: Zone of timestamps in partition values without one.

        Returns:
            Rows of the snapshot's file table.
        """
        self._require_open()
        conditions = (*partition_filters, *data_filters)
        found = self.snapshot.files.select(data_filters=conditions, time_zone=time_zone)
        self._predicates.append(
            ReadPredicate(
                partition_filters=tuple(partition_filters), data_filters=tuple(data_filters), time_zone=time_zone
            )
        )
        self.mark_read(found)
        return found

    def read_whole_table(self, *, exactly: bool = False) -> None:
        """Make the outcome depend on all files, so that any removal and any added row is a conflict.

        Args:
            exactly: Whether rows of blind appends conflict too, at either isolation level, because the new version must
                hold exactly the committed content.
        """
        self._require_open()
        self._whole_table = True
        self._exactly = self._exactly or exactly

    def bring_back(self) -> None:
        """Declare that removed files become live again, so that a concurrent VACUUM is a conflict."""
        self._require_open()
        self._brings_back = True

    def mark_read(self, files: pl.DataFrame) -> None:
        """Count these files as read.

        Args:
            files: Columns ``path`` and ``dv_id``, as in the snapshot's file table. Other columns are ignored.
        """
        self._require_open()
        self._files.append(files.select(pl.col("path").cast(pl.String), pl.col("dv_id").cast(pl.String)))

    def rows_stand_alone(self) -> None:
        """Declare that the outcome for a row depends only on that row, as in a DELETE or an UPDATE by a condition.

        Then a winner that only hid other rows by deletion vectors does not conflict. If both put vectors on a file,
        this transaction's are united with the winner's. A MERGE may declare it if it changes every target row that its
        source matches, or if it inserts nothing.
        """
        self._require_open()
        self._rows_stand_alone = True

    def txn_version(self, app_id: str) -> int | None:
        """Return the application's last version in the snapshot; None if it never committed. Counts as read."""
        self._require_open()
        self._app_ids.add(app_id)
        found = self.snapshot.set_transactions.get(app_id)
        return None if found is None else found.version

    def commit_once(self, app_id: str, version: int) -> bool:
        """Make the commit count as a version of an application, which the table accepts only once.

        Args:
            app_id: The application.
            version: Its version. The versions of an application increase.

        Returns:
            False if the table already has this version or a later one, so that there is nothing to do.

        Protocol: "Transaction Identifiers".
        """
        landed = self.txn_version(app_id)
        if landed is not None and landed >= version:
            return False
        self._transaction = SetTransaction(app_id=app_id, version=version, last_updated=self._clock())
        return True

    def update_metadata(self, metadata: Metadata) -> None:
        """Change the table's metadata in the commit. Metadata equal to the table's is left out.

        Raises:
            BindError, InvalidArgumentError: Columns cannot have statistics; see ``check_stats_columns``.
        """
        self._require_open()
        if metadata != self.snapshot.metadata:
            check_stats_columns(metadata)
        self._metadata = None if metadata == self.snapshot.metadata else metadata

    def update_protocol(self, protocol: Protocol) -> None:
        """Change the table's protocol in the commit. A protocol equal to the table's is left out."""
        self._require_open()
        self._protocol = None if protocol == self.snapshot.protocol else protocol

    def commit(
        self,
        actions: Sequence[Action],
        operation: Operation,
        *,
        user_metadata: str | None = None,
        tags: Mapping[str, str] | None = None,
        blind_append: bool | None = None,
    ) -> Committed:
        """Publish the staged changes as one new version, all or none.

        Args:
            actions: File, ``txn``, domain, metadata and protocol actions; never ``commitInfo``.
            operation: The operation for the history.
            user_metadata: Free text for the history; None for the session's ``spark.pydelta.commit.userMetadata``.
            tags: Tags of the commit.
            blind_append: Whether the commit declares itself a blind append; None to derive it from what was read and
                staged.

        Returns:
            The version, the state at it, and the hooks that failed.

        Raises:
            TableNotFoundError: There is no table and the commit does not create one.
            UnsafeOperationError: Rows are removed from an append-only table.
            UnsupportedFeatureError: The table needs a feature that this engine cannot write.
            InvalidArgumentError: The actions contradict each other or the table.
            DeltaConcurrentModificationException: Another transaction won. Nothing of this one is in the log.
            CommitStateUnknownError: The commit may or may not be in the log; see the hint.
            UnsafeStoreError: The store lets two writers take one version.
            StorageError: The store refused. Nothing of this transaction is in the log.

        Protocol: "Delta Log Entries", "Action Reconciliation".
        """
        self._require_open()
        self.state = TransactionState.LOST
        self._observer.at(PREPARE)
        intention = self._prepare(actions, operation, user_metadata=user_metadata, tags=tags, blind_append=blind_append)
        if self.log.settings.probe_store and not getattr(self.log.store, "put_if_absent_is_atomic", False):
            ensure_safe(self.log.store)
        self.state = TransactionState.UNKNOWN
        try:
            published = publish(
                self.log.store,
                intention=intention,
                base=self._base(),
                reads=self.reads,
                attempts=Attempts(
                    most=self.log.settings.commit_max_attempts,
                    backoff=self._backoff,
                    observer=self._observer,
                    clock=self._clock,
                    took_long=self._took_long,
                ),
                options=self.log.options,
            )
        except CommitStateUnknownError:
            raise
        except Exception:
            self.state = TransactionState.LOST
            raise
        self.state = TransactionState.COMMITTED
        self._observer.at(POST_COMMIT)
        landed(self.snapshot.table_uri, published.landed.version)
        committed = self._finish(published)
        for notify in self._observers:
            notify(committed.snapshot)
        return committed

    def notifying(self, *observers: CommitObserver) -> Self:
        """Add observers to call with the new state after the commit has landed and the hooks have run; return self."""
        self._observers += observers
        return self

    def _took_long(self) -> bool:
        """Return whether the log may have been cleaned up since it was read, judged by this machine's clock."""
        return self._read_ms is None or abs(self._clock() - self._read_ms) > _LONG_MS

    def _require_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise InvalidArgumentError(
                f"This transaction has ended ({self.state.value}).",
                hint="Start a new one.",
                table=self.snapshot.table_uri,
            )

    def _prepare(
        self,
        actions: Sequence[Action],
        operation: Operation,
        *,
        user_metadata: str | None,
        tags: Mapping[str, str] | None,
        blind_append: bool | None,
    ) -> Intention:
        stated = (self._protocol, self._metadata, self._transaction)
        own: list[Action] = [item for item in stated if item is not None]
        staged = Staged.of(joined(own, gathered(actions)))
        metadata = staged.metadata or self.snapshot.metadata
        if metadata is None:
            raise TableNotFoundError(
                f"There is no Delta table at {self.snapshot.table_uri}, and this commit does not create one.",
                hint="Create the table first, or check the path.",
            )
        staged, metadata = self._with_row_tracking(staged, metadata)
        staged, protocol = self._with_protocol(staged, metadata, operation.name)
        staged = self._with_iceberg(staged, staged.metadata or metadata, protocol, operation)
        properties = TableProperties.parse(metadata.configuration)
        stamped = properties.in_commit_timestamps_enabled and features.supports(protocol, "inCommitTimestamp")
        staged = self._with_enablement(staged, stamped=stamped)
        read = self.snapshot.properties if self.table_exists else TableProperties()
        check_staged(staged, metadata=metadata, protocol=protocol, append_only=read.append_only)
        level = staged.effective_level(Isolation(properties.isolation_level))
        if blind_append is None:
            blind_append = staged.only_adds_files and not self.reads.depends_on_files
        elif blind_append and not staged.only_adds_files:
            raise InvalidArgumentError(
                "A commit that removes files cannot be a blind append.", hint="Leave the flag out."
            )
        if properties.enable_row_tracking:
            tags = {_PRESERVED: "true", **(tags or {})}
        return Intention(
            staged=staged,
            operation=operation,
            txn_id=self.txn_id,
            read_version=self.snapshot.version,
            level=level,
            is_blind_append=blind_append,
            engine_info=engine_info(),
            user_metadata=self.log.settings.user_metadata if user_metadata is None else user_metadata,
            user_name=author(),
            tags=tags,
            stamped=stamped,
            stamping_begins=stamped and self.table_exists and not self.snapshot.in_commit_timestamps_enabled,
            row_tracking=features.supports(protocol, "rowTracking") and not properties.row_tracking_suspended,
        )

    def _with_enablement(self, staged: Staged, *, stamped: bool) -> Staged:
        """Return the staged actions with correct enablement properties of in-commit timestamps in their metadata."""
        if staged.metadata is None:
            return staged
        was_on = self.table_exists and self.snapshot.in_commit_timestamps_enabled
        kept = with_kept_enablement(staged.metadata, self.snapshot.metadata, was_on=was_on, is_on=stamped)
        if kept is staged.metadata:
            return staged
        return Staged.of(other_than(staged.actions, Metadata, kept))

    def _with_row_tracking(self, staged: Staged, metadata: Metadata) -> tuple[Staged, Metadata]:
        """Add names of the columns that store row ids if the staged metadata turns row tracking on."""
        if staged.metadata is None:
            return staged, metadata
        taken = {physical_name(field) for field in parse_schema(metadata.schema_string).fields}
        configuration = with_materialized_names(metadata.configuration, taken=taken)
        if configuration != metadata.configuration:
            metadata = metadata.replace(configuration=configuration)
            staged = Staged.of(other_than(staged.actions, Metadata, metadata))
        turned_on = TableProperties.parse(configuration).enable_row_tracking and self.table_exists
        if turned_on and not self.snapshot.properties.enable_row_tracking:
            live = with_row_ids(self.snapshot.files, self.snapshot.files.core)
            touched = {action.path for action in staged.removes} | {action.path for action in staged.adds}
            without = live.filter(pl.col(BASE_ROW_ID).is_null() & ~pl.col("path").is_in(list(touched)))
            if without.height:
                raise UnsafeOperationError(
                    f"Row tracking cannot be enabled: the rows of {without.height} files have no ids yet, for example "
                    f"those of {without['path'][0]}.",
                    hint="Call DeltaTable.enableRowTracking(), which gives them ids in the same commit.",
                    table=self.snapshot.table_uri,
                    condition=Condition.of("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"),
                )
        return staged, metadata

    def _with_iceberg(self, staged: Staged, metadata: Metadata, protocol: Protocol, operation: Operation) -> Staged:
        """Check the rules of Iceberg compatibility, if it is on, and tag the added files."""
        before = self.snapshot.metadata if self.table_exists else None
        if staged.metadata is not None:
            check_definition(metadata, protocol, before)
        version = iceberg_compat_version(metadata.configuration)
        if not version:
            return staged
        check_added(staged.adds, metadata.configuration)
        was = iceberg_compat_version(before.configuration) if before is not None else 0
        if was != version and operation.name != "RESTORE":  # RESTORE brings back files written while it was on.
            removed = {action.path for action in staged.removes}
            left = 0
            if self.table_exists:
                left = self.snapshot.files.core.filter(~pl.col("path").is_in(list(removed))).height
            check_files_made_for(version, left, table=self.snapshot.table_uri)
        marked = (
            with_compat_tag(action, metadata.configuration) if isinstance(action, AddFile) else action
            for action in staged.actions
        )
        return Staged.of(marked)

    def _with_protocol(self, staged: Staged, metadata: Metadata, operation: str) -> tuple[Staged, Protocol]:
        """Add the protocol that the staged metadata needs, and return it too."""
        if self.snapshot.protocol is not None:
            features.ensure_writable(self.snapshot.protocol, table=self.snapshot.table_uri)
        stated = staged.protocol or self.snapshot.protocol
        if stated is None:
            protocol = features.required_protocol(metadata)
        elif staged.metadata is not None:
            requested = {key.removeprefix(_FEATURE) for key in metadata.configuration if key.startswith(_FEATURE)}
            needed = features.needed_features(metadata)
            if not any(word in operation for word in ("CLONE", "RESTORE", "CONVERT")):
                features.refuse_unasked(stated, needed - requested, table=self.snapshot.table_uri)
            protocol = features.upgrade(stated, needed | requested)
        else:
            protocol = stated
        if staged.metadata is not None:
            # Protocol requests are not stored as table properties, because they would bring a dropped feature back.
            kept = {key: value for key, value in metadata.configuration.items() if not features.is_request(key)}
            if kept != metadata.configuration:
                staged = Staged.of(other_than(staged.actions, Metadata, metadata.replace(configuration=kept)))
        if protocol != stated:
            staged = Staged.of(other_than(staged.actions, Protocol, protocol))
        features.ensure_writable(protocol, table=self.snapshot.table_uri)
        return staged, protocol

    def _base(self) -> Base:
        if not self.table_exists:
            return Base(version=-1, timestamp_ms=0)
        mark = row_id_high_water_mark(self.snapshot.domain_metadata.values())
        return Base(version=self.snapshot.version, timestamp_ms=self.snapshot.timestamp_ms, row_id_high_water_mark=mark)

    def _finish(self, published: Published) -> Committed:
        snapshot = self.snapshot
        for winner in published.winners:
            snapshot = self._apply(snapshot, winner.commit.version, winner.commit.actions, winner.file)
        landed = published.landed
        after = self._apply(snapshot, landed.version, landed.actions, self._commit_file(published))
        context = HookContext(
            log=self.log, snapshot=after, previous=snapshot, actions=landed.actions, now_ms=self._clock()
        )
        failures = run_hooks(context, hooks=self._hooks)
        return Committed(version=landed.version, snapshot=after, attempts=published.attempts, hook_failures=failures)

    def _apply(self, snapshot: Snapshot, number: int, actions: Sequence[Action], file: ObjectInfo) -> Snapshot:
        """Return the state after one more commit. If the log must be read for it, storage errors are retried."""
        for attempt in range(1, _APPLY_ATTEMPTS):
            try:
                return self.log.apply_commit(snapshot, number, actions, file)
            except StorageError:
                self._backoff.pause(attempt)
        try:
            return self.log.apply_commit(snapshot, number, actions, file)
        except StorageError as error:
            raise StorageError(
                f"The transaction was committed, but the table's new state could not be read back: {error.message}",
                hint=f"Do not run it again: txnId {self.txn_id} is in the history. Its checksum and checkpoint are "
                "left to the next commit.",
                table=self.snapshot.table_uri,
            ) from error

    def _commit_file(self, published: Published) -> ObjectInfo:
        """Return the file just put with the store's time for it, or with this clock's time if the store fails."""
        version = published.landed.version
        try:
            found = commit_info(self.log.store, version)
        except StorageError:
            found = None
        if found is not None:
            return found
        path = f"{LOG_DIR}/{commit_file(version)}"
        return ObjectInfo(path=path, size=published.landed.size_bytes, modification_time_ms=self._clock())


def start_transaction(
    log: DeltaLog,
    snapshot: Snapshot | None = None,
    *,
    observer: Observer = SILENT,
    backoff: Backoff | None = None,
    hooks: Sequence[tuple[str, Hook]] | None = None,
    clock: Callable[[], int] = epoch_ms,
) -> OptimisticTransaction:
    """Begin a transaction on the newest version, or on ``snapshot``.

    Args:
        log: The table's log. The table need not exist yet.
        snapshot: The snapshot to read instead of the newest version.
        observer: Called when a phase begins.
        backoff: Pauses between attempts; None for those of the settings.
        hooks: Names and hooks to run afterwards; None for the built-in and installed ones.
        clock: Epoch milliseconds.

    Raises:
        UnsupportedFeatureError: The table needs a feature that this engine cannot read.
        LogCorruptedError, LogGapError: The log cannot be read.
    """
    return OptimisticTransaction(log, snapshot, observer=observer, backoff=backoff, hooks=hooks, clock=clock)


Begin: TypeAlias = Callable[[DeltaLog], OptimisticTransaction]
"""Starts the transaction of a command on the newest version of a table."""
