"""Holders that were stopped for longer than their lease lasts, and come back: never two at once, never a late write."""

from __future__ import annotations

import contextlib
import uuid

import pytest

from pydelta.errors import StorageError
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, publish, publish_under, verify_manifests
from pydelta.manifests.lease import LEASE_DIR, TWIN, LeaseLostError, ManifestsBusyError, acquire, is_doubted
from pydelta.storage import PutOutcome
from pydelta.storage.memory import MemoryStore
from pydelta.testing import Fault, FaultKind, FaultyStore
from pydelta.testing.operations import add_file, append, create_table
from pydelta.testing.stores import _Wrapper


class Clock:
    def __init__(self):
        self.ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def store():
    return MemoryStore(f"memory://{uuid.uuid4()}/table")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def take(store, clock):
    def acquired(name="manifests", over=store):
        return acquire(over, name, wait_seconds=0, wall=clock, sleep=lambda seconds: None)

    return acquired


class Interrupted(_Wrapper):
    """Does something just before a chosen call takes effect: as if the process had slept in front of it."""

    def __init__(self, inner, verb, path, what):
        super().__init__(inner)
        self._at, self._what = (verb, path), what

    def _call(self, verb, path, run):
        if self._what is not None and verb == self._at[0] and self._at[1] in path:
            what, self._what = self._what, None
            what()
        return run()


def test_one_holder_at_a_time_and_the_next_when_it_is_over(take):
    first = take()
    with pytest.raises(ManifestsBusyError):
        take()
    assert take(TWIN).number == 1, "a metastore's lease is another one"
    first.release()
    assert take().number == first.number + 1


def test_a_holder_that_comes_back_late_lets_nobody_in_beside_its_successor(take, clock):
    first = take()
    clock.ms += 80_000
    second = take()
    first.release()
    with pytest.raises(ManifestsBusyError):
        take()
    second.check()
    second.release()
    assert take().number == 3


def test_a_look_that_is_overtaken_makes_no_second_holder(store, take, clock):
    """Two holders came and went since it listed, so that the number it goes for is free again."""
    take().release()

    def others():
        take().release()
        others.running = take()

    slow = Interrupted(store, "put_if_absent", f"{LEASE_DIR}/manifests-2", others)
    with pytest.raises(ManifestsBusyError):
        take(over=slow)
    others.running.check()
    assert others.running.number == 3


def test_a_renewal_that_comes_too_late_is_none(store, take, clock):
    def asleep():
        clock.ms += 200_000
        asleep.other = take()

    first = take(over=Interrupted(store, "put", f"{LEASE_DIR}/manifests-1", asleep))
    clock.ms += 40_000
    for _ in range(2):
        with pytest.raises(LeaseLostError):
            first.check()
    asleep.other.check()


def test_time_that_passes_while_it_looks_at_the_clock_is_not_won(take, clock):
    first = take()
    times = iter([clock.ms + 40_000, clock.ms + 240_000])
    first._wall = lambda: next(times, clock.ms + 240_000)
    with pytest.raises(LeaseLostError):
        first.check()
    with pytest.raises(LeaseLostError):
        first.check()


def test_a_renewal_that_fails_once_is_tried_again_in_the_background(store, clock):
    faulty = FaultyStore(store, Fault(kind=FaultKind.FAIL, call=0, verb="put", path_contains=LEASE_DIR))
    lease = acquire(faulty, wait_seconds=0, wall=clock)
    clock.ms += 40_000
    before = store.read(lease.path)
    with lease.kept(every_seconds=0.001):
        while store.read(lease.path) == before:
            pass
    assert faulty.fired
    clock.ms += 40_000
    lease.check()


