"""Withdraw a twin whose table can no longer be published: its readers get an error, not the rows of a past version.

A table whose columns Hive cannot have, or have other names in the files, stays so: without this its twin would show
deleted rows for good. The entry stays, with its owner and parameters, and gets the parameter by which Trino and Presto
refuse to read a table, saying the parameter's text. The next sync that succeeds takes it away again.
"""

from __future__ import annotations

from typing import Final

from catalog_sync.names import TableName
from catalog_sync.thrift.client import Metastore, found_table, is_symlink
from catalog_sync.twin import ID_KEY, LOCATION_KEY, NOT_READABLE_KEY, WITHDRAWN_KEY
from pydelta.errors import DeltaError
from pydelta.log import Snapshot

__all__ = ["withdraw"]

_LONGEST: Final = 1500
"""Characters of a reason: databases of metastores hold 4,000 bytes in a parameter."""


def withdraw(metastore: Metastore, name: TableName, snapshot: Snapshot, error: DeltaError) -> bool:
    """Make readers of a twin get an error that says why its table cannot be published.

    Args:
        metastore: Where the twin is.
        name: Of the twin; an entry of that name that is not this table's twin is left alone.
        snapshot: Of the table.
        error: Why it cannot be published.

    Returns:
        Whether the entry was changed: False where it says so already, or is not there.

    Raises:
        MetastoreError: The metastore refused, or does not answer.
    """
    entry = metastore.table(name.database, name.name)
    if entry is None or not is_symlink(entry) or snapshot.metadata is None:
        return False
    parameters = found_table(entry).parameters
    if (parameters.get(LOCATION_KEY), parameters.get(ID_KEY)) != (snapshot.table_uri, snapshot.metadata.id):
        return False
    reason = f"version {snapshot.version} of the Delta table {snapshot.table_uri} cannot be published: {error.message}"
    reason = reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
    told = parameters.get(WITHDRAWN_KEY)
    if told == error.message[:_LONGEST] and NOT_READABLE_KEY in parameters:
        return False
    entry.parameters = dict(parameters) | {NOT_READABLE_KEY: reason, WITHDRAWN_KEY: error.message[:_LONGEST]}
    metastore.alter(entry)
    return True
