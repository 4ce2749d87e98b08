"""Run Python over Arrow batches of rows, with Spark checking the batch size less often.

Spark computes the size of the current batch after each row, which costs more than the transfer itself for flat rows.
For flat rows and small batches the check is turned off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from pydelta.protocol.schema import DataType, DecimalType, PrimitiveType, StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["is_oversized", "map_in_arrow", "unchecked_batches"]


def map_in_arrow(
    df: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
) -> DataFrame:
    """Return ``df.mapInArrow(function, schema)`` without its requirement for pandas, which is not used."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = udf(*[df[column] for column in df.columns])
    return DataFrame(df._jdf.mapInArrow(column._jc, False, None), df.sparkSession)


_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNCHECKED: Final = {_BYTES: str(2**31 - 1), _RECORDS: "4096"}
_UNBOUNDED: Final = ("binary", "variant")

_lock = threading.Lock()
_users: dict[str, int] = {}


def _flat(data_type: DataType) -> bool:
    """Return whether values are usually small: no arrays, maps or blobs."""
    if isinstance(data_type, StructType):
        return all(_flat(field.data_type) for field in data_type.fields)
    if isinstance(data_type, PrimitiveType):
        return data_type.name not in _UNBOUNDED
    return isinstance(data_type, DecimalType)


@contextmanager
def unchecked_batches(spark: SparkSession, schema: StructType) -> Iterator[bool]:
    """Turn off the check within the block if rows are flat and the user set neither of the two settings.

    Args:
        spark: The session. Jobs of other threads may see the settings, which only changes the size of their batches.
        schema: Schema of the rows.

    Yields:
        Whether the check is off. Then a job may fail for rows of hundreds of kilobytes; see ``is_oversized``.
    """
    key = str(spark._jsparkSession.sessionUUID())
    with _lock:
        usable = _flat(schema) and (key in _users or all(not _is_set(spark, name) for name in _UNCHECKED))
        if usable:
            _users[key] = _users.get(key, 0) + 1
            for name, value in _UNCHECKED.items():
                spark.conf.set(name, value)
    try:
        yield usable
    finally:
        if usable:
            with _lock:
                _users[key] -= 1
                if not _users[key]:
                    del _users[key]
                    for name in _UNCHECKED:
                        spark.conf.unset(name)


def _is_set(spark: SparkSession, name: str) -> bool:
    return bool(spark._jsparkSession.sessionState().conf().settings().containsKey(name))


def is_oversized(text: str) -> bool:
    """Return whether a failed job reports an Arrow batch that grew too large."""
    return any(
        word in text for word in ("OversizedAllocationException", "org.apache.arrow.memory.OutOfMemoryException")
    )
