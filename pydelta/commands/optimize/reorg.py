"""Rewrite files without the rows that their deletion vectors hide, in one commit: REORG … APPLY (PURGE).

::

    files with a vector, of the chosen partitions --bins--> live rows rewritten --> remove + add, dataChange=false
    none -> no commit

The rows are gone from the table's files once VACUUM has deleted the old ones, and not before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from pydelta.commands.engine import RearrangingEngine, rewritten_by
from pydelta.commands.optimize.plan import BIN, pack
from pydelta.commands.optimize.result import OptimizeResult, columns_with_stats, history_metrics
from pydelta.errors import DeltaError, InvalidArgumentError, error_context
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.settings import Settings
from pydelta.txn import Begin, Committed, Operation, OptimisticTransaction, start_transaction

__all__ = ["PurgeResult", "purge"]

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """What a purge did. Sizes in bytes; ``version`` is None when no file had a vector and nothing was committed."""

    version: int | None
    num_added_files: int = 0
    num_added_bytes: int = 0
    num_removed_files: int = 0
    num_removed_bytes: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vector_rows_removed: int = 0
    committed: Committed | None = field(default=None, repr=False)
    rewritten: OptimizeResult = field(default=OptimizeResult(version=None), repr=False)


def purge(
    log: DeltaLog,
    engine: RearrangingEngine,
    settings: Settings,
    *,
    condition: Any = None,
    whole: bool = False,
    begin: Begin = start_transaction,
) -> PurgeResult:
    """Rewrite the files that have deletion vectors without the rows that those hide.

    Args:
        log: The table.
        engine: Reads and writes rows.
        settings: The session's, for the size of new files.
        condition: Over partition columns alone: only their partitions are looked at.
        whole: Rewrite the other files too, with the types that their columns have now.
        begin: Begins the transaction.

    Returns:
        Counts; ``version`` is None when there was nothing to do.

    Raises:
        InvalidArgumentError: The condition names other columns than partition columns.
        ParseError, BindError: The condition does not fit the table.
        DeltaConcurrentModificationException: A file was changed meanwhile; run it again.
        StorageError: The store refused; nothing was changed.

    Protocol: "Add File and Remove File" (``dataChange``), "Deletion Vectors".
    """
    with error_context(table=log.uri):
        started = _now_ms()
        txn = begin(log).notifying(engine.committed)
        snapshot = txn.snapshot
        considered, predicate = _considered(txn, engine, condition)
        marked = considered if whole else considered.filter(pl.col("dv_id").is_not_null())
        if marked.is_empty():
            nothing = OptimizeResult(version=None, start_time_ms=started, end_time_ms=_now_ms())
            return PurgeResult(version=None, rewritten=nothing)
        target = settings.optimize_max_file_bytes or snapshot.properties.target_file_size_bytes or _GIB
        keys = [name for name in marked.columns if name.startswith("pv:")]
        plan = pack(marked, partition_by=keys, target_bytes=target)
        removed = snapshot.files.adds(plan)
        txn.mark_read(plan)
        written = engine.compact(snapshot, removed, plan, max_bytes=target)
        adds = [add.replace(data_change=False) for add in written.adds]
        vectors = [add.deletion_vector for add in removed if add.deletion_vector is not None]
        committed = _commit(txn, engine, removed, adds, predicate=predicate)
        return PurgeResult(
            version=committed.version,
            num_added_files=len(adds),
            num_added_bytes=sum(add.size for add in adds),
            num_removed_files=len(removed),
            num_removed_bytes=sum(add.size for add in removed),
            num_deletion_vectors_removed=len(vectors),
            num_deletion_vector_rows_removed=sum(vector.cardinality for vector in vectors),
            committed=committed,
            rewritten=OptimizeResult(
                version=committed.version,
                added=tuple(adds),
                removed=tuple(removed),
                num_bins=plan[BIN].n_unique(),
                num_considered=marked.height,
                start_time_ms=started,
                end_time_ms=_now_ms(),
                num_table_columns=len(snapshot.schema.fields),
                num_table_columns_with_stats=columns_with_stats(snapshot),
            ),
        )


def _considered(
    txn: OptimisticTransaction, engine: RearrangingEngine, condition: Any
) -> tuple[pl.DataFrame, str | None]:
    """The files of the partitions that the condition names, and the condition's text."""
    snapshot = txn.snapshot
    if condition is None:
        return snapshot.files.core, None
    bound = engine.bind_condition(snapshot, condition)
    partitions = {name.lower() for name in snapshot.partition_columns}
    others = sorted(name for name in bound.references if name.lower() not in partitions)
    if others:
        shown = ", ".join(snapshot.partition_columns) or "none: the table is not partitioned"
        raise InvalidArgumentError(
            f"The condition of a purge names {', '.join(others)}, but only partition columns are allowed.",
            hint=f"The partition columns are: {shown}.",
            condition=Condition.of(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE", columnName=others, columnList=snapshot.partition_columns
            ),
        )
    found = snapshot.files.select(data_filters=bound.conjuncts, time_zone=engine.time_zone())
    return engine.match_partitions(snapshot, found, bound), bound.as_given or bound.sql


def _commit(
    txn: OptimisticTransaction,
    engine: RearrangingEngine,
    removed: list[AddFile],
    adds: list[AddFile],
    *,
    predicate: str | None,
) -> Committed:
    now_ms = _now_ms()
    metrics = {**history_metrics(adds, removed), **rewritten_by(engine)}
    actions: list[Action] = [add.remove(deletion_timestamp=now_ms, data_change=False) for add in removed]
    actions += adds
    parameters = {"predicate": encode_json([predicate] if predicate else []), "applyPurge": True}
    try:
        return txn.commit(actions, Operation(name="REORG", parameters=parameters, metrics=metrics))
    except DeltaError:
        if txn.surely_not_landed:
            engine.discard(txn.snapshot, adds)
        raise


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
