"""Find the columns that preserve row ids in rewrites, from the table's properties. Pure.

A row's id is the value of the materialized column or, if null, the file's ``baseRowId`` plus the row's position. Its
version comes from the other column or the file's ``defaultRowCommitVersion``. Protocol: "Row Tracking".
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Final

from pydelta.settings import TableProperties

__all__ = [
    "ROW_ID_COLUMN",
    "ROW_TRACKING_PROPERTIES",
    "ROW_VERSION_COLUMN",
    "materialized_columns",
    "with_materialized_names",
]

ROW_ID_COLUMN: Final = "__pydelta_row_id"
"""DataFrame column with the row id between a scan and the new files. Null if the row gets a fresh id."""
ROW_VERSION_COLUMN: Final = "__pydelta_row_version"
"""Likewise the version that last changed the row. Null means the commit in progress."""

_ENABLED: Final = "delta.enableRowTracking"
_NAMES: Final = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-",
}
ROW_TRACKING_PROPERTIES: Final = (_ENABLED, *_NAMES)
"""Properties that decide whether row ids are kept, and in which columns."""


def materialized_columns(properties: TableProperties) -> tuple[str, ...]:
    """Return the names of the row id and row version columns, in this order; empty without row tracking."""
    if not properties.enable_row_tracking or properties.row_id_column is None or properties.row_version_column is None:
        return ()
    return properties.row_id_column, properties.row_version_column


def with_materialized_names(configuration: Mapping[str, str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Add names for the materialized columns if row tracking is on and they have none.

    Args:
        configuration: A table's properties.
        taken: Physical names of its columns.
    """
    named = dict(configuration)
    if named.get(_ENABLED, "").strip().lower() == "true":
        for key, prefix in _NAMES.items():
            while key not in named or named[key] in taken:
                named[key] = f"{prefix}{uuid.uuid4()}"
    return named
