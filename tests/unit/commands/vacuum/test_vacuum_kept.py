"""What must stay, whoever names it and however: change files, vectors, clones, and a clock that is wrong."""

from __future__ import annotations

import itertools
import time

import numpy as np
import polars as pl
import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.needed import CommitTimeline, files_of_commits, find_needed
from pydelta.errors import UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.log.vector_files import write_vectors
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import commit_file
from pydelta.protocol.vectors import vector_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import clone_table, vacuum
from pydelta.testing.garbage import HOUR_MS, Yard
from pydelta.txn import Operation, start_transaction

_NAMES = itertools.count()
FEATURES = ("deletionVectors",)


def new_yard(*columns, **arguments):
    return Yard(MemoryStore(f"memory://needed{next(_NAMES)}/t"), partition_columns=columns, **arguments)


def with_vectors(yard):
    yard.builder.protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES
    )
    return yard


def run(yard, **request):
    return vacuum(yard.log, Vacuum(**request), now_ms=yard.now_ms)


def loosened(yard, version):
    """Spread the objects of a commit over several lines: only the slow reader takes that."""
    path = f"_delta_log/{commit_file(version)}"
    at = next(info.modification_time_ms for info in yard.store.list_all() if info.path == path)
    yard.store.put(path, yard.store.read(path).replace(b'{"', b'{\n"', 3).replace(b"}\n", b"} trailing\n"))
    yard.store.set_time(path, at)


@pytest.mark.parametrize("loose", [False, True], ids=["", "read by the fallback"])
def test_every_kind_of_file_of_a_retained_commit_stays(loose):
    yard = with_vectors(new_yard("p"))
    rows = [np.array([0], dtype=np.uint64)]
    (vector,), (vector_file,) = write_vectors(rows, store=yard.store)
    yard.backdate(vector_file, age=900)
    gone = yard.add("p=1/gone", age=900)
    marked = yard.named("p=1/gone", vector=vector)
    change = yard.cdc("_change_data/p=1/cdc", age=900)
    yard.commit(gone, age=900)
    yard.commit(yard.remove(gone, age=850), marked, age=850)
    version = yard.commit(yard.remove(marked, age=None), change, age=1)
    yard.put("p=1/garbage", age=900)
    if loose:
        loosened(yard, version)
    assert set(run(yard).files["path"]) == {"p=1/garbage"}
    assert yard.files() >= {"p=1/gone", vector_file, "_change_data/p=1/cdc"}


@pytest.mark.parametrize("adds", [False, True])
def test_both_readers_of_commits_say_the_same(adds):
    yard = with_vectors(new_yard("p"))
    (vector,), _ = write_vectors([np.array([0], dtype=np.uint64)], store=yard.store)
    old = yard.add("p=1/a", age=900)
    yard.commit(old, age=900)
    yard.commit(yard.remove(old, age=1), yard.named("p=1/a", vector=vector), yard.cdc("_change_data/c", age=1), age=1)
    quick = files_of_commits(yard.log, [0, 1], adds=adds)
    for version in (0, 1):
        loosened(yard, version)
    slow = files_of_commits(yard.log, [0, 1], adds=adds)
    assert [(one.version, one.files.rows()) for one in quick] == [(one.version, one.files.rows()) for one in slow]
    kinds = {kind for one in slow for kind in one.files["kind"]}
    assert kinds == ({"add", "remove", "cdc"} if adds else {"remove", "cdc"})
    assert [one.version for one in files_of_commits(yard.log, [0, 1, 7], adds=adds)] == [0, 1]


@pytest.mark.parametrize("spelt", ["memory", "other scheme"])
@pytest.mark.parametrize("folder", ["", "ab"])
def test_a_vector_that_is_named_by_its_whole_path_stays(spelt, folder):
    yard = with_vectors(new_yard())
    (vector,), (path,) = write_vectors([np.array([0], dtype=np.uint64)], store=yard.store, random_folders=bool(folder))
    yard.backdate(path, age=900)
    root = yard.store.root if spelt == "memory" else "viewfs://cluster/mnt/t"
    absolute = type(vector)(
        storage_type="p",
        path_or_inline_dv=f"{root}/{vector_path(vector)}",
        offset=vector.offset,
        size_in_bytes=vector.size_in_bytes,
        cardinality=vector.cardinality,
    )
    yard.add("x", age=900)
    yard.commit(yard.named("x", vector=absolute), age=900)
    assert run(yard).deleted == 0
    assert yard.files() == {"x", path}


def test_a_file_stays_while_a_version_that_was_current_at_the_cut_off_reads_it_and_not_longer():
    yard = new_yard()
    old = yard.add("x", age=900)
    yard.commit(old, age=900)
    yard.commit(yard.remove(old, age=200), age=200)
    assert run(yard, retention_hours=201, dry_run=True).files.is_empty()
    assert run(yard, retention_hours=200, dry_run=True).files.is_empty(), "of that very moment"
    assert set(run(yard, retention_hours=199, dry_run=True).files["path"]) == {"x"}


