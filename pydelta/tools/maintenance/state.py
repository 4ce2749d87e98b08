"""Compute the state on which maintenance is decided, from snapshot and history, without listing data files.

::

    live files ----plan_compaction--> small files, and how many files merging them saves
               ----times------------> bytes that came after the last run that ordered rows
    tombstones --------------------> files and bytes that VACUUM LITE may delete, by the hour of their removal
    history, journal -------------> when each action last succeeded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from pydelta.commands.optimize.plan import BIN, SizeLimits, plan_compaction
from pydelta.log import Snapshot
from pydelta.log.columns import PV_PREFIX
from pydelta.log.history import CommitRecord
from pydelta.settings.maintenance import MaintenancePolicy

__all__ = [
    "TARGET_BYTES",
    "ActionFailure",
    "ActionKind",
    "Compaction",
    "MaintenanceState",
    "Removals",
    "last_runs",
    "later_removals",
    "state_of",
    "target_bytes",
]

TARGET_BYTES: Final = 128 * 1024 * 1024
"""Size of new files if the table has no ``delta.targetFileSize``."""
_HOUR_MS: Final = 3_600_000


class ActionKind:
    """The names of actions, as stored in ``ops.maintenance``."""

    SYNC: Final = "sync"
    COMPACT: Final = "compact"
    ZORDER: Final = "zorder"
    CLUSTER: Final = "cluster"
    LITE: Final = "vacuum lite"
    INVENTORY: Final = "vacuum inventory"
    FULL: Final = "vacuum full"

    OPTIMIZES: Final = (COMPACT, ZORDER, CLUSTER)
    VACUUMS: Final = (LITE, INVENTORY, FULL)
    SWEEPS: Final = (INVENTORY, FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The effect of a compaction.

    Args:
        files: Small files that it would read.
        bytes: Their size.
        new_files: Files that it would write.
        ripens_ms: When the next small file is old enough to be merged, epoch milliseconds; None if none is waiting.
    """

    files: int = 0
    bytes: int = 0
    new_files: int = 0
    ripens_ms: int | None = None

    @property
    def saved(self) -> int:
        """The number of files that merging saves."""
        return self.files - self.new_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Files that were removed within the same hour.

    Args:
        last_ms: When the last of them was removed, epoch milliseconds.
        files: Number of files.
        bytes: Their size, as far as the log records it.
    """

    last_ms: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """The tries of an action since it last succeeded.

    Args:
        tries: Number of tries.
        last_ms: When the last one ended, epoch milliseconds.
        said: Its error message in one line.
        code: The error's code.
    """

    tries: int
    last_ms: int
    said: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """The state of a table, as far as its maintenance needs it. Times are in epoch milliseconds, sizes in bytes.

    Args:
        name: Name of the table.
        uri: Location of the table.
        version: Newest version.
        created_ms: When the table was created.
        commits: Versions that the log may hold, and so the most that LITE would read.
        files, bytes: Live files.
        retention_ms: How long removed files stay.
        compaction: Effect of merging its small files.
        clustered: Whether it has clustering columns.
        unordered_files, unordered_bytes: Files added after the last run that ordered rows.
        removals: Removed files by the hour, oldest first.
        last: When each kind of action last succeeded.
        failures: Kinds of actions that have failed since then.
        inventory_ms: When the newest inventory of its bucket was made; None without one.
        announced: Whether a commit was announced but not yet published.
        registered: Whether it has an entry in a metastore.
    """

    name: str
    uri: str
    version: int
    created_ms: int = 0
    commits: int = 0
    files: int = 0
    bytes: int = 0
    retention_ms: int = 0
    compaction: Compaction = Compaction()
    clustered: bool = False
    unordered_files: int = 0
    unordered_bytes: int = 0
    removals: tuple[Removals, ...] = ()
    last: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, ActionFailure] = field(default_factory=dict)
    inventory_ms: int | None = None
    announced: bool = False
    registered: bool = False


def target_bytes(snapshot: Snapshot) -> int:
    """Return the size of files that maintenance writes into a table."""
    return snapshot.properties.target_file_size_bytes or TARGET_BYTES


def state_of(
    name: str, snapshot: Snapshot, policy: MaintenancePolicy, *, last: Mapping[str, int], now_ms: int
) -> MaintenanceState:
    """Summarize a snapshot with columnar operations.

    Args:
        name: Name of the table.
        snapshot: Its newest version.
        policy: Its maintenance policy.
        last: When each kind of action was last done.
        now_ms: The clock, epoch milliseconds.
    """
    core = snapshot.files.core
    clustered = bool(snapshot.clustering_columns)
    ordered_ms = last.get(ActionKind.CLUSTER if clustered else ActionKind.ZORDER)
    unordered = core if ordered_ms is None else core.filter(pl.col("modification_time") > ordered_ms)
    orders = clustered or bool(policy.zorder_by)
    return MaintenanceState(
        name=name,
        uri=snapshot.table_uri,
        version=snapshot.version,
        created_ms=(snapshot.metadata.created_time or 0) if snapshot.metadata is not None else 0,
        commits=snapshot.version + 1,
        files=core.height,
        bytes=int(core["size"].sum()),
        retention_ms=snapshot.properties.deleted_file_retention_ms,
        compaction=_compaction(snapshot, policy, now_ms) if policy.compact else Compaction(),
        clustered=clustered,
        unordered_files=unordered.height if orders else 0,
        unordered_bytes=int(unordered["size"].sum()) if orders else 0,
        removals=_removals(snapshot),
        last=dict(last),
    )


def _compaction(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int) -> Compaction:
    """Compute the effect of OPTIMIZE with these limits. The plan is the same, but ignores deletion vectors."""
    core = snapshot.files.core
    small = core.filter(pl.col("size") < policy.small_file_bytes)
    ripe = pl.col("modification_time") <= now_ms - policy.min_age_ms
    waiting = small.filter(~ripe)
    plan = plan_compaction(
        small.filter(ripe).with_columns(deleted_ratio=pl.lit(0.0)),
        partition_by=[column for column in core.columns if column.startswith(PV_PREFIX)],
        limits=SizeLimits(target_bytes=target_bytes(snapshot), min_bytes=policy.small_file_bytes),
    )
    first = None if waiting.is_empty() else int(waiting["modification_time"].min()) + policy.min_age_ms  # type: ignore[arg-type]
    return Compaction(files=plan.height, bytes=int(plan["size"].sum()), new_files=plan[BIN].n_unique(), ripens_ms=first)


def _removals(snapshot: Snapshot) -> tuple[Removals, ...]:
    removed = snapshot.tombstones().filter(pl.col("deletion_timestamp").is_not_null())
    hours = (
        removed.group_by(pl.col("deletion_timestamp") // _HOUR_MS)
        .agg(last_ms=pl.col("deletion_timestamp").max(), files=pl.len(), bytes=pl.col("size").fill_null(0).sum())
        .sort("last_ms")
    )
    return tuple(Removals(last_ms=row["last_ms"], files=row["files"], bytes=row["bytes"]) for row in hours.to_dicts())


def later_removals(before: Sequence[Removals], now: Sequence[Removals]) -> tuple[Removals, ...]:
    """Merge known and new removals, because a checkpoint may omit tombstones that VACUUM LITE has not seen yet.

    Args:
        before: Removals known so far.
        now: Removals in the newest snapshot.
    """
    known = {item.last_ms // _HOUR_MS: item for item in before}
    for item in now:
        hour = item.last_ms // _HOUR_MS
        old = known.get(hour)
        known[hour] = item if old is None or item.files >= old.files else old
    return tuple(known[hour] for hour in sorted(known))


def last_runs(records: Sequence[CommitRecord]) -> dict[str, int]:
    """Find when anyone last ran OPTIMIZE and VACUUM, from commits that are newest first.

    A VACUUM counts as LITE, because the history does not record reliably which files it examined.
    """
    found: dict[str, int] = {}
    for record in records:
        info = record.commit_info
        operation = ((info.operation if info is not None else None) or "").upper()
        kind = None
        if operation == "OPTIMIZE" and info is not None:
            parameters = info.get("operationParameters") or {}
            kind = ActionKind.COMPACT
            if _names_columns(parameters.get("clusterBy")):
                kind = ActionKind.CLUSTER
            elif _names_columns(parameters.get("zOrderBy")):
                kind = ActionKind.ZORDER
        elif operation == "VACUUM END":
            kind = ActionKind.LITE
        if kind is not None:
            found.setdefault(kind, record.timestamp_ms)
    return found


def _names_columns(value: object) -> bool:
    return value not in (None, "", "[]", [])
