"""Run the operations of a plan with this engine and no JVM, using one log per process that caches its snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from pydelta.api.python.local import LocalTable
from pydelta.commands.change.delete import Delete
from pydelta.commands.change.update import Update
from pydelta.commands.optimize.command import Optimize
from pydelta.commands.restore import Restore
from pydelta.commands.run import Context, run
from pydelta.commands.vacuum.command import Vacuum, VacuumOptions
from pydelta.commands.write.command import Write
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.engines.arrow.sources import ArrowRows
from pydelta.errors import (
    CommitStateUnknownError,
    DeltaConcurrentModificationException,
    DeltaError,
    ObjectNotFoundError,
    StorageError,
    UnsafeOperationError,
    UnsafeStoreError,
    UnsupportedFeatureError,
    VersionNotFoundError,
    first_line,
)
from pydelta.log import DeltaLog
from pydelta.protocol.actions import CommitInfo
from pydelta.tools.certify.history import PlannedStep, Row, Trouble, rows_written

__all__ = ["SCHEMA", "Failed", "LocalWorker", "StepDone", "failure_of", "op_of", "table_of", "tuples_of", "version_of"]

SCHEMA = pa.schema([("op", pa.string()), ("n", pa.int64()), ("k", pa.int64()), ("rev", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """The result of an operation; see ``Event``."""

    version: int | None = None
    rows: tuple[Row, ...] | None = None
    target: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The failure of an operation; see ``Event``."""

    known: bool
    trouble: Trouble
    error: str


def table_of(step: PlannedStep) -> pa.Table:
    """Build the rows that an operation writes."""
    rows = rows_written(step)
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def tuples_of(table: pa.Table) -> tuple[Row, ...]:
    """Return the rows of a table, sorted."""
    columns = [table.column(name).to_pylist() for name in SCHEMA.names]
    return tuple(sorted(zip(*columns, strict=True)))


def failure_of(error: Exception) -> Failed:
    """Classify an error of this engine: whether its outcome is known, and whether a conflict or the store caused it."""
    reason = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, CommitStateUnknownError):
        return Failed(known=False, trouble="store", error=reason)
    if isinstance(error, DeltaConcurrentModificationException):
        return Failed(known=True, trouble="conflict", error=reason)
    if isinstance(error, (UnsafeOperationError, VersionNotFoundError, UnsupportedFeatureError)):
        return Failed(known=True, trouble="refused", error=reason)
    if isinstance(error, StorageError) and not isinstance(error, (UnsafeStoreError, ObjectNotFoundError)):
        return Failed(known=True, trouble="store", error=reason)
    return Failed(known=isinstance(error, DeltaError), trouble="broken", error=reason)


def version_of(log: DeltaLog, op: str) -> int | None:
    """Find the version that names an operation, for engines that do not return the version they committed."""
    for limit in (20, None):
        for record in log.history(limit):
            if record.commit_info is not None and op_of(record.commit_info) == op:
                return record.version
    return None


def op_of(info: CommitInfo) -> str | None:
    """Return the operation that a commit names in its metadata or, if Trino made it, after the user's name."""
    named = info.get("userMetadata")
    if named is None and (user := info.get("userName")) and str(user).startswith("certify_"):
        return str(user).partition("/")[2] or None
    return None if named is None else str(named)


class LocalWorker:
    """Runs operations on a table.

    Args:
        uri: Location of the table.
        options: Options of its store.
        process: Number of the process, which names its stream.
    """

    def __init__(self, uri: str, options: Mapping[str, str], process: int) -> None:
        self._log = DeltaLog.for_table(uri, options=options)
        self._settings = self._log.settings
        self._process = process

    def run(self, step: PlannedStep) -> StepDone:
        """Run an operation.

        Raises:
            DeltaError: It failed, or its outcome is unknown.
        """
        self._log.settings = replace(self._settings, user_metadata=step.op)
        done: StepDone = getattr(self, "_" + step.kind)(step)
        return done

    @property
    def _context(self) -> Context:
        """A context with the settings that the step has set."""
        return Context(self._log, ArrowEngine(self._log))

    def failure(self, error: Exception) -> Failed:
        """Classify an error."""
        return failure_of(error)

    def close(self) -> None:
        """Do nothing, because there is nothing to stop."""

    def _write(self, step: PlannedStep, options: WriteOptions) -> StepDone:
        log = self._log
        rows = ArrowRows(log, log.update(), table_of(step))
        return StepDone(version=run(Write(rows, options), self._context).version)

    def _append(self, step: PlannedStep) -> StepDone:
        return StepDone(version=LocalTable(self._log).append(table_of(step)).version)

    def _stream(self, step: PlannedStep) -> StepDone:
        number = int(step.op.partition("-")[2])
        options = WriteOptions(mode=WriteMode.APPEND, txn_app_id=f"certify-{self._process}", txn_version=number)
        return self._write(step, options)

    def _replace(self, step: PlannedStep) -> StepDone:
        return self._write(step, WriteOptions(mode=WriteMode.OVERWRITE, replace_where=f"k = {step.key}"))

    def _delete(self, step: PlannedStep) -> StepDone:
        return StepDone(version=run(Delete(condition=f"k = {step.key}"), self._context).version)

    def _update(self, step: PlannedStep) -> StepDone:
        command = Update(assignments=[("rev", f"'{step.op}'")], condition=f"k = {step.key}")
        return StepDone(version=run(command, self._context).version)

    def _optimize(self, step: PlannedStep) -> StepDone:
        del step
        return StepDone(version=run(Optimize(), self._context).version)

    def _vacuum(self, step: PlannedStep) -> StepDone:
        del step
        options = VacuumOptions(list_workers=1, delete_workers=1)
        result = run(Vacuum(options=options), self._context)
        return StepDone(version=result.end_version)

    def _restore(self, step: PlannedStep) -> StepDone:
        target = max(self._log.update().version - step.back, 0)
        return StepDone(version=run(Restore(version=target), self._context).version, target=target)

    def _checkpoint(self, step: PlannedStep) -> StepDone:
        del step
        return StepDone(version=self._log.checkpoint().version)

    def _read(self, step: PlannedStep) -> StepDone:
        del step
        snapshot = self._log.update()
        return StepDone(version=snapshot.version, rows=tuples_of(LocalTable(self._log).scan(version=snapshot.version)))
