"""``--atomic``: a version's manifests in a directory of their own, and one call that moves readers to them."""

from __future__ import annotations

import pytest

from catalog_sync.inputs import ATOMIC_KEY
from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, add_partition, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress, found_partition
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.txn import Operation, start_transaction

ATOMIC = SyncOptions(atomic=True)


@pytest.fixture
def log(tmp_path):
    yield DeltaLog.for_table(str(tmp_path / "orders"))
    DeltaLog.clear_cache()


@pytest.fixture
def twin(database):
    return TableName(database=database, name="orders")


def seen(metastore, twin, log):
    """What a reader of the metastore gets now: partition -> lines of its manifest."""
    names = metastore.partition_names(twin.database, twin.name)
    found = metastore.partitions(twin.database, twin.name, names)
    root = f"{log.uri}/"
    return {
        entry.values[0]: log.store.read(f"{found_partition(entry, ['p']).location.removeprefix(root)}/manifest")
        .decode()
        .splitlines()
        for entry in found
    }


def expected(log, version=None):
    snapshot = log.update() if version is None else log.snapshot(version=version)
    found = {}
    for add in snapshot.files.adds(snapshot.files.core):
        found.setdefault(add.partition_values["p"], []).append(f"{log.uri}/{add.path}")
    return {name: sorted(lines) for name, lines in found.items()}


class _Watched(Metastore):
    """Looks at what readers see after each call."""

    def __init__(self, address, look):
        super().__init__(address)
        self._look, self.seen = look, []

    def _call(self, verb, *arguments, **how):
        try:
            return super()._call(verb, *arguments, **how)
        finally:
            self.seen.append((verb, self._look()))


class _Breaks(MemoryMetastore):
    """Breaks at a call, before or after it took effect."""

    def __init__(self, content, at, *, after):
        super().__init__(content)
        self._at, self._after = at, after

    def _call(self, verb, *arguments, **how):
        number = len(self.calls)
        if number == self._at and not self._after:
            raise KeyboardInterrupt
        found = super()._call(verb, *arguments, **how)
        if number == self._at:
            raise KeyboardInterrupt
        return found


def not_empty(found):
    """What rows can be read: a partition without lines shows none."""
    return {name: lines for name, lines in found.items() if lines}


def test_partitions_move_together_and_nothing_is_written_over(log, metastore, metastore_server, twin):
    create_table(log, [add_file(p, [1]) for p in "abcd"])
    assert sync_table(log, metastore, twin, ATOMIC).plan.full
    assert seen(metastore, twin, log) == expected(log)
    before = expected(log)
    append("a", [2]).run(log)
    append("b", [2]).run(log)
    append("new", [2]).run(log)
    delete_partition("c").run(log)
    with Metastore(metastore.address) as reader:
        watched = _Watched(metastore.address, lambda: not_empty(seen(reader, twin, log)))
        result = sync_table(log, watched, twin)
    assert not result.plan.full, "and it stays atomic without being told"
    assert result.calls <= 7
    states = [rows for _, rows in watched.seen]
    assert [rows == before or rows == expected(log) for rows in states] == [True] * len(states)
    assert [verb for verb, rows in watched.seen if rows == before][-1] == "add_partitions_req"
    assert seen(metastore, twin, log) == expected(log)
    assert verify_sync(log, metastore, twin, files=0).ok
    assert sync_table(log, metastore, twin).calls == 1


def test_old_directories_stay_through_the_retention_and_go(log, metastore, twin):
    create_table(log, [add_file(p, [1]) for p in "ab"], delta_deletedFileRetentionDuration="interval 1 hour")
    sync_table(log, metastore, twin, ATOMIC)
    old = f"_pydelta/manifests/{0:020}/p=a/manifest"
    for value in range(3):
        append("a", [value]).run(log)
        sync_table(log, metastore, twin)
    assert log.store.head(old) is not None
    assert log.store.head(f"_pydelta/manifests/{2:020}/p=a/manifest") is not None
    txn = start_transaction(log)
    configuration = {**txn.snapshot.metadata.configuration, "delta.deletedFileRetentionDuration": "interval 0 seconds"}
    txn.update_metadata(txn.snapshot.metadata.replace(configuration=configuration))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    sync_table(log, metastore, twin)
    left = sorted(info.path for info in log.store.list_all("_pydelta/manifests"))
    assert left == [
        f"_pydelta/manifests/{0:020}/p=b/manifest",
        f"_pydelta/manifests/{3:020}/p=a/manifest",
        "_pydelta/manifests/empty/manifest",
    ]
    assert seen(metastore, twin, log) == expected(log)


