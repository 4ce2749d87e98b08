"""Write a stream into a table: a ``Sink`` that writes each batch exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from pydelta.api.streams.connections import close_ended, note_caller
from pydelta.api.streams.failures import noting
from pydelta.api.streams.source import QUERY_ID
from pydelta.commands.run import run
from pydelta.commands.stream.sink import Epoch, EpochTransaction, OutputMode, sink_options
from pydelta.commands.write.command import Write, WriteMode, WriteOptions
from pydelta.engines.spark.jvm import Jvm, scala_object
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.engines.spark.running import session_context
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.writer import DataFrameSource
from pydelta.errors import InvalidArgumentError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["DeltaSink", "private_field", "start_query"]

_SERIALS: Final = itertools.count(1)
_MODES: Final = {OutputMode.APPEND: WriteMode.APPEND, OutputMode.COMPLETE: WriteMode.OVERWRITE}


class DeltaSink:
    """Spark's ``Sink`` for the table at a location.

    Args:
        spark: The session that starts the query.
        location: A URI or a path.
        mode: How a batch changes the table.
        options: The writer's options.
        partition_by: Partition columns for a table that the first batch creates, or None.
    """

    class Java:
        """py4j: the interface this object implements for the JVM."""

        implements = ("org.apache.spark.sql.execution.streaming.Sink",)

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        *,
        mode: OutputMode,
        options: Mapping[str, str],
        partition_by: Sequence[str] | None,
    ) -> None:
        self._spark = spark
        self._jvm = Jvm.of(spark)
        self._location = self._jvm.qualify(location)
        self._mode = mode
        self._app_id = next((value for name, value in options.items() if name.lower() == "txnappid"), None)
        self._options = sink_options(options, mode=mode)
        self._partition_by = partition_by
        self._session: SparkSession | None = None
        self._serial = next(_SERIALS)
        self._parse(spark, "checked", 0)

    def addBatch(self, batch_id: int, data: Any) -> None:
        """Write one batch, unless the table already has it."""
        note_caller(self._spark)
        query = str(self._spark.sparkContext.getLocalProperty(QUERY_ID))
        with noting(query, table=self._location):
            session = self._session_of(data)
            options = self._parse(session, self._app_id or query, batch_id)
            epoch = Epoch(query_id=query, epoch_id=batch_id, mode=self._mode)
            log = log_for_path(session, self._location, options.storage)
            context = session_context(session, log).beginning(lambda log: EpochTransaction(log, epoch))
            run(Write(DataFrameSource(session, self._rows(session, data)), options), context)

    def name(self) -> str:
        """Return the sink's name, as progress shows it."""
        return self.toString()

    def schema(self) -> Any:
        """Return no columns, because a sink is not read."""
        return self._jvm.struct_type()

    def capabilities(self) -> Any:
        """Return no capabilities, because only Spark's newer kind of sink has any."""
        return self._jvm.view.java.util.HashSet()

    def toString(self) -> str:
        """Return a name with the table's location."""
        return f"DeltaSink[{self._location}]"

    def hashCode(self) -> int:
        """Return a number that is unique among the process's sinks."""
        return self._serial

    def equals(self, other: Any) -> bool:
        """Return whether the other object is this sink."""
        return other is self or (other is not None and str(other.toString()) == self.toString())

    # -- parts --------------------------------------------------------------------------------------------------

    def _parse(self, spark: SparkSession, app_id: str, batch_id: int) -> WriteOptions:
        return WriteOptions.parse(
            {**self._options, "txnAppId": app_id, "txnVersion": str(batch_id)},
            mode=_MODES[self._mode],
            settings=settings_of(spark),
            partition_by=self._partition_by,
        )

    def _session_of(self, data: Any) -> SparkSession:
        """Return the session that the query runs in, which Spark cloned from the one that started it."""
        session = data.sparkSession()
        if self._session is None or not bool(self._session._jsparkSession.equals(session)):
            self._session = SparkSession(self._spark.sparkContext, session)
        return self._session

    def _rows(self, session: SparkSession, data: Any) -> DataFrame:
        """Return the batch as an ordinary DataFrame, because only Spark may run its streaming plan."""
        rows = scala_object(self._jvm.view.org.apache.spark.sql.execution, "LogicalRDD")
        rest = self._jvm.rest_of(rows, "fromDataset", 3)
        plan = rows.fromDataset(data.queryExecution().toRdd(), data, False, *rest)
        return DataFrame(self._jvm.dataset.ofRows(session._jsparkSession, plan), session)


def start_query(writer: DataStreamWriter, sink: DeltaSink) -> Any:
    """Start a query into a sink, as Spark's own writer does.

    Returns:
        The JVM's ``StreamingQuery``.
    """
    jvm = Jvm.of(writer._spark)
    empty = [field.name for field in from_spark(writer._df.schema).fields if str(field.data_type) == "void"]
    if empty:
        raise SchemaError(
            f"The column {empty[0]} of the stream has no type: it is null in all rows.",
            hint='Cast it, for example F.lit(None).cast("string").',
        )
    methods = writer._jwrite.getClass().getDeclaredMethods()
    start = next((method for method in methods if str(method.getName()) == "startQuery"), None)
    if start is None or int(start.getParameterCount()) != 5:
        raise InvalidArgumentError(
            "This version of Spark starts its queries in a way that this engine does not know.",
            hint="Write the stream with foreachBatch and the options txnAppId and txnVersion.",
        )
    close_ended(writer._spark)
    start.setAccessible(True)
    arguments = jvm.new_list()
    for argument in (sink, private_field(writer._jwrite, "extraOptions"), True, jvm.none, jvm.none):
        arguments.add(argument)
    return start.invoke(writer._jwrite, arguments.toArray())


def private_field(target: Any, name: str) -> Any:
    """Read a field of a JVM object that has no accessor."""
    field = target.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(target)
