"""Two syncs, a publisher, and a metastore that is slow or acts late: no lease is held too long, no row is lost."""

from __future__ import annotations

import uuid

import pytest
from thrift.transport.TTransport import TTransportException

from catalog_sync.errors import MetastoreUnavailableError
from catalog_sync.inspect import verify_sync
from catalog_sync.names import TableName
from catalog_sync.sync import SyncOptions, add_partition, sync_table
from catalog_sync.thrift.client import found_partition, found_table
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.log import DeltaLog
from pydelta.manifests import MANIFESTS, TWIN, LeaseLostError, ManifestsBusyError, publish, read_state, verify_manifests
from pydelta.manifests.lease import acquire, is_doubted
from pydelta.storage.memory import MemoryStore
from pydelta.testing.operations import add_file, append, create_table, delete_partition

NAME = TableName(database="lake_symlink", name="orders")
SOON = SyncOptions(wait_seconds=0)


@pytest.fixture
def store():
    return MemoryStore(f"memory://{uuid.uuid4()}/table")


@pytest.fixture
def content():
    return MemoryMetastore()


def prepared(store, content, *, atomic=False):
    """A twin that is two versions behind: a partition is new, one has lost its files."""
    log = DeltaLog(store)
    create_table(log, [add_file(name, [1]) for name in "abc"])
    sync_table(log, content, NAME, SyncOptions(atomic=atomic))
    append("new", [2]).run(log)
    delete_partition("b").run(log)
    return log


def seen(store, content):
    """What readers of the twin get: partition -> files."""
    found = {}
    for part in content.parts[NAME.database, NAME.name].values():
        path = found_partition(part, ["p"]).location.removeprefix(f"{store.root}/") + "/manifest"
        lines = store.read(path).decode().splitlines() if store.head(path) is not None else []
        found |= {part.values[0]: lines} if lines else {}
    return found


def expected(store):
    snapshot = DeltaLog(store).update()
    found = {}
    for add in snapshot.files.adds(snapshot.files.core):
        found.setdefault(add.partition_values["p"], []).append(f"{store.root}/{add.path}")
    return {name: sorted(lines) for name, lines in found.items()}


class Once:
    """Does something before the first call of a verb."""

    def __init__(self, verb, what):
        self._verb, self._what = verb, what

    def __call__(self, verb):
        if verb.startswith(self._verb) and self._what is not None:
            what, self._what = self._what, None
            what()


@pytest.mark.parametrize("atomic", [False, True])
def test_who_publishes_never_waits_for_a_metastore(store, content, atomic):
    log = prepared(store, content, atomic=atomic)
    verbs = []

    def other(verb):
        acquire(store, MANIFESTS, wait_seconds=0).release()
        verbs.append(verb)

    watched = MemoryMetastore(content, before=other)
    sync_table(log, watched, NAME, SOON)
    add_partition(log, watched, NAME, {"p": "tomorrow"})
    assert {"get_table_req", "add_partitions_req", "drop_partitions_req"} <= set(verbs)
    assert seen(store, content) == expected(store)


def test_the_folder_of_a_table_without_partitions_is_there_before_its_entry(store, content):
    log = DeltaLog(store)
    create_table(log, [])
    found = []
    watched = MemoryMetastore(
        content, before=Once("create_table", lambda: found.extend(store.list_all("_symlink_format_manifest")))
    )
    assert sync_table(log, watched, NAME, SOON).version == 0
    assert [(info.path, info.size) for info in found] == [("_symlink_format_manifest/_folder", 0)]
    assert verify_manifests(log, files=0).ok
    append("a", [1]).run(log)
    sync_table(log, content, NAME, SOON)
    assert seen(store, content) == expected(store)


