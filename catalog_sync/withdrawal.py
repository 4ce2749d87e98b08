"""Withdraw a twin whose table can no longer be published, so that readers get an error instead of outdated rows.

Columns may have types that Hive does not support, or other names in the files. That does not pass by itself, and the
twin would show deleted rows for good. The entry keeps its owner and parameters, and gets the parameter that makes
Trino and Presto refuse to read a table and show the parameter's text. The next successful sync removes it again.
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
"""Maximum length of a reason in characters: databases of metastores hold 4,000 bytes in a parameter."""


def withdraw(metastore: Metastore, name: TableName, snapshot: Snapshot, error: DeltaError) -> bool:
    """Give a twin's readers an error that says why its table cannot be published.

    Args:
        metastore: Metastore of the twin.
        name: Name of the twin. An entry of that name that is not this table's twin is left alone.
        snapshot: Snapshot of the table.
        error: Why the table cannot be published.

    Returns:
        Whether the entry was changed. It is not if it already has the error, or does not exist.

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
