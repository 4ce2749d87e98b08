"""Change the columns of a metastore entry in one or two steps, or explain why the metastore refuses them.

A metastore compares the types of old and new columns by position, and refuses a change to an incompatible type
(``hive.metastore.disallow.incompatible.col.type.changes``, on by default). A first step then drops the columns from
that position on, and a second one adds the new columns.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from catalog_sync.diff import FoundTable
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore
from catalog_sync.twin import HiveColumn, Twin
from pydelta.manifests.native_entry import columns_to_keep_first

__all__ = ["ColumnsRefusedError", "change_columns", "columns_refused"]


class ColumnsRefusedError(MetastoreError):
    """The metastore refused the columns of a table; its entry keeps the old ones."""

    code = "SYNC_COLUMNS_REFUSED"


def change_columns(
    metastore: Metastore, before: Any, wanted: Any, *, cascade: bool = False, partitions: int = 0
) -> None:
    """Replace an entry by one with other columns.

    An interruption between the steps leaves an entry with fewer columns and its old parameters, so that the next sync
    sees a difference.

    Args:
        metastore: Metastore of the entry.
        before: Current entry.
        wanted: New entry.
        cascade: Give its partitions the same columns.
        partitions: Number of its partitions.

    Raises:
        MetastoreError: The metastore refused the columns; the entry keeps the old ones.
    """
    try:
        metastore.alter(wanted, cascade=cascade, partitions=partitions)
    except MetastoreUnavailableError:
        raise
    except MetastoreError:
        first = columns_to_keep_first([item.type for item in before.sd.cols], [item.type for item in wanted.sd.cols])
        if first is None:
            raise
        fewer = copy.deepcopy(before)
        fewer.sd.cols = fewer.sd.cols[:first]
        metastore.alter(fewer, partitions=partitions)
        try:
            metastore.alter(wanted, cascade=cascade, partitions=partitions)
        except MetastoreUnavailableError:
            raise
        except MetastoreError:
            metastore.alter(before, partitions=partitions)
            raise


def columns_refused(name: TableName, found: FoundTable, twin: Twin, error: MetastoreError) -> ColumnsRefusedError:
    """Build the error that names the refused columns, the reason and the next step.

    Args:
        name: Name of the entry.
        found: Current entry.
        twin: Wanted entry.
        error: Error of the metastore.
    """
    return ColumnsRefusedError(
        f"The metastore refuses the new columns of {name}: "
        f"{_differences(found.columns, twin.columns)}. {error.message}",
        hint="Queries see all rows, and these columns as they were. Set "
        "hive.metastore.disallow.incompatible.col.type.changes=false for the metastore, or drop the entry (its data "
        "stays), and sync again.",
        table=twin.table_location,
        version=twin.version,
    )


def _differences(before: Sequence[HiveColumn], after: Sequence[HiveColumn]) -> str:
    old, new = ({column.name: column.type for column in columns} for columns in (before, after))
    found = [f"{name!r} from {old[name]} to {kind}" for name, kind in new.items() if old.get(name, kind) != kind]
    found += [f"{name!r} ({kind}) is new" for name, kind in new.items() if name not in old]
    found += [f"{name!r} is gone" for name in old if name not in new]
    return "; ".join(found) or "their order is different"
