"""Rewrite a table's rows into fewer files, or into an order that skips better, in at most one commit (OPTIMIZE).

::

    no columns named, table not clustered -> compaction: bins of small files, one new file a bin
    ZORDER BY columns ---------------------> all files of the chosen partitions, rows along a Z-order curve
    clustered table -----------------------> files in no order yet (FULL: all), rows along a Hilbert curve
    every file action says dataChange=false; without work there is no commit

Only the files that are rewritten count as read: appends never conflict, and a concurrent delete of one of them does.
Changes that were lost to a compaction and are run again go first (``give_way``).
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import polars as pl

from pydelta.commands.alter.clustering import (
    PROVIDER,
    ZCUBE_COLUMNS,
    ZCUBE_ID,
    clustering_paths,
    layout_paths,
    path_text,
)
from pydelta.commands.engine import Engine, RearrangingEngine, RewriteOutput, rewritten_by
from pydelta.commands.give_way import changes_under_way, give_way
from pydelta.commands.optimize.plan import BIN, Layout, SizeLimits, plan_compaction, plan_layout
from pydelta.commands.optimize.result import OptimizeResult, columns_with_stats, cube_of, history_metrics
from pydelta.errors import DeltaError, InvalidArgumentError, error_context
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.settings import Settings
from pydelta.txn import Begin, Committed, Operation, OptimisticTransaction, start_transaction

__all__ = [
    "OptimizeRequest",
    "OptimizeResult",
    "PlannedOptimize",
    "compact_after_change",
    "compact_after_write",
    "optimize",
    "plan_optimize",
]

_logger = logging.getLogger(__name__)
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What to rewrite.

    Args:
        condition: Over partition columns alone: only their partitions are looked at.
        zorder_by: Columns (dotted for nested fields) to order rows by, none more important than another.
        full: Of a clustered table, order all files anew, also those in order already.
        max_files_per_partition: Compaction takes at most this many files of a partition, the smallest first.
        modified_before_ms: Look only at files older than this, epoch milliseconds.
    """

    condition: Any = None
    zorder_by: Sequence[str] = ()
    full: bool = False
    max_files_per_partition: int | None = None
    modified_before_ms: int | None = None


_BY_DEFAULT: Final = OptimizeRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOptimize:
    """What an OPTIMIZE would rewrite.

    Args:
        snapshot: The version that it would read.
        files: Rows of ``snapshot.files.core``, with ``bin``: which become one new file, or are laid out together.
        layout: The order that rows would be put in; None for compaction.
    """

    snapshot: Snapshot
    files: pl.DataFrame
    layout: Layout | None


def optimize(
    log: DeltaLog,
    engine: RearrangingEngine,
    settings: Settings,
    request: OptimizeRequest = _BY_DEFAULT,
    *,
    begin: Begin = start_transaction,
) -> OptimizeResult:
    """Rewrite small files into large ones, or rows into an order that lets queries skip files.

    Args:
        log: The table.
        engine: Reads and writes rows.
        settings: The session's, for sizes.
        request: What to rewrite.
        begin: Begins the transaction.

    Returns:
        What was rewritten.

    Raises:
        InvalidArgumentError: A condition over other columns; columns that cannot order rows; options that do not go
            together or with the table.
        ParseError, BindError: The condition or a column does not fit the table.
        ConcurrentDeleteReadException: A file was deleted meanwhile; run it again.
        StorageError: The store refused; nothing was changed.

    Protocol: "Add File and Remove File" (``dataChange``), "Clustered Table".
    """
    with error_context(table=log.uri):
        give_way(log.store, most_ms=settings.optimize_give_way_ms)
        run, considered = _considered(begin(log).notifying(engine.committed), engine, settings, request)
        return run.run(considered)


def plan_optimize(
    log: DeltaLog, engine: RearrangingEngine, settings: Settings, request: OptimizeRequest = _BY_DEFAULT
) -> PlannedOptimize:
    """Tell what ``optimize`` would rewrite, and rewrite nothing; arguments and errors are those of ``optimize``."""
    with error_context(table=log.uri):
        run, considered = _considered(start_transaction(log), engine, settings, request)
        return PlannedOptimize(snapshot=run.txn.snapshot, files=run.plan(considered), layout=run.layout)


