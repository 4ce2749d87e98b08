"""Write one version's commit file and find out whether it landed, lost, or is unknown.

::

    put --> created --------------------------------------------------------> Landed
        --> refused, and no earlier put is open ----------------------------> the refusal is raised
        --> exists, no reply: read it back
               ours, complete ----------------------------------------------> Landed
               another's, complete -----------------------------------------> Lost
               nothing there: put the same bytes again
               a part of it, not a commit, unreadable: read it again -------> Unknown, if it stays so

Only certain results are returned, because a caller deletes its staged files if the version is lost. A file that is part
of ours or cannot be parsed proves nothing: proxies cut replies, and file systems show files before they are complete.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pydelta.errors import (
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageReadOnlyError,
    UnsafeStoreError,
)
from pydelta.log.runs import encode_actions
from pydelta.protocol.actions import Action, CommitInfo, decode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage.interface import PutOutcome, Store

__all__ = [
    "Landed",
    "Lost",
    "Outcome",
    "OutcomeUnknown",
    "Reply",
    "Seen",
    "SettleStep",
    "look_at",
    "next_step",
    "put_commit",
    "reply_of",
]

_ATTEMPTS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The version is ours."""

    version: int
    actions: Sequence[Action]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The version belongs to another commit. ``actions`` are its actions, ``size_bytes`` is its size."""

    version: int
    actions: Sequence[Action]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """It cannot be determined whether the version is ours. ``cause`` is the last error, if any.

    ``reason`` completes the message "It is not known whether version N was committed: …".
    """

    version: int
    reason: str
    cause: Exception | None


Outcome: TypeAlias = Landed | Lost | OutcomeUnknown


class Reply(enum.Enum):
    """The result of a put."""

    CREATED = "created"
    EXISTS = "exists"
    """The name is taken, possibly by ourselves if the client repeated the request."""
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Nothing was written, and the store gave the reason."""
    FAILED = "failed"
    """A permanent error other than a refusal. It is believed only if no file is there.

    A full store also counts as this, because some of its disks may have had room.
    """


class Seen(enum.Enum):
    """The result of reading the version afterwards."""

    OURS = "ours"
    THEIRS = "theirs"
    ABSENT = "absent"
    TORN = "torn"
    """A part of ours, or not a complete commit."""
    UNREADABLE = "unreadable"


class SettleStep(enum.Enum):
    """The next step."""

    LANDED = "landed"
    LOST = "lost"
    REFUSED = "refused"
    PUT_AGAIN = "put again"
    """Put the same bytes under the same name, which is harmless if the first put is still on its way."""
    LOOK_AGAIN = "look again"


_REFUSALS: Final = (
    StoragePermissionError,
    StorageReadOnlyError,
    UnsafeStoreError,
    ObjectNotFoundError,
)


def reply_of(result: PutOutcome | Exception) -> Reply:
    """Classify an outcome or an error of a put. Pure.

    Errors that are not a store's prove nothing, because a client may raise them after the request was carried out.
    """
    if result is PutOutcome.CREATED:
        return Reply.CREATED
    if result is PutOutcome.ALREADY_EXISTS:
        return Reply.EXISTS
    if isinstance(result, StorageError) and not result.retryable:
        return Reply.REFUSED if isinstance(result, _REFUSALS) else Reply.FAILED
    return Reply.UNKNOWN


def look_at(found: bytes, *, data: bytes, txn_id: str, source: str) -> tuple[Seen, Sequence[Action]]:
    """Decide whose commit a file is. Pure.

    Args:
        found: Its bytes as read.
        data: The bytes that were put.
        txn_id: The transaction id in them.
        source: Its name, for messages.

    Returns:
        The finding, and the actions if the commit is another's.
    """
    if found == data:
        return Seen.OURS, ()
    if found in data:  # This includes parts from the middle or end, whose lines may parse but name no transaction.
        return Seen.TORN, ()
    try:
        actions = decode_commit(found, source=source)
    except LogCorruptedError:
        return Seen.TORN, ()
    if any(isinstance(item, CommitInfo) and item.txn_id == txn_id for item in actions):
        return (Seen.OURS if actions == decode_commit(data, source=source) else Seen.TORN), ()
    return (Seen.THEIRS, actions) if actions else (Seen.TORN, ())