def test_tombstones_that_a_checkpoint_kept_count_by_their_own_time():
    yard = new_yard()
    young, old, none = (yard.add(name, age=900) for name in ("young", "old", "none"))
    yard.commit(young, old, none, age=900)
    yard.commit(yard.remove(young, age=100), yard.remove(old, age=300), yard.remove(none, age=None), age=500)
    yard.log.checkpoint(now_ms=yard.now_ms - 400 * HOUR_MS)
    needed = find_needed(yard.log, yard.log.update(), cutoff_ms=yard.now_ms - 168 * HOUR_MS)
    assert needed.may_hold(pl.Series(["young", "old", "none"])).to_list() == [True, False, False]


def test_a_timeline_is_of_the_versions_that_are_asked_about():
    yard = new_yard()
    for age in (900, 800, 700):
        yard.commit(yard.add(f"f{age}", age=age), age=age)
    line = CommitTimeline.of(yard.log, 1)
    assert (line.versions, line.newest) == ((0, 1), 1)
    assert line.since(yard.now_ms - 800 * HOUR_MS) == (1,)
    assert line.before(yard.now_ms - 800 * HOUR_MS) == (0,)


# --- shallow clones ----------------------------------------------------------------------------------------------


def cloned(source):
    clone = DeltaLog(MemoryStore(f"memory://needed{next(_NAMES)}/clone"))
    clone_table(source, clone, shallow=True)
    return clone


def test_files_that_a_noted_clone_reads_stay_and_those_of_a_clones_clone():
    yard = new_yard("p")
    one, two, three = (yard.add(f"p=1/a b {name}", age=900) for name in ("one", "two", "three"))
    yard.commit(one, two, age=900)
    first = cloned(yard.log)
    second = cloned(first)
    yard.commit(three, yard.remove(one, age=800), yard.remove(two, age=800), age=800)
    yard.commit(yard.remove(three, age=700), age=700)
    _empty(first)
    DeltaLog.clear_cache()
    for mode in ("lite", "full"):
        result = run(yard, mode=mode, dry_run=True)
        assert set(result.files["path"]) == {"p=1/a b three"}, mode
        assert any("shallow clones" in text.lower() for text in result.warnings)
    assert second.update().num_files == 2
    second.store.delete_many([info.path for info in second.store.list_all()])
    first.store.delete_many([info.path for info in first.store.list_all()])
    DeltaLog.clear_cache()
    assert run(yard).deleted == 3


def _empty(log):
    """The clone's own versions no longer read the files, and are older than any retention."""
    txn = start_transaction(log)
    files = txn.snapshot.files
    txn.commit([add.remove(deletion_timestamp=0) for add in files.adds(files.core)], Operation(name="DELETE"))
    for info in list(log.store.list_all("_delta_log")):
        log.store.set_time(info.path, 1_000_000)


def test_a_clone_that_cannot_be_read_is_no_reason_to_break_it():
    yard = new_yard()
    old = yard.add("x", age=900)
    yard.commit(old, age=900)
    clone = cloned(yard.log)
    yard.commit(yard.remove(old, age=800), age=800)
    clone.store.put(f"_delta_log/{commit_file(0)}", b"damaged")
    DeltaLog.clear_cache()
    with pytest.raises(UnsafeOperationError, match="clone") as caught:
        run(yard)
    assert clone.uri in str(caught.value) and "_pydelta/clones" in str(caught.value)
    assert yard.store.head("x") is not None


# --- clocks ------------------------------------------------------------------------------------------------------


class Behind(CountingStore):
    """A store whose clock is so far behind this machine's: what it is given now gets its time."""

    def __init__(self, inner, hours):
        super().__init__(inner)
        self.inner, self.by_ms = inner, hours * HOUR_MS

    def put(self, path, data):
        super().put(path, data)
        self.inner.set_time(path, time.time_ns() // 1_000_000 - self.by_ms)

    def put_if_absent(self, path, data):
        outcome = super().put_if_absent(path, data)
        self.inner.set_time(path, time.time_ns() // 1_000_000 - self.by_ms)
        return outcome


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_machine_that_is_ahead_of_the_store_deletes_by_the_stores_clock(mode):
    real = time.time_ns() // 1_000_000
    yard = new_yard(now_ms=real - 500 * HOUR_MS)  # the store's now
    live, lately = yard.add("live", age=900), yard.add("lately", age=900)
    yard.commit(live, lately, age=900)
    yard.commit(yard.remove(lately, age=20), age=20)
    yard.put("under way", age=1)
    yard.put("garbage", age=900)
    log = DeltaLog(Behind(yard.store, 500))
    result = vacuum(log, Vacuum(mode=mode))
    assert yard.files() >= {"live", "lately", "under way"}
    assert any("clock" in text for text in result.warnings)
    assert set(result.files["path"]) == ({"garbage"} if mode == "full" else set())


def test_a_machine_that_agrees_with_the_store_says_nothing_of_clocks():
    yard = new_yard(now_ms=time.time_ns() // 1_000_000)
    yard.commit(yard.add("live", age=900), age=900)
    assert vacuum(yard.log).warnings == ()
    before = yard.files()
    assert vacuum(yard.log, Vacuum(dry_run=True)).warnings == ()
    assert yard.files() == before
