"""Define operations at the level of the log, on files without bytes, for tests of races and crashes.

The rows of a file are stored in a tag of its ``add``, so the log alone contains the rows of a table. Each
``LogOperation`` also models its effect on rows when nothing interferes, and outcomes are compared with the model. The
table is partitioned by ``p`` (string) and has one more column, ``x`` (long).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.features import AddFeature, DropFeature
from pydelta.commands.alter.requests import AddColumns, NewColumn
from pydelta.commands.change.hidden_rows import mark_deleted
from pydelta.commands.change.merge import ClauseAction, ClauseOn, Merge, MergeClause
from pydelta.commands.change.update import Update
from pydelta.commands.clone import Clone
from pydelta.commands.optimize.command import Optimize
from pydelta.commands.optimize.reorg import Purge
from pydelta.commands.restore import Restore
from pydelta.commands.run import Context
from pydelta.commands.run import run as run_command
from pydelta.commands.stream.sink import Epoch, EpochTransaction, OutputMode
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal
from pydelta.protocol.actions import Action, AddFile, SetTransaction
from pydelta.protocol.types import PrimitiveType
from pydelta.settings import Settings
from pydelta.storage.backoff import Backoff
from pydelta.storage.memory import MemoryStore
from pydelta.testing.row_files import (
    MARK,
    NOW_MS,
    LogEngine,
    LogUpsert,
    Row,
    Rows,
    add_file,
    live_values,
    rows_of,
    table_metadata,
    written_rows,
    written_values,
)
from pydelta.txn import Committed, Operation, OptimisticTransaction, start_transaction
from pydelta.txn.commit import READ, SILENT, Observer

__all__ = [
    "LogOperation",
    "Row",
    "Rows",
    "add_file",
    "alter",
    "append",
    "append_once",
    "back_to",
    "checkpoint",
    "clone_over",
    "compact",
    "create_table",
    "delete_partition",
    "delete_value",
    "drop",
    "hide_value",
    "optimize",
    "overwrite",
    "purge",
    "rows_of",
    "stream_batch",
    "support",
    "table_metadata",
    "update_value",
    "upsert_value",
]

NO_PAUSE: Final = Backoff(first_ms=0, sleep=lambda seconds: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOperation:
    """An operation on a table.

    Args:
        name: Name for test ids.
        run: Runs it, and reports each phase to the observer. Returns the commit, or None if nothing had to be
            committed.
        model: Its effect on the rows when it runs alone.
    """

    name: str
    run: Callable[[DeltaLog, Observer], Committed | None]
    model: Callable[[Rows], Rows]


def create_table(log: DeltaLog, files: Iterable[AddFile] = (), **properties: str) -> Committed:
    """Create version 0 with the given files."""
    txn = start_transaction(log, backoff=NO_PAUSE)
    txn.update_metadata(table_metadata(**properties))
    return txn.commit(list(files), Operation(name="CREATE TABLE AS SELECT"))


def append(partition: str, values: Sequence[int]) -> LogOperation:
    """Append one file blindly."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        return txn.commit([add_file(partition, values)], Operation(name="WRITE", parameters={"mode": "Append"}))

    return LogOperation(
        name="append", run=run, model=lambda rows: rows + Counter((partition, value) for value in values)
    )


def append_once(app_id: str, version: int, partition: str, values: Sequence[int]) -> LogOperation:
    """Append, unless the same application version was already appended."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        seen = txn.txn_version(app_id)
        if seen is not None and seen >= version:
            return None
        mark = SetTransaction(app_id=app_id, version=version, last_updated=NOW_MS)
        return txn.commit([mark, add_file(partition, values)], Operation(name="STREAMING UPDATE"))

    def model(rows: Rows) -> Rows:
        if rows[MARK + app_id, version]:
            return rows
        return rows + Counter([(MARK + app_id, version), *((partition, value) for value in values)])

    return LogOperation(name="append once", run=run, model=model)


def stream_batch(query: str, epoch: int, partition: str, values: Sequence[int]) -> LogOperation:
    """Append a batch of a stream, as its sink does: once, however often it runs."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        batch = Epoch(query_id=query, epoch_id=epoch, mode=OutputMode.APPEND)
        txn = EpochTransaction(log, batch, observer=observer, backoff=NO_PAUSE)
        seen = txn.txn_version(query)
        if seen is not None and seen >= epoch:
            return None
        mark = SetTransaction(app_id=query, version=epoch, last_updated=NOW_MS)
        return txn.commit([mark, add_file(partition, values)], Operation(name="WRITE"))

    return LogOperation(name="stream batch", run=run, model=append_once(query, epoch, partition, values).model)


