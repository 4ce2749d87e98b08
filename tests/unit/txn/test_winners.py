"""Winners that came between are read together, up to the newest, and checked oldest first."""

from __future__ import annotations

import itertools
import threading

import pytest

from pydelta import errors
from pydelta.protocol.actions import AddFile, CommitInfo, Metadata, decode_commit, encode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.storage.backoff import Backoff
from pydelta.storage.memory import MemoryStore
from pydelta.txn import Isolation, Operation, ReadSet, Staged
from pydelta.txn.commit import Attempts, Silent, publish
from pydelta.txn.prepare import Base, Intention

_NAMES = itertools.count()


def path_of(version):
    return f"{LOG_DIR}/{commit_file(version)}"


def add(path):
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)


class Crowded(MemoryStore):
    """A store far away where, while a loser reads what came, more comes: as many commits as ``arrivals`` says."""

    def __init__(self, arrivals):
        super().__init__(f"memory://crowded{next(_NAMES)}/t")
        self.arrivals, self.next, self.calls = list(arrivals), 0, []
        self.at_once, self.most, self.guard = 0, 0, threading.Lock()
        self.meet = None

    @property
    def root(self):
        return "s3a://bucket/crowded"  # stores in this machine are read one commit after the other

    def arrive(self, count, *more):
        for _ in range(count):
            info = CommitInfo({"txnId": f"other-{self.next}", "isBlindAppend": True})
            data = encode_commit((info, add(f"theirs-{self.next}"), *more))
            super().put_if_absent(path_of(self.next), data)
            self.next += 1

    def list_from(self, start, *, prefix):
        self.calls.append("list")
        found = list(super().list_from(start, prefix=prefix))
        if self.arrivals:
            self.arrive(self.arrivals.pop(0))  # after the listing was made, before it is read
        return iter(found)

    def read(self, path):
        with self.guard:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            if self.meet is not None and path != path_of(0):
                self.meet.wait(timeout=60)  # passes when all of a batch are read at once
            return super().read(path)
        finally:
            with self.guard:
                self.at_once -= 1

    def put_if_absent(self, path, data):
        self.calls.append("put")
        return super().put_if_absent(path, data)


def appended(store):
    intention = Intention(
        staged=Staged.of([add("ours")]),
        operation=Operation(name="WRITE"),
        txn_id="ours",
        read_version=-1,
        level=Isolation.SERIALIZABLE,
        is_blind_append=True,
        engine_info="tests/1",
    )
    backoff = Backoff(first_ms=1, sleep=lambda seconds: None)
    return publish(
        store,
        intention=intention,
        base=Base(version=-1, timestamp_ms=0),
        reads=ReadSet(),
        attempts=Attempts(most=10, backoff=backoff, observer=Silent(), clock=lambda: 0),
    )


def test_a_loser_lists_until_few_are_new_and_takes_the_version_behind_them():
    store = Crowded([30, 4, 1])
    store.arrive(10)
    published = appended(store)
    # 10 were there; while they were read 30 came, then 4, then 1
    assert store.calls == ["put", "list", "list", "list", "list", "put"]
    assert (published.landed.version, published.attempts) == (45, 2)
    assert [winner.commit.version for winner in published.winners] == list(range(45))
    assert [winner.commit.adds[0].path for winner in published.winners] == [f"theirs-{n}" for n in range(45)]
    assert any(
        isinstance(item, AddFile) and item.path == "ours"
        for item in decode_commit(store.read(path_of(45)), source="ours")
    )


def test_after_few_winners_there_is_no_second_listing():
    store = Crowded([])
    store.arrive(2)
    published = appended(store)
    assert store.calls == ["put", "list", "put"]
    assert (published.landed.version, published.attempts) == (2, 2)


def test_the_commits_of_a_store_far_away_are_read_at_once():
    store = Crowded([])
    store.arrive(1 + 16)
    store.meet = threading.Barrier(16)
    assert appended(store).landed.version == 17
    assert store.most == 16


@pytest.mark.parametrize("place", [1, 7, 20])
def test_a_conflict_names_the_first_winner_that_conflicts(place):
    store = Crowded([])
    store.arrive(place)
    schema = '{"type":"struct","fields":[]}'
    store.arrive(1, Metadata(id="other", schema_string=schema, created_time=0))
    store.arrive(5, Metadata(id="another", schema_string=schema, created_time=0))
    with pytest.raises(errors.MetadataChangedException) as lost:
        appended(store)
    assert lost.value.winning_version == place
    assert store.head(path_of(place + 6)) is None
