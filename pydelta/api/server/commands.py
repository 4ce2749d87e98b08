"""Run the commands of remote clients through the Python API of their session on the server, routed to this engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.connect.proto import commands_pb2
from pyspark.sql.functions import lit
from pyspark.sql.types import DataType, StructField, StructType

from pydelta.api.python.builder import DeltaTableBuilder, IdentityGenerator
from pydelta.api.python.merge import DeltaMergeBuilder
from pydelta.api.python.optimize import DeltaOptimizeBuilder
from pydelta.api.python.table import DeltaTable
from pydelta.api.python.wire import RESULTS, Expression, Schema, WireIdentity, WirePlan, result_text, unpacked
from pydelta.api.server.plans import Planner
from pydelta.api.server.replies import QUERY
from pydelta.api.sql.dispatch import run_node
from pydelta.engines.spark.local_rows import local_frame
from pydelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.api.server.requests import RemoteCommand

__all__ = ["run_command"]

_Write = commands_pb2.WriteOperation
_WriteTo = commands_pb2.WriteOperationV2
_TRIGGERS: Final = {
    "processing_time_interval": "processingTime",
    "available_now": "availableNow",
    "once": "once",
    "continuous_checkpoint_interval": "continuous",
    "real_time_batch_duration": "realTime",
}
_MODES: Final = {
    _Write.SAVE_MODE_APPEND: "append",
    _Write.SAVE_MODE_OVERWRITE: "overwrite",
    _Write.SAVE_MODE_ERROR_IF_EXISTS: "error",
    _Write.SAVE_MODE_IGNORE: "ignore",
}


def run_command(spark: SparkSession, command: RemoteCommand) -> DataFrame | None:
    """Run a command in the thread of Spark Connect that calls it.

    Args:
        spark: The session on the server.
        command: What the client sent.

    Returns:
        The rows of its result, if it has one.

    Raises:
        DeltaError: The command failed in this engine.
        PySparkException: The command failed in Spark.
    """
    planner = Planner(spark, user=command.user, session=command.session)
    kind = command.message.WhichOneof("command_type")
    message = getattr(command.message, str(kind))
    if kind == "write_stream_operation_start":
        return _start(planner, message, command.operation)
    return _RUN[str(kind)](planner, message)


def _write(planner: Planner, write: commands_pb2.WriteOperation) -> None:
    writer = planner.frame(write.input).write.options(**write.options)
    if getattr(write, "with_schema_evolution", False):  # Only Spark 4.2 and later have it.
        writer = writer.option("mergeSchema", "true")
    if write.HasField("source"):
        writer = writer.format(write.source)
    if write.mode in _MODES:
        writer = writer.mode(_MODES[write.mode])
    if write.partitioning_columns:
        writer = writer.partitionBy(*write.partitioning_columns)
    if write.clustering_columns:
        writer = writer.clusterBy(*write.clustering_columns)
    if write.bucket_by.num_buckets:
        writer = writer.bucketBy(write.bucket_by.num_buckets, *write.bucket_by.bucket_column_names)
    if write.sort_column_names:
        writer = writer.sortBy(*write.sort_column_names)
    if write.WhichOneof("save_type") != "table":
        writer.save(write.path or None)
    elif write.table.save_method == _Write.SaveTable.TABLE_SAVE_METHOD_INSERT_INTO:
        writer.insertInto(write.table.table_name)
    else:
        writer.saveAsTable(write.table.table_name)


def _write_to(planner: Planner, write: commands_pb2.WriteOperationV2) -> None:
    writer = planner.frame(write.input).writeTo(write.table_name).options(**write.options)
    if getattr(write, "with_schema_evolution", False):  # Only Spark 4.2 and later have it.
        writer = writer.option("mergeSchema", "true")
    for name, value in write.table_properties.items():
        writer = writer.tableProperty(name, value)
    if write.HasField("provider"):
        writer = writer.using(write.provider)
    if write.partitioning_columns:
        writer = writer.partitionedBy(*[planner.column(item) for item in write.partitioning_columns])
    if write.clustering_columns:
        writer = writer.clusterBy(*write.clustering_columns)
    ends: Mapping[int, Callable[[], None]] = {
        _WriteTo.MODE_CREATE: writer.create,
        _WriteTo.MODE_REPLACE: writer.replace,
        _WriteTo.MODE_CREATE_OR_REPLACE: writer.createOrReplace,
        _WriteTo.MODE_APPEND: writer.append,
        _WriteTo.MODE_OVERWRITE_PARTITIONS: writer.overwritePartitions,
        _WriteTo.MODE_OVERWRITE: lambda: writer.overwrite(planner.column(write.overwrite_condition)),
    }
    ends[write.mode]()


def _merge_into(planner: Planner, merge: commands_pb2.MergeIntoTableCommand) -> DataFrame | None:
    jvm = planner.jvm
    plans = jvm.view.org.apache.spark.sql.catalyst
    parts = jvm.state.sqlParser().parseMultipartIdentifier(merge.target_table_name)
    no_options = jvm.view.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()
    name = plans.analysis.UnresolvedRelation(parts, no_options, False)
    clauses = (merge.match_actions, merge.not_matched_actions, merge.not_matched_by_source_actions)
    if not any(clauses):
        # Spark raises the error for a MERGE without clauses.
        planner.frame(merge.source_table_plan).mergeInto(merge.target_table_name, lit(True)).merge()
    node = plans.plans.logical.MergeIntoTable(
        name,
        planner.frame(merge.source_table_plan)._jdf.queryExecution().analyzed(),
        planner.expression(merge.merge_condition),
        *(jvm.seq([planner.expression(action) for action in actions]) for actions in clauses),
        merge.with_schema_evolution,
    )
    frame = run_node(planner.spark, node)
    return jvm.frame(node) if frame is None else frame


def _start(planner: Planner, start: commands_pb2.WriteStreamOperationStart, operation: str) -> DataFrame:
    """Start a stream, and register it with Spark Connect, which answers its client's questions about it."""
    writer = planner.frame(start.input).writeStream.options(**start.options)
    if start.format:
        writer = writer.format(start.format)
    if start.partitioning_column_names:
        writer = writer.partitionBy(*start.partitioning_column_names)
    if start.clustering_column_names:
        writer = writer.clusterBy(*start.clustering_column_names)
    if start.output_mode:
        writer = writer.outputMode(start.output_mode)
    if start.query_name:
        writer = writer.queryName(start.query_name)
    trigger = start.WhichOneof("trigger")
    if trigger is not None:
        writer = writer.trigger(**{_TRIGGERS[trigger]: getattr(start, trigger)})
    named = start.WhichOneof("sink_destination") == "table_name"
    query = writer.toTable(start.table_name) if named else writer.start(start.path or None)
    planner.register(query, operation)
    row = (str(query.id), str(query.runId), query.name)
    return local_frame(planner.spark, [row], ", ".join(f"{name} string" for name in QUERY))


