"""What the metastore should say and what it says in, what to change out. Pure: no Thrift, no store.

=======================  ==============================================  =================================
the metastore has        and                                             then
=======================  ==============================================  =================================
nothing                                                                  create, add every partition
something else                                                           refuse
ours                     same version, schema and generator              nothing
ours                     other columns                                   alter, with its partitions
ours                     other partition columns                         drop the entry, create
ours                     an older version, changes known                 add and drop what changed
ours                     changes unknown, or asked for in full           compare every partition
=======================  ==============================================  =================================
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    "SyncPlan",
    "TableAction",
    "check_ours",
    "compare_partitions",
    "described",
    "plan_sync",
]


class TableAction(enum.Enum):
    """What becomes of the entry itself."""

    NONE = "none"
    CREATE = "create"
    ALTER = "alter"
    RECREATE = "recreate"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """An entry as the metastore has it."""

    location: str
    columns: tuple[HiveColumn, ...]
    partition_columns: tuple[HiveColumn, ...]
    parameters: Mapping[str, str]
    table_type: str = "EXTERNAL_TABLE"

    @property
    def version(self) -> int | None:
        """The synced version; None where there is none to be read."""
        text = self.parameters.get(VERSION_KEY, "")
        return int(text) if text.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartition:
    """A partition as the metastore has it. ``ours`` says that this package added it."""

    directory: str
    location: str
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What somebody else did to our entry."""

    partition: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """What to change. Partitions by directory.

    Args:
        table: What becomes of the entry.
        add: Partitions to add.
        move: Partitions whose location is another one.
        drop: Partitions to drop.
        drift: Found and left as it is, unless pruned.
        full: Every partition was compared.
        reason: Why so, as a phrase.
        stamp: The parameters have to be written, since version or schema differ.
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
        """Whether the metastore says all it should."""
        return self.table is TableAction.NONE and not (self.add or self.move or self.drop or self.stamp)


def check_ours(twin: Twin, found: FoundTable, name: str, *, adopt: bool = False) -> None:
    """Refuse an entry that is not this table's.

    Raises:
        NotOursError: It is something else's; with ``adopt``, the twin of an earlier table at this location passes.
    """
    location, table_id = found.parameters.get(LOCATION_KEY), found.parameters.get(ID_KEY)
    if location is None:
        raise NotOursError(
            f"The metastore has a table {name} that this did not make (at {found.location}).",
            hint="Choose another name for the twin, or drop that table if it is of no use any more.",
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
    """Why every partition has to be compared, as a phrase; None when the difference will do."""
    if full:
        return "it was asked for"
    if found.parameters.get(ID_KEY) != twin.table_id:
        return "the table was replaced"
    if found.parameters.get(GENERATOR_KEY) != GENERATOR:
        return f"it was written by generator {found.parameters.get(GENERATOR_KEY)}"
    if found.version is None:
        return "it carries no version"
    if found.version > twin.version:
        return f"it carries version {found.version}, and the table is at {twin.version}"
    if found.location != twin.location:
        return "the manifests lie elsewhere"
    return None


def plan_sync(
    twin: Twin,
    found: FoundTable | None,
    *,
    changed: Mapping[str, bool] | None,
    existing: Mapping[str, FoundPartition] | None = None,
    live: Collection[str] = (),
    full: bool = False,
    prune: bool = False,
) -> SyncPlan:
    """What to change in the metastore.

    Args:
        twin: What it should say.
        found: What it says; None for nothing. Checked by ``check_ours`` before.
        changed: Partitions that commits after the synced version touched -> whether they have files now; None when
            that is not known.
        existing: All partitions of the entry; needed where the changes are not known.
        live: Partitions with files, of the whole table; needed there too.
        full: Compare every partition.
        prune: Drop partitions that somebody else added.
    """
    partitioned = bool(twin.partition_columns)
    if found is None:
        return SyncPlan(
            table=TableAction.CREATE,
            add=_sorted(live) if partitioned else (),
            full=True,
            reason="it is new",
            stamp=True,
        )
    if [(column.name, column.type) for column in found.partition_columns] != [
        (column.name, column.type) for column in twin.partition_columns
    ]:
        return SyncPlan(
            table=TableAction.RECREATE,
            add=_sorted(live) if partitioned else (),
            full=True,
            reason="the partition columns have changed",
            stamp=True,
        )
    same_schema = found.parameters.get(SCHEMA_KEY) == twin.schema_hash and found.columns == twin.columns
    table = TableAction.NONE if same_schema and found.location == twin.location else TableAction.ALTER
    reason = why_full(twin, found, full=full)
    stamp = table is TableAction.ALTER or reason is not None or found.version != twin.version
    if not partitioned:
        return SyncPlan(table=table, full=reason is not None, reason=reason, stamp=stamp)
    if reason is None and changed is None:
        reason = "the log no longer tells what changed"
    if reason is not None:
        assert existing is not None, "a full comparison needs the partitions there are"
        return compare_partitions(twin, existing, live, table=table, reason=reason, prune=prune)
    assert changed is not None
    return SyncPlan(
        table=table,
        add=_sorted(name for name, has_files in changed.items() if has_files),
        drop=_sorted(name for name, has_files in changed.items() if not has_files),
        stamp=stamp,
    )


def compare_partitions(
    twin: Twin,
    existing: Mapping[str, FoundPartition],
    live: Collection[str],
    *,
    table: TableAction,
    reason: str,
    prune: bool,
) -> SyncPlan:
    """Every partition there is against every one there should be."""
    wanted = set(live)
    extra = [existing[name] for name in existing if name not in wanted]
    foreign = [partition for partition in extra if not partition.ours]
    return SyncPlan(
        table=table,
        add=_sorted(name for name in wanted if name not in existing),
        move=_sorted(
            name for name in wanted if name in existing and existing[name].location != twin.partition_location(name)
        ),
        drop=_sorted(partition.directory for partition in extra if partition.ours or prune),
        drift=tuple(
            Drift(partition=partition.directory, what="added by somebody else" + (", dropped" if prune else ", kept"))
            for partition in foreign
        ),
        full=True,
        reason=reason,
        stamp=True,
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def described(plan: SyncPlan) -> Sequence[str]:
    """The plan as lines for people."""
    lines = []
    if plan.table is not TableAction.NONE:
        lines.append(f"{plan.table.value} the table" + (f" ({plan.reason})" if plan.reason else ""))
    for verb, names in (("add", plan.add), ("move", plan.move), ("drop", plan.drop)):
        lines += [f"{verb} partition {name}" for name in names]
    lines += [f"found {drift.partition}: {drift.what}" for drift in plan.drift]
    if plan.stamp:
        lines.append("write version and schema hash")
    return lines or ["nothing to change"]
