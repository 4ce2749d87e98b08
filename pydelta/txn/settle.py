"""Put one version's commit file, and tell what became of it: landed, lost, or unknown.

::

    put --> created --------------------------------------------------------> Landed
        --> refused, and nothing of an earlier put is open -----------------> the refusal is raised
        --> exists, no reply: read it back
               ours, whole -------------------------------------------------> Landed
               somebody else's, whole --------------------------------------> Lost
               nothing there: put the same bytes again
               a part of it, no commit, unreadable: read it again ----------> Unknown, when it stays so

Only what is certain is told: a caller deletes its staged files when the version is lost. A file that is a part of
ours, or that cannot be parsed, says nothing: proxies cut replies, and file systems show files before they are whole.
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
    """The version is another's; ``actions`` are theirs, from so many bytes."""

    version: int
    actions: Sequence[Action]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """Nobody can say whether the version is ours; ``cause`` is the last failure, if one was reported.

    ``reason`` continues the sentence "it cannot be told: …".
    """

    version: int
    reason: str
    cause: Exception | None


Outcome: TypeAlias = Landed | Lost | OutcomeUnknown


class Reply(enum.Enum):
    """What a put said."""

    CREATED = "created"
    EXISTS = "exists"
    """The name is taken; by ourselves, if the client repeated the request."""
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """It did nothing, and the store says why."""
    FAILED = "failed"
    """It raised an error that is not a refusal, and would again: believed where nothing is there.

    So is a full store: of several disks some may have had room.
    """


class Seen(enum.Enum):
    """What is there afterwards."""

    OURS = "ours"
    THEIRS = "theirs"
    ABSENT = "absent"
    TORN = "torn"
    """A part of ours, or no whole commit."""
    UNREADABLE = "unreadable"


class SettleStep(enum.Enum):
    """What follows."""

    LANDED = "landed"
    LOST = "lost"
    REFUSED = "refused"
    PUT_AGAIN = "put again"
    """The same bytes under the same name: harmless if the first are still on their way."""
    LOOK_AGAIN = "look again"


_REFUSALS: Final = (
    StoragePermissionError,
    StorageReadOnlyError,
    UnsafeStoreError,
    ObjectNotFoundError,
)


def reply_of(said: PutOutcome | Exception) -> Reply:
    """Classify an outcome or an error of a put. Pure.

    An error that is none of a store's says nothing: it may come from a client after the request was carried out.
    """
    if said is PutOutcome.CREATED:
        return Reply.CREATED
    if said is PutOutcome.ALREADY_EXISTS:
        return Reply.EXISTS
    if isinstance(said, StorageError) and not said.retryable:
        return Reply.REFUSED if isinstance(said, _REFUSALS) else Reply.FAILED
    return Reply.UNKNOWN


def look_at(found: bytes, *, data: bytes, txn_id: str, source: str) -> tuple[Seen, Sequence[Action]]:
    """Tell whose commit a file is. Pure.

    Args:
        found: Its bytes, as they were read.
        data: The bytes that were put.
        txn_id: In them.
        source: Its name, for messages.

    Returns:
        What it is, and the actions of somebody else's; none of anything else.
    """
    if found == data:
        return Seen.OURS, ()
    if found in data:  # from the middle or the end, too: its lines may parse, and name no transaction
        return Seen.TORN, ()
    try:
        actions = decode_commit(found, source=source)
    except LogCorruptedError:
        return Seen.TORN, ()
    if any(isinstance(item, CommitInfo) and item.txn_id == txn_id for item in actions):
        return (Seen.OURS if actions == decode_commit(data, source=source) else Seen.TORN), ()
    return (Seen.THEIRS, actions) if actions else (Seen.TORN, ())


def next_step(reply: Reply, seen: Seen, *, open_before: bool) -> SettleStep:
    """Decide what follows from a put's reply and from what is there. Pure.

    Args:
        reply: Of the last put.
        seen: What was read after it.
        open_before: Whether an earlier put of the same bytes may still arrive: a refusal says nothing of it.
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
    """Try to take one version, and settle what a lost reply leaves open.

    Args:
        store: The table's store.
        version: The version to take.
        actions: The lines of the commit; the first is ``commitInfo`` with ``txn_id``.
        txn_id: What to look for.
        pause: Called with the number of the try before another one.

    Raises:
        StorageError: The store refused for good, and the version is not ours. Nothing else is raised once a put was
            sent: whatever breaks off leaves the outcome unknown.
    """
    data = encode_actions(actions)
    try:
        return _settle(store, version, actions, data, txn_id, pause)
    except _RefusedError as refused:
        raise refused.error from None
    except Exception as error:  # noqa: BLE001 -- a commit that may have landed must not be told as failed
        return OutcomeUnknown(version=version, reason="finding out what became of it broke off", cause=error)


class _RefusedError(Exception):
    """Carries what the store said."""

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
    said: PutOutcome | Exception = PutOutcome.UNKNOWN
    is_open = open_before = False
    step = SettleStep.PUT_AGAIN
    for number in range(1, _ATTEMPTS + 1):
        if step is SettleStep.PUT_AGAIN:
            open_before = is_open
            said = _put(store, path, data)
            if said is PutOutcome.CREATED:
                return Landed(version=version, actions=actions, size_bytes=len(data))
            cause = said if isinstance(said, Exception) else cause
            is_open = is_open or reply_of(said) not in (Reply.REFUSED, Reply.FAILED)
        theirs: Sequence[Action] = ()
        size = 0
        try:
            found = store.read(path)
        except ObjectNotFoundError:
            seen = Seen.ABSENT
        except Exception as error:  # noqa: BLE001 -- whatever it is, the commit may be there all the same
            seen, cause = Seen.UNREADABLE, error
            reason = f"{name} could not be read back"
        else:
            seen, theirs = look_at(found, data=data, txn_id=txn_id, source=name)
            size = len(found)
            if seen is Seen.TORN:
                reason = f"what was read back of {name} ({size} bytes) is not a whole commit"
        step = next_step(reply_of(said), seen, open_before=open_before)
        if step is SettleStep.LANDED:
            return Landed(version=version, actions=actions, size_bytes=len(data))
        if step is SettleStep.LOST:
            return Lost(version=version, actions=theirs, size_bytes=size)
        if step is SettleStep.REFUSED and isinstance(said, Exception):
            raise _RefusedError(said)
        if number < _ATTEMPTS:
            pause(number)
    return OutcomeUnknown(version=version, reason=reason, cause=cause)


def _put(store: Store, path: str, data: bytes) -> PutOutcome | Exception:
    try:
        return store.put_if_absent(path, data)
    except Exception as error:  # noqa: BLE001 -- told apart by ``reply_of``
        return error