def test_a_second_sync_publishes_and_leaves_the_metastore_to_the_first(store, content):
    log = prepared(store, content)

    def second():
        append("c", [3]).run(DeltaLog(store))
        with pytest.raises(ManifestsBusyError, match="entry in the metastore"):
            sync_table(DeltaLog(store), MemoryMetastore(content), NAME, SOON)

    result = sync_table(log, MemoryMetastore(content, before=Once("add_partitions", second)), NAME, SOON)
    assert (result.version, read_state(store).version) == (2, 3)
    assert seen(store, content) == expected(store), "the manifests are of the newest version"
    assert sync_table(DeltaLog(store), content, NAME, SOON).version == 3


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("verb", ["add_partitions", "drop_partitions", "alter_table"])
def test_a_partition_that_gets_files_while_it_is_dropped(store, content, verb, atomic):
    log = prepared(store, content, atomic=atomic)

    def refill():
        append("b", [9]).run(DeltaLog(store))
        publish(DeltaLog(store))

    sync_table(log, MemoryMetastore(content, before=Once(verb, refill)), NAME, SOON)
    if not atomic and verb != "alter_table":
        assert seen(store, content) == expected(store), "it is there again before the sync ends"
    sync_table(DeltaLog(store), content, NAME, SOON)
    assert seen(store, content) == expected(store)
    assert verify_sync(DeltaLog(store), content, NAME, files=0).ok


@pytest.mark.parametrize(
    ("atomic", "verb"), [(False, "drop_partitions"), (True, "alter_partitions"), (True, "drop_partitions")]
)
def test_a_sync_that_slept_in_front_of_a_call_and_comes_back(store, content, monkeypatch, atomic, verb):
    """Its call takes effect over what a later sync did, which had marked its own as the newest."""
    now = [10_000_000]
    monkeypatch.setattr("pydelta.manifests.lease._wall_ms", lambda: now[0])
    log = prepared(store, content, atomic=atomic)

    def asleep():
        now[0] += 300_000
        append("b", [9]).run(DeltaLog(store))
        append("new", [9]).run(DeltaLog(store))
        sync_table(DeltaLog(store), MemoryMetastore(content), NAME, SOON)
        assert seen(store, content) == expected(store)

    with pytest.raises(LeaseLostError):
        sync_table(log, MemoryMetastore(content, before=Once(verb, asleep)), NAME, SOON)
    assert found_table(content.table(NAME.database, NAME.name)).version == 4
    assert is_doubted(store, TWIN)
    result = sync_table(DeltaLog(store), content, NAME, SOON)
    assert result.plan.full
    assert seen(store, content) == expected(store)
    assert verify_sync(DeltaLog(store), content, NAME, files=0).ok
    assert not is_doubted(store, TWIN)
    assert sync_table(DeltaLog(store), content, NAME, SOON).calls == 1


class ActsLate(MemoryMetastore):
    """Does not answer the first request to drop partitions, and acts upon it when it is told to."""

    def __init__(self, content):
        super().__init__(content)
        self._sleep = lambda seconds: None
        self.kept = None

    def _drop_partitions_req(self, request):
        if self.kept is None:
            self.kept = request
            raise TTransportException(TTransportException.TIMED_OUT, "read timeout")
        super()._drop_partitions_req(request)


def test_a_drop_that_takes_effect_when_its_partition_has_files_again(store, content, monkeypatch):
    now = [10_000_000]
    monkeypatch.setattr("pydelta.manifests.lease._wall_ms", lambda: now[0])
    log = prepared(store, content)
    slow = ActsLate(content)
    with pytest.raises(MetastoreUnavailableError, match="may still be in progress"):
        sync_table(log, slow, NAME, SOON)
    sync_table(log, content, NAME, SOON)
    append("b", [9]).run(log)
    assert not sync_table(log, content, NAME, SOON).plan.full
    assert seen(store, content) == expected(store)
    MemoryMetastore._drop_partitions_req(content, slow.kept)
    assert "b" not in seen(store, content)
    now[0] += 601_000
    assert sync_table(log, content, NAME, SOON).plan.full
    assert seen(store, content) == expected(store)
    assert not slow.unsettled


def test_a_publisher_that_is_slow_keeps_a_sync_from_nothing_but_its_manifests(store, content):
    log = prepared(store, content)
    held = acquire(store, MANIFESTS, wait_seconds=0)
    with pytest.raises(ManifestsBusyError, match="manifests"):
        sync_table(log, content, NAME, SOON)
    held.release()
    sync_table(log, content, NAME, SOON)
    assert verify_manifests(log, files=0).ok
