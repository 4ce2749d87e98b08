"""What a put and the file that is read back afterwards say together: a table of cases, and stores that tear reads."""

from __future__ import annotations

import itertools

import pytest

from pydelta import errors
from pydelta.protocol.actions import AddFile, CommitInfo, RemoveFile, decode_commit, encode_commit
from pydelta.protocol.paths import commit_file
from pydelta.storage.interface import PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.txn.settle import (
    Landed,
    Lost,
    OutcomeUnknown,
    Reply,
    Seen,
    SettleStep,
    look_at,
    next_step,
    put_commit,
    reply_of,
)

_NAMES = itertools.count()
PATH = f"_delta_log/{commit_file(7)}"


def add(path):
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


def commit(txn_id, *actions):
    fields = {"operation": "WRITE"} | ({"txnId": txn_id} if txn_id else {})
    return (CommitInfo(fields), *actions)


OURS = commit("ours", add("a"), add("b"))
DATA = encode_commit(OURS)
THEIRS = encode_commit(commit("theirs", add("x"), add("y")))
LINES = DATA.splitlines(keepends=True)

# --- what was read back ------------------------------------------------------------------------------------------

SEEN = [
    ("ours", DATA, Seen.OURS),
    ("ours, without the last line break", DATA[:-1], Seen.TORN),
    ("nothing", b"", Seen.TORN),
    ("our first byte", DATA[:1], Seen.TORN),
    ("our first half", DATA[: len(DATA) // 2], Seen.TORN),
    ("all but our last byte but one", DATA[:-2], Seen.TORN),
    ("our first line, which parses and has our id", LINES[0], Seen.TORN),
    ("our lines but the first, which parse and have no id", b"".join(LINES[1:]), Seen.TORN),
    ("a line from our middle", LINES[1], Seen.TORN),
    ("ours and more", DATA + LINES[1], Seen.TORN),
    ("ours and half of it again", DATA + DATA[:40], Seen.TORN),
    ("our id with other actions", encode_commit(commit("ours", add("z"))), Seen.TORN),
    ("ours with other line breaks", DATA.replace(b"\n", b"\r\n"), Seen.OURS),
    ("zeros, as long as ours", b"\0" * len(DATA), Seen.TORN),
    ("blanks", b" \n\n", Seen.TORN),
    ("actions that nobody knows", b'{"later":{"a":1}}\n', Seen.TORN),
    ("no JSON", b"<html>gateway timeout</html>", Seen.TORN),
    ("no text", b"\xff\xfe", Seen.TORN),
    ("theirs", THEIRS, Seen.THEIRS),
    ("theirs, without the last line break, as some engines write", THEIRS[:-1], Seen.THEIRS),
    ("theirs, torn", THEIRS[:-3], Seen.TORN),
    ("theirs, torn in its first line", THEIRS[:20], Seen.TORN),
    ("theirs, of an engine that names no transaction", encode_commit(commit(None, add("x"))), Seen.THEIRS),
    ("theirs, of an engine that says nothing of itself", encode_commit([add("x")]), Seen.THEIRS),
]


@pytest.mark.parametrize(("found", "expected"), [case[1:] for case in SEEN], ids=[case[0] for case in SEEN])
def test_what_is_read_back_is_ours_theirs_or_not_whole(found, expected):
    seen, actions = look_at(found, data=DATA, txn_id="ours", source="7.json")
    assert seen is expected
    if seen is Seen.THEIRS:
        assert actions == decode_commit(found, source="")
        assert actions
    else:
        assert actions == ()


# --- what a put said ---------------------------------------------------------------------------------------------

REPLIES = [
    (PutOutcome.CREATED, Reply.CREATED),
    (PutOutcome.ALREADY_EXISTS, Reply.EXISTS),
    (PutOutcome.UNKNOWN, Reply.UNKNOWN),
    (errors.StorageError("no reply", retryable=True), Reply.UNKNOWN),
    (TimeoutError("a client library's own error"), Reply.UNKNOWN),
    (errors.InvalidArgumentError("what a store should not raise"), Reply.UNKNOWN),
    (errors.StoragePermissionError("denied"), Reply.REFUSED),
    (errors.StorageFullError("full"), Reply.FAILED),
    (errors.StorageReadOnlyError("read-only"), Reply.REFUSED),
    (errors.UnsafeStoreError("unsafe"), Reply.REFUSED),
    (errors.ObjectNotFoundError("no bucket"), Reply.REFUSED),
    (errors.StorageError("failed for good"), Reply.FAILED),
]


@pytest.mark.parametrize(("said", "expected"), REPLIES, ids=[f"{case[0]!r}" for case in REPLIES])
def test_only_a_plain_refusal_counts_as_one(said, expected):
    assert reply_of(said) is expected


# --- both together -----------------------------------------------------------------------------------------------

# By reply: what follows from ours, theirs, absent, torn, unreadable; when no earlier put is open, and when one is.
L, X, R, P, A = SettleStep.LANDED, SettleStep.LOST, SettleStep.REFUSED, SettleStep.PUT_AGAIN, SettleStep.LOOK_AGAIN
STEPS = {
    Reply.CREATED: ((L, L, L, L, L), (L, L, L, L, L)),
    Reply.EXISTS: ((L, X, P, A, A), (L, X, P, A, A)),
    Reply.UNKNOWN: ((L, X, P, A, A), (L, X, P, A, A)),
    Reply.REFUSED: ((L, X, R, R, R), (L, X, P, A, A)),
    Reply.FAILED: ((L, X, R, A, A), (L, X, P, A, A)),
}
ORDER = (Seen.OURS, Seen.THEIRS, Seen.ABSENT, Seen.TORN, Seen.UNREADABLE)


@pytest.mark.parametrize("open_before", [False, True], ids=["", "with an open put"])
@pytest.mark.parametrize("seen", list(Seen), ids=lambda seen: seen.name)
@pytest.mark.parametrize("reply", list(Reply), ids=lambda reply: reply.name)
def test_what_follows_from_a_put_and_what_is_there(reply, seen, open_before):
    expected = STEPS[reply][open_before][ORDER.index(seen)]
    assert next_step(reply, seen, open_before=open_before) is expected


def test_nothing_is_given_up_without_somebody_elses_whole_commit_or_a_refusal():
    for reply, seen, open_before in itertools.product(Reply, Seen, (False, True)):
        step = next_step(reply, seen, open_before=open_before)
        if step is SettleStep.LOST:
            assert seen is Seen.THEIRS
        if step is SettleStep.REFUSED:
            assert reply in (Reply.REFUSED, Reply.FAILED) and not open_before


# --- with a store ------------------------------------------------------------------------------------------------

KEPT = {
    "0 bytes": lambda size: 0,
    "1 byte": lambda size: 1,
    "half": lambda size: size // 2,
    "a line": lambda size: len(LINES[0]),
    "all but one byte": lambda size: size - 1,
}


def fresh():
    return MemoryStore(f"memory://settle{next(_NAMES)}/t")


def put(store):
    pauses = []
    outcome = put_commit(store, version=7, actions=OURS, txn_id="ours", pause=pauses.append)
    return outcome, pauses


def lost_reply(*, torn, kept):
    """The reply to the put is lost, and so many reads after it are torn."""
    return (
        Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent"),
        Fault(kind=FaultKind.TEAR, call=0, verb="read", times=torn, kept=kept),
    )


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_a_torn_reading_of_our_own_commit_is_read_again(kept):
    store = fresh()
    faulty = FaultyStore(store, *lost_reply(torn=3, kept=kept))
    outcome, pauses = put(faulty)
    assert isinstance(outcome, Landed)
    assert pauses == [1, 2, 3]
    assert [verb for verb, _ in faulty.calls] == ["put_if_absent", "read", "read", "read", "read"]


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_one_that_stays_torn_is_unknown_and_never_lost(kept):
    store = fresh()
    outcome, _ = put(FaultyStore(store, *lost_reply(torn=99, kept=kept)))
    assert isinstance(outcome, OutcomeUnknown)
    assert "not a whole commit" in outcome.reason
    assert store.read(PATH) == DATA


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_a_torn_reading_of_a_winner_is_no_commit_of_theirs(kept):
    store = fresh()
    store.put(PATH, THEIRS)
    once = FaultyStore(store, Fault(kind=FaultKind.TEAR, call=0, verb="read", kept=kept))
    outcome, _ = put(once)
    assert isinstance(outcome, Lost)
    assert outcome.actions == decode_commit(THEIRS, source="")


def test_of_a_winner_it_is_told_how_much_was_read():
    store = fresh()
    store.put(PATH, THEIRS)
    first_line = THEIRS.index(b"\n") + 1
    torn = Fault(kind=FaultKind.TEAR, call=0, verb="read", kept=lambda size: first_line)
    outcome, _ = put(FaultyStore(store, torn))
    assert isinstance(outcome, Lost)
    assert outcome.size_bytes == first_line, "fewer than there are: see publish"


def test_what_is_no_commit_at_all_is_named_and_unknown():
    store = fresh()
    store.put(PATH, b'{"add":{"path":')
    outcome, _ = put(store)
    assert isinstance(outcome, OutcomeUnknown)
    assert commit_file(7) in outcome.reason


class Raising(FaultyStore):
    """A store of somebody else's making: it takes the put and lets its client's own error out."""

    def put_if_absent(self, path, data):
        super().put_if_absent(path, data)
        raise TimeoutError("read timed out")


def test_any_error_after_which_the_commit_may_be_there_is_settled_by_reading():
    outcome, _ = put(Raising(fresh()))
    assert isinstance(outcome, Landed)
    store = fresh()
    blind = Raising(store, Fault(kind=FaultKind.FAIL, call=0, verb="read", times=99))
    outcome, _ = put(blind)
    assert isinstance(outcome, OutcomeUnknown)
    assert store.read(PATH) == DATA


def test_a_removal_that_both_make_is_still_two_commits():
    store = fresh()
    removal = RemoveFile(path="same", deletion_timestamp=1, data_change=True)
    store.put(PATH, encode_commit(commit("theirs", removal)))
    ours = commit("ours", removal)
    outcome = put_commit(store, version=7, actions=ours, txn_id="ours", pause=lambda number: None)
    assert isinstance(outcome, Lost)
