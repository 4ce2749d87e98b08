"""Make DataFrames of rows that the driver has already: a relation of its own, which no job computes."""

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

# Spark 4.1 has no such argument: its times are in UTC.
_IN_UTC: Final[Mapping[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def local_frame(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """Return rows as a DataFrame.

    ``createDataFrame`` of Python rows starts a job for each use, and takes times without a zone as the machine's.

    Args:
        spark: The session.
        rows: Values in the order of the columns; structs as dictionaries, timestamps with a zone or as microseconds
            since 1970 in UTC.
        schema: Of the frame, as a type or as DDL; nullability is kept.
    """
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType), "what is no row has no columns"
    arrow = to_arrow_schema(fields, **_IN_UTC)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    values = [pa.array(list(column), type=field.type) for column, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(values, schema=arrow), fields)
