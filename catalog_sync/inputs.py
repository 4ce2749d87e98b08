"""Read the inputs of a sync once, for all its steps: the table, its manifests and the twin's entry.

Three things are read again, here or in ``target_sync``: manifests and entry after the twin's lease is won
(``SyncInputs.under``), the partitions with files around a drop (``live_now``), and the log before the table's own entry
changes.
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
    """The options of a sync.

    Args:
        dry_run: Plan only, and publish no manifests.
        full: Write every manifest and compare every partition.
        prune: Drop partitions that another program added.
        adopt: Take over the twin of an earlier table at the same location.
        atomic: Move all changed partitions in one call, with a manifest directory per version. None keeps the entry's
            mode. Without partition columns, every sync is atomic.
        schemes: Scheme of a location -> scheme in manifests.
        wait_seconds: How long to wait for another sync of the table.
        deadline: Deadline of the caller, which also limits this wait.
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
        """Return how many seconds the sync may still wait for others."""
        return min(self.wait_seconds, self.deadline.remaining())


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncInputs:
    """The inputs that a sync has read, and its options.

    Args:
        log: Log of the table.
        metastore: Metastore of the twin.
        name: Name of the twin.
        options: The options of a sync.
        snapshot: Snapshot of the version that the twin is brought to.
        twin: Wanted entry at that version.
        entry: The twin's Thrift entry, or None if it is missing.
        manifests: State of the manifests, or None if nothing is published, and in a dry run.
        lease: Lease of the twin, or None before it is won.
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
        """Read entry and manifests before any lease is taken. Raises the errors of ``sync_table``."""
        twin = twin_of(snapshot)
        # The metastore comes first: while it does not answer, this sync holds no lease that others wait for.
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
        """Read again the inputs that others may have changed before the twin's lease was won.

        Another sync may have published later manifests and brought the entry to their version. With the earlier state,
        this sync would take the twin back. The snapshot becomes that of the newly read state.
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
        """Read again which partitions have files, since manifests may be published while the twin's lease is held."""
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
        """Whether partitions of the entry lie in directories per version after this sync."""
        if self.options.atomic is not None:
            return self.options.atomic
        return self.entry is not None and is_atomic(self.entry.parameters or {})

    @property
    def moves_at_once(self) -> bool:
        """Whether one call moves all changed partitions."""
        return bool(self.twin.partition_columns) and self.becomes_atomic

    @property
    def changes_atomic(self) -> bool:
        """Whether every partition has to move, since the sync mode of the twin changes."""
        if self.entry is None or not self.entry.partitionKeys:
            return False
        return self.becomes_atomic != is_atomic(self.entry.parameters or {})


def is_atomic(parameters: Mapping[str, str]) -> bool:
    """Return whether an entry's partitions lie in directories per version."""
    return parameters.get(ATOMIC_KEY) == "true"


def _entry(metastore: Metastore, name: TableName, twin: Twin, options: SyncOptions) -> Any:
    """Return the twin's entry, or None; refuse one that is not this table's twin."""
    entry = metastore.table(name.database, name.name)
    if entry is not None and not is_symlink(entry):  # A table's own entry also has a location and id.
        raise NotOursError(
            f"The metastore has a table {name} that is not a twin (at {found_table(entry).location}).",
            hint="Choose another name for the twin.",
        )
    if entry is not None:
        check_ours(twin, found_table(entry), str(name), adopt=options.adopt)
    return entry
