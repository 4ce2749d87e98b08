"""Read a table's change feed as rows to upsert and rows to delete, in the order of its commits.

::

    insert, update_postimage    upsert the row of the key
    delete, update_preimage     delete the row of the key, unless the same commit also upserts it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pydelta.tools.ingest.sources import open_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["decode_changes", "row_columns"]

_KIND: Final = "_change_type"
_VERSION: Final = "_commit_version"
_OF_FEED: Final = (_KIND, _VERSION, "_commit_timestamp")
_GOING: Final = ("delete", "update_preimage")


def row_columns(feed: DataFrame) -> StructType:
    """Return the columns of the table that a feed belongs to."""
    return StructType([item for item in feed.schema.fields if item.name not in _OF_FEED])


def decode_changes(feed: DataFrame) -> DataFrame:
    """Return ``row``, ``reason``, ``deleted``, ``position`` and ``ORIGIN`` of each change."""
    deleted = F.col(_KIND).isin(*_GOING)
    position = F.struct(F.col(_VERSION).alias("version"), (~deleted).cast("int").alias("place"))
    marks = "__ingest_deleted", "__ingest_position"
    marked = feed.select("*", deleted.alias(marks[0]), position.alias(marks[1]))
    return open_rows(marked, row_columns(feed), keep={"deleted": marks[0], "position": marks[1]})
