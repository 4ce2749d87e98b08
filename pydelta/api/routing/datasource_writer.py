"""Write rows through the Python data source ``delta``, in one commit and without a JVM.

The last resort for writes that ``enable`` does not cover (``INSERT INTO`` in SQL, a session that is not enabled). It
runs in Python processes that see only the options of the session, so it appends or overwrites by name, and refuses
tables whose rules need Spark expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pydelta.commands.engine import RefusingEngine, RewriteOutput
from pydelta.commands.run import Context, run
from pydelta.commands.write.command import Write, WriteMode, WriteOptions, WriteTarget, plan_write
from pydelta.commands.write.plan import WritePlan
from pydelta.engines.arrow.conform import without_empty
from pydelta.engines.arrow.layout import Session, TableShape, add_of, make_task, written_columns
from pydelta.engines.arrow.tasks.write_files import record_batch, run_task
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.columns import same_type
from pydelta.errors import ConstraintViolatedError, InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddCDCFile, AddFile
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.schema import StructType
from pydelta.settings import Settings
from pydelta.storage.discarding import discard
from pydelta.storage.interface import Store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStructType

__all__ = ["DeltaArrowWriter"]

_RULES: Final = (
    "CURRENT_DEFAULT",
    "delta.generationExpression",
    "delta.identity.step",
    "delta.invariants",
    "__CHAR_VARCHAR_TYPE_STRING",
)


@dataclass
class _Staged(WriterCommitMessage):
    """The files that one task wrote, as rows of ``write_task.RECORD_SCHEMA``."""

    records: list[dict[str, Any]] = field(default_factory=list)


class DeltaArrowWriter(DataSourceArrowWriter):
    """Writes the Arrow batches of a Spark job to a table.

    Args:
        options: The writer's options; ``path`` is required, and storage settings are included.
        schema: The schema of the rows.
        overwrite: Replace the table's rows.

    Raises:
        InvalidArgumentError: The path is missing: Spark passes a Python data source no location of a managed table.
        UnsupportedFeatureError: The table has rules that only Spark expressions can check, or the write is more than
            an append or a full overwrite.
        SchemaMismatchError: The rows do not fit.
    """

    def __init__(self, options: Mapping[str, str], schema: SparkStructType, *, overwrite: bool) -> None:
        path = next((value for key, value in options.items() if key.lower() == "path"), None)
        if not path:
            raise InvalidArgumentError(
                "The Python data source delta was asked to write a table without a path.",
                hint="Call pydelta.enable(spark) and write with df.write.format('delta').saveAsTable(name), "
                "or give the location: CREATE TABLE … USING delta LOCATION '…'.",
            )
        self._path = path
        self._settings = Settings.resolve()
        self._schema = from_spark(schema)
        self._options = WriteOptions.parse(
            {key: value for key, value in options.items() if key.lower() != "path"},
            mode=WriteMode.OVERWRITE if overwrite else WriteMode.APPEND,
            settings=self._settings,
        )
        if self._options.replace_where is not None or self._options.dynamic:
            raise UnsupportedFeatureError(
                "replaceWhere and dynamic partition overwrite need the engine in the session.",
                features=("replaceWhere",),
                hint="Call pydelta.enable(spark) first.",
            )
        log = self._log()
        plan = plan_write(log.update(), self._schema, self._options, self._settings)
        _refuse_rules(plan, self._schema)
        self._task = make_task(
            TableShape.planned(log.uri, plan),
            self._options,
            Session(settings=self._settings, store_options=self._options.storage),
        )
        data, partitions = written_columns(plan.schema, plan.partition_columns)
        places = {name.lower(): position for position, name in enumerate(self._schema.names)}
        self._order = [places.get(name.lower()) for name in (*data, *partitions)]
        self._partitions = frozenset(plan.partition_columns)
        self._required = [(f.name, places[f.name.lower()]) for f in plan.schema.fields if not f.nullable]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write rows to files, on an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context else 0
        records = run_task((self._ordered(batch) for batch in iterator), self._task, partition_id=number)
        return _Staged(records=record_batch(records).to_pylist())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files as one version, on the driver."""
        adds = [add_of(record) for record in _records(messages)]
        log = self._log()
        context = Context(log, _WithoutSpark(log.store), settings=self._settings)
        run(Write(_Written(self._schema, adds), self._options), context)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files that finished tasks of the failed job wrote, on the driver.

        Spark also calls it after a failed ``commit``, with all messages. Then the files may belong to a version, and
        ``commit`` has already deleted those that certainly do not.
        """
        if all(message is not None for message in messages):
            return
        discard(self._log().store, [record["path"] for record in _records(messages)])

    def _log(self) -> DeltaLog:
        return DeltaLog.for_table(self._path, options=dict(self._options.storage))

    def _ordered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its columns in the task's order; columns that the rows lack are null."""
        for name, position in self._required:
            given = batch.column(position)
            if (without_empty(given) if name in self._partitions else given).null_count:
                raise ConstraintViolatedError(
                    f"Column {name!r} is NOT NULL in the table and null in the data.",
                    hint="Filter out such rows.",
                    condition=Condition.of("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=name),
                )
        arrays = [pa.nulls(batch.num_rows) if place is None else batch.column(place) for place in self._order]
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{index}" for index in range(len(arrays))])


class _Written:
    """Files that already exist, as a source for ``write_table``."""

    def __init__(self, schema: StructType, adds: Sequence[AddFile]) -> None:
        self._schema = schema
        self._adds = tuple(adds)

    @property
    def schema(self) -> StructType:
        """See ``RowSource.schema``."""
        return self._schema

    def write(self, target: WriteTarget) -> RewriteOutput:
        """See ``RowSource.write``; the tasks have already written the rows."""
        del target
        import json

        return RewriteOutput(
            adds=self._adds, num_rows=sum(json.loads(add.stats or "{}")["numRecords"] for add in self._adds)
        )


class _WithoutSpark(RefusingEngine):
    """Deletes the files of a failed append or full overwrite, which need no other engine step."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """See ``RewritesFiles.discard``."""
        discard(self._store, [decode_log_path(add.path).text for add in adds])


def _records(messages: Sequence[WriterCommitMessage | None]) -> list[dict[str, Any]]:
    return [record for message in messages if isinstance(message, _Staged) for record in message.records]


def _refuse_rules(plan: WritePlan, data: StructType) -> None:
    """Refuse rules and conversions that need Spark: constraints, computed columns, rebuilt structs, nested NOT NULL."""
    rules = {key for key in plan.configuration if key.startswith("delta.constraints.")}
    for item in plan.schema.fields:
        rules |= {key for key in _RULES if key in item.metadata}
        given = data.field(item.name)
        if given is not None and "<" in str(item.data_type):
            if not same_type(given.data_type, item.data_type):
                rules.add(f"a conversion of column {item.name}")
            if _has_required(item.data_type):
                rules.add(f"NOT NULL inside column {item.name}")
    if rules:
        listed = sorted(rules)
        raise UnsupportedFeatureError(
            f"The write needs {', '.join(listed)}, which needs the engine in the session.",
            features=listed,
            hint="Call pydelta.enable(spark) and write with df.write.format('delta').",
        )


def _has_required(data_type: Any) -> bool:
    described = str(data_type.to_dict())
    return (
        "'nullable': False" in described or "'containsNull': False" in described or "ContainsNull': False" in described
    )