def _considered(
    txn: OptimisticTransaction, engine: RearrangingEngine, settings: Settings, request: OptimizeRequest
) -> tuple[_Optimize, pl.DataFrame]:
    """An OPTIMIZE, and the files that it looks at."""
    layout = _layout(txn.snapshot, request.zorder_by, condition=request.condition, full=request.full)
    limits = SizeLimits(
        target_bytes=_target(txn.snapshot, settings),
        min_bytes=settings.optimize_min_file_bytes or _target(txn.snapshot, settings),
        max_deleted_ratio=settings.optimize_max_deleted_ratio,
        max_files_per_partition=request.max_files_per_partition,
    )
    clustered = not request.zorder_by and layout is not None
    run = _Optimize(txn, engine, limits, layout=layout, full=request.full, clustered=clustered)
    considered = run.choose(request.condition)
    if request.modified_before_ms is not None:
        considered = considered.filter(pl.col("modification_time") < request.modified_before_ms)
    return run, considered


def compact_after_change(
    log: DeltaLog, engine: Engine, settings: Settings | None, committed: Committed, adds: Sequence[AddFile]
) -> OptimizeResult | None:
    """Run ``compact_after_write`` for a command whose engine and settings may not be there for it."""
    if settings is None or not isinstance(engine, RearrangingEngine):
        return None
    return compact_after_write(log, engine, settings, committed, adds)


def compact_after_write(
    log: DeltaLog, engine: RearrangingEngine, settings: Settings, committed: Committed, adds: Sequence[AddFile]
) -> OptimizeResult | None:
    """Compact, after a write, those of its partitions that have many small files (auto-compaction).

    It happens where ``delta.autoOptimize.autoCompact`` (or the session) asks for it. Whatever goes wrong is logged
    and goes no further: the write has been committed.

    Args:
        log: The table.
        engine: Reads and writes rows.
        settings: The session's.
        committed: The write.
        adds: The files that it added.

    Returns:
        What was compacted; None when nothing was.
    """
    snapshot = committed.snapshot
    wanted = settings.auto_compact if settings.auto_compact is not None else snapshot.properties.auto_compact
    if not wanted or not adds or clustering_paths(snapshot):
        return None
    if changes_under_way(log.store, now_ms=_now_ms()):
        return None
    target = settings.auto_compact_max_file_bytes
    limits = SizeLimits(
        target_bytes=target,
        min_bytes=settings.auto_compact_min_file_bytes or target // 2,
        max_deleted_ratio=settings.optimize_max_deleted_ratio,
        min_files=settings.auto_compact_min_files,
    )
    try:
        with error_context(table=log.uri):
            txn = start_transaction(log, snapshot).notifying(engine.committed)
            keys = _keys(snapshot)
            considered = snapshot.files.core
            if keys:
                written = pl.DataFrame(
                    {key: [add.partition_values.get(key[3:]) or None for add in adds] for key in keys},
                    schema=dict.fromkeys(keys, pl.String),
                ).unique()
                considered = considered.join(written, on=keys, how="semi", nulls_equal=True)
            return _Optimize(txn, engine, limits, auto=True).run(considered)
    except Exception:  # the write stands, whatever becomes of this
        _logger.warning("auto-compaction after version %d of %s failed", committed.version, log.uri, exc_info=True)
        return None


def _target(snapshot: Snapshot, settings: Settings) -> int:
    return settings.optimize_max_file_bytes or snapshot.properties.target_file_size_bytes or _GIB


def _keys(snapshot: Snapshot) -> list[str]:
    """The partition columns of the file table's frames."""
    return [name for name in snapshot.files.core.columns if name.startswith("pv:")]


