"""What is published after which commits, what it costs, and that it never goes backwards."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from pydelta.errors import BindError, DeltaError, InvalidArgumentError, StorageError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, forget_emptied, publish, read_state, verify_manifests
from pydelta.manifests.contents import hive_values, values_of_directory
from pydelta.manifests.lease import LeaseLostError, ManifestsBusyError, acquire
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.types import DecimalType, PrimitiveType
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore, SimulatedCrash
from pydelta.testing.operations import add_file, append, create_table, delete_partition, table_metadata
from pydelta.txn import Operation, start_transaction


@pytest.fixture
def store():
    return MemoryStore(f"memory://{uuid.uuid4()}/table")


@pytest.fixture
def log(store):
    return DeltaLog.for_table(store.root, store=store)


def tree(store):
    """Manifest texts by path below the manifests' folder."""
    prefix = "_symlink_format_manifest/"
    return {
        info.path.removeprefix(prefix): store.read(info.path).decode() for info in store.list_all(prefix.rstrip("/"))
    }


def expected(log):
    """The same from the newest snapshot, file by file."""
    found = {}
    for add in log.update().files.adds(log.update().files.core):
        found.setdefault(f"p={add.partition_values['p']}/manifest", set()).add(f"{log.store.root}/{add.path}")
    return {name: "".join(f"{line}\n" for line in sorted(lines)) for name, lines in found.items()}


def unpartitioned(log, *paths):
    txn = start_transaction(log)
    txn.update_metadata(table_metadata().replace(partition_columns=()))
    txn.commit([add_file("a", [1]).replace(path=path, partition_values={}) for path in paths], Operation(name="CREATE"))


def test_the_first_publication_writes_everything(log, store):
    create_table(log, [add_file("a", [1]), add_file("a", [2]), add_file("b", [3])])
    result = publish(log)
    assert tree(store) == expected(log)
    assert (result.full, result.reason) == (True, "nothing was published yet")
    assert result.written == {"p=a": ("a",), "p=b": ("b",)}
    assert (result.previous, result.version, result.files) == (None, 0, 3)
    assert read_state(store).partitions == {"p=a": 0, "p=b": 0}


def test_later_ones_write_what_commits_touched(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [3])])
    publish(log)
    append("b", [4]).run(log)
    append("c", [5]).run(log)
    result = publish(log)
    assert tree(store) == expected(log)
    assert not result.full
    assert set(result.written) == {"p=b", "p=c"}
    assert read_state(store).partitions == {"p=a": 0, "p=b": 2, "p=c": 2}
    assert publish(log).written == {}


def test_a_partition_without_files_loses_its_manifest_at_once(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [3])])
    publish(log)
    delete_partition("a").run(log)
    result = publish(log)
    assert tree(store) == expected(log)
    assert result.removed == ("p=a",)


def test_or_keeps_an_empty_one_until_the_metastore_has_dropped_it(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [3])])
    publish(log)
    delete_partition("a").run(log)
    result = publish(log, ManifestOptions(keep_emptied=True))
    assert result.emptied == ("p=a",)
    assert tree(store) == expected(log) | {"p=a/manifest": ""}
    assert verify_manifests(log, files=0).ok
    assert forget_emptied(log, ["p=a", "p=b"]) == ("p=a",)
    assert tree(store) == expected(log)
    assert forget_emptied(log, ["p=a"]) == ()


def test_a_partition_that_has_files_again_is_not_forgotten(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [3])])
    publish(log)
    delete_partition("a").run(log)
    publish(log, ManifestOptions(keep_emptied=True))
    append("a", [7]).run(log)
    publish(log, ManifestOptions(keep_emptied=True))
    assert forget_emptied(log, ["p=a"]) == ()
    assert tree(store) == expected(log)


def test_an_unpartitioned_table_without_rows_has_an_empty_manifest(log, store):
    unpartitioned(log, "x.parquet")
    publish(log)
    assert tree(store) == {"manifest": f"{store.root}/x.parquet\n"}
    txn = start_transaction(log)
    txn.read_whole_table()
    adds = txn.snapshot.files.adds(txn.snapshot.files.core)
    txn.commit([add.remove(deletion_timestamp=1) for add in adds], Operation(name="DELETE"))
    assert publish(log).emptied == ("",)
    assert tree(store) == {"manifest": ""}
    assert verify_manifests(log).ok


def test_an_unpartitioned_table_that_never_had_rows_has_one_too(log, store):
    unpartitioned(log)
    publish(log)
    assert tree(store) == {"manifest": ""}


