"""VACUUM and shallow clones: a clone never touches its source, and the source leaves it what it reads."""

from __future__ import annotations

import itertools

import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.errors import StorageReadOnlyError
from pydelta.log import DeltaLog
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import clone_table, vacuum
from pydelta.testing.garbage import HOUR_MS, Yard

_NAMES = itertools.count()


def source_and_clone(place="memory://vacuumclones{}/clone"):
    number = next(_NAMES)
    source = Yard(MemoryStore(f"memory://vacuumclones{number}/t"), partition_columns=("p",))
    source.commit(source.add("p=1/a", age=900), source.add("p=1/b", age=900), age=900)
    clone = DeltaLog(MemoryStore(place.format(number)))
    clone_table(source.log, clone, shallow=True)
    return source, clone


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_clone_never_touches_its_source(mode):
    source, clone = source_and_clone()
    before = source.files()
    txn_files = clone.update().files
    from pydelta.txn import Operation, start_transaction

    txn = start_transaction(clone)
    actions = [add.remove(deletion_timestamp=source.now_ms - 900 * HOUR_MS) for add in txn_files.adds(txn_files.core)]
    txn.commit(actions, Operation(name="DELETE"))
    later = source.now_ms + 1000 * HOUR_MS
    result = vacuum(clone, Vacuum(mode=mode), now_ms=later)
    assert result.deleted == 0
    assert source.files() == before
    assert result.warnings == ()


def test_a_clone_in_a_folder_of_its_source_is_a_table_of_its_own():
    source, clone = source_and_clone("memory://vacuumclones{}/t/clones/c")
    clone.store.put("p=1/of the clone", b"x")
    result = vacuum(source.log, now_ms=source.now_ms + 1000 * HOUR_MS)
    assert result.deleted == 0
    assert clone.store.head("p=1/of the clone") is not None


def test_the_sources_run_names_the_clones_that_are_still_there_and_leaves_them_their_files():
    source, clone = source_and_clone()
    removed = source.log.update().files
    source.commit(*(source.remove(add, age=500) for add in removed.adds(removed.core)[:1]), age=500)
    result = vacuum(source.log, Vacuum(dry_run=True), now_ms=source.now_ms)
    assert result.files.is_empty()
    assert result.warnings == (f"Shallow clones read files of this table, so these files are kept: {clone.uri}.",)
    clone.store.delete_many([info.path for info in clone.store.list_all()])
    DeltaLog.clear_cache()
    alone = vacuum(source.log, Vacuum(dry_run=True), now_ms=source.now_ms)
    assert (alone.files.height, alone.warnings) == (1, ())


def test_a_source_that_may_only_be_read_can_be_cloned():
    class ReadOnly(CountingStore):
        def put(self, path, data):
            raise StorageReadOnlyError(f"{path} is read-only.")

    source, _ = source_and_clone()
    clone = DeltaLog(MemoryStore(f"memory://vacuumclones{next(_NAMES)}/clone"))
    assert clone_table(DeltaLog(ReadOnly(source.store)), clone, shallow=True).version == 0
