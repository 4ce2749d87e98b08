"""Operations at the level of the log, over files that hold no bytes: what races and crashes are tried with.

A file's rows are written into a tag of its ``add``, so that the rows of a table can be told from its log alone.
Each ``LogOperation`` also says what it does to the rows when nothing interferes: the model that outcomes are compared
with. The table is partitioned by ``p`` (string) and has one more column, ``x`` (long).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import polars as pl

from pydelta.commands.clone import clone_table
from pydelta.commands.engine import BoundCondition, RearrangingEngine, RewriteOutput
from pydelta.commands.optimize import optimize as run_optimize
from pydelta.commands.reorg import purge as run_purge
from pydelta.commands.table_features import add_feature, drop_feature
from pydelta.commands.update import UpdatingEngine
from pydelta.commands.update import update as run_update
from pydelta.commands.vectors import mark_deleted
from pydelta.log import DeltaLog, Snapshot
from pydelta.log.vectors import read_deleted_rows
from pydelta.predicate import Column, Compare, Expr, Literal
from pydelta.protocol.actions import Action, AddCDCFile, AddFile, Metadata, SetTransaction, encode_json
from pydelta.protocol.roaring import Positions
from pydelta.settings import Settings
from pydelta.storage import open_store
from pydelta.storage.memory import MemoryStore
from pydelta.txn import Backoff, Committed, Operation, start_transaction
from pydelta.txn.phases import READ, SILENT, Observer

__all__ = [
    "LogOperation",
    "Row",
    "Rows",
    "add_file",
    "append",
    "append_once",
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
    "support",
    "table_metadata",
    "update_value",
]

ROWS_TAG: Final = "pydelta.testing.rows"
_NOW_MS: Final = 1_700_000_000_000
_NO_PAUSE: Final = Backoff(first_ms=0, sleep=lambda seconds: None)

_MARK: Final = "txn "

Row: TypeAlias = tuple[str, int]
"""Partition and value; or ``"txn "`` and an application id, and its version."""
Rows: TypeAlias = Counter[Row]


def table_metadata(**properties: str) -> Metadata:
    """Metadata of the test table; properties by name with ``_`` for ``.`` (``delta_appendOnly="true"``)."""
    fields = [
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
    ]
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=encode_json({"type": "struct", "fields": fields}),
        partition_columns=("p",),
        configuration={name.replace("_", "."): value for name, value in properties.items()},
        created_time=_NOW_MS,
    )


def add_file(partition: str, values: Sequence[int], *, data_change: bool = True) -> AddFile:
    """A file with a fresh name that is said to hold these values of ``x``."""
    stats = {
        "numRecords": len(values),
        "minValues": {"x": min(values)},
        "maxValues": {"x": max(values)},
        "nullCount": {"x": 0},
    }
    return AddFile(
        path=f"p={partition}/part-{uuid.uuid4()}.parquet",
        partition_values={"p": partition},
        size=100 + len(values),
        modification_time=_NOW_MS,
        data_change=data_change,
        stats=encode_json(stats),
        tags={ROWS_TAG: ",".join(map(str, values))},
    )


def _written(add: AddFile) -> list[int]:
    """Values in the file, those that a deletion vector hides too."""
    text = (add.tags or {}).get(ROWS_TAG) or ""
    return [int(value) for value in text.split(",") if value]


def _values(add: AddFile, root: str) -> list[int]:
    values = _written(add)
    if add.deletion_vector is None:
        return values
    (hidden,) = read_deleted_rows([add.deletion_vector], store=open_store(root), root=root)
    gone = set(hidden.tolist())
    return [value for position, value in enumerate(values) if position not in gone]


def rows_of(snapshot: Snapshot) -> Rows:
    """The rows of the table, duplicates counted, and how far each application has got."""
    found: Rows = Counter((_MARK + mark.app_id, mark.version) for mark in snapshot.set_transactions.values())
    if snapshot.version >= 0:
        for add in snapshot.files.adds(snapshot.files.core):
            found.update((add.partition_values["p"] or "", value) for value in _values(add, snapshot.table_uri))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOperation:
    """Something to do to a table.

    Args:
        name: For test ids.
        run: Does it; tells the observer each phase. Returns what was committed, None if nothing had to be.
        model: What it does to the rows when it runs alone.
    """

    name: str
    run: Callable[[DeltaLog, Observer], Committed | None]
    model: Callable[[Rows], Rows]


def create_table(log: DeltaLog, files: Iterable[AddFile] = (), **properties: str) -> Committed:
    """Version 0 with some files."""
    txn = start_transaction(log, backoff=_NO_PAUSE)
    txn.update_metadata(table_metadata(**properties))
    return txn.commit(list(files), Operation(name="CREATE TABLE AS SELECT"))


def append(partition: str, values: Sequence[int]) -> LogOperation:
    """A blind append of one file."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        return txn.commit([add_file(partition, values)], Operation(name="WRITE", parameters={"mode": "Append"}))

    return LogOperation(
        name="append", run=run, model=lambda rows: rows + Counter((partition, value) for value in values)
    )