def test_paths_are_decoded_once_and_named_as_readers_know_the_store(store):
    log = DeltaLog.for_table("s3a://bucket/a%20table", store=_Renamed(store, "s3a://bucket/a%20table"))
    unpartitioned(log, "a%20b%2520c.parquet", "s3a://other/x%3Dy.parquet")
    publish(log)
    assert tree(store) == {"manifest": "s3://bucket/a%20table/a b%20c.parquet\ns3://other/x=y.parquet\n"}
    publish(log, ManifestOptions(schemes={}))
    assert tree(store)["manifest"].startswith("s3a://bucket/")


class _Renamed(CountingStore):
    """A memory store that says that it is elsewhere."""

    def __init__(self, inner, root):
        super().__init__(inner)
        self._root = root

    @property
    def root(self):
        return self._root


@pytest.mark.parametrize("value", ["a b", "50%", "x=y", "a/b", "é中", "quote'\"", "#", None, "a:b", "t\ttab"])
def test_partition_directories_are_those_of_hive(log, store, value):
    create_table(log, [add_file("x", [1]).replace(path="f.parquet", partition_values={"p": value})])
    (directory,) = publish(log).written
    assert tree(store) == {f"{directory}/manifest": f"{store.root}/f.parquet\n"}
    assert values_of_directory(directory) == {"p": value}
    assert "/" not in directory


@pytest.mark.parametrize(
    ("text", "kind", "spelt"),
    [
        ("2024-05-31T12:00:00.000000Z", PrimitiveType("timestamp"), "2024-05-31 12:00:00"),
        ("2024-05-31 12:00:00.5", PrimitiveType("timestamp"), "2024-05-31 12:00:00.5"),
        ("2024-05-31", PrimitiveType("date"), "2024-05-31"),
        ("007", PrimitiveType("integer"), "7"),
        ("TRUE", PrimitiveType("boolean"), "true"),
        ("1.50", DecimalType(10, 2), "1.50"),
        ("007", PrimitiveType("string"), "007"),
        (None, PrimitiveType("date"), None),
        ("", PrimitiveType("string"), None),
    ],
)
def test_values_are_spelt_as_hive_spells_them(text, kind, spelt):
    assert hive_values([text], [kind]) == (spelt,)


def test_a_file_with_a_deletion_vector_is_never_published(log, store):
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="wi5b", size_in_bytes=1, cardinality=1)
    create_table(log, [add_file("a", [1])], delta_enableDeletionVectors="true")
    publish(log)
    before = tree(store)
    txn = start_transaction(log)
    (add,) = txn.read_files().pipe(txn.snapshot.files.adds)
    doomed = add.remove(deletion_timestamp=1)
    try:
        txn.commit([doomed, add.replace(deletion_vector=vector)], Operation(name="DELETE"))
    except UnsupportedFeatureError:  # an engine that cannot write them: as if another one had
        store.put("_delta_log/00000000000000000001.json", _commit_of(doomed, add.replace(deletion_vector=vector)))
    with pytest.raises(UnsupportedFeatureError, match="deletion vectors") as caught:
        publish(DeltaLog.for_table(store.root, store=store))
    assert "PURGE" in caught.value.hint
    assert tree(store) == before


def _commit_of(*actions):
    from pydelta.protocol.actions import encode_commit

    return encode_commit(actions)


