"""Apply one batch of decoded records to a table, once: append it, or merge the newest record of each key.

::

    decoded rows, cached --count--> rows = good + bad + tombstones + suppressed
        bad   --> the table of bad records         txn (query, batch)
        good  --> append: one version              txn (query, batch); no commit unless its rows are the good ones
              --> newest of each key --> MERGE     txn (query, batch); no commit unless its source has one row per key

A batch that runs again finds its txn in each table and writes nothing there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.change.merge import ClauseAction, ClauseOn, Merge, MergeClause, MergeResult
from pydelta.commands.run import Context, run
from pydelta.commands.stream.sink import Epoch, EpochTransaction, OutputMode
from pydelta.commands.write.command import Write, WriteMode, WriteOptions
from pydelta.engines.spark.change.merge import MergeStatement, SparkMerge
from pydelta.engines.spark.engine import SparkEngine
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.engines.spark.running import session_context
from pydelta.engines.spark.write.writer import DataFrameSource
from pydelta.errors import InvalidArgumentError, RowsDoNotAddUpError, StreamStoppedError
from pydelta.log import DeltaLog
from pydelta.protocol.names import quoted
from pydelta.tools.ingest.records import ORIGIN
from pydelta.tools.ingest.suppressed import SUPPRESSED, Suppression, mark_suppressed
from pydelta.txn import Committed, Operation, OptimisticTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.protocol.actions import Action

__all__ = ["Batch", "BatchCounts", "Upsert", "Writing", "apply_batch"]

_HINT: Final = "Nothing was committed. Run the job again; if it fails again, report it with this message."


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """The rule by which records with the same key replace each other.

    Args:
        keys: Key columns.
        order_by: Column that decides which record is newest, or None for the order of the source.
        deletes: Whether records carry ``deleted``, which deletes their row, and ``position``, which orders them.
        one_row_each: Refuse a batch with two newest records of one key instead of choosing one.
    """

    keys: Sequence[str]
    order_by: str | None = None
    deletes: bool = False
    one_row_each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The target of rows, and how to write them.

    Args:
        location: Root of the table, as ``prepare_table`` finds it.
        upsert: How to merge; None to append.
        bad_records: Root of the table of bad records; None to stop at the first bad record.
        partition_by: Partition columns of a table that the first batch creates.
        options: Writer options for an append.
        without_bad: Hint for a bad record when there is no table for it.
        suppression: The list of erased keys, whose rows are left out; None for none.
    """

    location: str = ""
    upsert: Upsert | None = None
    bad_records: str | None = None
    partition_by: Sequence[str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    without_bad: str = "Give --bad-records PATH, a table that takes them, or another --schema."
    suppression: Suppression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of a query."""

    query: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """The result for the rows of a batch.

    ``rows`` is ``bad`` + ``tombstones`` + ``suppressed`` + rows that were written or, in a merge, ``superseded`` by a
    newer one. ``suppressed`` are rows of which a key was erased.
    ``landed_before`` means that the table already had the batch; the result of its merge is then unknown.
    """

    rows: int
    written: int
    bad: int
    tombstones: int = 0
    suppressed: int = 0
    superseded: int = 0
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    landed_before: bool = False
    version: int | None = None


def apply_batch(session: SparkSession, decoded: DataFrame, batch: Batch, writing: Writing) -> BatchCounts:
    """Apply a batch.

    Args:
        session: The session that the query runs in.
        decoded: The columns ``row``, ``reason`` and ``ORIGIN``; with deletes also ``tombstone``, ``deleted`` and
            ``position``.
        batch: The batch.
        writing: Where and how to write.

    Raises:
        StreamStoppedError: A record is bad, and there is no table for bad records.
        RowsDoNotAddUpError: The row count of a commit differs from that of the batch.
        DeltaError: See ``write_table`` and ``merge``.
    """
    with _persisted(_marked(session, decoded, writing)) as kept:
        tombstone = F.col("tombstone") if "tombstone" in kept.columns else F.lit(False)
        fits = F.col("reason").isNull() & ~tombstone
        good = fits & ~F.col(SUPPRESSED)
        row = kept.agg(
            F.count(F.lit(1)).alias("rows"),
            F.count("reason").alias("bad"),
            F.count_if(tombstone & F.col("reason").isNull()).alias("tombstones"),
            F.count_if(fits & F.col(SUPPRESSED)).alias("suppressed"),
            F.count_if(good).alias("good"),
        ).collect()[0]
        counts = BatchCounts(
            rows=row.rows, written=row.good, bad=row.bad, tombstones=row.tombstones, suppressed=row.suppressed
        )
        if row.rows != row.good + row.bad + row.tombstones + row.suppressed:
            raise RowsDoNotAddUpError(
                f"A batch of {row.rows} rows has {row.good} good, {row.bad} bad, {row.tombstones} empty and "
                f"{row.suppressed} suppressed ones.",
                hint=_HINT,
            )
        if row.bad:
            _set_aside(session, kept.where(F.col("reason").isNotNull()), row.bad, batch, writing)
        if not row.good:
            return counts
        rows = kept.where(good)
        if writing.upsert is None:
            return _append(session, rows, counts, batch, writing)
        return _merge(session, rows, counts, batch, writing)


def _marked(session: SparkSession, decoded: DataFrame, writing: Writing) -> DataFrame:
    if writing.suppression is None:
        return decoded.withColumn(SUPPRESSED, F.lit(False))
    return mark_suppressed(session, decoded, writing.suppression, inside="row")


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield cached
    finally:
        cached.unpersist()


def _set_aside(session: SparkSession, bad: DataFrame, count: int, batch: Batch, writing: Writing) -> None:
    if writing.bad_records is None:
        first = bad.select("reason", "source", "partition", "offset").first()
        assert first is not None
        where = f", of {first.source}" if first.source is not None else ""
        if first.partition is not None:
            where += f", partition {first.partition}, offset {first.offset}"
        raise StreamStoppedError(
            f"{count} records of the batch are bad, so nothing of it was written. One of them{where}: {first.reason}",
            hint=writing.without_bad,
        )
    rows = bad.select(
        *ORIGIN, "reason", F.current_timestamp().alias("found_at"), F.lit(batch.number).cast("long").alias("batch")
    )
    _write(session, rows, count, batch, Writing(location=writing.bad_records))


def _write(session: SparkSession, rows: DataFrame, count: int, batch: Batch, writing: Writing) -> int | None:
    """Append rows as an epoch of the query, in a commit that is refused unless it has this many rows."""
    settings = settings_of(session)
    options = WriteOptions.parse(
        {**writing.options, "txnAppId": batch.query, "txnVersion": str(batch.number)},
        mode=WriteMode.APPEND,
        settings=settings,
        partition_by=writing.partition_by,
    )
    epoch = Epoch(query_id=batch.query, epoch_id=batch.number, mode=OutputMode.APPEND)
    log = log_for_path(session, writing.location, options.storage)
    context = session_context(session, log).beginning(lambda log: _CountedEpoch(log, epoch, count))
    return run(Write(DataFrameSource(session, rows), options), context).version


def _append(session: SparkSession, rows: DataFrame, counts: BatchCounts, batch: Batch, writing: Writing) -> BatchCounts:
    version = _write(session, rows.select("row.*"), counts.written, batch, writing)
    return replace(counts, version=version, landed_before=version is None)


def _merge(session: SparkSession, rows: DataFrame, counts: BatchCounts, batch: Batch, writing: Writing) -> BatchCounts:
    upsert = writing.upsert
    assert upsert is not None
    with _persisted(_newest(rows, upsert)) as newest:
        count = newest.count()
        if upsert.one_row_each:
            _refuse_twins(newest, upsert)
        result = _run_merge(session, newest, count, batch, writing)
    superseded = counts.written - count
    if result.skipped:
        return replace(counts, written=count, superseded=superseded, landed_before=True)
    return replace(
        counts,
        written=count,
        superseded=superseded,
        inserted=result.num_inserted_rows,
        updated=result.num_updated_rows,
        deleted=result.num_deleted_rows,
        version=result.version,
    )


def _key(column: str) -> Column:
    return F.col("row").getField(column)


def _newest(rows: DataFrame, upsert: Upsert) -> DataFrame:
    """Select the newest record of each key: by offset in a Kafka partition, otherwise by time, position or column."""
    keys = [_key(name).alias(f"k{number}") for number, name in enumerate(upsert.keys)]
    names = [f"k{number}" for number in range(len(keys))]
    first = F.col("position") if upsert.deletes else F.lit(0)
    if upsert.order_by:
        first = _key(upsert.order_by)
    deleted = F.col("deleted") if upsert.deletes else F.lit(False)
    record = F.struct(F.col("row"), deleted.alias("deleted"))
    ordered = rows.select(
        *keys, record.alias("record"), first.alias("first"), "partition", "offset", "record_time",
        F.when(F.col("partition").isNull(), F.to_json("row")).alias("text"),
    )  # fmt: skip
    if upsert.one_row_each:
        from pyspark.sql import Window

        place = F.rank().over(Window.partitionBy(*names).orderBy(F.col("first").desc()))
        return ordered.withColumn("place", place).where("place = 1").select("record.*")
    kept = F.struct("record", "first", "record_time", "text")
    per_partition = ordered.groupBy(*names, "partition").agg(
        F.max_by(kept, F.struct("first", "offset", "record_time", "text")).alias("kept")
    )
    order = F.struct("kept.first", "kept.record_time", "partition", "kept.text")
    return per_partition.groupBy(*names).agg(F.max_by(F.col("kept.record"), order).alias("record")).select("record.*")


def _refuse_twins(newest: DataFrame, upsert: Upsert) -> None:
    keys = [_key(name).alias(name) for name in upsert.keys]
    twin = newest.select(*keys).groupBy(*[quoted(name) for name in upsert.keys]).count().where("`count` > 1").first()
    if twin is not None:
        shown = ", ".join(f"{name} = {twin[number]}" for number, name in enumerate(upsert.keys))
        raise InvalidArgumentError(
            f"One commit of the source has several rows with the key {shown}.",
            hint="Give --key columns that name one row each.",
        )


def _run_merge(session: SparkSession, newest: DataFrame, count: int, batch: Batch, writing: Writing) -> MergeResult:
    upsert = writing.upsert
    assert upsert is not None
    flag = "__ingest_deleted"
    source = newest.select("row.*", F.col("deleted").alias(flag))
    columns = source.columns[:-1]

    def of(side: str, name: str) -> Column:
        return F.col(f"{side}.{quoted(name)}")

    condition: Any = None
    for name in upsert.keys:
        equal = of("t", name) == of("s", name)
        condition = equal if condition is None else condition & equal
    values = tuple((quoted(name), of("s", name)) for name in columns)
    clauses = (
        [MergeClause(on=ClauseOn.MATCHED, action=ClauseAction.DELETE, condition=of("s", flag))]
        if upsert.deletes
        else []
    )
    newer = None
    if upsert.order_by is not None:
        there, given = of("t", upsert.order_by), of("s", upsert.order_by)
        newer = there.isNull() | (given >= there)
    clauses += [
        MergeClause(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE, condition=newer, assignments=values),
        MergeClause(
            on=ClauseOn.NOT_MATCHED,
            action=ClauseAction.INSERT,
            condition=~of("s", flag) if upsert.deletes else None,
            assignments=values,
        ),
    ]
    settings = replace(settings_of(session), txn_app_id=batch.query, txn_version=batch.number)
    statement = MergeStatement(condition=condition, clauses=clauses, alias="t")
    context = Context(
        log_for_path(session, writing.location),
        SparkEngine(session, alias="t"),
        settings=settings,
        begin=lambda log: _CountedMerge(log, count),
    )
    return run(Merge(lambda snapshot: SparkMerge(session, snapshot, source.alias("s"), statement), clauses), context)


class _CountedEpoch(EpochTransaction):
    """An epoch that is only committed if its row count is that of the batch."""

    def __init__(self, log: DeltaLog, epoch: Epoch, rows: int) -> None:
        super().__init__(log, epoch)
        self._rows = rows

    def commit(self, actions: Sequence[Action], operation: Operation, **how: Any) -> Committed:
        """Check the row count, then commit; see ``EpochTransaction.commit``."""
        _check("numOutputRows", operation, self._rows)
        return super().commit(actions, operation, **how)


class _CountedMerge(OptimisticTransaction):
    """A merge that is only committed if its source has as many rows as the batch has keys."""

    def __init__(self, log: DeltaLog, rows: int) -> None:
        super().__init__(log)
        self._rows = rows

    def commit(self, actions: Sequence[Action], operation: Operation, **how: Any) -> Committed:
        """Check the row count, then commit; see ``OptimisticTransaction.commit``."""
        _check("numSourceRows", operation, self._rows)
        return super().commit(actions, operation, **how)


def _check(metric: str, operation: Operation, rows: int) -> None:
    found = dict(operation.metrics).get(metric)
    if found is None or int(found) != rows:
        raise RowsDoNotAddUpError(f"The batch has {rows} rows for the table, but {found} arrived.", hint=_HINT)
