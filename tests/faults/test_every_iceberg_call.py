"""Every storage call of publishing an Iceberg entry goes wrong once: readers see the old state or the new one."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import (
    IcebergOptions,
    expire_snapshots,
    publish_iceberg,
    read_entry,
    unreferenced_files,
)
from pydelta.manifests.iceberg.metadata import HINT_PATH, metadata_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import add_file, append, create_table, delete_partition, hide_value
from tests.iceberg.readers import StoreIO

_NAMES = itertools.count()
OPTIONS = IcebergOptions(wait_seconds=0)
VECTORS = IcebergOptions(wait_seconds=0, format_version=3)
LATER = 1 << 50


def publish(store):
    publish_iceberg(DeltaLog(store), OPTIONS)


def publish_vectors(store):
    publish_iceberg(DeltaLog(store), VECTORS)


def expire(store):
    expire_snapshots(DeltaLog(store), is_retained=lambda version: version == 4, options=OPTIONS)


OPERATIONS = {
    "publish": (publish, 1, OPTIONS),
    "expire": (expire, 4, OPTIONS),
    "publish vectors": (publish_vectors, 1, VECTORS),
    "go over to vectors": (publish_vectors, 1, OPTIONS),
}
"""What runs, the version that is published before, and how."""


def prepared(published=1, options=OPTIONS):
    store = MemoryStore(f"memory://iceberg{next(_NAMES)}/t")
    log = DeltaLog(store)
    create_table(log, [add_file("1", [1, 7]), add_file("2", [2, 8]), add_file("3", [3])])
    hide_value(7).run(log)
    publish_iceberg(log, options)
    append("1", [4]).run(log)
    hide_value(8).run(log)
    delete_partition("3").run(log)
    if published == 4:
        publish_iceberg(log, options)
    return store


def again(store, objects):
    """The store with these objects alone: locations are absolute, so that its name must stay."""
    store.delete_many([info.path for info in store.list_all()])
    for path, data in objects.items():
        store.put(path, data)
    return store


def expected(log, version):
    snapshot = log.snapshot(version=version)
    return {
        f"{log.store.root}/{add.path}": add.deletion_vector.cardinality if add.deletion_vector else 0
        for add in snapshot.files.adds(snapshot.files.core)
    }


def scanned(store, location, snapshot_id=None):
    """Data files with their hidden rows, as a reader plans a scan. Delete files are there and whole."""
    io = StoreIO(store)
    metadata = FromInputFile.table_metadata(io.new_input(location))
    table = Table(("t",), metadata, location, io, NoopCatalog("none"))
    found = {}
    for task in table.scan(snapshot_id=snapshot_id).plan_files():
        for delete in task.delete_files:
            assert len(io.new_input(delete.file_path)) == delete.file_size_in_bytes
        found[task.file.file_path] = sum(delete.record_count for delete in task.delete_files)
    return found


def by_hint(store):
    number = int(store.read(HINT_PATH))
    return number, scanned(store, f"{store.root}/{metadata_path(number)}")


def expire_leases(store):
    for info in list(store.list_all("_pydelta/leases")):
        store.put(info.path, b'{"owner": "dead", "expires_ms": 1}')


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_any_call_shows_old_or_new_and_the_next_run_is_right(name, kind):
    run, published, options = OPERATIONS[name]
    store = prepared(published, options)
    objects = {info.path: store.read(info.path) for info in store.list_all()}
    versions = {version: expected(DeltaLog(store), version) for version in range(5)}
    before, after = versions[published], versions[4]
    counting = CountingStore(store)
    run(counting)
    total = len(counting.calls)
    assert total >= 10
    for number in range(total):
        again(store, objects)
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        with contextlib.suppress(SimulatedCrash, DeltaError):
            run(faulty)
        what = f"{kind.value} at call {number} of {total}"
        hint, seen = by_hint(store)
        assert seen == (before if hint == 1 else after), what
        entry = read_entry(DeltaLog(store))
        assert scanned(store, entry.metadata_location) == (before if entry.version == 1 else after), what
        assert entry.number >= hint
        expire_leases(store)
        run(store)
        later, seen = by_hint(store)
        assert later >= hint, what
        assert seen == after, what
        assert later == read_entry(DeltaLog(store)).number, what
        log = DeltaLog(store)
        store.delete_many([info.path for info in unreferenced_files(log, older_than_ms=LATER)])
        assert by_hint(store)[1] == after, what
        metadata = FromInputFile.table_metadata(StoreIO(store).new_input(read_entry(log).metadata_location))
        for snapshot in metadata.snapshots:
            version = int(snapshot.summary["pydelta.version"])
            shown = scanned(store, read_entry(log).metadata_location, snapshot.snapshot_id)
            assert shown == versions[version], what
        if name == "expire":
            assert [int(item.summary["pydelta.version"]) for item in metadata.snapshots] == [4], what


def test_two_publishers_that_do_not_see_each_other_s_lease():
    """The lease keeps work from being done twice; without it, the put of the metadata decides."""
    store = prepared()
    after = expected(DeltaLog(store), 4)

    class Beside(CountingStore):
        """Lets another publisher finish just before the metadata is put."""

        done = False

        def put_if_absent(self, path, data):
            if path.endswith(".metadata.json") and not self.done:
                self.done = True
                expire_leases(store)
                publish_iceberg(DeltaLog(store), OPTIONS)
            return super().put_if_absent(path, data)

    publish_iceberg(DeltaLog(Beside(store)), OPTIONS)
    number, seen = by_hint(store)
    assert (number, seen) == (2, after)
    assert read_entry(DeltaLog(store)).number == 2


def test_a_late_hint_does_not_go_back():
    store = prepared()

    class Slow(CountingStore):
        """Is overtaken after its metadata is put, before its hint."""

        done = False

        def put(self, path, data):
            if path == HINT_PATH and not self.done:
                self.done = True
                expire_leases(store)
                append("9", [9]).run(DeltaLog(store))
                publish_iceberg(DeltaLog(store), OPTIONS)
            return super().put(path, data)

    with contextlib.suppress(DeltaError):
        publish_iceberg(DeltaLog(Slow(store)), OPTIONS)
    assert read_entry(DeltaLog(store)).number == 3
    assert by_hint(store)[1] == expected(DeltaLog(store), 5)