def back_to(version: int, model: Callable[[Rows], Rows]) -> LogOperation:
    """Restore a version. The model returns its rows."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> None:
        run_command(Restore(version=version), _context(log, observer))

    return LogOperation(name="restore", run=run, model=model)


def _without(rows: Rows, gone: Callable[[Row], bool]) -> Rows:
    return Counter({row: count for row, count in rows.items() if row[0].startswith(MARK) or not gone(row)})


def overwrite(partition: str, values: Sequence[int]) -> LogOperation:
    """Remove every file and add one."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        txn.read_whole_table()
        files = txn.snapshot.files
        actions: list[Action] = [add.remove(deletion_timestamp=NOW_MS) for add in files.adds(files.core)]
        actions.append(add_file(partition, values))
        return txn.commit(actions, Operation(name="WRITE", parameters={"mode": "Overwrite"}))

    return LogOperation(
        name="overwrite",
        run=run,
        model=lambda rows: _without(rows, lambda row: True) + Counter((partition, value) for value in values),
    )


def delete_partition(partition: str) -> LogOperation:
    """Remove the files of one partition."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        found = txn.read_files(partition_filters=[Compare("=", Column(("p",)), Literal(partition, "string"))])
        actions: list[Action] = [add.remove(deletion_timestamp=NOW_MS) for add in txn.snapshot.files.adds(found)]
        return txn.commit(actions, Operation(name="DELETE")) if actions else None

    return LogOperation(
        name="delete partition",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[0] == partition),
    )


def delete_value(value: int) -> LogOperation:
    """Delete the rows with ``x = value`` by rewriting the files that contain it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        found = txn.read_files(data_filters=[Compare("=", Column(("x",)), Literal(value, "long"))])
        actions: list[Action] = []
        for add in txn.snapshot.files.adds(found):
            values = live_values(add, txn.snapshot.table_uri)
            remaining = [item for item in values if item != value]
            if remaining == values:
                continue
            actions.append(add.remove(deletion_timestamp=NOW_MS))
            if remaining:
                actions.append(add_file(add.partition_values["p"] or "", remaining))
        return txn.commit(actions, Operation(name="DELETE")) if actions else None

    return LogOperation(
        name="delete value",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[1] == value),
    )


def hide_value(value: int) -> LogOperation:
    """Delete the rows with ``x = value`` using deletion vectors."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        txn.rows_stand_alone()
        found = txn.read_files(data_filters=[Compare("=", Column(("x",)), Literal(value, "long"))])
        adds = txn.snapshot.files.adds(found)
        live = [set(live_values(add, txn.snapshot.table_uri)) for add in adds]
        positions = {
            place: np.array([at for at, item in enumerate(written_values(add)) if item == value], dtype=np.uint64)
            for place, add in enumerate(adds)
            if value in live[place]
        }
        output = mark_deleted(txn.snapshot, log, adds, positions, count=written_rows)
        return txn.commit(output.actions, Operation(name="DELETE")) if output.removes else None

    return LogOperation(
        name="hide value",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[1] == value),
    )


def compact(partition: str) -> LogOperation:
    """Rewrite the files of one partition into one with the same rows."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=NO_PAUSE)
        found = txn.read_files(partition_filters=[Compare("=", Column(("p",)), Literal(partition, "string"))])
        adds = txn.snapshot.files.adds(found)
        if len(adds) < 2:
            return None
        actions: list[Action] = [add.remove(deletion_timestamp=NOW_MS, data_change=False) for add in adds]
        values = [value for add in adds for value in live_values(add, txn.snapshot.table_uri)]
        actions.append(add_file(partition, values, data_change=False))
        return txn.commit(actions, Operation(name="OPTIMIZE"))

    return LogOperation(name="compact", run=run, model=lambda rows: rows)


