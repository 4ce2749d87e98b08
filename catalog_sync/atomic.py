"""Move all changed partitions of a twin to one version's manifests in one call.

::

    manifests of the version, in its own directory     not read yet
    add the new partitions, without rows               invisible to readers
    alter_partitions, one call                         new, changed and emptied partitions move together
    drop the empty partitions                          invisible to readers
    delete manifests unused for longer than the retention

A reader sees one version only if it asks the metastore once: see docs/guides/trino.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from catalog_sync.inputs import SyncInputs
from catalog_sync.thrift.client import partition_entry
from pydelta.manifests import EMPTY_DIR, publish_version, remove_retired
from pydelta.settings.clock import epoch_ms

__all__ = ["move_partitions"]


def move_partitions(
    inputs: SyncInputs, *, since: int | None, dropped: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Publish a version and move the twin to it.

    Args:
        inputs: Inputs with the snapshot of the version and the twin, whose lease is held. Partitions without files that
            were added ahead stay.
        since: Version of the twin, or None to move every partition.
        dropped: Partitions to drop in any case.

    Returns:
        The moved partitions and the dropped ones.
    """
    now_ms = epoch_ms()
    log, metastore, name, twin, snapshot = inputs.log, inputs.metastore, inputs.name, inputs.twin, inputs.snapshot
    lease = inputs.held
    ahead = inputs.manifests.ahead if inputs.manifests is not None else ()
    published = publish_version(log, snapshot, since=since, schemes=inputs.options.schemes, lease=lease, now_ms=now_ms)
    paths = dict.fromkeys((*ahead, *published.gone), EMPTY_DIR) | dict(published.locations)
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
    gone = tuple(sorted({*published.gone, *dropped} - set(published.locations) - set(ahead)))
    lease.check()
    metastore.drop_partitions(name.database, name.name, gone)
    remove_retired(log, lease, retention_ms=snapshot.properties.deleted_file_retention_ms, now_ms=now_ms)
    return tuple(names), gone