def test_chosen_partitions_leave_the_others_as_they_are(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    publish(log)
    first = tree(store)
    append("a", [3]).run(log)
    append("b", [4]).run(log)
    result = publish(log, ManifestOptions(where="p = 'a'"))
    assert set(result.written) == {"p=a"}
    assert tree(store) == {"p=a/manifest": expected(log)["p=a/manifest"], "p=b/manifest": first["p=b/manifest"]}
    state = read_state(store)
    assert (state.version, state.partitions, state.spread()) == (0, {"p=a": 2, "p=b": 0}, (0, 2))
    delete_partition("a").run(log)
    assert publish(log, ManifestOptions(where="p = 'a'")).removed == ("p=a",)
    publish(log)
    assert tree(store) == expected(log)


def test_chosen_partitions_first(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    publish(log, ManifestOptions(where="p = 'a'"))
    assert set(tree(store)) == {"p=a/manifest"}
    publish(log)
    assert tree(store) == expected(log)


@pytest.mark.parametrize(
    ("where", "error"), [("x = 1", BindError), ("q = 1", BindError), ("p = 'a' AND x = 1", BindError)]
)
def test_a_choice_by_anything_but_partition_columns_is_refused(log, where, error):
    create_table(log, [add_file("a", [1])])
    with pytest.raises(error):
        publish(log, ManifestOptions(where=where))


def test_there_is_nothing_to_choose_without_partition_columns(log):
    unpartitioned(log, "x.parquet")
    with pytest.raises(InvalidArgumentError, match="no partition columns"):
        publish(log, ManifestOptions(where="p = 'a'"))


def test_a_full_pass_when_the_log_no_longer_reaches_back(log, store):
    create_table(log, [add_file("a", [1]), add_file("gone", [2])])
    publish(log)
    delete_partition("gone").run(log)
    append("b", [3]).run(log)
    log.checkpoint()
    store.delete_many([f"_delta_log/{version:020}.json" for version in (0, 1)])
    result = publish(DeltaLog.for_table(store.root, store=store))
    assert result.full
    assert "no longer reaches back" in result.reason
    assert result.removed == ("p=gone",)
    assert tree(store) == expected(log)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 3}', None])
def test_a_full_pass_when_the_state_is_not_to_be_read(log, store, damage):
    create_table(log, [add_file("a", [1])])
    publish(log)
    if damage is None:
        store.delete_many(["_pydelta/manifests.json"])
    else:
        store.put("_pydelta/manifests.json", damage)
    store.put("_symlink_format_manifest/p=stale/manifest", b"memory://x/y\n")
    assert publish(log).full
    assert tree(store) == expected(log)


def test_a_full_pass_when_another_table_stands_in_its_place(log, store):
    create_table(log, [add_file("a", [1])])
    publish(log)
    txn = start_transaction(log)
    txn.update_metadata(table_metadata())  # another id
    txn.commit([], Operation(name="CREATE OR REPLACE TABLE"))
    assert publish(log).reason == "another table was published here before"


def test_ten_of_many_partitions_are_ten_puts_and_no_listing_of_manifests(store):
    create_table(DeltaLog.for_table(store.root, store=store), [add_file(f"p{n}", [n]) for n in range(2000)])
    counting = CountingStore(store)
    log = DeltaLog.for_table(store.root, store=counting)
    publish(log)
    for number in range(10):
        append(f"p{number}", [1]).run(log)
    log.update()
    counting.reset()
    assert len(publish(log).written) == 10
    puts = [path for verb, path in counting.calls if verb == "put" and "lease" not in path]
    assert sorted(puts) == sorted(
        [*(f"_symlink_format_manifest/p=p{n}/manifest" for n in range(10)), "_pydelta/manifests.json"]
    )
    assert [path for verb, path in counting.calls if verb == "list_all"] == []
    listed = [path for verb, path in counting.calls if verb == "list_from"]
    assert len(listed) <= 4, "the log, for newer versions, and the few leases"


def test_a_crash_at_any_call_is_made_good_by_the_next_run(store):
    create_table(DeltaLog.for_table(store.root, store=store), [add_file(p, [1]) for p in "abc"])
    publish(DeltaLog.for_table(store.root, store=store))
    before = {info.path: store.read(info.path) for info in store.list_all()}
    call = 0
    while True:
        store = MemoryStore(f"memory://{uuid.uuid4()}/table")
        for path, data in before.items():
            store.put(path, data)
        log = DeltaLog.for_table(store.root, store=store)
        delete_partition("a").run(log)
        append("b", [2]).run(log)
        faulty = FaultyStore(store, Fault(kind=FaultKind.DIE_AFTER, call=call))
        crashed = False
        try:
            publish(DeltaLog.for_table(store.root, store=faulty))
        except SimulatedCrash:
            crashed = True
        _expire_leases(store)
        publish(DeltaLog.for_table(store.root, store=store))
        assert tree(store) == expected(log)
        if not crashed:
            break
        call += 1
    assert call > 6


def _expire_leases(store):
    for info in list(store.list_all("_pydelta")):
        if "lease" in info.path:
            store.put(info.path, b'{"owner": "dead", "expires_ms": 1}')


def test_who_waits_for_another_publisher_finds_it_done(log, store):
    create_table(log, [add_file("a", [1])])
    publish(log)
    append("b", [2]).run(log)
    lease = acquire(store, wait_seconds=0)
    with pytest.raises(ManifestsBusyError) as caught:
        publish(log, ManifestOptions(wait_seconds=0))
    assert caught.value.retryable
    lease.release()
    publish(log)
    assert tree(store) == expected(log)


def test_a_lease_is_kept_while_something_takes_longer_than_it_lasts(store):
    now = [1_000_000]
    lease = acquire(store, wait_seconds=0, wall=lambda: now[0])
    with lease.kept(every_seconds=0.001):
        for _ in range(4):
            before = store.read(lease.path)
            now[0] += 40_000
            give_up = time.monotonic() + 20
            while store.read(lease.path) == before:
                assert time.monotonic() < give_up
    assert now[0] == 1_160_000
    lease.check()
    now[0] += 80_000
    with lease.kept(every_seconds=0.001):
        pass
    with pytest.raises(LeaseLostError):
        lease.check()


def test_a_lease_whose_holder_died_is_taken_over_and_its_holder_writes_nothing_more(store):
    now = [1_000_000]
    first = acquire(store, wait_seconds=0, wall=lambda: now[0])
    now[0] += 80_000
    second = acquire(store, wait_seconds=0, wall=lambda: now[0])
    assert second.number == first.number + 1
    with pytest.raises(StorageError, match="longer than its lease"):
        first.check()
    second.check()


def test_a_lease_in_use_is_renewed(store):
    now = [1_000_000]
    lease = acquire(store, wait_seconds=0, wall=lambda: now[0])
    for _ in range(10):
        now[0] += 40_000
        lease.check()
    with pytest.raises(ManifestsBusyError):
        acquire(store, wait_seconds=0, wall=lambda: now[0], sleep=lambda s: None)


def test_publishers_and_writers_at_once_end_with_the_newest_version(store):
    create_table(DeltaLog.for_table(store.root, store=store), [add_file(p, [0]) for p in "abcd"])
    errors = []

    def work(number):
        log = DeltaLog.for_table(store.root, store=store)
        try:
            for value in range(8):
                append("abcd"[(number + value) % 4], [number * 100 + value]).run(log)
                publish(log)
        except (DeltaError, AssertionError) as error:  # shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    log = DeltaLog.for_table(store.root, store=store)
    assert tree(store) == expected(log)
    assert read_state(store).version == log.update().version
    (left,) = [info.path for info in store.list_all("_pydelta") if "lease" in info.path]
    assert b'"expires_ms":0' in store.read(left), "the last number stays, so that it is not used again"


def test_verify_says_what_is_wrong(log, store):
    create_table(log, [add_file("a", [1]), add_file("b", [2])])
    publish(log)
    for add in log.update().files.adds(log.update().files.core):
        store.put(add.path, b"data")
    assert verify_manifests(log).ok
    good = store.read("_symlink_format_manifest/p=a/manifest").decode()
    store.put("_symlink_format_manifest/p=a/manifest", (good + good + "memory://x/gone\n").encode())
    store.put("_symlink_format_manifest/p=zz/manifest", b"")
    store.put("_symlink_format_manifest/p=b/other", b"")
    store.put("_symlink_format_manifest/p=b/_hidden", b"")
    store.delete_many(["_symlink_format_manifest/p=b/manifest", good.strip().removeprefix(f"{store.root}/")])
    report = verify_manifests(log)
    assert not report.ok
    assert report.extra_lines == ("memory://x/gone", good.strip())
    assert report.missing_manifests == ("p=b",)
    assert report.stray_manifests == ("p=zz",)
    assert report.other_files == ("_symlink_format_manifest/p=b/other",)
    assert len(report.absent_files) == 1


class _Refusing(CountingStore):
    """Takes everything but one object."""

    def __init__(self, inner, path):
        super().__init__(inner)
        self._path = path

    def put(self, path, data):
        if path == self._path:
            raise StorageError("refused on purpose")
        super().put(path, data)


def test_a_table_that_was_copied_is_published_again(log, store):
    create_table(log, [add_file("a", [1])])
    publish(log)
    copy = MemoryStore(f"memory://{uuid.uuid4()}/copy")
    for info in store.list_all():
        copy.put(info.path, store.read(info.path))
    elsewhere = DeltaLog.for_table(copy.root, store=copy)
    assert f"the table was at {store.root}" in publish(elsewhere).reason
    assert tree(copy) == expected(elsewhere)


def test_a_hook_publishes_after_each_commit_and_a_failing_one_fails_none(log, store):
    create_table(log, [add_file("a", [1])], delta_compatibility_symlinkFormatManifest_enabled="true")
    assert tree(store) == expected(log)
    faulty = _Refusing(store, "_symlink_format_manifest/p=b/manifest")
    committed = append("b", [2]).run(DeltaLog.for_table(store.root, store=faulty))
    assert [failure.name for failure in committed.hook_failures] == ["symlink_manifests"]
    assert "p=b/manifest" not in tree(store)
    append("c", [3]).run(log)
    assert tree(store) == expected(log)