def _context(log: DeltaLog, observer: Observer, settings: Settings | None = None) -> Context:
    """Return the context of a command whose rows are in the log and whose transaction reports to an observer."""

    def begin(table: DeltaLog) -> OptimisticTransaction:
        return start_transaction(table, observer=observer, backoff=NO_PAUSE)

    return Context(log, LogEngine(), settings=settings, begin=begin)


def optimize(partition: str | None = None) -> LogOperation:
    """Run OPTIMIZE for one partition or the whole table, as the command does."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        condition = None if partition is None else Compare("=", Column(("p",)), Literal(partition, "string"))
        context = _context(log, observer, Settings(optimize_give_way_ms=0))
        return run_command(Optimize(condition=condition), context).committed

    return LogOperation(name="optimize", run=run, model=lambda rows: rows)


def update_value(value: int, new: int) -> LogOperation:
    """Update the rows with ``x = value``, as the command does if the table supports deletion vectors."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        where = Compare("=", Column(("x",)), Literal(value, "long"))
        return run_command(Update(assignments=(("x", new),), condition=where), _context(log, observer)).committed

    def model(rows: Rows) -> Rows:
        after = _without(rows, lambda row: row[1] == value)
        for (partition, item), count in rows.items():
            if item == value and not partition.startswith(MARK):
                after[partition, new] += count
        return after

    return LogOperation(name="update value", run=run, model=model)


def upsert_value(value: int, new: int, partition: str) -> LogOperation:
    """Merge one source row: update rows with ``x = value`` to ``new``, or insert a row if there are none."""
    clauses = (
        MergeClause(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE, assignments=(("x", new),)),
        MergeClause(on=ClauseOn.NOT_MATCHED, action=ClauseAction.INSERT, assignments=(("p", partition), ("x", new))),
    )

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        command = Merge(lambda snapshot: LogUpsert(snapshot, value, new, partition), clauses)
        return run_command(command, _context(log, observer, Settings())).committed

    def model(rows: Rows) -> Rows:
        after = _without(rows, lambda row: row[1] == value)
        found = [(part, count) for (part, item), count in rows.items() if item == value and not part.startswith(MARK)]
        return after + Counter({(part, new): count for part, count in found or [(partition, 1)]})

    return LogOperation(name="upsert value", run=run, model=model)


def purge() -> LogOperation:
    """Run REORG … APPLY (PURGE) on the table, as the command does."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return run_command(Purge(), _context(log, observer, Settings())).committed

    return LogOperation(name="purge", run=run, model=lambda rows: rows)


def support(feature: str) -> LogOperation:
    """Add a feature to the table's protocol, as the command does."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return run_command(AddFeature(feature), _context(log, observer)).committed

    return LogOperation(name="support", run=run, model=lambda rows: rows)


def drop(feature: str) -> LogOperation:
    """Drop a writer feature from the table's protocol, as the command does."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        del observer
        return run_command(DropFeature(name=feature), Context(log)).committed

    return LogOperation(name="drop", run=run, model=lambda rows: rows)


def alter(column: str) -> LogOperation:
    """Add a column as ALTER TABLE does: it plans again after a concurrent commit, up to its last attempt."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        change = AddColumns(columns=(NewColumn(path=(column,), data_type=PrimitiveType("long")),))
        return run_command(Alter(change), _context(log, observer)).committed

    return LogOperation(name="alter", run=run, model=lambda rows: rows)


def clone_over(partition: str, values: Sequence[int]) -> LogOperation:
    """Replace this table by a shallow clone of another table, as the command does."""
    source = DeltaLog(MemoryStore(f"memory://source{uuid.uuid4().hex}/t"))
    create_table(source, [add_file(partition, values)])

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return run_command(Clone(source=source, shallow=True, replace=True), _context(log, observer)).committed

    return LogOperation(
        name="clone over",
        run=run,
        model=lambda rows: _without(rows, lambda row: True) + Counter((partition, value) for value in values),
    )


def checkpoint() -> LogOperation:
    """Write a checkpoint of the newest version, and clean up the log before it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> None:
        snapshot = log.update()
        observer.at(READ)
        log.checkpoint(snapshot)
        observer.at("checkpoint")
        log.cleanup(NOW_MS)

    return LogOperation(name="checkpoint", run=run, model=lambda rows: rows)