def _layout(snapshot: Snapshot, zorder_by: Sequence[str], *, condition: Any, full: bool) -> Layout | None:
    """The order that rows are put in; None for compaction."""
    clustered_by = clustering_paths(snapshot)
    if clustered_by:
        if zorder_by:
            raise InvalidArgumentError(
                "The table is clustered, and ZORDER BY would undo that order.",
                hint="Call executeCompaction(), which clusters by "
                f"{', '.join(path_text(path) for path in clustered_by)}.",
                condition=Condition.of("DELTA_CLUSTERING_WITH_ZORDER_BY", zOrderBy=zorder_by),
            )
        if condition is not None:
            raise InvalidArgumentError(
                "A clustered table has no partitions for a condition to choose.",
                hint="Leave where(…) out.",
                condition=Condition.of("DELTA_CLUSTERING_WITH_PARTITION_PREDICATE", predicates=condition),
            )
        names = [path_text(path) for path in clustered_by]
        return Layout(columns=layout_paths(snapshot, names, purpose="CLUSTER BY"), curve="hilbert")
    if full:
        raise InvalidArgumentError(
            "FULL reorders the files of a clustered table, but this table is not clustered.",
            hint="Leave it out, or create the table with clusterBy.",
            condition=Condition.of("DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"),
        )
    if not zorder_by:
        return None
    return Layout(columns=layout_paths(snapshot, zorder_by, purpose="ZORDER BY"), curve="zorder")


