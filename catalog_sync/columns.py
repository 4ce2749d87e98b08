"""Change the columns of a metastore entry: in one step, in two, or not at all and why.

A metastore compares the types of old and new columns position by position, and refuses a type that does not go over
into the new one (``hive.metastore.disallow.incompatible.col.type.changes``, on by default). Columns from there on go in
a first step, and all that should be there come in a second one.
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
    """The metastore does not take the columns of a table; its entry has those of before."""

    code = "SYNC_COLUMNS_REFUSED"


def change_columns(
    metastore: Metastore, before: Any, wanted: Any, *, cascade: bool = False, partitions: int = 0
) -> None:
    """Replace an entry by one with other columns.

    An interruption between the steps leaves an entry that has fewer columns and its old parameters: the next sync finds
    it different.

    Args:
        metastore: Where it is.
        before: As it is.
        wanted: As it is to be.
        cascade: Give its partitions the same columns.
        partitions: How many it has.

    Raises:
        MetastoreError: The metastore takes the columns in no way; the entry has those of before.
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
    """Say which columns are refused, why, and what to do.

    Args:
        name: Of the entry.
        found: As it is.
        twin: As it should be.
        error: What the metastore answered.
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
