"""Every storage call of GENERATE and of a sync goes wrong once: readers get whole manifests, the next run is right."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.thrift.client import found_partition, found_table
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, publish, read_state
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import add_file, append, create_table, delete_partition

TWIN = TableName(database="lake_symlink", name="orders")
_NAMES = itertools.count()


def generate(store, content):
    del content
    publish(DeltaLog(store), ManifestOptions(wait_seconds=0))


def sync(store, content):
    sync_table(DeltaLog(store), MemoryMetastore(content), TWIN, SyncOptions(wait_seconds=0))


OPERATIONS = {"generate": (generate, False), "sync": (sync, False), "atomic sync": (sync, True)}


def prepared(*, atomic):
    store, content = MemoryStore(f"memory://publication{next(_NAMES)}/t"), MemoryMetastore()
    log = DeltaLog(store)
    create_table(log, [add_file("1", [1]), add_file("2", [2]), add_file("3", [3])])
    sync_table(log, content, TWIN, SyncOptions(atomic=atomic))
    append("1", [4]).run(log)
    append("new", [5]).run(log)
    delete_partition("3").run(log)
    return store, content


def expected(log, version):
    snapshot = log.snapshot(version=version)
    found = {}
    for add in snapshot.files.adds(snapshot.files.core):
        found.setdefault(add.partition_values["p"], []).append(f"{log.store.root}/{add.path}")
    return {name: sorted(lines) for name, lines in found.items()}


def seen(store, content):
    found = {}
    for part in content.parts[TWIN.database, TWIN.name].values():
        path = found_partition(part, ["p"]).location.removeprefix(f"{store.root}/") + "/manifest"
        found[part.values[0]] = store.read(path).decode().splitlines() if store.head(path) is not None else []
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_any_call_shows_old_or_new_and_the_next_run_is_right(name, kind):
    run, atomic = OPERATIONS[name]
    store, content = prepared(atomic=atomic)
    counting = CountingStore(store)
    run(counting, content)
    total = len(counting.calls)
    assert total >= 10
    number = 0
    while number < total:
        store, content = prepared(atomic=atomic)
        before, after = expected(DeltaLog(store), 0), expected(DeltaLog(store), 3)
        faulty = FaultyStore(store, Fault(kind=kind, call=number))
        with contextlib.suppress(SimulatedCrash, DeltaError):
            run(faulty, content)
        what = f"{kind.value} at call {number} of {total}"
        number += 1
        if not faulty.fired:
            continue  # a run that had less to do
        lines = seen(store, content)
        for partition in {*before, *after, *lines}:  # each partition is of one version
            assert lines.get(partition) in (before.get(partition), after.get(partition), None), what
        if atomic:
            assert lines in (before, after), what
        entry = found_table(content.table(TWIN.database, TWIN.name))
        if entry.version == 3:
            assert lines == after, what
        state = read_state(store)
        assert state is not None
        assert state.version in (0, 3)
        expire_leases(store)
        sync_table(DeltaLog(store), content, TWIN, SyncOptions(wait_seconds=0))
        assert seen(store, content) == after, what
        assert verify_sync(DeltaLog(store), content, TWIN, files=0).ok, what


def expire_leases(store):
    for info in list(store.list_all("_pydelta")):
        if "lease" in info.path:
            store.put(info.path, b'{"owner": "dead", "expires_ms": 1}')