@dataclass(slots=True)
class _Optimize:
    """One OPTIMIZE under way."""

    txn: OptimisticTransaction
    engine: RearrangingEngine
    limits: SizeLimits
    layout: Layout | None = None
    full: bool = False
    clustered: bool = False
    auto: bool = False
    predicate: str | None = None
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def choose(self, condition: Any) -> pl.DataFrame:
        """The files of the partitions that the condition names; all without one."""
        snapshot = self.txn.snapshot
        if condition is None:
            return snapshot.files.core
        bound = self.engine.bind_condition(snapshot, condition)
        partitions = {name.lower() for name in snapshot.partition_columns}
        others = sorted(name for name in bound.references if name.lower() not in partitions)
        if others:
            shown = ", ".join(snapshot.partition_columns) or "none: the table is not partitioned"
            raise InvalidArgumentError(
                f"The condition of OPTIMIZE names {', '.join(others)}, but only partition columns are allowed.",
                hint=f"The partition columns are: {shown}.",
                condition=Condition.of(
                    "DELTA_NON_PARTITION_COLUMN_REFERENCE", columnName=others, columnList=snapshot.partition_columns
                ),
            )
        self.predicate = bound.as_given or bound.sql
        zone = self.engine.time_zone()
        found = snapshot.files.select(data_filters=bound.conjuncts, time_zone=zone)
        return self.engine.match_partitions(snapshot, found, bound)

    def run(self, considered: pl.DataFrame) -> OptimizeResult:
        snapshot = self.txn.snapshot
        plan = self.plan(considered)
        result = OptimizeResult(
            version=None,
            num_considered=considered.height,
            start_time_ms=self.started_ms,
            layout=self.layout,
            clustered=self.clustered,
            num_table_columns=len(snapshot.schema.fields),
            num_table_columns_with_stats=columns_with_stats(snapshot),
        )
        if plan.is_empty():
            return replace(result, end_time_ms=_now_ms())
        removed = snapshot.files.adds(plan)
        self.txn.mark_read(plan)
        if self.layout is None:
            written = self.engine.compact(snapshot, removed, plan, max_bytes=self.limits.target_bytes)
        else:
            written = self.engine.lay_out(
                snapshot, removed, plan, layout=self.layout, target_bytes=self.limits.target_bytes
            )
        adds = self._marked(written)
        committed = self._commit(adds, removed)
        return replace(
            result,
            version=committed.version,
            committed=committed,
            added=adds,
            removed=tuple(removed),
            num_bins=plan[BIN].n_unique(),
            end_time_ms=_now_ms(),
        )

    def plan(self, considered: pl.DataFrame) -> pl.DataFrame:
        """Choose the files to rewrite, and number what goes together."""
        snapshot, keys = self.txn.snapshot, _keys(self.txn.snapshot)
        if self.layout is None:
            rated = considered.with_columns(_deleted_ratios(snapshot, considered))
            plan = plan_compaction(rated, partition_by=keys, limits=self.limits)
            return plan.drop("deleted_ratio")
        marked = considered.with_columns(*_orders(snapshot, considered, self.layout, clustered=self.clustered))
        plan = plan_layout(
            marked,
            partition_by=keys,
            small_bytes=max(self.limits.target_bytes // 2, 1),
            incremental=self.clustered and not self.full,
        )
        return plan.drop("group", "foreign")

    def _marked(self, written: RewriteOutput) -> tuple[AddFile, ...]:
        changes: dict[str, Any] = {"data_change": False}
        if self.clustered and self.layout is not None:
            columns = json.dumps([path_text(path) for path in self.layout.columns], ensure_ascii=False)
            changes |= {
                "clustering_provider": PROVIDER,
                "tags": {ZCUBE_ID: str(uuid.uuid4()), ZCUBE_COLUMNS: columns},
            }
        return tuple(add.replace(**changes) for add in written.adds)

    def _commit(self, adds: Sequence[AddFile], removed: Sequence[AddFile]) -> Committed:
        names = [path_text(path) for path in self.layout.columns] if self.layout else []
        parameters: dict[str, Any] = {
            "predicate": encode_json([self.predicate] if self.predicate else []),
            "zOrderBy": encode_json(names if not self.clustered else []),
            "clusterBy": encode_json(names if self.clustered else []),
            "auto": self.auto,
        }
        if self.clustered:
            parameters["isFull"] = self.full
        now_ms = _now_ms()
        actions: list[Action] = [add.remove(deletion_timestamp=now_ms, data_change=False) for add in removed]
        actions += adds
        metrics = {**history_metrics(adds, removed), **rewritten_by(self.engine)}
        operation = Operation(name="OPTIMIZE", parameters=parameters, metrics=metrics)
        try:
            return self.txn.commit(actions, operation)
        except DeltaError:
            if self.txn.surely_not_landed:
                self.engine.discard(self.txn.snapshot, adds)
            raise


def _deleted_ratios(snapshot: Snapshot, files: pl.DataFrame) -> pl.Series:
    """Part of each file's rows that its deletion vector hides; 1 where the file does not say how many rows it has."""
    ratios = pl.repeat(0.0, files.height, dtype=pl.Float64, eager=True).alias("deleted_ratio")
    with_vector = files["dv_id"].is_not_null().arg_true()
    if with_vector.is_empty():
        return ratios
    found = []
    for add in snapshot.files.adds(files[with_vector]):
        deleted = add.deletion_vector.cardinality if add.deletion_vector else 0
        rows = _num_records(add)
        found.append(deleted / rows if rows else float(deleted > 0))
    return ratios.scatter(with_vector, found)


def _num_records(add: AddFile) -> int | None:
    try:
        count = msgspec.json.decode(add.stats).get("numRecords") if add.stats else None
    except (*MALFORMED_JSON, AttributeError):
        return None
    return count if isinstance(count, int) else None


def _orders(snapshot: Snapshot, files: pl.DataFrame, layout: Layout, *, clustered: bool) -> list[pl.Series]:
    """For each file the run that put it in this very order, and whether another engine answers for its order."""
    groups: list[str | None] = [None] * files.height
    foreign = [False] * files.height
    if clustered:
        columns = [path_text(path) for path in layout.columns]
        for number, add in enumerate(snapshot.files.adds(files)):
            foreign[number] = add.clustering_provider not in (None, PROVIDER)
            if add.clustering_provider == PROVIDER and _cube_columns(add) == columns:
                groups[number] = cube_of(add)
    return [pl.Series("group", groups, dtype=pl.String), pl.Series("foreign", foreign, dtype=pl.Boolean)]


def _cube_columns(add: AddFile) -> list[str] | None:
    try:
        found = msgspec.json.decode((add.tags or {}).get(ZCUBE_COLUMNS) or "null")
    except MALFORMED_JSON:
        return None
    return found if isinstance(found, list) else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
