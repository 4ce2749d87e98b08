"""Serve Spark's micro-batches of a table: a ``Source`` that plans from the log, one state per query.

::

    query's thread --latestOffset--> TableStream.latest --> SerializedOffset
                   --getBatch------> TableStream.batch ---> rows.batch_frame
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from pydelta.api.streams.connections import note_caller
from pydelta.api.streams.failures import noting
from pydelta.api.streams.rows import batch_frame, stream_schema
from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.errors import SchemaLocationOutsideError
from pydelta.commands.stream.evolution import Allowed
from pydelta.commands.stream.offsets import StreamOffset
from pydelta.commands.stream.source import TableStream
from pydelta.commands.stream.tracking import SchemaTracking
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import settings_of
from pydelta.engines.spark.scan.refresh import transform
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.storage import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.commands.stream.options import SourceOptions
    from pydelta.log import DeltaLog, Snapshot

__all__ = ["QUERY_ID", "SOURCE_NAMES", "DeltaSource", "check_below", "is_delta_source", "sources_of", "stream_frame"]

QUERY_ID: Final = "sql.streaming.queryId"
"""The thread property in which Spark keeps the id of the running query."""

_STREAMING: Final = "org.apache.spark.sql.connector.read.streaming"
_SERIALS: Final = itertools.count(1)
_MAX_FILES: Final = 2**31 - 1
SOURCE_NAMES: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Whether the session allows names for streaming sources."""
_SOURCES: weakref.WeakValueDictionary[int, DeltaSource] = weakref.WeakValueDictionary()


