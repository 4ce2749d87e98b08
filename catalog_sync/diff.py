"""Compare the current entry in the metastore with the wanted one, and list the changes. Pure: no Thrift, no store.

=======================  ==============================================  =========================================
the metastore has        which differs by                                then
=======================  ==============================================  =========================================
nothing                                                                  create, add every partition
a foreign entry                                                          refuse
our entry                its partition columns                           drop the entry, create it, add every partition
our entry                its columns or location                         alter
our entry                its version, and the log has all changes        compare the changed partitions
our entry                anything else, or a full sync was requested     compare every partition
=======================  ==============================================  =========================================

Whether some or all partitions are compared, the rule is the same: a partition with files is added or moved to its
location, one without files is dropped, and one added by another program is left alone.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from catalog_sync.errors import NotOursError
from catalog_sync.twin import (
    GENERATOR,
    GENERATOR_KEY,
    ID_KEY,
    LOCATION_KEY,
    SCHEMA_KEY,
    VERSION_KEY,
    HiveColumn,
    Twin,
)

__all__ = [
    "Drift",
    "FoundPartition",
    "FoundTable",
    "KnownPartitions",
    "SyncPlan",
    "TableAction",
    "check_ours",
    "compare_partitions",
    "described",
    "has_columns_of",
    "is_partitioned_alike",
    "plan_sync",
    "why_full",
]


class TableAction(enum.Enum):
    """The action on the entry itself."""

    NONE = enum.auto()
    CREATE = enum.auto()
    ALTER = enum.auto()
    RECREATE = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """An entry as the metastore has it."""

    location: str
    columns: tuple[HiveColumn, ...]
    partition_columns: tuple[HiveColumn, ...]
    parameters: Mapping[str, str]

    @property
    def version(self) -> int | None:
        """The synced version, or None if the entry has no valid one."""
        text = self.parameters.get(VERSION_KEY)
        return int(text) if text and text.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartition:
    """A partition as the metastore has it. ``ours`` means that this package added it."""

    directory: str
    location: str
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartitions:
    """The partitions of a table in the log and in the metastore, by directory.

    Args:
        live: Every partition of the table that has files.
        touched: Partitions changed by commits since the entry's version, or None if they are not known.
        existing: Partitions of the entry: all of them, or the existing ones of ``touched``.
    """

    live: Collection[str]
    touched: Set[str] | None = None
    existing: Mapping[str, FoundPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A change that another program made to our entry."""

    partition: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """The changes to make, with partitions by directory.

    Args:
        table: Action on the entry itself.
        add: Partitions to add.
        move: Partitions with a wrong location.
        drop: Partitions to drop.
        drift: Changes by other programs, which stay unless pruned.
        full: Whether every partition was compared.
        reason: Reason for the full comparison or for the action, as a phrase.
        stamp: Whether the parameters have to be written, since version or schema differ.
    """

    table: TableAction = TableAction.NONE
    add: tuple[str, ...] = ()
    move: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    drift: tuple[Drift, ...] = ()
    full: bool = False
    reason: str | None = None
    stamp: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the metastore already has the wanted state."""
        return self.table is TableAction.NONE and not (self.add or self.move or self.drop or self.stamp)


def check_ours(twin: Twin, found: FoundTable, name: str, *, adopt: bool = False) -> None:
    """Refuse an entry that is not the twin of this table.

    Raises:
        NotOursError: The entry is not this table's twin. With ``adopt``, the twin of an earlier table at this location
            is accepted.
    """
    location, table_id = found.parameters.get(LOCATION_KEY), found.parameters.get(ID_KEY)
    if location is None:
        raise NotOursError(
            f"The metastore has a table {name} that catalog_sync did not make (at {found.location}).",
            hint="Choose another name for the twin, or drop that table if it is no longer needed.",
        )
    if location != twin.table_location:
        raise NotOursError(
            f"{name} is the twin of the table at {location}, and not of {twin.table_location}.",
            hint="Choose another name; or, if the table has moved, drop the entry (its data stays) and sync again.",
        )
    if table_id != twin.table_id and not adopt:
        raise NotOursError(
            f"{name} is the twin of an earlier table at {location} (id {table_id}, now {twin.table_id}).",
            hint="If the table was replaced on purpose, sync with --adopt.",
        )


def why_full(twin: Twin, found: FoundTable, *, full: bool) -> str | None:
    """Return why every partition has to be compared, as a phrase, or None if comparing the changed ones is enough."""
    if full:
        return "it was asked for"
    if found.parameters.get(ID_KEY) != twin.table_id:
        return "the table was replaced"
    if found.parameters.get(GENERATOR_KEY) != GENERATOR:
        return f"it was written by generator {found.parameters.get(GENERATOR_KEY)}"
    if found.version is None:
        return "it carries no version"
    if found.version > twin.version:
        return f"it has version {found.version}, but the table is at {twin.version}"
    if found.location != twin.location:
        return "the manifests lie elsewhere"
    return None


def is_partitioned_alike(twin: Twin, found: FoundTable) -> bool:
    """Return whether the entry has the table's partition columns, which a metastore cannot change."""
    return _names_and_types(found.partition_columns) == _names_and_types(twin.partition_columns)


