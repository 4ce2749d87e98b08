"""How long maintenance waits for changes that are run again, and what it does with what was left behind."""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.run import FOLDER, announced, changes_under_way, give_way
from pydelta.errors import StoragePermissionError
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import compact_after_write, optimize
from pydelta.testing.operations import NO_PAUSE, add_file, append, create_table
from pydelta.testing.row_files import LogEngine
from pydelta.txn import start_transaction

_NAMES = itertools.count()


@pytest.fixture
def store():
    return MemoryStore(f"memory://giveway{next(_NAMES)}/t")


class Clock:
    """A clock that sleeping moves."""

    def __init__(self, store, *, until=None, done=lambda: None):
        found = list(store.list_from("", prefix=FOLDER))
        self.now = max((item.modification_time_ms for item in found), default=0)
        self.until, self.done, self.slept = until, done, 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.slept += seconds
        self.now += int(seconds * 1000)
        if self.until is not None and self.slept >= self.until:
            self.done()


def test_without_an_announcement_nothing_waits(store):
    clock = Clock(store)
    assert give_way(store, most_ms=60_000, sleep=clock.sleep, clock=clock) == 0
    assert clock.slept == 0


def test_it_waits_until_the_change_is_done(store):
    with announced(store):
        paths = [item.path for item in store.list_from("", prefix=FOLDER)]
        clock = Clock(store, until=3, done=lambda: store.delete_many(paths))
        waited = give_way(store, most_ms=60_000, sleep=clock.sleep, clock=clock)
    assert 3_000 <= waited < 4_000


@pytest.mark.parametrize("most_ms", [1, 700, 5_000])
def test_and_no_longer_than_the_bound(store, most_ms):
    with announced(store):
        clock = Clock(store)
        waited = give_way(store, most_ms=most_ms, sleep=clock.sleep, clock=clock)
    assert most_ms <= waited <= most_ms + 500


def test_a_bound_of_zero_does_not_look(store, monkeypatch):
    monkeypatch.setattr(store, "list_from", lambda *args, **named: pytest.fail("it looked"))
    assert give_way(store, most_ms=0) == 0


def test_the_announcement_goes_when_the_change_fails(store):
    with pytest.raises(ZeroDivisionError), announced(store):
        assert changes_under_way(store, now_ms=0) == 1
        raise ZeroDivisionError
    assert changes_under_way(store, now_ms=0) == 0


def test_two_changes_are_two(store):
    with announced(store), announced(store):
        assert changes_under_way(store, now_ms=0) == 2


def test_what_a_dead_process_left_behind_is_deleted_when_it_is_old(store):
    store.put(f"{FOLDER}/left", b"{}")
    (left,) = store.list_from("", prefix=FOLDER)
    assert changes_under_way(store, now_ms=left.modification_time_ms + 15 * 60_000) == 1
    assert changes_under_way(store, now_ms=left.modification_time_ms + 15 * 60_000 + 1) == 0
    assert list(store.list_from("", prefix=FOLDER)) == []


def test_who_waits_for_young_ones_alone_leaves_the_others_there(store):
    with announced(store) as say_again:
        (mine,) = store.list_from("", prefix=FOLDER)
        old = mine.modification_time_ms + 1_001
        assert changes_under_way(store, now_ms=old, younger_than_ms=1_000) == 0
        assert changes_under_way(store, now_ms=old) == 1
        store.delete_many([mine.path])
        say_again()
        (again,) = store.list_from("", prefix=FOLDER)
        assert again.path == mine.path
        assert changes_under_way(store, now_ms=again.modification_time_ms + 1_000, younger_than_ms=1_000) == 1


def test_it_looks_as_often_as_it_is_told(store):
    with announced(store):
        clock = Clock(store)
        looks = []

        def sleep(seconds):
            looks.append(seconds)
            clock.sleep(seconds)

        give_way(store, most_ms=1_000, look_again_ms=100, sleep=sleep, clock=clock)
    assert looks == [0.1] * 10


def test_who_may_not_list_them_does_not_wait(store, monkeypatch):
    def refuses(*args, **named):
        raise StoragePermissionError("no")

    monkeypatch.setattr(store, "list_from", refuses)
    assert give_way(store, most_ms=60_000) == 0


def small_files(store):
    log = DeltaLog(store)
    create_table(log, [add_file("1", [number]) for number in range(4)], delta_autoOptimize_autoCompact="true")
    return log


def test_optimize_reads_the_table_after_it_has_waited(store, monkeypatch):
    log, seen = small_files(store), []

    def waits(of, *, most_ms):
        seen.append(most_ms)
        append("1", [9]).run(DeltaLog(of))

    monkeypatch.setattr("pydelta.commands.optimize.command.give_way", waits)
    result = optimize(log, LogEngine(), Settings(), begin=lambda log: start_transaction(log, backoff=NO_PAUSE))
    assert seen == [60_000]
    assert len(result.removed) == 5, "what was committed while it waited is part of it"


def test_auto_compaction_leaves_it_to_the_next_write(store):
    log = small_files(store)
    settings = Settings(auto_compact=True, auto_compact_min_files=2)
    committed = append("1", [8]).run(log)
    adds = [add_file("1", [8])]
    with announced(store):
        assert compact_after_write(log, LogEngine(), settings, committed, adds) is None
    done = compact_after_write(log, LogEngine(), settings, committed, adds)
    assert done is not None
    assert done.version == 2
