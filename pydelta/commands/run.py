"""Run a command: this module does what all of them share, and a command adds its own part.

::

    run(command, context)
      statement   a change of rows waits for others that run again, and runs again after a conflict over rows
        attempt   begin -> table exists -> append-only -> txnVersion -> the command: reads, plans, writes, commits
          fails   its staged files are deleted, if no commit of it can have landed
          unknown its staged files stay: they may be part of a version

After the commit the transaction notifies its observers, including the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydelta.commands.engine import NO_ENGINE, BoundCondition, Engine, RewriteOutput
from pydelta.commands.statement import Statement
from pydelta.errors import (
    CommitStateUnknownError,
    DeltaConcurrentModificationException,
    DeltaError,
    TableNotFoundError,
    UnsafeOperationError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, AddCDCFile, AddFile
from pydelta.settings import Settings
from pydelta.settings.clock import Clock, elapsed_ms, epoch_ms
from pydelta.storage.discarding import discard
from pydelta.txn import Begin, Committed, OptimisticTransaction, start_transaction

__all__ = ["Attempt", "Command", "Context", "Refusal", "Task", "existing_table", "refuse_append_only", "run"]

R = TypeVar("R")


class Context:
    """The arguments that all commands share; immutable.

    Args:
        log: The table.
        engine: Reads and writes rows. Without one, a command that needs rows is refused.
        settings: The session's settings; by default those that the log was opened with.
        begin: Begins a transaction.
        clock: Epoch milliseconds, for timestamps in the log.
    """

    __slots__ = ("begin", "clock", "engine", "log", "settings")

    def __init__(
        self,
        log: DeltaLog,
        engine: Engine = NO_ENGINE,
        *,
        settings: Settings | None = None,
        begin: Begin = start_transaction,
        clock: Clock = epoch_ms,
    ) -> None:
        self.log = log
        self.engine = engine
        self.settings = log.settings if settings is None else settings
        self.begin = begin
        self.clock = clock

    def start(self) -> OptimisticTransaction:
        """Begin a transaction, and notify the engine of its commit."""
        return self.begin(self.log).notifying(self.engine.committed)

    def compacts(self, committed: Committed, adds: Sequence[AddFile]) -> bool:
        """Return whether the session, or else the table, wants files that a commit added to be compacted."""
        wanted = self.settings.auto_compact
        return bool(adds and (committed.snapshot.properties.auto_compact if wanted is None else wanted))

    def beginning(self, begin: Begin) -> Context:
        """Return a copy that begins transactions in another way."""
        return Context(self.log, self.engine, settings=self.settings, begin=begin, clock=self.clock)


class Refusal(NamedTuple):
    """How an append-only table refuses a change.

    Args:
        what: Ends the sentence "This table is append-only, so …".
        hint: What to do.
    """

    what: str
    hint: str = "Set delta.appendOnly to false first, if you really want to change rows."


class Task(Generic[R]):
    """A command that needs no transaction, or begins several. A task is a value."""

    __slots__ = ()

    def perform(self, context: Context) -> R:
        """Do all of the work."""
        raise NotImplementedError


class Command(Generic[R]):
    """The command-specific part of a single transaction; ``run`` does the rest. A command is a value."""

    __slots__ = ()

    makes_table: ClassVar[bool] = False
    """Whether it may run where no table exists."""
    is_statement: ClassVar[bool] = False
    """Whether it changes rows, and runs again when another writer changed rows that it had read."""

    not_found: ClassVar[Condition | None] = None
    """The error condition if there is no table; None for the usual one."""

    def append_only(self) -> Refusal | None:
        """Return how an append-only table refuses the command; None if it does not, or if that is decided later."""
        return None

    def transaction(self, settings: Settings) -> tuple[str | None, int | None]:
        """Return the application and version for which the command runs only once ("Transaction Identifiers")."""
        del settings
        return None, None

    def skipped(self, attempt: Attempt) -> R:
        """Return the result if the table already has that application's version, or a later one."""
        raise NotImplementedError

    def wait(self, context: Context) -> None:
        """Wait for other writers that have precedence, before the table is read."""

    def execute(self, attempt: Attempt) -> R:
        """Read, plan, write and commit once."""
        raise NotImplementedError

    def tries_again(self, lost: DeltaConcurrentModificationException, attempt: Attempt, tries: int) -> bool:
        """Return whether to begin again at once after losing to another writer; ``tries`` attempts have been made."""
        del lost, attempt, tries
        return False