def append_once(app_id: str, version: int, partition: str, values: Sequence[int]) -> LogOperation:
    """An append that a repeat of the same application version leaves out."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        seen = txn.txn_version(app_id)
        if seen is not None and seen >= version:
            return None
        mark = SetTransaction(app_id=app_id, version=version, last_updated=_NOW_MS)
        return txn.commit([mark, add_file(partition, values)], Operation(name="STREAMING UPDATE"))

    def model(rows: Rows) -> Rows:
        if rows[_MARK + app_id, version]:
            return rows
        return rows + Counter([(_MARK + app_id, version), *((partition, value) for value in values)])

    return LogOperation(name="append once", run=run, model=model)


def _without(rows: Rows, gone: Callable[[Row], bool]) -> Rows:
    return Counter({row: count for row, count in rows.items() if row[0].startswith(_MARK) or not gone(row)})


def overwrite(partition: str, values: Sequence[int]) -> LogOperation:
    """Every file goes, one comes."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        txn.read_whole_table()
        files = txn.snapshot.files
        actions: list[Action] = [add.remove(deletion_timestamp=_NOW_MS) for add in files.adds(files.core)]
        actions.append(add_file(partition, values))
        return txn.commit(actions, Operation(name="WRITE", parameters={"mode": "Overwrite"}))

    return LogOperation(
        name="overwrite",
        run=run,
        model=lambda rows: _without(rows, lambda row: True) + Counter((partition, value) for value in values),
    )


def delete_partition(partition: str) -> LogOperation:
    """The files of one partition go."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        found = txn.read_files(partition_filters=[Compare("=", Column(("p",)), Literal(partition, "string"))])
        actions: list[Action] = [add.remove(deletion_timestamp=_NOW_MS) for add in txn.snapshot.files.adds(found)]
        return txn.commit(actions, Operation(name="DELETE")) if actions else None

    return LogOperation(
        name="delete partition",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[0] == partition),
    )


def delete_value(value: int) -> LogOperation:
    """Rows with ``x = value`` go; the files that hold one are rewritten."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        found = txn.read_files(data_filters=[Compare("=", Column(("x",)), Literal(value, "long"))])
        actions: list[Action] = []
        for add in txn.snapshot.files.adds(found):
            values = _values(add, txn.snapshot.table_uri)
            kept = [item for item in values if item != value]
            if kept == values:
                continue
            actions.append(add.remove(deletion_timestamp=_NOW_MS))
            if kept:
                actions.append(add_file(add.partition_values["p"] or "", kept))
        return txn.commit(actions, Operation(name="DELETE")) if actions else None

    return LogOperation(
        name="delete value",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[1] == value),
    )


def hide_value(value: int) -> LogOperation:
    """Rows with ``x = value`` go; deletion vectors hide them."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        txn.rows_stand_alone()
        found = txn.read_files(data_filters=[Compare("=", Column(("x",)), Literal(value, "long"))])
        adds = txn.snapshot.files.adds(found)
        live = [set(_values(add, txn.snapshot.table_uri)) for add in adds]
        positions = {
            place: np.array([at for at, item in enumerate(_written(add)) if item == value], dtype=np.uint64)
            for place, add in enumerate(adds)
            if value in live[place]
        }
        output = mark_deleted(txn.snapshot, log.store, adds, positions)
        return txn.commit(output.actions, Operation(name="DELETE")) if output.removes else None

    return LogOperation(
        name="hide value",
        run=run,
        model=lambda rows: _without(rows, lambda row: row[1] == value),
    )


def compact(partition: str) -> LogOperation:
    """The files of one partition become one, with the same rows."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        txn = start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        found = txn.read_files(partition_filters=[Compare("=", Column(("p",)), Literal(partition, "string"))])
        adds = txn.snapshot.files.adds(found)
        if len(adds) < 2:
            return None
        actions: list[Action] = [add.remove(deletion_timestamp=_NOW_MS, data_change=False) for add in adds]
        values = [value for add in adds for value in _values(add, txn.snapshot.table_uri)]
        actions.append(add_file(partition, values, data_change=False))
        return txn.commit(actions, Operation(name="OPTIMIZE"))

    return LogOperation(name="compact", run=run, model=lambda rows: rows)