class DeltaSource:
    """Spark's ``Source`` over a table. The state of each query is kept separately, by the query's id.

    Args:
        spark: The session that created the stream.
        log: The table.
        options: The requested options.
        read: The snapshot whose columns the rows have.
        starting_timestamp_ms: ``startingTimestamp`` in epoch milliseconds.
        tracking: The schema log that ``read`` comes from, if there is one.
    """

    class Java:
        """py4j: the interfaces this object implements for the JVM."""

        implements = (
            "org.apache.spark.sql.execution.streaming.Source",
            f"{_STREAMING}.SupportsTriggerAvailableNow",
            f"{_STREAMING}.ReportsSourceMetrics",
        )

    def __init__(
        self,
        spark: SparkSession,
        log: DeltaLog,
        options: SourceOptions,
        read: Snapshot,
        *,
        starting_timestamp_ms: int | None,
        tracking: SchemaTracking | None = None,
    ) -> None:
        self._spark = spark
        self._jvm = Jvm.of(spark)
        self._log = log
        self._options = options
        self._read = read
        self._starting_timestamp_ms = starting_timestamp_ms
        self._tracking = tracking
        self._streams: dict[str, TableStream] = {}
        self._lock = threading.Lock()
        self._serial = next(_SERIALS)
        _SOURCES[self._serial] = self
        view = self._jvm.view
        self._offset: Any = view.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset
        self._limits: Any = view.org.apache.spark.sql.connector.read.streaming.ReadLimit
        self._schema = stream_schema(spark, log, read, change_feed=options.change_feed)

    # -- Source -------------------------------------------------------------------------------------------------

    def schema(self) -> Any:
        """Return the columns of the rows."""
        return self._schema

    def getOffset(self) -> Any:
        """Refuse this call: for a source with read limits, Spark calls ``latestOffset`` instead."""
        raise UnsupportedFeatureError(
            "The stream was asked for an offset without a limit.",
            features=("getOffset",),
            hint="Start the query with spark.readStream and writeStream; they ask for offsets with a limit.",
        )

    def getBatch(self, start: Any, end: Any) -> Any:
        """Return the rows between two offsets."""
        with noting(self._query(), table=self._log.uri):
            last = StreamOffset.parse(str(end.json()))
            first = StreamOffset.parse(str(start.get().json())) if start.isDefined() else None
            batch = self._stream().batch(first, last)
            label = f"stream={'' if first is None else first.to_json()}-{last.to_json()}"
            change_feed = self._options.change_feed
            return batch_frame(self._spark, self._log, self._read, batch, change_feed=change_feed, label=label)

    def initialOffset(self) -> Any:
        """Return nothing: the first batch determines where a stream begins."""
        return None

    def deserializeOffset(self, text: str) -> Any:
        """Return the offset stored in a checkpoint."""
        return self._offset(text)

    def commit(self, end: Any) -> None:
        """Release the state of finished batches; stop at a metadata change that the schema log must follow."""
        with noting(self._query(), table=self._log.uri):
            self._stream().finish(StreamOffset.parse(str(end.json())))

    def stop(self) -> None:
        """Discard the state of the query that ends."""
        with self._lock:
            self._streams.pop(self._query(), None)

    # -- admission ----------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> Any:
        """Return the limits that the options set."""
        options = self._options
        limits = []
        if options.max_files is not None:
            limits.append(self._limits.maxFiles(min(options.max_files, _MAX_FILES)))
        if options.max_bytes is not None:
            limits.append(self._limits.maxBytes(self._jvm.view.java.lang.Long.valueOf(str(options.max_bytes))))
        return limits[0] if len(limits) == 1 else self._limits.compositeLimit(self._jvm.array(self._limits, limits))

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return where the next batch ends, or the end of the last one if nothing is new."""
        note_caller(self._spark)
        with noting(self._query(), table=self._log.uri):
            everything = str(limit.getClass().getSimpleName()) == "ReadAllAvailable"
            budget = AdmissionBudget() if everything else self._options.budget()
            first = None if start is None else StreamOffset.parse(str(start.json()))
            latest = self._stream().latest(first, budget)
            return None if latest is None else self._offset(latest.to_json())

    def reportLatestOffset(self) -> Any:
        """Return nothing, because the metrics report the backlog."""
        return None

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the versions that exist at this moment."""
        with noting(self._query(), table=self._log.uri):
            self._stream().stop_at_newest()

    def metrics(self, consumed: Any) -> Any:
        """Return the number of unread files and bytes, for the query's progress."""
        found = self._jvm.view.java.util.HashMap()
        with noting(self._query(), table=self._log.uri):
            at = StreamOffset.parse(str(consumed.get().json())) if consumed.isPresent() else None
            backlog = self._stream().backlog(at)
        found.put("numFilesOutstanding", str(backlog.num_files))
        found.put("numBytesOutstanding", str(backlog.size_bytes))
        return found

    @property
    def schema_location(self) -> str | None:
        """The requested location of the source's schema log."""
        return self._options.schema_location

    @property
    def schema_log(self) -> str | None:
        """The folder of the source's schema log."""
        return None if self._tracking is None else self._tracking.location

    # -- identity -----------------------------------------------------------------------------------------------

    def toString(self) -> str:
        """Return a name with the table's location, which progress shows."""
        return f"DeltaSource[{self._log.uri}]"

    def hashCode(self) -> int:
        """Return a number that is unique among the process's sources."""
        return self._serial

    def equals(self, other: Any) -> bool:
        """Return whether the other object is this source."""
        return other is self or (is_delta_source(other) and int(other.hashCode()) == self._serial)

    # -- parts --------------------------------------------------------------------------------------------------

    def _query(self) -> str:
        return str(self._spark.sparkContext.getLocalProperty(QUERY_ID))

    def _stream(self) -> TableStream:
        query = self._query()
        with self._lock:
            found = self._streams.get(query)
            if found is None:
                found = self._streams[query] = TableStream(
                    self._log,
                    self._options,
                    self._read,
                    starting_timestamp_ms=self._starting_timestamp_ms,
                    tracking=None if self._tracking is None else self._begun(self._tracking, query),
                )
                if self._options.event_time_order:
                    found.order_by(self._event_column(query))
            return found

    def _execution(self, query: str) -> Any:
        running = self._jvm.session.streams().get(query)
        return running.streamingQuery() if hasattr(running, "streamingQuery") else running

    def _event_column(self, query: str) -> str:
        """Return the table column that the query's watermark is on.

        Raises:
            InvalidArgumentError: No watermark is on such a column.
        """
        # Spark calls this while it builds the logical plan under a lock, so that plan cannot be used.
        plan = self._execution(query).analyzedPlan()
        own: dict[int, str] = {}
        marks: list[Any] = []

        def look(node: Any, name: str) -> None:
            if name.startswith("StreamingExecutionRelation") and self.equals(node.source()):
                own.update((int(item.exprId().id()), str(item.name())) for item in self._jvm.to_list(node.output()))
            elif name.startswith("EventTimeWatermark"):
                marks.append(node.eventTime())

        transform(self._jvm, plan, look)
        for mark in marks:
            column = own.get(int(mark.exprId().id()))
            if column is not None and str(mark.dataType().typeName()) == "timestamp":
                return column
        raise InvalidArgumentError(
            "withEventTimeOrder reads the initial snapshot by the column of the query's watermark, and no watermark of "
            f"the query is on a timestamp column of the table {self._log.uri}.",
            hint='Call withWatermark("column", …) on the DataFrame of the stream before the column is changed or '
            "renamed, or leave withEventTimeOrder out.",
        )

    def _begun(self, tracking: SchemaTracking, query: str) -> SchemaTracking:
        """Return the schema tracking of a query that has started."""
        execution = self._execution(query)
        root = str(execution.resolvedCheckpointRoot())
        check_below(self.schema_location or "", root, self._spark)
        sources = self._jvm.to_list(execution.sources())
        place = next(number for number, source in enumerate(sources) if self.equals(source))
        own = tracking.copy()
        own.begin(f"{root}/sources/{place}", Allowed(options=self._options.allowed, conf=self._jvm.session_conf()))
        return own


