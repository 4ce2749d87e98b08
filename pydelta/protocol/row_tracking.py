"""Find the columns that keep rows' ids through a rewrite, from the table's properties. Pure.

A row's id is what the materialised column holds, or else the file's ``baseRowId`` plus the row's position; its version
likewise, or else the file's ``defaultRowCommitVersion``. Protocol: "Row Tracking".
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
"""Column of a DataFrame under way from a scan to new files: the row's id; null where it takes a fresh one."""
ROW_VERSION_COLUMN: Final = "__pydelta_row_version"
"""Likewise the version that last changed the row; null where that is the commit under way."""

_ENABLED: Final = "delta.enableRowTracking"
_NAMES: Final = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-",
}
ROW_TRACKING_PROPERTIES: Final = (_ENABLED, *_NAMES)
"""Names of the properties that say whether and where a table keeps its rows' ids."""


def materialized_columns(properties: TableProperties) -> tuple[str, ...]:
    """Name the columns that keep row ids and row versions, in this order; empty without row tracking."""
    if not properties.enable_row_tracking or properties.row_id_column is None or properties.row_version_column is None:
        return ()
    return properties.row_id_column, properties.row_version_column


def with_materialized_names(configuration: Mapping[str, str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Add names for the materialised columns where row tracking is on and has none yet.

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
