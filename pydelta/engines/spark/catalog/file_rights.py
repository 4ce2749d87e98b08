"""Check that a table's files may be deleted before anything of the table is deleted."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pydelta.errors import StoragePermissionError
from pydelta.storage import normalize_uri, open_store

__all__ = ["check_may_delete"]


def check_may_delete(location: str, options: Mapping[str, str], *, name: str) -> None:
    """Refuse to delete the files of a table if this key may not delete data files.

    It asks the store to delete a data file that does not exist, since stores check permissions first. Otherwise a key
    that may only delete in ``_delta_log`` would delete the log and leave the data.

    Args:
        location: The table's location.
        options: Storage options.
        name: The table's name, for the error.

    Raises:
        StoragePermissionError: The store refused.
    """
    store = open_store(normalize_uri(location), options)
    report = store.delete_many([f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"])
    if not report.denied:
        return
    raise StoragePermissionError(
        f"{name} is a managed table, so DROP TABLE deletes its files, but the key of this session may not delete "
        f"data files. {report.failed[0][1]} Nothing was dropped.",
        hint='Use a key that may delete; in the stack: AS_USER=vacuum scripts/lake cluster-sql "DROP TABLE …".',
        table=location,
    )