def has_columns_of(twin: Twin, found: FoundTable) -> bool:
    """Return whether the entry has the table's columns. Comments are compared only by the stored hash."""
    same_hash = found.parameters.get(SCHEMA_KEY) == twin.schema_hash
    return same_hash and _names_and_types(found.columns) == _names_and_types(twin.columns)


def _names_and_types(columns: Iterable[HiveColumn]) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


def plan_sync(
    twin: Twin,
    found: FoundTable | None,
    partitions: KnownPartitions,
    *,
    full: bool = False,
    prune: bool = False,
) -> SyncPlan:
    """Decide which changes to make.

    Args:
        twin: Wanted entry.
        found: Current entry, which must be ours, or None if there is none.
        partitions: Partitions of the table and of the entry.
        full: Compare every partition.
        prune: Drop partitions that another program added.
    """
    every = _sorted(partitions.live) if twin.partition_columns else ()
    if found is None:
        return SyncPlan(table=TableAction.CREATE, add=every, full=True, reason="it is new", stamp=True)
    if not is_partitioned_alike(twin, found):
        reason = "the partition columns have changed"
        return SyncPlan(table=TableAction.RECREATE, add=every, full=True, reason=reason, stamp=True)
    table = TableAction.NONE
    if not has_columns_of(twin, found) or found.location != twin.location:
        table = TableAction.ALTER
    why = why_full(twin, found, full=full)
    if why is None and partitions.touched is None and twin.partition_columns:
        why = "the log does not tell what changed"
    plan = SyncPlan(
        table=table,
        full=why is not None,
        reason=why,
        stamp=table is not TableAction.NONE or why is not None or found.version != twin.version,
    )
    scope = None if why is not None else partitions.touched
    wanted = {name for name in every if scope is None or name in scope}
    there = {name: part for name, part in partitions.existing.items() if scope is None or name in scope}
    return compare_partitions(plan, twin, there, wanted, prune=prune)


def compare_partitions(
    plan: SyncPlan, twin: Twin, existing: Mapping[str, FoundPartition], wanted: Set[str], *, prune: bool
) -> SyncPlan:
    """Add to the plan the differences between the existing partitions and the wanted ones."""
    extra = [partition for name, partition in existing.items() if name not in wanted]
    what = "added by somebody else, " + ("dropped" if prune else "kept")
    return replace(
        plan,
        add=_sorted(name for name in wanted if name not in existing),
        move=_sorted(
            name for name in wanted if name in existing and existing[name].location != twin.partition_location(name)
        ),
        drop=_sorted(partition.directory for partition in extra if partition.ours or prune),
        drift=tuple(Drift(partition=partition.directory, what=what) for partition in extra if not partition.ours),
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _verb(plan: SyncPlan) -> str:
    """Return "publish" if existing partitions were not looked up: a changed one is then sent like a new one."""
    is_new = plan.full or plan.table in (TableAction.CREATE, TableAction.RECREATE)
    return "add" if is_new else "publish"


def described(plan: SyncPlan) -> Sequence[str]:
    """Return the plan as readable lines."""
    lines = []
    if plan.table is not TableAction.NONE:
        lines.append(f"{plan.table.name.lower()} the table" + (f" ({plan.reason})" if plan.reason else ""))
    for verb, names in ((_verb(plan), plan.add), ("move", plan.move), ("drop", plan.drop)):
        lines += [f"{verb} partition {name}" for name in names]
    lines += [f"found {drift.partition}: {drift.what}" for drift in plan.drift]
    if plan.stamp:
        lines.append("write version and schema hash")
    return lines or ["nothing to change"]
