"""Run a command in one call for tests: one function per command, which builds its context."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pydelta.commands.alter.command import Alter, AlterResult
from pydelta.commands.alter.features import AddFeature, DropFeature, FeatureResult, UpgradeProtocol
from pydelta.commands.alter.requests import Change
from pydelta.commands.alter.track_rows import EnableRowTracking
from pydelta.commands.change.delete import Delete, DeleteResult
from pydelta.commands.change.merge import Merge, MergeClause, MergeResult, Merging
from pydelta.commands.change.update import Update, UpdateResult
from pydelta.commands.clone import Clone, CloneResult
from pydelta.commands.convert import Convert, ConvertResult, Footers
from pydelta.commands.create import Create, CreateMode, CreateResult, TableDefinition
from pydelta.commands.engine import NO_ENGINE, Assignments, Engine
from pydelta.commands.fsck import Fsck, FsckReport
from pydelta.commands.optimize.command import Optimize, OptimizeResult
from pydelta.commands.optimize.command import compact_after_write as compact
from pydelta.commands.optimize.reorg import Purge, PurgeResult
from pydelta.commands.restore import Restore, RestoreResult
from pydelta.commands.run import Context, run
from pydelta.commands.vacuum.command import Vacuum, VacuumOptions, VacuumProgress, VacuumResult
from pydelta.commands.write.command import RowSource, Write, WriteOptions, WriteResult
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.settings import Settings
from pydelta.settings import clock as clocks
from pydelta.txn import Begin, Committed, start_transaction

__all__ = [
    "add_feature",
    "alter_table",
    "clone_table",
    "compact_after_write",
    "convert_to_delta",
    "create_table",
    "delete",
    "drop_feature",
    "enable_row_tracking",
    "fsck",
    "merge",
    "optimize",
    "purge",
    "restore",
    "update",
    "upgrade_protocol",
    "vacuum",
    "write_table",
]


def delete(
    log: DeltaLog,
    engine: Engine = NO_ENGINE,
    condition: Any = None,
    *,
    settings: Settings | None = None,
    begin: Begin = start_transaction,
) -> DeleteResult:
    """Run ``Delete``."""
    return run(Delete(condition=condition), Context(log, engine, settings=settings, begin=begin))


def update(
    log: DeltaLog,
    engine: Engine,
    assignments: Assignments,
    condition: Any = None,
    *,
    settings: Settings | None = None,
    begin: Begin = start_transaction,
) -> UpdateResult:
    """Run ``Update``."""
    command = Update(assignments=assignments, condition=condition)
    return run(command, Context(log, engine, settings=settings, begin=begin))


def merge(
    log: DeltaLog,
    engine: Engine,
    begin: Callable[[Snapshot], Merging],
    clauses: Sequence[MergeClause],
    settings: Settings | None = None,
    *,
    begin_transaction: Begin = start_transaction,
) -> MergeResult:
    """Run ``Merge``."""
    return run(Merge(begin, clauses), Context(log, engine, settings=settings, begin=begin_transaction))


def write_table(
    log: DeltaLog,
    source: RowSource,
    options: WriteOptions,
    engine: Engine = NO_ENGINE,
    settings: Settings | None = None,
    *,
    begin: Begin = start_transaction,
) -> WriteResult:
    """Run ``Write``."""
    return run(Write(source, options), Context(log, engine, settings=settings, begin=begin))


def optimize(
    log: DeltaLog,
    engine: Engine,
    settings: Settings | None = None,
    request: Optimize | None = None,
    *,
    begin: Begin = start_transaction,
) -> OptimizeResult:
    """Run ``Optimize``."""
    return run(request or Optimize(), Context(log, engine, settings=settings, begin=begin))


def compact_after_write(
    log: DeltaLog, engine: Engine, settings: Settings, committed: Committed, adds: Sequence[AddFile]
) -> OptimizeResult | None:
    """Compact after a write, as a command does."""
    context = Context(log, engine, settings=settings)
    return compact(context, committed, adds) if context.compacts(committed, adds) else None


def purge(
    log: DeltaLog,
    engine: Engine,
    settings: Settings | None = None,
    *,
    condition: Any = None,
    whole: bool = False,
    begin: Begin = start_transaction,
) -> PurgeResult:
    """Run ``Purge``."""
    return run(Purge(condition=condition, whole=whole), Context(log, engine, settings=settings, begin=begin))


def restore(
    log: DeltaLog,
    *,
    version: int | None = None,
    timestamp_ms: int | None = None,
    begin: Begin = start_transaction,
) -> RestoreResult:
    """Run ``Restore``."""
    return run(Restore(version=version, timestamp_ms=timestamp_ms), Context(log, begin=begin))


def alter_table(
    log: DeltaLog,
    change: Change,
    *,
    engine: Engine | None = None,
    user_metadata: str | None = None,
    begin: Begin = start_transaction,
) -> AlterResult:
    """Run ``Alter``."""
    return run(Alter(change, user_metadata), Context(log, engine or NO_ENGINE, begin=begin))


def create_table(
    log: DeltaLog,
    definition: TableDefinition,
    *,
    mode: CreateMode,
    settings: Settings | None = None,
    managed: bool = False,
    begin: Begin = start_transaction,
) -> CreateResult:
    """Run ``Create``."""
    command = Create(definition=definition, mode=mode, managed=managed)
    return run(command, Context(log, settings=settings, begin=begin))


def clone_table(source: DeltaLog, target: DeltaLog, *, begin: Begin = start_transaction, **how: Any) -> CloneResult:
    """Run ``Clone`` with the given further arguments."""
    return run(Clone(source=source, **how), Context(target, begin=begin))


def convert_to_delta(log: DeltaLog, footers: Footers, **how: Any) -> ConvertResult:
    """Run ``Convert`` with the given further arguments."""
    return run(Convert(footers=footers, **how), Context(log))


def vacuum(
    log: DeltaLog,
    request: Vacuum | None = None,
    *,
    progress: Callable[[VacuumProgress], None] | None = None,
    now_ms: int | None = None,
    options: VacuumOptions | None = None,
) -> VacuumResult:
    """Run ``Vacuum`` at the given time, or now."""
    command = dataclasses.replace(request or Vacuum(), progress=progress)
    if options is not None:
        command = dataclasses.replace(command, options=options)
    clock = clocks.epoch_ms if now_ms is None else lambda: now_ms
    return run(command, Context(log, clock=clock))


def fsck(log: DeltaLog, *, repair: bool = False, begin: Begin = start_transaction) -> FsckReport:
    """Run ``Fsck``."""
    return run(Fsck(repair=repair), Context(log, begin=begin))


def enable_row_tracking(log: DeltaLog, *, begin: Begin = start_transaction) -> int | None:
    """Run ``EnableRowTracking``."""
    return run(EnableRowTracking(), Context(log, begin=begin))


def upgrade_protocol(log: DeltaLog, *, reader_version: int, writer_version: int) -> FeatureResult:
    """Run ``UpgradeProtocol``."""
    return run(UpgradeProtocol(reader_version, writer_version), Context(log))


def add_feature(log: DeltaLog, name: str) -> FeatureResult:
    """Run ``AddFeature``."""
    return run(AddFeature(name), Context(log))


def drop_feature(
    log: DeltaLog,
    name: str,
    *,
    truncate_history: bool = False,
    now_ms: int | None = None,
    engine: Engine | None = None,
) -> FeatureResult:
    """Run ``DropFeature`` at the given time, or now."""
    clock = clocks.epoch_ms if now_ms is None else lambda: now_ms
    command = DropFeature(name=name, truncate_history=truncate_history)
    return run(command, Context(log, engine or NO_ENGINE, clock=clock))
