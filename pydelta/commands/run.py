"""Run a command: this module does what all of them share, and a command adds its own part.

::

    run(command, context)
      statement   a change of rows waits for others that run again, and runs again after a conflict over rows
        attempt   begin -> table exists -> append-only -> txnVersion -> the command: reads, plans, writes, commits
          fails   its staged files are deleted, if no commit of it can have landed
          unknown its staged files stay: they may be part of a version

After the commit the transaction notifies its observers, including the engine.

Each attempt is a separate transaction over the newest version, so it commits the statement's effect on that version,
as if the statement had been sent later. The statement's inputs stay the same: its clock and zone, and the source of a
MERGE as first read. See ADR 0011 and 0030.

::

    change that is run again --> writes ``_pydelta/changing/<uuid>`` on each retry, and deletes it when it is done
    change that begins ------------------> a recent announcement: waits, up to a short bound
    OPTIMIZE, before it reads the table --> an announcement: waits, up to a bound
    auto-compaction ----------------------> an announcement: leaves the work to the next one

A commit over the same files costs a running change all of its work, while one that waits before it reads loses none.
Without the wait, long changes would always lose to short ones. Nothing depends on the announcement: it may be late,
lost, or left by a process that died; others delete it when it is old.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from pydelta.commands.engine import NO_ENGINE, BoundCondition, Engine, RewriteOutput
from pydelta.errors import (
    CommitStateUnknownError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
    DeltaError,
    TableNotFoundError,
    UnsafeOperationError,
    error_context,
)
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.actions import Action, AddCDCFile, AddFile
from pydelta.protocol.identity import only_marks_moved
from pydelta.settings import Settings
from pydelta.settings.clock import Clock, elapsed_ms, epoch_ms
from pydelta.storage.discarding import discard
from pydelta.storage.interface import Store
from pydelta.txn import Begin, Committed, Operation, OptimisticTransaction, start_transaction
from pydelta.txn.hooks import RefusedCommit, run_refusal_hooks

__all__ = [
    "ANY",
    "FOLDER",
    "REARRANGED",
    "Attempt",
    "Command",
    "Context",
    "Refusal",
    "Statement",
    "Task",
    "announced",
    "changes_under_way",
    "commit_alone",
    "existing_table",
    "give_way",
    "refuse_append_only",
    "run",
    "runs_again",
]

_logger: Final = logging.getLogger(__name__)
R = TypeVar("R")

REARRANGED: Final = "rearranged"
"""Run again if the winner only moved rows to other files."""
ANY: Final = "any"
"""Run again after any conflict over rows."""
_YOUNG_MS: Final = 30_000
"""Announcements older than this are not waited for, because their process may have died."""
_LOOK_AGAIN_MS: Final = 50
FOLDER: Final = "_pydelta/changing"
_STALE_MS: Final = 15 * 60_000
_COMMITS_ALONE: Final = 5
_OVER_ROWS: Final = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


def runs_again(lost: DeltaConcurrentModificationException, *, retry_on: str, retries: int, most: int) -> bool:
    """Return whether a statement that lost is run again. Pure.

    Args:
        lost: The conflict.
        retry_on: ``REARRANGED`` or ``ANY``.
        retries: How often it was already run again.
        most: The maximum of retries.

    Returns:
        Always False after a conflict over the table's definition or over an application's versions.
    """
    if retries >= most or not isinstance(lost, _OVER_ROWS):
        return False
    return retry_on == ANY or lost.winner_only_rearranged


class Statement:
    """One statement of a user, over all of its attempts.

    Args:
        log: The table.
        engine: Notified when the statement is run again.
    """

    def __init__(self, log: DeltaLog, engine: Engine) -> None:
        self._log = log
        self._engine = engine
        self._first: Snapshot | None = None
        self._lost: DeltaConcurrentModificationException | None = None
        self.retries = 0

    @property
    def metrics(self) -> Mapping[str, int | str]:
        """Metrics for the history; empty for a statement that was run once."""
        if self._lost is None:
            return {}
        reason = f"version {self._lost.winning_version}: {self._lost.winning_operation or 'another writer'}"
        return {"numRetries": self.retries, "retryReason": reason}

    def begins_on(self, snapshot: Snapshot) -> None:
        """Note the version that an attempt reads.

        Raises:
            DeltaConcurrentModificationException: The conflict of the attempt before. The table's definition has changed
                since the first attempt, for which the user wrote the statement.
        """
        if self._first is None:
            self._first = snapshot
        elif self._lost is not None and not _same_definition(self._first, snapshot):
            raise self._lost

    def run(self, attempt: Callable[[], R], *, is_fixed: Callable[[], bool] = lambda: True) -> R:
        """Run attempts until one succeeds or fails for good.

        Args:
            attempt: Begins a new transaction on each call.
            is_fixed: Returns whether the statement's other inputs do not depend on the table. Data read from the table
                before a winner changed it must not be written after that winner.

        Raises:
            DeltaConcurrentModificationException: The conflict cannot be retried, or no retries are left.
        """
        settings = self._log.settings
        if settings.change_max_retries:
            give_way(
                self._log.store,
                most_ms=settings.change_give_way_ms,
                younger_than_ms=_YOUNG_MS,
                look_again_ms=_LOOK_AGAIN_MS,
            )
        announce_again: Callable[[], None] | None = None
        with contextlib.ExitStack() as until_done:
            while True:
                try:
                    return attempt()
                except DeltaConcurrentModificationException as lost:
                    again = runs_again(
                        lost, retry_on=settings.change_retry_on, retries=self.retries, most=settings.change_max_retries
                    )
                    if not again or lost is self._lost or not is_fixed():
                        raise
                    _logger.info("run again: %s", lost.message, extra={"table": self._log.uri})
                    if announce_again is None:
                        announce_again = until_done.enter_context(announced(self._log.store))
                    else:
                        announce_again()
                    self.retries, self._lost = self.retries + 1, lost
                    self._engine.bind_again()


def _same_definition(first: Snapshot, now: Snapshot) -> bool:
    """Return whether two snapshots have the same definition, ignoring used identity values."""
    if first.metadata is None or now.metadata is None or first.protocol != now.protocol:
        return False
    return first.metadata == now.metadata or only_marks_moved(first.metadata, now.metadata)


@contextlib.contextmanager
def announced(store: Store) -> Iterator[Callable[[], None]]:
    """Announce to other writers that a change is run again; a failure to announce is ignored.

    Yields:
        A function that announces it again, for each further retry.
    """
    path = f"{FOLDER}/{uuid.uuid4()}"

    def announce() -> None:
        try:
            store.put(path, b"{}")
        except DeltaError as error:
            _logger.info("a change could not be announced: %s", error.message)

    announce()
    try:
        yield announce
    finally:
        with contextlib.suppress(DeltaError):
            store.delete_many([path])


def changes_under_way(store: Store, *, now_ms: int, younger_than_ms: int = _STALE_MS) -> int:
    """Count the announced changes of a table with one listing; delete those older than a quarter of an hour.

    Args:
        store: The table's store.
        now_ms: Epoch milliseconds.
        younger_than_ms: Older announcements are not counted.
    """
    try:
        found = list(store.list_from("", prefix=FOLDER))
        ages = {item.path: now_ms - item.modification_time_ms for item in found}
        stale = [path for path, age in ages.items() if age > _STALE_MS]
        if stale:
            store.delete_many(stale)
    except DeltaError as error:  # A user who may not list that folder does not wait.
        _logger.info("announced changes could not be listed: %s", error.message)
        return 0
    return sum(age <= younger_than_ms for age in ages.values())


def give_way(
    store: Store,
    *,
    most_ms: int,
    younger_than_ms: int = _STALE_MS,
    look_again_ms: int = 500,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = epoch_ms,
) -> int:
    """Wait while changes of a table are announced.

    Args:
        store: The table's store.
        most_ms: The longest wait; 0 does not even list.
        younger_than_ms: Older announcements are ignored.
        look_again_ms: The wait between two listings.
        sleep: Sleeps for seconds.
        clock: Returns epoch milliseconds.

    Returns:
        Milliseconds waited.
    """
    began = clock()
    waited = 0
    while waited < most_ms and changes_under_way(store, now_ms=clock(), younger_than_ms=younger_than_ms):
        sleep(min(look_again_ms, most_ms - waited) / 1000)
        waited = max(clock() - began, waited + 1)
    return waited


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
    """The refusal of a change by an append-only table.

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
        """Note files of deletion vectors for the commit, too. Their paths are relative to the table."""
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
        try:
            if not command.is_statement:
                return attempts()
            return statement.run(attempts, is_fixed=lambda: latest[0].is_repeatable())
        except (DeltaConcurrentModificationException, CommitStateUnknownError) as error:
            run_refusal_hooks(RefusedCommit(table=context.log.uri, error=error))
            raise


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


def commit_alone(context: Context, operation: Operation) -> int:
    """Commit an operation without actions, and return its version. No other commit conflicts with it for long."""
    for _ in range(_COMMITS_ALONE - 1):
        try:
            return context.start().commit([], operation, blind_append=True).version
        except DeltaConcurrentModificationException:
            continue
    return context.start().commit([], operation, blind_append=True).version


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
