"""An erasure beside other writers: what they were told is committed stays, and no row is lost or doubled."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from pydelta.api.python.local import LocalTable
from pydelta.errors import CommitStateUnknownError, DeltaConcurrentModificationException, DeltaError
from pydelta.log import DeltaLog
from pydelta.log.given_up import marker
from pydelta.protocol.actions import CommitInfo, encode_commit
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.txn.settle import Seen, look_at
from tests.erased import names_of_key
from tests.unit.commands.erase.test_erase import KEY, erase, rows

_APART = 16
"""Of the calls, every sixteenth is tried, beginning with another one for each case: all cases together try each."""
KINDS = {"rewritten": {}, "vectors": {"delta.enableDeletionVectors": "true"}}


def made(kind: str) -> MemoryStore:
    store = MemoryStore(f"memory://erasure{uuid.uuid4().hex}/t")
    table = LocalTable.create(store.root, rows("bob", KEY, "eve"), properties=KINDS[kind])
    table.append(rows("bob", KEY, first=10))
    table.append(rows("zoe", "dan", first=20))
    return store


def copy_of(store: MemoryStore) -> MemoryStore:
    twin = MemoryStore(f"memory://erasure{uuid.uuid4().hex}/t")
    for item in store.list_all():
        twin.put(item.path, store.read(item.path))
    return twin


def counted(store: MemoryStore) -> Counter:
    return Counter((row["who"], row["n"]) for row in LocalTable(DeltaLog(store)).scan().to_pylist())


class Interrupted(CountingStore):
    """Runs something else before one of its calls."""

    def __init__(self, inner, call, other):
        super().__init__(inner)
        self._at, self._other = call, other

    def _call(self, verb, path, run):
        if len(self.calls) == self._at and self._other is not None:
            other, self._other = self._other, None
            other()
        return super()._call(verb, path, run)


OTHERS = {
    "append": (lambda table: table.append(rows("new", first=90)), lambda seen: seen + Counter({("new", 90): 1})),
    "the key again": (lambda table: table.append(rows(KEY, "new", first=90)),
                      lambda seen: seen + Counter({(KEY, 90): 1, ("new", 91): 1})),
    "delete": (lambda table: table.delete("who = 'bob'"),
               lambda seen: Counter({row: count for row, count in seen.items() if row[0] != "bob"})),
    "compaction": (lambda table: table.optimize(), lambda seen: seen),
    "update": (lambda table: table.update("who = 'zoe'", {"n": "77"}),
               lambda seen: Counter({(who, 77 if who == "zoe" else n): count for (who, n), count in seen.items()})),
}  # fmt: skip


def without_key(seen: Counter) -> Counter:
    return Counter({row: count for row, count in seen.items() if row[0] != KEY})


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_command_at_any_call_of_an_erasure(kind, other):
    template, (change, model) = made(kind), OTHERS[other]
    before = counted(template)
    counting = CountingStore(copy_of(template))
    assert erase(LocalTable(DeltaLog(counting))).is_proven
    for number in range(_first(kind, other), len(counting.calls), _APART):
        store = copy_of(template)
        told = []
        lost = None
        held = Interrupted(store, number, lambda store=store, told=told: told.append(attempt(change, store)))
        try:
            done = erase(LocalTable(DeltaLog(held)))
        except DeltaConcurrentModificationException as error:
            done, lost = None, error
        what = f"{other} at call {number} of {len(counting.calls)}, {lost}"
        expected = model(before) if told == [True] else before
        seen = counted(store)
        assert without_key(seen) == without_key(expected), what
        if done is None or not done.is_proven:
            done = erase(LocalTable(DeltaLog(store)))
        assert done.is_proven, (what, done.left)
        if told != [True] or other != "the key again":
            assert names_of_key(store, KEY) == [], what
        assert without_key(counted(store)) == without_key(expected), what


def _first(kind: str, other: str) -> int:
    return (list(KINDS).index(kind) * len(OTHERS) + list(OTHERS).index(other)) * 7 % _APART


def attempt(change, store) -> bool:
    """Return whether the command was told to be committed."""
    try:
        change(LocalTable(DeltaLog(store)))
    except (DeltaError, CommitStateUnknownError) as error:
        assert not isinstance(error, CommitStateUnknownError)
        return False
    return True


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_erasure_at_any_call_of_another_command(kind, other):
    template, (change, model) = made(kind), OTHERS[other]
    before = counted(template)
    counting = CountingStore(copy_of(template))
    change(LocalTable(DeltaLog(counting)))
    committed = refused = 0
    for number in range(len(counting.calls)):
        store = copy_of(template)
        held = Interrupted(store, number, lambda store=store: erase(LocalTable(DeltaLog(store))))
        what = f"an erasure at call {number} of {other}"
        if attempt(change, held):
            committed += 1
            assert without_key(counted(store)) == without_key(model(before)), what
        else:
            refused += 1
            assert without_key(counted(store)) == without_key(before), what
        assert erase(LocalTable(DeltaLog(store))).is_proven, what
        assert names_of_key(store, KEY) == [], what
    assert committed


def test_a_marker_does_not_prove_that_a_commit_was_lost():
    own = CommitInfo({"txnId": "t1", "timestamp": 5, "operation": "WRITE", "operationParameters": {"who": KEY}})
    data = encode_commit([own])
    assert look_at(marker(own), data=data, txn_id="t1", source="x")[0] is Seen.TORN
    assert KEY.encode() not in marker(own)
    assert look_at(marker(own), data=data, txn_id="t2", source="x")[0] is Seen.THEIRS
