"""Look up the row ids and versions in the ``add`` actions of files.

They are read from the checkpoint's columns for the given files. Those of later commits are in memory.

Protocol: "Row Tracking".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from pydelta.log.deltas import DELTA_BIT
from pydelta.log.files import FileTable

__all__ = ["BASE_ROW_ID", "DEFAULT_ROW_VERSION", "with_row_ids"]

BASE_ROW_ID: Final = "base_row_id"
"""Id of the file's first row; null if the file has none."""
DEFAULT_ROW_VERSION: Final = "default_row_version"
"""Version of those rows of the file that do not store a version."""

_FIELDS: Final = {"baseRowId": BASE_ROW_ID, "defaultRowCommitVersion": DEFAULT_ROW_VERSION}
_POSITION: Final = "__position"


def with_row_ids(files: FileTable, frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``BASE_ROW_ID`` and ``DEFAULT_ROW_VERSION`` (Int64) to rows of ``files.core``.

    Args:
        files: The table of ``frame``.
        frame: Any of its rows. Other columns are kept.
    """
    numbered = frame.select("row").with_row_index(_POSITION)
    from_delta = (frame["row"].to_numpy() & np.uint64(DELTA_BIT)) != 0
    parts: list[pl.DataFrame] = []
    below, above = numbered.filter(~from_delta), numbered.filter(from_delta)
    base, _ = files.layers()
    if below.height:
        assert base is not None
        read = base.integers(below["row"].to_numpy(), list(_FIELDS))
        parts.append(below.select(_POSITION).hstack(read.rename(_FIELDS)))
    if above.height:
        found = files.recent(frame.filter(from_delta)).select("row", *_from_text("rest"))
        parts.append(above.join(found, on="row", how="left").drop("row"))
    if not parts:
        return frame.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in _FIELDS.values())
    columns = pl.concat(parts).sort(_POSITION).drop(_POSITION)
    return frame.drop([name for name in columns.columns if name in frame.columns]).hstack(columns)


def _from_text(column: str) -> list[pl.Expr]:
    """Extract the two fields from the JSON of an ``add`` without statistics. The JSON may be null."""
    return [
        pl.col(column).str.json_path_match(f"$.{field}").cast(pl.Int64).alias(name) for field, name in _FIELDS.items()
    ]