def check_below(location: str, checkpoint: str, spark: SparkSession) -> None:
    """Check that a schema log is below the query's checkpoint, where it is private and lives as long.

    Raises:
        SchemaLocationOutsideError: It is elsewhere, and the session does not allow that.
    """
    jvm = Jvm.of(spark)
    inner, outer = (normalize_uri(jvm.qualify(path)).rstrip("/") for path in (location, checkpoint))
    if settings_of(spark).stream_schema_anywhere or inner == outer or inner.startswith(f"{outer}/"):
        return
    raise SchemaLocationOutsideError(
        f"The schemaTrackingLocation {location} is not below the query's checkpointLocation {checkpoint}.",
        hint=f"Use a folder in it, for example {checkpoint.rstrip('/')}/_schemas; or set "
        "spark.pydelta.stream.schemaLocationAnywhere to true.",
        condition=Condition.of(
            "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT",
            schemaTrackingLocation=location,
            checkpointLocation=checkpoint,
        ),
    )


def sources_of(leaves: Iterable[Any]) -> list[DeltaSource]:
    """Return this engine's sources among the leaves of a plan, found by their hash codes."""
    numbers = [
        int(leaf.source().hashCode())
        for leaf in leaves
        if str(leaf.getClass().getSimpleName()) == "StreamingExecutionRelation" and is_delta_source(leaf.source())
    ]
    return [_SOURCES[number] for number in numbers if number in _SOURCES]


def is_delta_source(source: Any) -> bool:
    """Return whether a source from the JVM is one of this engine's."""
    if isinstance(source, DeltaSource):
        return True
    return source is not None and str(source.toString()).startswith("DeltaSource[")


def stream_frame(spark: SparkSession, source: DeltaSource, name: str | None = None) -> DataFrame:
    """Return the streaming DataFrame of a source, under its name in checkpoints.

    Raises:
        UnsupportedFeatureError: It has a name, but the session does not allow names of sources.
    """
    jvm = Jvm.of(spark)
    if name is not None and str(spark.conf.get(SOURCE_NAMES, "false")).lower() != "true":
        raise UnsupportedFeatureError(
            f"The source was given the name {name!r}, and names of sources are not supported in this session.",
            features=("names of streaming sources",),
            hint=f"Leave name(…) out, or set {SOURCE_NAMES} to true before the query starts for the first time.",
            condition=Condition.of("STREAMING_QUERY_EVOLUTION_ERROR.SOURCE_NAMING_NOT_SUPPORTED", name=name),
        )
    streaming = jvm.view.org.apache.spark.sql
    output = jvm.local_relation.apply(source.schema()).output()
    relation = streaming.execution.streaming.runtime.StreamingExecutionRelation
    if jvm.version < (4, 2):  # Its sources have no names.
        return jvm.frame(relation(source, output, jvm.none, jvm.session))
    names = streaming.catalyst.streaming
    known = getattr(getattr(names, "Unassigned$"), "MODULE$") if name is None else names.UserProvided(name)
    return jvm.frame(relation(source, output, jvm.none, known, jvm.session))