_METHODS: Final[Mapping[type, frozenset[str]]] = {
    kind: frozenset(name for name in dir(kind) if not name.startswith("_"))
    for kind in (DeltaTable, DeltaTableBuilder, DeltaMergeBuilder, DeltaOptimizeBuilder)
}
_STARTS: Final = frozenset(
    {
        "forPath", "forName", "isDeltaTable", "convertToDelta", "create", "createIfNotExists", "replace",
        "createOrReplace",
    }
)  # fmt: skip


def _calls(planner: Planner, extension: Any) -> DataFrame | None:
    """Run the calls of a remote ``DeltaTable``, each on the result of the one before."""
    calls = unpacked(extension.value)
    found: Any = DeltaTable
    for place, call in enumerate(calls):
        known = _STARTS if place == 0 else _METHODS.get(type(found), frozenset())
        if call.method not in known:
            raise InvalidArgumentError(
                f"The server's DeltaTable has no method {call.method}.",
                hint="Install the same version of pydelta on the client and on the server.",
            )
        given = [_given(planner, item) for item in call.arguments]
        named = {name: _given(planner, item) for name, item in call.named.items()}
        if place == 0:
            given.insert(0, planner.spark)
        found = getattr(found, call.method)(*given, **named)
    return _result(planner, found)


def _given(planner: Planner, value: Any) -> Any:
    if isinstance(value, WirePlan):
        return planner.frame(value.data)
    if isinstance(value, Expression):
        return planner.column(value.data)
    if isinstance(value, Schema):
        return _type_of(value.json)
    if isinstance(value, list):
        return [_given(planner, item) for item in value]
    if isinstance(value, WireIdentity):
        return IdentityGenerator(start=value.start, step=value.step)
    if isinstance(value, dict):
        return {name: _given(planner, item) for name, item in value.items()}
    return value


def _type_of(text: str) -> DataType | StructField:
    found = json.loads(text)
    if isinstance(found, dict) and "name" in found:
        return StructField.fromJson(found)
    wrapped = {"type": "struct", "fields": [{"name": "it", "type": found, "nullable": True, "metadata": {}}]}
    return StructType.fromJson(wrapped).fields[0].dataType


def _result(planner: Planner, found: Any) -> DataFrame | None:
    if isinstance(found, DataFrame):
        return found
    if isinstance(found, bool):
        return local_frame(planner.spark, [(found,)], "result boolean")
    if isinstance(found, RESULTS):
        return local_frame(planner.spark, [(result_text(found),)], "result string")
    return None


_RUN: Final[Mapping[str, Callable[[Planner, Any], DataFrame | None]]] = {
    "write_operation": _write,
    "write_operation_v2": _write_to,
    "merge_into_table_command": _merge_into,
    "extension": _calls,
}
