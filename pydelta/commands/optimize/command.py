"""Rewrite a table's rows into fewer files, or into an order that skips better, in at most one commit (OPTIMIZE).

::

    no columns named, table not clustered -> compaction: bins of small files, one new file per bin
    ZORDER BY columns ---------------------> all files of the chosen partitions, rows along a Z-order curve
    clustered table -----------------------> unordered files (FULL: all), rows along a Hilbert curve
    every file action has dataChange=false; without work there is no commit

Only rewritten files count as read, so appends never conflict, and a concurrent delete of one of them does. It waits
first for changes that run again after losing to a compaction (``give_way``).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
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
from pydelta.commands.engine import Engine, RewriteOutput
from pydelta.commands.optimize.plan import BIN, Layout, SizeLimits, plan_compaction, plan_layout
from pydelta.commands.optimize.result import OptimizeResult, columns_with_stats, cube_of, history_metrics
from pydelta.commands.run import Attempt, Command, Context, changes_under_way, give_way, run
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile, encode_json
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.settings import Settings
from pydelta.txn import Committed, Operation, start_transaction

__all__ = [
    "Optimize",
    "OptimizeResult",
    "PlanOptimize",
    "PlannedOptimize",
    "compact_after_write",
    "files_of_partitions",
    "rewritten_by",
]

_logger = logging.getLogger(__name__)
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize(Command[OptimizeResult]):
    """OPTIMIZE: merge small files into large ones, or order rows so that queries can skip files.

    Args:
        condition: A condition over partition columns that limits the work to these partitions.
        zorder_by: Columns (dotted for nested fields) to order rows by, all equally important.
        full: For a clustered table, order all files again, including ordered ones.
        max_files_per_partition: Compaction takes at most this many files of a partition, the smallest first.
        modified_before_ms: Consider only files older than this, epoch milliseconds.

    Raises:
        InvalidArgumentError: The condition has other columns, columns cannot order rows, or options contradict each
            other or the table.
        ParseError, BindError: The condition or a column does not fit the table.
        ConcurrentDeleteReadException: Another writer deleted a file at the same time; run it again.

    Protocol: "Add File and Remove File" (``dataChange``), "Clustered Table".
    """

    condition: Any = None
    zorder_by: Sequence[str] = ()
    full: bool = False
    max_files_per_partition: int | None = None
    modified_before_ms: int | None = None

    def wait(self, context: Context) -> None:
        """See ``Command.wait``: changes that run again after losing to a compaction go first."""
        give_way(context.log.store, most_ms=context.settings.optimize_give_way_ms)

    def execute(self, attempt: Attempt) -> OptimizeResult:
        """See ``Command.execute``."""
        run, considered = self._considered(attempt)
        return run.run(considered)

    def _considered(self, attempt: Attempt) -> tuple[_Optimize, pl.DataFrame]:
        """Return an OPTIMIZE, and the files that it considers."""
        snapshot, settings = attempt.snapshot, attempt.settings
        layout = _layout(snapshot, self.zorder_by, condition=self.condition, full=self.full)
        limits = SizeLimits(
            target_bytes=_target(snapshot, settings),
            min_bytes=settings.optimize_min_file_bytes or _target(snapshot, settings),
            max_deleted_ratio=settings.optimize_max_deleted_ratio,
            max_files_per_partition=self.max_files_per_partition,
        )
        clustered = not self.zorder_by and layout is not None
        run = _Optimize(attempt, limits, layout=layout, full=self.full, clustered=clustered)
        considered, run.predicate = files_of_partitions(attempt, self.condition, of="OPTIMIZE")
        if self.modified_before_ms is not None:
            considered = considered.filter(pl.col("modification_time") < self.modified_before_ms)
        return run, considered


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOptimize:
    """The files that an OPTIMIZE would rewrite.

    Args:
        snapshot: The version that it would read.
        files: Rows of ``snapshot.files.core``, with ``bin``: the files to merge or to lay out together.
        layout: The new order of the rows; None for compaction.
    """

    snapshot: Snapshot
    files: pl.DataFrame
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class PlanOptimize(Command[PlannedOptimize]):
    """Plan an OPTIMIZE without rewriting anything; errors are those of ``Optimize``."""

    planned: Optimize

    def execute(self, attempt: Attempt) -> PlannedOptimize:
        """See ``Command.execute``."""
        run, considered = self.planned._considered(attempt)
        return PlannedOptimize(snapshot=attempt.snapshot, files=run.plan(considered), layout=run.layout)


@dataclass(frozen=True, slots=True)
class _AutoCompaction(Command[OptimizeResult]):
    """Compaction of the partitions to which a write has added files."""

    adds: Sequence[AddFile]

    def execute(self, attempt: Attempt) -> OptimizeResult:
        """See ``Command.execute``."""
        snapshot, settings = attempt.snapshot, attempt.settings
        target = settings.auto_compact_max_file_bytes
        limits = SizeLimits(
            target_bytes=target,
            min_bytes=settings.auto_compact_min_file_bytes or target // 2,
            max_deleted_ratio=settings.optimize_max_deleted_ratio,
            min_files=settings.auto_compact_min_files,
        )
        considered, keys = snapshot.files.core, snapshot.files.spec.keys
        if keys:
            written = pl.DataFrame(
                {key: [add.partition_values.get(key[3:]) or None for add in self.adds] for key in keys},
                schema=dict.fromkeys(keys, pl.String),
            ).unique()
            considered = considered.join(written, on=keys, how="semi", nulls_equal=True)
        return _Optimize(attempt, limits, auto=True).run(considered)


def compact_after_write(context: Context, committed: Committed, adds: Sequence[AddFile]) -> OptimizeResult | None:
    """Compact those partitions of a commit that have many small files (auto-compaction).

    Call it if ``Context.compacts``. Any failure is only logged, because the commit stands.

    Args:
        context: The command's context.
        committed: Its commit.
        adds: The files that it added.

    Returns:
        What was compacted; None when nothing was.
    """
    snapshot, log = committed.snapshot, context.log
    if not context.engine.rewrites_files or clustering_paths(snapshot):
        return None
    if changes_under_way(log.store, now_ms=context.clock()):
        return None
    after = context.beginning(lambda table: start_transaction(table, snapshot))
    try:
        return run(_AutoCompaction(adds), after)
    except Exception:  # The write is committed, so this must not fail it.
        _logger.warning("auto-compaction after version %d of %s failed", committed.version, log.uri, exc_info=True)
        return None


def files_of_partitions(attempt: Attempt, condition: Any, *, of: str) -> tuple[pl.DataFrame, str | None]:
    """Return the files of the partitions that a condition selects, and the condition's text; without one, all and None.

    Args:
        attempt: The attempt whose snapshot is searched.
        condition: SQL text or an expression of the engine.
        of: The command that has the condition, for the message.

    Raises:
        InvalidArgumentError: It names columns that are not partition columns.
    """
    snapshot, bound = attempt.snapshot, attempt.bind(condition)
    if bound is None:
        return snapshot.files.core, None
    partitions = {name.lower() for name in snapshot.partition_columns}
    others = sorted(name for name in bound.references if name.lower() not in partitions)
    if others:
        shown = ", ".join(snapshot.partition_columns) or "none: the table is not partitioned"
        raise InvalidArgumentError(
            f"The condition of {of} names {', '.join(others)}, but only partition columns are allowed.",
            hint=f"The partition columns are: {shown}.",
            condition=Condition.of(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE", columnName=others, columnList=snapshot.partition_columns
            ),
        )
    found = snapshot.files.select(data_filters=bound.conjuncts, time_zone=attempt.engine.time_zone())
    return attempt.engine.match_partitions(snapshot, found, bound), bound.as_given or bound.sql


def _target(snapshot: Snapshot, settings: Settings) -> int:
    return settings.optimize_max_file_bytes or snapshot.properties.target_file_size_bytes or _GIB


def _layout(snapshot: Snapshot, zorder_by: Sequence[str], *, condition: Any, full: bool) -> Layout | None:
    """Return the new order of the rows; None for compaction."""
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
    """One OPTIMIZE in progress."""

    attempt: Attempt
    limits: SizeLimits
    layout: Layout | None = None
    full: bool = False
    clustered: bool = False
    auto: bool = False
    predicate: str | None = None
    started_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """Note the time of the start."""
        self.started_ms = self.attempt.now_ms()

    def run(self, considered: pl.DataFrame) -> OptimizeResult:
        attempt, snapshot = self.attempt, self.attempt.snapshot
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
            return replace(result, end_time_ms=attempt.now_ms())
        removed = snapshot.files.adds(plan)
        attempt.txn.mark_read(plan)
        target_bytes = self.limits.target_bytes
        if self.layout is None:
            written = attempt.engine.compact(snapshot, removed, plan, max_bytes=target_bytes)
        else:
            written = attempt.engine.lay_out(snapshot, removed, plan, layout=self.layout, target_bytes=target_bytes)
        adds = self._marked(attempt.stage(written))
        committed = self._commit(adds, removed)
        return replace(
            result,
            version=committed.version,
            committed=committed,
            added=adds,
            removed=tuple(removed),
            num_bins=plan[BIN].n_unique(),
            end_time_ms=attempt.now_ms(),
        )

    def plan(self, considered: pl.DataFrame) -> pl.DataFrame:
        """Choose the files to rewrite, and group them by number."""
        snapshot, keys = self.attempt.snapshot, self.attempt.snapshot.files.spec.keys
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
        attempt = self.attempt
        metrics = {**history_metrics(adds, removed), **rewritten_by(attempt.engine)}
        operation = Operation(name="OPTIMIZE", parameters=parameters, metrics=metrics)
        return attempt.txn.commit(attempt.rearranged(removed, adds), operation)


def rewritten_by(engine: Engine) -> Mapping[str, str]:
    """Return how the engine wrote files, for commands that search no rows."""
    return {name: way for name, way in engine.ways().items() if name == "rewrittenBy"}


def _deleted_ratios(snapshot: Snapshot, files: pl.DataFrame) -> pl.Series:
    """Return the share of each file's rows that its deletion vector hides; 1 if the file's row count is unknown."""
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
    """Return for each file the run that gave it exactly this order, and whether another engine ordered it."""
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