def test_a_reply_that_was_lost_is_looked_up(store, clock):
    faulty = FaultyStore(store, Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent"))
    lease = acquire(faulty, wait_seconds=0, wall=clock)
    lease.check()
    assert store.put_if_absent(lease.path, b"") is PutOutcome.ALREADY_EXISTS


def test_older_files_go_and_a_torn_one_holds_for_as_long_as_a_whole_one(store, take, clock):
    for _ in range(5):
        take().release()
    assert [info.path for info in store.list_all(LEASE_DIR)] == [f"{LEASE_DIR}/manifests-5"]
    store.put(f"{LEASE_DIR}/manifests-6", b'{"owner": "')
    clock.ms = store.head(f"{LEASE_DIR}/manifests-6").modification_time_ms + 1
    with pytest.raises(ManifestsBusyError):
        take()
    clock.ms += 80_000
    assert take().number == 7


# --- what a late write does to readers -----------------------------------------------------------------------


def late(store, take, clock, path):
    """A publisher that sleeps in front of one call, while another one publishes what was committed meanwhile."""
    create_table(DeltaLog(store), [add_file("a", [1]), add_file("b", [1])])
    publish(DeltaLog(store))
    append("a", [2]).run(DeltaLog(store))

    def asleep():
        clock.ms += 200_000
        append("a", [3]).run(DeltaLog(store))
        lease = take()
        publish_under(DeltaLog(store), ManifestOptions(), lease)
        lease.release()

    sleepy = Interrupted(store, "put", path, asleep)
    lease = take(over=sleepy)
    with contextlib.suppress(LeaseLostError):  # nothing comes after the state, and nobody looks at the clock any more
        publish_under(DeltaLog(sleepy), ManifestOptions(), lease)
    lease.release()
    assert is_doubted(store, "manifests")


def test_a_manifest_that_is_written_late_is_written_anew_by_the_next_publication(store, take, clock):
    late(store, take, clock, "p=a/manifest")
    assert not verify_manifests(DeltaLog(store), files=0).ok, "an older manifest lies over the newer one"
    result = publish(DeltaLog(store))
    assert (result.full, result.reason) == (
        True,
        "a publisher was stopped for longer than its lease, and may have written late",
    )
    assert verify_manifests(DeltaLog(store), files=0).ok
    assert not is_doubted(store, "manifests")
    assert publish(DeltaLog(store)).written == {}


def test_a_state_that_is_written_late_is_made_good_too(store, take, clock):
    late(store, take, clock, "_pydelta/manifests.json")
    publish(DeltaLog(store))
    assert verify_manifests(DeltaLog(store), files=0).ok


def test_a_choice_of_partitions_does_not_settle_what_is_in_doubt_for_all(store, take, clock):
    late(store, take, clock, "p=a/manifest")
    publish(DeltaLog(store), ManifestOptions(where="p = 'b'"))
    assert verify_manifests(DeltaLog(store), files=0).ok


def test_who_lost_its_lease_before_it_wrote_anything_leaves_no_doubt(store, take, clock):
    lease = take()
    clock.ms += 80_000
    lease.release()
    assert not is_doubted(store, "manifests")


def test_a_doubt_that_comes_up_while_everything_is_done_anew_stays(store, take, clock):
    first = take()
    first.doubt()
    first.release()
    second = take()
    assert second.is_doubted
    first.doubt(for_ms=1)
    clock.ms += 1
    second.settle()
    assert is_doubted(store, "manifests")


def test_what_may_take_effect_later_is_in_doubt_from_then_on(store, take, clock):
    lease = take()
    lease.doubt(for_ms=600_000)
    lease.release()
    assert not is_doubted(store, "manifests", now_ms=clock.ms + 599_999)
    assert not take().is_doubted
    clock.ms += 700_000
    assert is_doubted(store, "manifests", now_ms=clock.ms)
    assert take().is_doubted


def test_a_store_that_fails_at_the_end_leaves_a_lease_that_runs_out(store, take, clock):
    faulty = FaultyStore(store, Fault(kind=FaultKind.FAIL, call=0, verb="put"))
    take(over=faulty).release()
    with pytest.raises(ManifestsBusyError):
        take()
    clock.ms += 80_000
    take().check()
    assert issubclass(LeaseLostError, StorageError)
