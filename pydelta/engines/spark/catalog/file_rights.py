"""Ask a store whether the files of a table may be deleted, before anything of the table is."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pydelta.errors import StoragePermissionError
from pydelta.storage import normalize_uri, open_store

__all__ = ["check_may_delete"]


def check_may_delete(location: str, options: Mapping[str, str], *, name: str) -> None:
    """Refuse to delete the files of a table where this key may delete some of them at most.

    What is asked for is a data file that is not there: a store looks at rights first. Without that, a key that may
    delete below ``_delta_log`` alone would take the log and leave the data.

    Args:
        location: The table's.
        options: Settings for storage.
        name: The table's, for the error.

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
        hint='Drop it with a key that may delete; in the stack: make cluster-sql AS_USER=vacuum SQL="DROP TABLE …".',
        table=location,
    )
