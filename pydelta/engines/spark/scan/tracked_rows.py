"""Compute each row's id and version in a scan, from columns that are read next to the table's.

::

    row id      = materialised column, or else the file's base id + the row's position in the file
    row version = materialised column, or else the file's default version

The position counts rows that a deletion vector hides. Spark's own expressions compute all of it.

Protocol: "Row Tracking".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.engines.spark.scan.index import HiddenColumn
from pydelta.log.row_ids import BASE_ROW_ID, DEFAULT_ROW_VERSION
from pydelta.protocol.row_tracking import ROW_ID_COLUMN, ROW_VERSION_COLUMN, materialized_columns
from pydelta.protocol.types import PrimitiveType, StructField

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.settings import TableProperties

__all__ = ["ROW_ID_COLUMN", "ROW_VERSION_COLUMN", "TRACKING_HIDDEN", "tracked_fields", "tracking_columns"]

_BASE: Final = "__pydelta_base_row_id"
_DEFAULT: Final = "__pydelta_default_row_version"

TRACKING_HIDDEN: Final = (
    HiddenColumn(name=_BASE, spark_type="long", column=BASE_ROW_ID),
    HiddenColumn(name=_DEFAULT, spark_type="long", column=DEFAULT_ROW_VERSION),
)
"""Values per file that the scan needs, from a frame of ``log.row_ids.with_row_ids``."""


def tracked_fields(properties: TableProperties) -> tuple[StructField, ...]:
    """Return the materialised columns as data columns of the scan, or none if the table has none."""
    return tuple(StructField(name, PrimitiveType("long")) for name in materialized_columns(properties))


def tracking_columns(scanned: DataFrame, properties: TableProperties) -> tuple[Column, Column]:
    """Compute ``ROW_ID_COLUMN`` and ``ROW_VERSION_COLUMN`` over a scan with ``TRACKING_HIDDEN``, ``tracked_fields``."""
    row_id = scanned[_BASE] + F.col("_metadata.row_index")
    version: Column = scanned[_DEFAULT]
    names = materialized_columns(properties)
    if names:
        row_id = F.coalesce(F.col(f"`{names[0]}`"), row_id)
        version = F.coalesce(F.col(f"`{names[1]}`"), version)
    return row_id.alias(ROW_ID_COLUMN), version.alias(ROW_VERSION_COLUMN)
