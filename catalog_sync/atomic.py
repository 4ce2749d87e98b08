"""Move all changed partitions of a twin to one version's manifests in one call.

::

    manifests of the version, in its own directory     nobody reads them yet
    add what is new, without rows                      nobody sees a difference
    alter_partitions, one call                         new, changed and emptied partitions move together
    drop what is empty                                 nobody sees a difference
    manifests out of use for longer than the retention are deleted

What a reader then sees is of one version as far as it asks the metastore once: see docs/guides/trino.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore, partition_entry
from catalog_sync.twin import Twin
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import EMPTY_DIR, Lease, publish_version, remove_retired
from pydelta.settings.clock import epoch_ms

__all__ = ["ATOMIC_KEY", "Moves", "Site", "is_atomic", "move_partitions"]

ATOMIC_KEY: Final = "pydelta.sync.atomic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a twin is, and of which table.

    Args:
        log: The table.
        metastore: Where the twin is.
        name: Its name.
    """

    log: DeltaLog
    metastore: Metastore
    name: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Which partitions to move.

    Args:
        since: Version that the twin is of; None to move every partition.
        empty: Partitions without files that were asked for ahead, and stay.
        dropped: Partitions to drop in any case.
    """

    since: int | None
    empty: Collection[str]
    dropped: Collection[str]


def is_atomic(parameters: Mapping[str, str]) -> bool:
    """Tell whether an entry's partitions lie in directories by version."""
    return parameters.get(ATOMIC_KEY) == "true"


def move_partitions(
    site: Site,
    twin: Twin,
    snapshot: Snapshot,
    moves: Moves,
    *,
    schemes: Mapping[str, str],
    lease: Lease,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Publish a version and move the twin to it.

    Args:
        site: Where the twin is.
        twin: What it is of the snapshot.
        snapshot: Of the version.
        moves: The partitions.
        schemes: Scheme of a location -> scheme in manifests.
        lease: Held by the caller.

    Returns:
        The partitions that moved, and those that were dropped.
    """
    now_ms = epoch_ms()
    log, metastore, name = site.log, site.metastore, site.name
    published = publish_version(log, snapshot, since=moves.since, schemes=schemes, lease=lease, now_ms=now_ms)
    paths = dict.fromkeys((*moves.empty, *published.gone), EMPTY_DIR) | dict(published.locations)
    names = sorted(paths)

    def entries(where: Mapping[str, str]) -> list[Any]:
        return [
            partition_entry(
                twin, name.database, name.name, directory, location=f"{twin.table_location}/{where[directory]}"
            )
            for directory in names
        ]

    lease.check()
    metastore.add_partitions(name.database, name.name, entries(dict.fromkeys(names, EMPTY_DIR)))
    lease.check()
    metastore.alter_partitions(name.database, name.name, entries(paths), at_once=True)
    gone = tuple(sorted({*published.gone, *moves.dropped} - set(published.locations) - set(moves.empty)))
    lease.check()
    metastore.drop_partitions(name.database, name.name, gone)
    remove_retired(log, lease, retention_ms=snapshot.properties.deleted_file_retention_ms, now_ms=now_ms)
    return tuple(names), gone
