"""Change replies of Spark Connect that would show the engine's work as something else.

::

    a command that started a stream   its rows --> the message that names the started query to the client
    an error that the JVM could only throw as SparkRuntimeException --> the class that PySpark's users catch
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from google.rpc import error_details_pb2, status_pb2
from pyspark.sql.connect.proto import base_pb2

__all__ = ["QUERY", "error_metadata", "execution_reply"]

QUERY: Final = ("pydelta_query_id", "run_id", "name")
"""Columns of the row that describes a started stream."""
_MARK: Final = QUERY[0].encode()
_DETAILS: Final = "grpc-status-details-bin"
_JVM: Final = {
    "AnalysisException": ("org.apache.spark.sql.AnalysisException",),
    "ParseException": ("org.apache.spark.sql.catalyst.parser.ParseException", "org.apache.spark.sql.AnalysisException"),
    "IllegalArgumentException": ("java.lang.IllegalArgumentException",),
    "ArithmeticException": ("java.lang.ArithmeticException",),
    "UnsupportedOperationException": ("java.lang.UnsupportedOperationException",),
    "StreamingQueryException": ("org.apache.spark.sql.streaming.StreamingQueryException",),
    "QueryExecutionException": ("org.apache.spark.sql.execution.QueryExecutionException",),
    "DateTimeException": ("java.time.DateTimeException",),
    "NumberFormatException": ("java.lang.NumberFormatException", "java.lang.IllegalArgumentException"),
}


def execution_reply(data: bytes) -> bytes:
    """Rewrite an ``ExecutePlanResponse``."""
    if _MARK not in data:
        return data
    reply = base_pb2.ExecutePlanResponse.FromString(data)
    if reply.WhichOneof("response_type") != "sql_command_result":
        return data
    rows = _rows(reply.sql_command_result.relation.local_relation.data)
    if len(rows) != 1 or tuple(rows[0]) != QUERY:
        return data
    query, run, name = rows[0].values()
    started = reply.write_stream_operation_start_result
    started.query_id.id, started.query_id.run_id, started.name = query, run, name or ""
    return reply.SerializeToString()


def error_metadata(
    trailing: Sequence[tuple[str, str | bytes]], kind_of: Callable[[str], str | None]
) -> list[tuple[str, str | bytes]]:
    """Rewrite the metadata of an error.

    Args:
        trailing: The call's trailing metadata.
        kind_of: Returns the name of PySpark's exception for an error's message; None if its class is already right.
    """
    return [(name, _details(value, kind_of) if name == _DETAILS else value) for name, value in trailing]


def _details(value: str | bytes, kind_of: Callable[[str], str | None]) -> str | bytes:
    status = status_pb2.Status.FromString(value)
    for detail in status.details:
        if not detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            continue
        info = error_details_pb2.ErrorInfo()
        detail.Unpack(info)
        kind = kind_of(status.message.partition(": ")[2]) or kind_of(status.message)
        if kind in _JVM:
            known = json.loads(info.metadata.get("classes", "[]"))
            info.metadata["classes"] = json.dumps([*_JVM[kind], *known])
            detail.Pack(info)
            return status.SerializeToString()
    return value


def _rows(data: bytes) -> list[dict[str, str | None]]:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all().to_pylist()
