"""What every store promises, whichever it is."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.errors import InvalidArgumentError, ObjectNotFoundError, StorageError
from pydelta.storage import ObjectInfo, PutOutcome, Store, pages_of
from pydelta.storage.probe import probe_put_if_absent
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash

NAMES = ["plain", "with space", "50%", "%20", "a=b", "é中", "plus+and&amp;", "quote'\"", "tilde~(1)", "#hash?"]


def test_a_store_is_a_store(store):
    assert isinstance(store, Store)
    assert not store.root.endswith("/")


def test_what_was_put_is_read_back_and_replaced_whole(store):
    store.put("d/x", b"first")
    assert store.read("d/x") == b"first"
    store.put("d/x", b"2nd")
    assert store.read("d/x") == b"2nd"
    assert store.head("d/x").size == 3


def test_the_first_create_wins_and_the_second_changes_nothing(store):
    assert store.put_if_absent("_delta_log/0.json", b"mine") is PutOutcome.CREATED
    assert store.put_if_absent("_delta_log/0.json", b"theirs") is PutOutcome.ALREADY_EXISTS
    assert store.read("_delta_log/0.json") == b"mine"


def test_of_64_racing_creates_one_wins_and_its_bytes_stay(store):
    barrier = threading.Barrier(64)

    def create(number):
        barrier.wait(timeout=60)
        return number, store.put_if_absent("race", b"%d" % number)

    with ThreadPoolExecutor(64) as pool:
        outcomes = dict(pool.map(create, range(64)))
    winners = [number for number, outcome in outcomes.items() if outcome is PutOutcome.CREATED]
    assert len(winners) == 1
    assert store.read("race") == b"%d" % winners[0]
    assert [info.path for info in store.list_all()] == ["race"]


def test_the_probe_finds_the_store_safe_and_cleans_up(store):
    result = probe_put_if_absent(store, writers=16)
    assert result.safe
    assert list(store.list_all()) == []


def test_a_listing_is_sorted_starts_where_asked_and_stays_in_its_directory(store):
    for name in ["10", "9", "1", "2", "sub/3"]:
        store.put(f"log/{name}", b"x")
    store.put("log2/0", b"x")
    listed = [info.path for info in store.list_from("", prefix="log")]
    assert [path for path in listed if path != "log/sub"] == ["log/1", "log/10", "log/2", "log/9"]
    assert [info.path for info in store.list_from("10", prefix="log")] == ["log/10", "log/2", "log/9"]
    assert [info.path for info in store.list_from("3", prefix="log")] == ["log/9"]
    assert list(store.list_from("", prefix="nowhere")) == []


def test_list_all_goes_down_and_names_paths_from_the_root(store):
    names = {"a", "d/b", "d/e/c"}
    for name in names:
        store.put(name, b"12")
    assert {info.path for info in store.list_all()} == names
    assert {info.path for info in store.list_all("d")} == {"d/b", "d/e/c"}
    assert {info.size for info in store.list_all()} == {2}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_literally(store, name):
    path = f"d/{name}/{name}.json"
    assert store.put_if_absent(path, name.encode()) is PutOutcome.CREATED
    assert store.put_if_absent(path, b"") is PutOutcome.ALREADY_EXISTS
    assert store.read(path) == name.encode()
    assert [info.path for info in store.list_all()] == [path]
    assert [info.path for info in store.list_from("", prefix=f"d/{name}")] == [path]
    assert store.delete_many([path]).deleted == 1
    assert store.head(path) is None


def test_a_range_is_cut_at_the_end(store):
    store.put("x", b"0123456789")
    assert store.read_range("x", 2, 3) == b"234"
    assert store.read_range("x", 8, 10) == b"89"


def test_what_is_missing_is_an_error_to_read_and_none_to_head(store):
    with pytest.raises(ObjectNotFoundError) as caught:
        store.read("d/missing")
    assert "missing" in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert store.head("d/missing") is None


def test_deleting_is_idempotent_and_reports(store):
    for number in range(5):
        store.put(f"d/{number}", b"x")
    report = store.delete_many([f"d/{number}" for number in range(7)])
    assert report.deleted == 7
    assert report.failed == ()
    assert list(store.list_all()) == []


def test_a_written_object_appears_whole_at_close(store):
    with store.open_writer("d/p=1/file") as stream:
        stream.write(b"abc" * 1000)
        stream.write(b"def")
        assert store.head("d/p=1/file") is None
    assert store.read("d/p=1/file") == b"abc" * 1000 + b"def"


def test_an_aborted_writer_leaves_nothing(store):
    with pytest.raises(RuntimeError), store.open_writer("d/file") as stream:
        stream.write(b"abc")
        raise RuntimeError("the job failed")
    assert store.head("d/file") is None
    assert list(store.list_all()) == []


def test_a_lost_reply_to_a_create_is_unknown_and_the_object_is_there(store):
    faulty = FaultyStore(store, Fault(kind=FaultKind.LOSE_REPLY, call=0, verb="put_if_absent"))
    assert faulty.put_if_absent("x", b"mine") is PutOutcome.UNKNOWN
    assert store.read("x") == b"mine"


def test_a_dead_store_stays_dead(store):
    faulty = FaultyStore(store, Fault(kind=FaultKind.DIE_BEFORE, call=1, verb="put"))
    faulty.put("a", b"1")
    with pytest.raises(SimulatedCrash):
        faulty.put("b", b"2")
    with pytest.raises(SimulatedCrash):
        faulty.read("a")
    assert faulty.fired
    assert store.head("b") is None


def test_a_failing_call_does_nothing_and_may_be_repeated(store):
    faulty = FaultyStore(store, Fault(kind=FaultKind.FAIL, call=0, verb="put"))
    with pytest.raises(StorageError) as caught:
        faulty.put("a", b"1")
    assert caught.value.retryable
    assert store.head("a") is None
    faulty.put("a", b"1")
    assert store.read("a") == b"1"


def test_a_range_behind_the_end_is_empty_and_one_of_nothing_an_error(store):
    store.put("x", b"0123")
    assert store.read_range("x", 4, 10) == b""
    assert store.read_range("x", 0, 0) == b""
    for start, length in [(0, 4), (0, 0), (9, 1)]:
        with pytest.raises(ObjectNotFoundError):
            store.read_range("y", start, length)


@pytest.mark.parametrize("path", ["", "/x", "a/../x", "../x", "a//x", "a/./x", "a/", "a\0b"])
def test_a_path_that_leaves_the_root_is_refused_by_every_verb(store, path):
    for call in (
        lambda: store.read(path),
        lambda: store.read_range(path, 0, 1),
        lambda: store.put(path, b""),
        lambda: store.put_if_absent(path, b""),
        lambda: store.head(path),
        lambda: store.delete_many([path]),
        lambda: store.open_writer(path),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    assert list(store.list_all()) == []


def test_a_reader_sees_the_old_or_the_new_object_and_nothing_between(store):
    versions = {bytes([number]) * 200_000 for number in range(10)}
    store.put("x", b"\0" * 200_000)
    done = threading.Event()

    def rewrite():
        for version in sorted(versions):
            store.put("x", version)
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(store.read("x"))
    writer.join(30)
    assert seen <= versions
    assert store.read("x") == max(versions)


def test_a_writer_that_is_forgotten_publishes_nothing(store):
    stream = store.open_writer("d/file")
    stream.write(b"half of it")
    del stream
    assert list(store.list_all()) == []


def test_a_writer_replaces_whole_and_an_abort_keeps_what_was_there(store):
    store.put("x", b"old")
    stream = store.open_writer("x")
    stream.write(b"new, and not")
    stream.abort()
    stream.abort()
    stream.close()
    assert store.read("x") == b"old"
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"more")
    with store.open_writer("x") as again:
        again.write(memoryview(b"new"))
    again.close()
    assert store.read("x") == b"new"


def test_parquet_is_written_and_read_through_a_store(store):
    table = pa.table({"x": list(range(1000))})
    with store.open_writer("d/f.parquet") as stream:
        pq.write_table(table, stream)
    assert pq.read_table(pa.BufferReader(store.read("d/f.parquet"))).equals(table)


def test_an_empty_object_is_an_object(store):
    with store.open_writer("empty"):
        pass
    assert store.put_if_absent("empty", b"x") is PutOutcome.ALREADY_EXISTS
    assert (store.read("empty"), store.head("empty").size) == (b"", 0)


def test_a_directory_is_no_object(store):
    store.put("d/x", b"1")
    assert store.head("d") is None
    with pytest.raises((ObjectNotFoundError, StorageError)):
        store.read("d")


def test_times_do_not_run_backwards_and_are_milliseconds(store):
    before_s = int(time.time())
    store.put("a", b"1")
    listed, head = next(iter(store.list_from("", prefix=""))), store.head("a")
    cut = listed.modification_time_ms // 1000 * 1000
    assert head.modification_time_ms in (listed.modification_time_ms, cut)
    assert (head.path, head.size, head.etag) == (listed.path, listed.size, listed.etag)
    assert before_s * 1000 <= listed.modification_time_ms <= (time.time() + 1) * 1000


def test_the_publishing_of_a_stream_can_fail_lose_its_reply_or_die(store):
    for kind, error, there in [
        (FaultKind.FAIL, StorageError, False),
        (FaultKind.DIE_BEFORE, SimulatedCrash, False),
        (FaultKind.LOSE_REPLY, StorageError, True),
        (FaultKind.DIE_AFTER, SimulatedCrash, True),
    ]:
        faulty = FaultyStore(store, Fault(kind=kind, call=0, verb="close_writer"))
        with pytest.raises(error), faulty.open_writer(f"d/{kind.name}") as stream:
            stream.write(b"x")
        assert (store.head(f"d/{kind.name}") is not None) is there
        assert faulty.calls == [("open_writer", f"d/{kind.name}"), ("close_writer", f"d/{kind.name}")]


def test_a_counting_store_counts_calls_and_bytes(store):
    counting = CountingStore(store)
    counting.put("a", b"123")
    assert counting.read("a") + counting.read_range("a", 1, 1) == b"1232"
    assert [info.path for info in counting.list_from("", prefix="")] == ["a"]
    assert counting.calls == [("put", "a"), ("read", "a"), ("read_range", "a"), ("list_from", "")]
    assert (counting.bytes_read, counting.paths("read", "put")) == (4, ["a", "a"])
    counting.reset()
    assert (counting.calls, counting.bytes_read) == ([], 0)


def _rows(page):
    return zip(page.paths, page.sizes, page.times_ms, strict=True)


def test_pages_hold_what_a_listing_holds_and_ranges_part_it(store):
    paths = [f"a=1/{name}" for name in NAMES] + ["a=2/x", "b", "a=1/deep/er/x"]
    for path in paths:
        store.put(path, path.encode())
    for watched in (store, CountingStore(store)):
        pages = list(watched.list_pages())
        found = {path: (size, at) for page in pages for path, size, at in _rows(page)}
        assert found == {info.path: (info.size, info.modification_time_ms) for info in store.list_all()}
        assert found.keys() == set(paths)
        lower = [path for page in watched.list_pages(before="a=1/tilde~(1)") for path in page.paths]
        upper = [path for page in watched.list_pages(after="a=1/tilde~(1)") for path in page.paths]
        assert sorted(lower + upper) == sorted(paths)
        assert max(lower) == "a=1/tilde~(1)" < min(upper)
    assert len(list(pages_of(store))) == len(pages)
    directories = {path for page in pages for path in page.directories}
    assert directories == ({"a=1", "a=1/deep", "a=1/deep/er", "a=2"} if store.has_directories else set())
    if store.has_directories:
        entered = [path for page in store.list_pages(enter=lambda path: path != "a=1") for path in page.paths]
        assert sorted(entered) == ["a=2/x", "b"]
        assert store.remove_directories(["a=2", "a=1/deep/er", "none"]) == []
        store.delete_many(["a=1/deep/er/x"])
        assert store.remove_directories(["a=1/deep/er", "a=1/deep", "a=1"]) == ["a=1/deep/er", "a=1/deep"]
    else:
        assert store.remove_directories(["a=1"]) == []


def test_a_store_without_pages_is_listed_whole():
    class Plain:
        def list_all(self, prefix=""):
            return iter([ObjectInfo(path=f"k{number:04}", size=1, modification_time_ms=2) for number in range(1500)])

    pages = list(pages_of(Plain(), after="k0099"))
    assert [len(page.paths) for page in pages] == [1000, 400]