def next_step(reply: Reply, seen: Seen, *, open_before: bool) -> SettleStep:
    """Decide the next step from a put's reply and from what is there. Pure.

    Args:
        reply: Reply to the last put.
        seen: The result of the read after it.
        open_before: Whether an earlier put of the same bytes may still arrive. A refusal does not rule that out.
    """
    if reply is Reply.CREATED or seen is Seen.OURS:
        return SettleStep.LANDED
    if seen is Seen.THEIRS:
        return SettleStep.LOST
    if not open_before and (reply is Reply.REFUSED or (reply is Reply.FAILED and seen is Seen.ABSENT)):
        return SettleStep.REFUSED
    return SettleStep.PUT_AGAIN if seen is Seen.ABSENT else SettleStep.LOOK_AGAIN


def put_commit(
    store: Store, *, version: int, actions: Sequence[Action], txn_id: str, pause: Callable[[int], None]
) -> Outcome:
    """Try to take one version, and resolve an unclear outcome.

    Args:
        store: The table's store.
        version: The version to take.
        actions: The lines of the commit. The first is ``commitInfo`` with ``txn_id``.
        txn_id: The id to look for.
        pause: Called with the attempt's number before the next attempt.

    Raises:
        StorageError: The store refused permanently, and the version is not ours. After a put was sent, nothing else is
            raised: any interruption leaves the outcome unknown.
    """
    data = encode_actions(actions)
    try:
        return _settle(store, version, actions, data, txn_id, pause)
    except _RefusedError as refused:
        raise refused.error from None
    except Exception as error:  # noqa: BLE001 -- a commit that may have landed must not be reported as failed
        return OutcomeUnknown(version=version, reason="finding out what became of it broke off", cause=error)


class _RefusedError(Exception):
    """An error that carries the store's error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _settle(
    store: Store,
    version: int,
    actions: Sequence[Action],
    data: bytes,
    txn_id: str,
    pause: Callable[[int], None],
) -> Outcome:
    name = commit_file(version)
    path = f"{LOG_DIR}/{name}"
    reason = "the store gave no reply"
    cause: Exception | None = None
    result: PutOutcome | Exception = PutOutcome.UNKNOWN
    is_open = open_before = False
    step = SettleStep.PUT_AGAIN
    for number in range(1, _ATTEMPTS + 1):
        if step is SettleStep.PUT_AGAIN:
            open_before = is_open
            result = _put(store, path, data)
            if result is PutOutcome.CREATED:
                return Landed(version=version, actions=actions, size_bytes=len(data))
            cause = result if isinstance(result, Exception) else cause
            is_open = is_open or reply_of(result) not in (Reply.REFUSED, Reply.FAILED)
        theirs: Sequence[Action] = ()
        size = 0
        try:
            found = store.read(path)
        except ObjectNotFoundError:
            seen = Seen.ABSENT
        except Exception as error:  # noqa: BLE001 -- the commit may exist, whatever the error is
            seen, cause = Seen.UNREADABLE, error
            reason = f"{name} could not be read back"
        else:
            seen, theirs = look_at(found, data=data, txn_id=txn_id, source=name)
            size = len(found)
            if seen is Seen.TORN:
                reason = f"what was read back of {name} ({size} bytes) is not a whole commit"
        step = next_step(reply_of(result), seen, open_before=open_before)
        if step is SettleStep.LANDED:
            return Landed(version=version, actions=actions, size_bytes=len(data))
        if step is SettleStep.LOST:
            return Lost(version=version, actions=theirs, size_bytes=size)
        if step is SettleStep.REFUSED and isinstance(result, Exception):
            raise _RefusedError(result)
        if number < _ATTEMPTS:
            pause(number)
    return OutcomeUnknown(version=version, reason=reason, cause=cause)


def _put(store: Store, path: str, data: bytes) -> PutOutcome | Exception:
    try:
        return store.put_if_absent(path, data)
    except Exception as error:  # noqa: BLE001 -- ``reply_of`` classifies it
        return error