def test_a_twin_can_change_the_way_it_is_synced_and_back(log, metastore, twin):
    create_table(log, [add_file(p, [1]) for p in "ab"])
    sync_table(log, metastore, twin)
    assert ATOMIC_KEY not in metastore.table(twin.database, twin.name).parameters
    sync_table(log, metastore, twin, ATOMIC)
    assert metastore.table(twin.database, twin.name).parameters[ATOMIC_KEY] == "true"
    append("a", [2]).run(log)
    sync_table(log, metastore, twin)
    assert seen(metastore, twin, log) == expected(log)
    sync_table(log, metastore, twin, SyncOptions(atomic=False))
    assert ATOMIC_KEY not in metastore.table(twin.database, twin.name).parameters
    append("a", [3]).run(log)
    sync_table(log, metastore, twin)
    assert seen(metastore, twin, log) == expected(log)
    assert verify_sync(log, metastore, twin, files=0).ok
    sync_table(log, metastore, twin, ATOMIC)
    assert seen(metastore, twin, log) == expected(log)
    assert verify_sync(log, metastore, twin, files=0).ok


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("atomic", [True, False])
def test_an_interruption_at_any_call_is_made_good(log, atomic, after):
    """Of a sync, and of one that changes the way: whoever comes next, without options, leaves the newest rows."""
    metastore, twin = MemoryMetastore(), TableName(database="lake_symlink", name="orders")
    create_table(log, [add_file(p, [1]) for p in "abc"])
    sync_table(log, metastore, twin, SyncOptions(atomic=not atomic))
    call = 0
    while True:
        append("a", [call]).run(log)
        append(f"n{call}", [1]).run(log)
        if call:
            delete_partition(f"n{call - 1}").run(log)
        broken = _Breaks(metastore, call, after=after)
        try:
            with broken:
                sync_table(log, broken, twin, SyncOptions(atomic=atomic))
            break
        except KeyboardInterrupt:
            pass
        append("b", [call]).run(log)
        sync_table(log, metastore, twin)
        assert seen(metastore, twin, log) == expected(log)
        assert verify_sync(log, metastore, twin, files=0).ok
        sync_table(log, metastore, twin, SyncOptions(atomic=not atomic))
        call += 1
    assert call >= 5
    assert seen(metastore, twin, log) == expected(log)


@pytest.mark.parametrize("damage", [b"", b"{", None])
def test_a_lost_state_is_followed_by_a_full_move(log, metastore, twin, damage):
    create_table(log, [add_file(p, [1]) for p in "ab"])
    sync_table(log, metastore, twin, ATOMIC)
    append("a", [2]).run(log)
    if damage is None:
        log.store.delete_many(["_pydelta/manifest-versions.json"])
    else:
        log.store.put("_pydelta/manifest-versions.json", damage)
    sync_table(log, metastore, twin)
    assert seen(metastore, twin, log) == expected(log)
    assert log.store.head(f"_pydelta/manifests/{1:020}/p=b/manifest") is not None
    assert log.store.head(f"_pydelta/manifests/{0:020}/p=b/manifest") is not None, "retired, not forgotten"


def test_a_manifest_that_was_changed_is_found(log, metastore, twin):
    create_table(log, [add_file(p, [1]) for p in "ab"])
    sync_table(log, metastore, twin, ATOMIC)
    log.store.put(f"_pydelta/manifests/{0:020}/p=b/manifest", b"file:///elsewhere\n")
    assert verify_sync(log, metastore, twin, files=0).moved_partitions == ("p=b",)
    sync_table(log, metastore, twin, SyncOptions(full=True))
    assert verify_sync(log, metastore, twin, files=0).ok


def test_a_partition_ahead_of_its_rows_shows_them_when_the_others_do(log, metastore, twin):
    create_table(log, [add_file("a", [1])])
    sync_table(log, metastore, twin, ATOMIC)
    add_partition(log, metastore, twin, {"p": "tomorrow"})
    assert seen(metastore, twin, log) == {**expected(log), "tomorrow": []}
    append("tomorrow", [2]).run(log)
    with Metastore(MetastoreAddress.parse(str(metastore.address))) as reader:
        watched = _Watched(metastore.address, lambda: not_empty(seen(reader, twin, log)))
        sync_table(log, watched, twin)
    assert [rows for _, rows in watched.seen if rows not in (expected(log, 0), expected(log))] == []
    assert seen(metastore, twin, log) == expected(log)


def test_without_partition_columns_nothing_is_different(log, metastore, twin):
    txn = start_transaction(log)
    txn.update_metadata(table_metadata().replace(partition_columns=()))
    txn.commit([add_file("a", [1]).replace(path="x", partition_values={})], Operation(name="CREATE"))
    sync_table(log, metastore, twin, ATOMIC)
    assert log.store.head("_symlink_format_manifest/manifest") is not None
    assert list(log.store.list_all("_pydelta/manifests")) == []
    assert sync_table(log, metastore, twin, ATOMIC).calls == 1
