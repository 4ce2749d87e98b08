"""Read what a sync works from, once, and hand it on to every step: the table, its manifests, the twin's entry.

Three things are read a second time, all of them here and in ``target_sync``: manifests and entry when the twin's lease
is won (``SyncInputs.under``), partitions with files around a drop (``live_now``), and the log before the table's own
entry changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from catalog_sync.diff import FoundTable, check_ours
from catalog_sync.errors import NotOursError
from catalog_sync.limits import check_partitions
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore, found_table, is_symlink
from catalog_sync.twin import Twin, twin_of
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import Lease, ManifestsBusyError, ManifestState, read_state
from pydelta.manifests.contents import DEFAULT_SCHEMES
from pydelta.manifests.plan import partition_directories
from pydelta.settings.clock import Deadline

__all__ = ["ATOMIC_KEY", "SyncInputs", "SyncOptions", "is_atomic"]

ATOMIC_KEY: Final = "pydelta.sync.atomic"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """How to sync.

    Args:
        dry_run: Plan only; manifests are not published either.
        full: Write every manifest and compare every partition.
        prune: Drop partitions that somebody else added.
        adopt: Take over the twin of an earlier table at the same location.
        atomic: Move all changed partitions by one call, each version's manifests in a directory of their own; None as
            the entry was made. Without partition columns a sync is atomic anyway.
        schemes: Scheme of a location -> scheme in manifests.
        wait_seconds: How long to wait for another sync of the table.
        deadline: Of whoever waits for this sync; it then waits no longer than that either.
    """

    dry_run: bool = False
    full: bool = False
    prune: bool = False
    adopt: bool = False
    atomic: bool | None = None
    schemes: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_SCHEMES))
    wait_seconds: float = 60.0
    deadline: Deadline = field(default_factory=lambda: Deadline(None))

    def patience(self) -> float:
        """Return the seconds that it may wait for others now."""
        return min(self.wait_seconds, self.deadline.remaining())


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncInputs:
    """What a sync has read, and how it was asked to sync.

    Args:
        log: The table.
        metastore: Where the twin is.
        name: Of the twin.
        options: How to sync.
        snapshot: Of the version that the twin is brought to.
        twin: What the metastore should have at that version.
        entry: The twin's entry as Thrift has it; None without one.
        manifests: State of the manifests; None where nothing is published, and in a dry run, which publishes nothing.
        lease: Over the entry; None until it is won.
    """

    log: DeltaLog
    metastore: Metastore
    name: TableName
    options: SyncOptions
    snapshot: Snapshot
    twin: Twin
    entry: Any
    manifests: ManifestState | None
    lease: Lease | None = None

    @classmethod
    def read(
        cls, log: DeltaLog, metastore: Metastore, name: TableName, options: SyncOptions, snapshot: Snapshot
    ) -> SyncInputs:
        """Read entry and manifests before any lease is taken; raises as ``sync_table``."""
        twin = twin_of(snapshot)
        # The metastore comes first: while it does not answer, nobody waits for a lease of this sync.
        entry = _entry(metastore, name, twin, options)
        manifests = None if options.dry_run else read_state(log.store)
        return cls(
            log=log,
            metastore=metastore,
            name=name,
            options=options,
            snapshot=snapshot,
            twin=twin,
            entry=entry,
            manifests=manifests,
        )

    def under(self, lease: Lease) -> SyncInputs:
        """Read again what others may have changed before the twin's lease was won.

        Another sync may have brought the entry to a later version, whose manifests were published before that. With
        the state of then, this sync would take the twin back. The snapshot is that of the state that is found.
        """
        entry = _entry(self.metastore, self.name, self.twin, self.options)
        manifests = read_state(self.log.store)
        if manifests is None or manifests.version < 0:
            raise ManifestsBusyError(
                "The state of the manifests was deleted after they were published.",
                retryable=True,
                hint="Run it again.",
            )
        snapshot, twin = self.snapshot, self.twin
        if (manifests.version, manifests.table_id) != (twin.version, twin.table_id):
            snapshot = self.log.snapshot(version=manifests.version)
            check_partitions(snapshot, value_length=self.log.settings.sync_partition_value_length)
            twin = twin_of(snapshot)
        options = replace(self.options, full=True) if lease.is_doubted else self.options
        return replace(
            self, options=options, snapshot=snapshot, twin=twin, entry=entry, manifests=manifests, lease=lease
        )

    def live_now(self) -> set[str]:
        """Read again which partitions have files: manifests are published while the twin's lease is held."""
        state = read_state(self.log.store)
        return state.live() if state is not None else set()

    @property
    def found(self) -> FoundTable | None:
        """The entry as a value."""
        return found_table(self.entry) if self.entry is not None else None

    @property
    def held(self) -> Lease:
        """The lease, for steps that run under it."""
        assert self.lease is not None
        return self.lease

    @property
    def live(self) -> set[str]:
        """Directories of the partitions that have files."""
        if self.manifests is not None:
            return self.manifests.live()
        keys = self.snapshot.files.spec.keys
        if not keys:
            return set()
        rows = self.snapshot.files.core.select(keys).unique().iter_rows()
        return set(partition_directories(self.snapshot, rows))

    @property
    def becomes_atomic(self) -> bool:
        """Whether the entry's partitions lie in directories by version after this sync, if it has any."""
        if self.options.atomic is not None:
            return self.options.atomic
        return self.entry is not None and is_atomic(self.entry.parameters or {})

    @property
    def moves_at_once(self) -> bool:
        """Whether one call moves all changed partitions."""
        return bool(self.twin.partition_columns) and self.becomes_atomic

    @property
    def changes_atomic(self) -> bool:
        """Whether every partition has to move, since the twin changes the way it is synced."""
        if self.entry is None or not self.entry.partitionKeys:
            return False
        return self.becomes_atomic != is_atomic(self.entry.parameters or {})


def is_atomic(parameters: Mapping[str, str]) -> bool:
    """Return whether an entry's partitions lie in directories by version."""
    return parameters.get(ATOMIC_KEY) == "true"


def _entry(metastore: Metastore, name: TableName, twin: Twin, options: SyncOptions) -> Any:
    """Return the twin's entry, or None; refuse one that is not this table's twin."""
    entry = metastore.table(name.database, name.name)
    if entry is not None and not is_symlink(entry):  # A table's own entry names its location and id, too.
        raise NotOursError(
            f"The metastore has a table {name} that is not a twin (at {found_table(entry).location}).",
            hint="Choose another name for the twin.",
        )
    if entry is not None:
        check_ours(twin, found_table(entry), str(name), adopt=options.adopt)
    return entry
