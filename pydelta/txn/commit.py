"""Commit one new version: put if absent. After a lost race, rebase onto the winners and try again.

::

    render for version N --> put N.json if absent --> created -----------------------> Landed
           ^                        |--> exists or unknown: read N.json back
           |                                 |--> holds our txnId -------------------> Landed   (``settle``)
           |                                 |--> holds another's: a winner
           |                                 |--> cannot be decided -----------------> Unknown
           +-- no conflict <-- each winner since, once, oldest first: deletion vectors are united (``rows``)
                   conflict ----------------------------------------------------------> its error

A version that passed the check is never read again, and a version is given up only after another writer's commit was
seen in it. So one intention cannot be in the log twice.

A long transaction may find its next version free because the log was cleaned up past it, and no reader would see a
commit there. So it checks that the previous version exists, both before and after the put.

An ``Observer`` is called at each phase of a transaction, where a test or monitor may intervene. A thread knows the user
that it commits for and the versions that its statement has committed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final, Protocol

from pydelta.errors import (
    CommitStateUnknownError,
    CommittedError,
    ConcurrentWriteException,
    DeltaError,
    StorageError,
    first_line,
)
from pydelta.protocol.actions import Action, decode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file, decode_log_path, parse_log_name
from pydelta.settings.clock import epoch_ms
from pydelta.storage.backoff import Backoff
from pydelta.storage.discarding import discard
from pydelta.storage.interface import ObjectInfo, Store
from pydelta.storage.uris import scheme_of
from pydelta.storage.whole import ensure_whole, read_listed
from pydelta.txn.conflicts import find_conflict
from pydelta.txn.footprint import ReadSet, WinningCommit
from pydelta.txn.prepare import Base, Intention, render
from pydelta.txn.rows import Reconciled, hidden_rows, rebase, reconcile, vector_reader
from pydelta.txn.settle import Landed, OutcomeUnknown, put_commit

__all__ = [
    "COMMIT",
    "PHASES",
    "POST_COMMIT",
    "PREPARE",
    "READ",
    "SILENT",
    "Attempts",
    "Observer",
    "Published",
    "Silent",
    "Winner",
    "author",
    "committing_for",
    "engine_info",
    "landed",
    "publish",
    "telling_what_landed",
]

_AUTHOR: Final[ContextVar[str | None]] = ContextVar("pydelta_author", default=None)


@contextmanager
def committing_for(user: str | None) -> Iterator[None]:
    """Record a user in the commits that this thread makes within the block (``commitInfo.userName``).

    Args:
        user: A name, or None.
    """
    token = _AUTHOR.set(user)
    try:
        yield
    finally:
        _AUTHOR.reset(token)


def author() -> str | None:
    """Return the user that this thread commits for, or None."""
    return _AUTHOR.get()


@functools.cache
def engine_info() -> str:
    """Return engine name and version for the history, ``pydelta/0.1.0``."""
    try:
        return f"pydelta/{metadata.version('pydelta-lakehouse')}"
    except metadata.PackageNotFoundError:  # The program runs from a source tree that was never installed.
        return "pydelta/unknown"


_LANDED: Final[ContextVar[list[tuple[str, int]] | None]] = ContextVar("pydelta_landed", default=None)


def landed(table: str, version: int) -> None:
    """Record a committed version of a table for the statement that this thread runs."""
    noted = _LANDED.get()
    if noted is not None:
        noted.append((table, version))


@contextmanager
def telling_what_landed() -> Iterator[None]:
    """Convert an error after a commit so that it mentions the commit. Only commits directly in this block count.

    A ``DeltaError`` passes unchanged, because the code that raised it knew about the commit.

    Raises:
        CommittedError: Something else failed after a commit, for example because the cluster went away.
    """
    noted: list[tuple[str, int]] = []
    token = _LANDED.set(noted)
    try:
        yield
    except DeltaError:
        raise
    except Exception as error:
        if not noted:
            raise
        table, last = noted[-1]
        raise CommittedError(
            f"Version {last} was committed. A later step of the same statement failed: "
            f"{first_line(error) or type(error).__name__}",
            hint="Do not run it again before you have looked at the table's history. If Spark's session has ended, "
            "start another one.",
            table=table,
            version=last,
        ) from error
    finally:
        _LANDED.reset(token)


READ: Final = "read"
"""The snapshot is chosen, but nothing was read from it yet."""
PREPARE: Final = "prepare"
"""``commit`` was called, but nothing was checked yet."""
COMMIT: Final = "commit"
"""A commit file is ready to be put. Occurs once per attempt."""
POST_COMMIT: Final = "post-commit"
"""The version is in the log, and hooks run next."""
PHASES: Final = (READ, PREPARE, COMMIT, POST_COMMIT)


class Observer(Protocol):
    """Called when a transaction reaches a phase. It may block. Raising an error ends the transaction there."""

    def at(self, phase: str) -> None:
        """Handle the start of ``phase``, one of ``PHASES``."""


class Silent:
    """An observer that does nothing."""

    def at(self, phase: str) -> None:
        """Do nothing."""


SILENT: Final = Silent()

_LATELY_MS: Final = 60_000
_TOGETHER: Final = 16
_MANY: Final = 3
_NEAR: Final = ("file", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The policy for retrying an intention after lost races.

    Args:
        most: Maximum number of attempts.
        backoff: Pauses between attempts.
        observer: Called before each put.
        clock: Epoch milliseconds.
        took_long: Whether the log may have been cleaned up since the base was read.
    """

    most: int
    backoff: Backoff
    observer: Observer
    clock: Callable[[], int] = epoch_ms
    took_long: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """A commit that came in between: its actions, and its file as the store lists it."""

    commit: WinningCommit
    file: ObjectInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A landed commit, the number of attempts, and the winners it was rebased onto, oldest first."""

    landed: Landed
    attempts: int
    winners: tuple[Winner, ...]


def publish(
    store: Store,
    *,
    intention: Intention,
    base: Base,
    reads: ReadSet,
    attempts: Attempts,
    options: Mapping[str, str] | None = None,
) -> Published:
    """Commit an intention on top of ``base`` or of later commits.

    Args:
        store: The table's store.
        intention: The changes to commit.
        base: The parts of the snapshot on which the next commit depends.
        reads: What the transaction read from it.
        attempts: How to retry.
        options: Storage options for deletion vectors outside the table.

    Raises:
        DeltaConcurrentModificationException: A winner conflicts; or, as ``ConcurrentWriteException``, every attempt
            was lost. Nothing of the intention is in the log.
        CommitStateUnknownError: The reply was lost and the version could not be read back.
        StorageError: The store refused. Nothing of the intention is in the log.
    """
    race = _Race(intention=intention, reads=reads, store=store, options=options)
    try:
        published = _publish(race, base, attempts)
    except CommitStateUnknownError:
        raise
    except BaseException as error:
        if isinstance(error, Exception):
            race.discard(race.written)
        raise
    race.discard(race.superseded)
    return published


class _Race:
    """The state of an intention, updated for each winner.

    Args:
        intention: The changes to commit.
        reads: What the transaction read.
        store: The table's store.
        options: Storage options for vectors outside the table.
    """

    def __init__(
        self, *, intention: Intention, reads: ReadSet, store: Store, options: Mapping[str, str] | None
    ) -> None:
        self.intention = intention
        self.store = store
        self.written: list[str] = []
        self.superseded: list[str] = []
        self._reads = reads
        self._options = options

    def follow(self, version: int, actions: Sequence[Action]) -> WinningCommit:
        """Check a winner for conflicts and rebase onto it.

        Raises:
            DeltaConcurrentModificationException: It conflicts.
        """
        intention, reads = self.intention, self._reads
        winner = WinningCommit.of(actions, version=version)
        reconciled = Reconciled(winner=winner)
        if reads.rows_stand_alone and hidden_rows(winner, reads):
            commits = (intention.staged, winner)
            rows_of = vector_reader(commits, reads, store=self.store, options=self._options)
            if rows_of is not None:
                reconciled = reconcile(reads=reads, staged=intention.staged, winner=winner, rows_of=rows_of)
        conflict = find_conflict(reads=reads, staged=intention.staged, winner=reconciled.winner, level=intention.level)
        if conflict is not None:
            error = conflict.error(table=self.store.root)
            error.winner_only_rearranged = winner.only_rearranges
            raise error
        rebased = rebase(intention.staged, reads, reconciled, store=self.store)
        self._reads = rebased.reads
        self.intention = replace(intention, staged=rebased.staged)
        self.written += rebased.written
        self.superseded += rebased.superseded
        return winner

    def discard(self, files: list[str]) -> None:
        """Delete vector files that no commit names. VACUUM deletes any that remain."""
        with suppress(StorageError):
            if files:
                discard(self.store, [decode_log_path(path).text for path in files])


def _publish(race: _Race, base: Base, attempts: Attempts) -> Published:
    store, pause = race.store, attempts.backoff.pause
    winners: list[Winner] = []
    for attempt in range(1, attempts.most + 1):
        intention = race.intention
        actions = render(intention, base, now_ms=attempts.clock())
        version = base.version + 1
        attempts.observer.at(COMMIT)
        looked_ms = attempts.clock()
        if attempts.took_long() and not _is_next(store, version):
            raise _cleaned_up(version, table=store.root)
        outcome = put_commit(store, version=version, actions=actions, txn_id=intention.txn_id, pause=pause)
        if isinstance(outcome, Landed):
            if attempts.took_long():
                lately = abs(attempts.clock() - looked_ms) < _LATELY_MS
                _undo_unless_next(store, outcome, txn_id=intention.txn_id, lately=lately)
            return Published(landed=outcome, attempts=attempt, winners=tuple(winners))
        if isinstance(outcome, OutcomeUnknown):
            raise _unknown(outcome, txn_id=intention.txn_id, table=store.root) from outcome.cause
        first = race.follow(outcome.version, outcome.actions)
        if attempt < attempts.most:
            pause(attempt)
            for winner in _winners_from(race, first, size_bytes=outcome.size_bytes):
                base = base.after(winner.commit, file_time_ms=winner.file.modification_time_ms)
                winners.append(winner)
    raise ConcurrentWriteException(
        f"Other writers took the next version on each of {attempts.most} attempts, "
        f"the last being version {first.version}{f' ({first.operation})' if first.operation else ''}.",
        winning_version=first.version,
        winning_operation=first.operation,
        hint="Nothing was committed. Run it again, write in fewer and larger commits, "
        "or raise spark.pydelta.commit.maxAttempts.",
        table=store.root,
    )


def _is_next(store: Store, version: int) -> bool:
    """Return whether the version continues the log, which means that the previous version exists."""
    if version > 0:
        return store.head(f"{LOG_DIR}/{commit_file(version - 1)}") is not None
    names = (info.path.rpartition("/")[2] for info in store.list_from("", prefix=LOG_DIR))
    first = next((file for file in map(parse_log_name, names) if file is not None), None)
    return first is None or first.version == 0


def _undo_unless_next(store: Store, landed: Landed, *, txn_id: str, lately: bool) -> None:
    """Delete a commit that landed beyond the end of the log because of a concurrent clean-up.

    Args:
        store: The table's store.
        landed: The commit.
        txn_id: Id of its transaction.
        lately: Whether the previous version was seen moments ago. If not, the commit may have landed correctly and the
            clean-up came later.

    Raises:
        ConcurrentWriteException: The commit was deleted.
        CommitStateUnknownError: It could not be deleted.
    """
    cause: StorageError | None = None
    try:
        if _is_next(store, landed.version):
            return
        if lately:
            if not store.delete_many([f"{LOG_DIR}/{commit_file(landed.version)}"]).failed:
                raise _cleaned_up(landed.version, table=store.root)
            reason = "the log was cleaned up past it, and it could not be taken back"
        else:
            reason = "the log has been cleaned up since this machine went on"
    except StorageError as error:
        reason, cause = "the log could not be read", error
    unknown = OutcomeUnknown(version=landed.version, reason=reason, cause=cause)
    raise _unknown(unknown, txn_id=txn_id, table=store.root) from cause


def _cleaned_up(version: int, *, table: str) -> ConcurrentWriteException:
    return ConcurrentWriteException(
        f"The log was cleaned up past version {version - 1 if version else 0}, which this transaction read: what was "
        "committed since then is no longer known.",
        hint="Nothing was committed. Run it again; if it takes longer than delta.logRetentionDuration, raise that.",
        table=table,
        winning_version=None,
        winning_operation=None,
    )


def _unknown(outcome: OutcomeUnknown, *, txn_id: str, table: str) -> CommitStateUnknownError:
    cause = outcome.cause
    detail = ""
    if cause is not None:
        detail = f" ({cause.message if isinstance(cause, DeltaError) else cause!r})"
    return CommitStateUnknownError(
        f"It is not known whether version {outcome.version} was committed: {outcome.reason}{detail}.",
        txn_id=txn_id,
        hint=f"Look for commitInfo.txnId {txn_id} in the table's history before running the operation again, and "
        "do not delete any of its files until then.",
        table=table,
        version=outcome.version,
    )


def _winners_from(race: _Race, first: WinningCommit, *, size_bytes: int) -> Iterator[Winner]:
    """Yield ``first`` and the later commits up to the newest, oldest first. Each is read and checked once.

    The log is listed again until few new commits appear. Otherwise, with dozens of writers, the next version would
    surely be taken again after reading the first listing.

    Raises:
        StorageError: A commit was only partly read, so conflicts with the rest are unknown.
    """
    listed = _listed_from(race.store, first.version)
    if listed:
        ensure_whole(size_bytes, listed[0])
        yield Winner(commit=first, file=listed.pop(0))
    expected = first.version + 1
    while listed:
        for number in range(0, len(listed), _TOGETHER):
            files = listed[number : number + _TOGETHER]
            for file, data in zip(files, _read_together(race.store, files), strict=True):
                commit = race.follow(expected, decode_commit(data, source=commit_file(expected)))
                yield Winner(commit=commit, file=file)
                expected += 1
        listed = _listed_from(race.store, expected) if len(listed) >= _MANY else []


def _listed_from(store: Store, version: int) -> list[ObjectInfo]:
    """Return the commits from a version on that a listing shows without gaps."""
    found: list[ObjectInfo] = []
    for file in store.list_from(commit_file(version), prefix=LOG_DIR):
        if file.path.rpartition("/")[2] == commit_file(version + len(found)):
            found.append(file)  # Otherwise it is a checkpoint, a checksum or an unrelated file.
    return found


def _read_together(store: Store, files: Sequence[ObjectInfo]) -> list[bytes]:
    """Read the bytes of commits, in parallel if the store is remote."""
    if len(files) < _MANY or scheme_of(store.root) in _NEAR:
        return [read_listed(store, file) for file in files]
    with ThreadPoolExecutor(len(files), thread_name_prefix="pydelta-winners") as pool:
        return list(pool.map(functools.partial(read_listed, store), files))
