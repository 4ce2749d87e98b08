"""Make DataFrames of rows in the driver as local relations, which need no job."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["local_frame"]

# Spark 4.1 lacks this argument and uses UTC.
_IN_UTC: Final[Mapping[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def local_frame(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """Return rows as a DataFrame.

    ``createDataFrame`` on Python rows starts a job for each use and reads times without a zone in the machine's zone.

    Args:
        spark: The session.
        rows: Values in the order of the columns. Structs are dictionaries. Timestamps have a zone or are microseconds
            since 1970 in UTC.
        schema: The frame's schema, as a type or DDL. Nullability is kept.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType), "the type of rows is a struct"
    arrow = to_arrow_schema(fields, **_IN_UTC)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    values = [pa.array(list(column), type=field.type) for column, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(values, schema=arrow), fields)