@dataclass(slots=True)
class Attempt:
    """One attempt of a command: its transaction, and the files staged so far.

    Args:
        context: The command's context.
        txn: The transaction.
        statement: The statement that the attempt belongs to.
        started: When the command began, by ``time.monotonic()``.
        is_repeatable: Returns whether the command's input is independent of the table, so that the statement may run
            again after a conflict; set by commands whose input may not be.
    """

    context: Context
    txn: OptimisticTransaction
    statement: Statement
    started: float
    is_repeatable: Callable[[], bool] = lambda: True
    _files: list[AddFile | AddCDCFile] = field(default_factory=list)
    _vectors: list[str] = field(default_factory=list)

    @property
    def log(self) -> DeltaLog:
        """The table."""
        return self.context.log

    @property
    def engine(self) -> Engine:
        """The engine that reads and writes rows."""
        return self.context.engine

    @property
    def settings(self) -> Settings:
        """The session's settings."""
        return self.context.settings

    @property
    def snapshot(self) -> Snapshot:
        """The version that the attempt reads."""
        return self.txn.snapshot

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the command began."""
        return elapsed_ms(self.started)

    @property
    def notes(self) -> Mapping[str, int | str]:
        """Notes for the history, besides counts: how rows were read and written, and why the command was run again."""
        return {**self.engine.ways(), **self.statement.metrics}

    def now_ms(self) -> int:
        """Return the time, in epoch milliseconds."""
        return self.context.clock()

    def bind(self, condition: Any) -> BoundCondition | None:
        """Resolve a condition against the table; None stays None."""
        return None if condition is None else self.engine.bind_condition(self.snapshot, condition)

    def rearranged(self, removed: Sequence[AddFile], adds: Sequence[AddFile]) -> list[Action]:
        """Return the actions that replace files by others without changing a row."""
        now = self.now_ms()
        actions: list[Action] = [add.remove(deletion_timestamp=now, data_change=False) for add in removed]
        return [*actions, *adds]

    def stage(self, written: RewriteOutput) -> RewriteOutput:
        """Note files for the commit, to be deleted if there is none."""
        self._files += written.files
        return written

    def stage_vectors(self, paths: tuple[str, ...]) -> None:
        """Note files of deletion vectors for the commit likewise, relative to the table."""
        self._vectors += paths

    def discard(self) -> None:
        """Delete the staged files. Call it only when no commit of them can have landed."""
        self.engine.discard(self.snapshot, self._files)
        if self._vectors:
            discard(self.log.store, self._vectors)

    @property
    def num_staged(self) -> int:
        """The number of staged files with rows."""
        return len(self._files)


def run(command: Command[R] | Task[R], context: Context) -> R:
    """Run a command.

    Args:
        command: What to do.
        context: The table, the engine and the settings.

    Raises:
        TableNotFoundError: There is no table, and the command does not create one.
        UnsafeOperationError: The table is append-only, and rows would be removed.
        DeltaConcurrentModificationException: Another transaction won; nothing was changed.
        CommitStateUnknownError: The reply to the commit was lost for good.
        StorageError: The store refused; nothing was changed.
        And what the command itself raises.
    """
    if isinstance(command, Task):
        with error_context(table=context.log.uri):
            return command.perform(context)
    started = time.monotonic()
    statement = Statement(context.log, context.engine)
    latest: list[Attempt] = []

    def attempts() -> R:
        tries = 1
        while True:
            txn = context.start()
            attempt = Attempt(context, txn, statement, started)
            latest[:] = [attempt]
            try:
                return _attempt(command, attempt)
            except DeltaConcurrentModificationException as lost:
                if not command.tries_again(lost, attempt, tries):
                    raise
                tries += 1

    with error_context(table=context.log.uri):
        command.wait(context)
        if not command.is_statement:
            return attempts()
        return statement.run(attempts, is_fixed=lambda: latest[0].is_repeatable())


def _attempt(command: Command[R], attempt: Attempt) -> R:
    if not command.makes_table:
        existing_table(attempt.snapshot, condition=command.not_found)
    attempt.statement.begins_on(attempt.snapshot)
    refusal = command.append_only()
    if refusal is not None:
        refuse_append_only(attempt.snapshot, refusal)
    app_id, version = command.transaction(attempt.settings)
    if app_id is not None and version is not None and not attempt.txn.commit_once(app_id, version):
        return command.skipped(attempt)
    try:
        return command.execute(attempt)
    except CommitStateUnknownError as unknown:
        unknown.hint = f"{unknown.hint or ''} {_count(attempt.num_staged)} written for it and kept.".strip()
        raise
    except Exception as error:
        if not attempt.txn.surely_not_landed:
            raise  # It is committed, and a later step failed: the files belong to the version.
        attempt.discard()
        if isinstance(error, DeltaError) and attempt.num_staged:
            error.hint = f"{error.hint or ''} {_count(attempt.num_staged)} staged; no version was made of them.".strip()
        raise


def existing_table(snapshot: Snapshot, *, condition: Condition | None = None) -> Snapshot:
    """Return the snapshot if its table exists.

    Args:
        snapshot: A log's snapshot.
        condition: The error's condition; None for the usual one.

    Raises:
        TableNotFoundError: There is no table.
    """
    if snapshot.version < 0:
        raise TableNotFoundError.at(snapshot.table_uri, condition=condition)
    return snapshot


def refuse_append_only(snapshot: Snapshot, refusal: Refusal) -> None:
    """Check that rows of the table may be removed.

    Raises:
        UnsafeOperationError: ``delta.appendOnly`` is on.
    """
    if snapshot.version >= 0 and snapshot.properties.append_only:
        raise UnsafeOperationError(
            f"This table is append-only (delta.appendOnly=true), so {refusal.what}.",
            hint=refusal.hint,
            table=snapshot.table_uri,
            condition=Condition.of(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY", table_name=snapshot.table_uri, config="delta.appendOnly"
            ),
        )


def _count(files: int) -> str:
    return "1 file was" if files == 1 else f"{files} files were"