class _LogEngine:
    """``RearrangingEngine`` and ``UpdatingEngine`` over files without bytes, as far as the operations need one."""

    def time_zone(self) -> str:
        return "UTC"

    def match_partitions(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> pl.DataFrame:
        return files

    def bind_condition(self, snapshot: Snapshot, condition: Expr) -> BoundCondition:
        assert isinstance(condition, Compare)
        assert isinstance(condition.right, Literal)
        names = frozenset({str(condition.left)})
        return BoundCondition(
            sql=str(condition), conjuncts=(condition,), references=names, native=condition.right.value
        )

    def compact(
        self, snapshot: Snapshot, files: Sequence[AddFile], plan: pl.DataFrame, *, max_bytes: int
    ) -> RewriteOutput:
        adds = []
        for number in plan["bin"].unique(maintain_order=True):
            members = [add for add, of in zip(files, plan["bin"], strict=True) if of == number]
            values = [value for add in members for value in _values(add, snapshot.table_uri)]
            if values:
                adds.append(add_file(members[0].partition_values["p"] or "", values))
        return RewriteOutput(adds=tuple(adds), num_rows=0)

    def bind_update(self, snapshot: Snapshot, assignments: Mapping[str, int]) -> int:
        return assignments["x"]

    def match_rows(self, snapshot: Snapshot, files: pl.DataFrame, condition: BoundCondition) -> dict[int, Positions]:
        found = {}
        for place, add in enumerate(snapshot.files.adds(files)):
            live = set(_values(add, snapshot.table_uri))
            rows = [at for at, item in enumerate(_written(add)) if item == condition.native and item in live]
            if rows:
                found[place] = np.array(rows, dtype=np.uint64)
        return found

    def write_updated(
        self, snapshot: Snapshot, frame: pl.DataFrame, condition: BoundCondition, value: int, *, copy_others: bool
    ) -> RewriteOutput:
        adds, rows = [], 0
        for add in snapshot.files.adds(frame):
            count = _values(add, snapshot.table_uri).count(condition.native)
            adds.append(add_file(add.partition_values["p"] or "", [value] * count))
            rows += count
        return RewriteOutput(adds=tuple(adds), num_rows=rows)

    def discard(self, snapshot: Snapshot, adds: Sequence[AddFile | AddCDCFile]) -> None:
        """There are no bytes."""

    def committed(self, snapshot: Snapshot) -> None:
        """Nothing is cached."""


def optimize(partition: str | None = None) -> LogOperation:
    """OPTIMIZE of one partition, or of the table, as the command does it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        condition = None if partition is None else Compare("=", Column(("p",)), Literal(partition, "string"))
        return run_optimize(
            log,
            cast(RearrangingEngine, _LogEngine()),
            Settings(),
            condition=condition,
            begin=lambda log: start_transaction(log, observer=observer, backoff=_NO_PAUSE),
        ).committed

    return LogOperation(name="optimize", run=run, model=lambda rows: rows)


def update_value(value: int, new: int) -> LogOperation:
    """UPDATE of the rows with ``x = value``, as the command does it where the table writes deletion vectors."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return run_update(
            log,
            cast(UpdatingEngine, _LogEngine()),
            {"x": new},
            Compare("=", Column(("x",)), Literal(value, "long")),
            begin=lambda log: start_transaction(log, observer=observer, backoff=_NO_PAUSE),
        ).committed

    def model(rows: Rows) -> Rows:
        after = _without(rows, lambda row: row[1] == value)
        for (partition, item), count in rows.items():
            if item == value and not partition.startswith(_MARK):
                after[partition, new] += count
        return after

    return LogOperation(name="update value", run=run, model=model)


def purge() -> LogOperation:
    """REORG … APPLY (PURGE) of the table, as the command does it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return run_purge(
            log,
            cast(RearrangingEngine, _LogEngine()),
            Settings(),
            begin=lambda log: start_transaction(log, observer=observer, backoff=_NO_PAUSE),
        ).committed

    return LogOperation(name="purge", run=run, model=lambda rows: rows)


def support(feature: str) -> LogOperation:
    """One more feature in the table's protocol, as the command does it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return add_feature(
            log, feature, begin=lambda log: start_transaction(log, observer=observer, backoff=_NO_PAUSE)
        ).committed

    return LogOperation(name="support", run=run, model=lambda rows: rows)


def drop(feature: str) -> LogOperation:
    """A feature that writers alone have to know goes from the table's protocol, as the command does it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        del observer
        return drop_feature(log, feature).committed

    return LogOperation(name="drop", run=run, model=lambda rows: rows)


def clone_over(partition: str, values: Sequence[int]) -> LogOperation:
    """A shallow clone of another table takes the place of this one, as the command does it."""
    source = DeltaLog(MemoryStore(f"memory://source{uuid.uuid4().hex}/t"))
    create_table(source, [add_file(partition, values)])

    def run(log: DeltaLog, observer: Observer = SILENT) -> Committed | None:
        return clone_table(
            source,
            log,
            shallow=True,
            replace=True,
            begin=lambda log: start_transaction(log, observer=observer, backoff=_NO_PAUSE),
        ).committed

    return LogOperation(
        name="clone over",
        run=run,
        model=lambda rows: _without(rows, lambda row: True) + Counter((partition, value) for value in values),
    )


def checkpoint() -> LogOperation:
    """A checkpoint of the newest version, and the log cleaned up behind it."""

    def run(log: DeltaLog, observer: Observer = SILENT) -> None:
        snapshot = log.update()
        observer.at(READ)
        log.checkpoint(snapshot)
        observer.at("checkpoint")
        log.cleanup(_NOW_MS)

    return LogOperation(name="checkpoint", run=run, model=lambda rows: rows)
