"""VACUUM on memory and on disk: what goes, what stays, what the history says."""

from __future__ import annotations

import itertools
import os

import polars as pl
import pytest

from pydelta.commands.vacuum.command import Vacuum, VacuumOptions
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    StorageError,
    StoragePermissionError,
    TableNotFoundError,
    UnsafeOperationError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.protocol.actions import Protocol
from pydelta.settings import Settings
from pydelta.storage.interface import DeleteReport
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()
WEEK = 7 * 24


@pytest.fixture(params=["memory", "local"])
def yard(request, tmp_path):
    store = (
        MemoryStore(f"memory://vacuum{next(_NAMES)}/t")
        if request.param == "memory"
        else LocalStore(str(tmp_path / "a t"))
    )
    return Yard(store, partition_columns=("p",))


def memory_yard(*columns, **properties):
    return Yard(MemoryStore(f"memory://vacuum{next(_NAMES)}/t"), partition_columns=columns, properties=properties)


def run(yard, *, progress=None, options=None, **request):
    return vacuum(yard.log, Vacuum(**request), now_ms=yard.now_ms, progress=progress, options=options)


def grown(yard):
    """Live, removed lately, removed long ago, never committed and old, never committed and young."""
    live, lately, long_ago = (yard.add(f"p=1/{name}", age=1000) for name in ("live", "lately", "long ago"))
    yard.commit(live, lately, long_ago, age=900)
    yard.commit(yard.remove(long_ago, age=800), age=800)
    yard.commit(yard.remove(lately, age=10), age=10)
    yard.put("p=1/aborted", age=500, size=77)
    yard.put("p=2/aborted", age=500)
    yard.put("p=1/under way", age=1)
    yard.put("_mine/x", age=5000)
    if isinstance(yard.store, LocalStore):
        yard.backdate("p=2", age=1)  # something has just happened there: a writer's first file may be next


def test_only_old_files_that_no_retained_version_needs_go(yard):
    grown(yard)
    before = yard.files()
    planned = run(yard, dry_run=True)
    assert yard.files() == before
    assert planned.start_version is None
    result = run(yard)
    gone = {"p=1/long ago", "p=1/aborted", "p=2/aborted"}
    assert before - yard.files() == gone
    assert set(result.files["path"]) == set(planned.files["path"]) == gone
    assert (result.deleted, result.bytes, planned.bytes, planned.deleted) == (3, 97, 97, 0)
    assert dict(planned.partitions.select("partition", "bytes").iter_rows()) == {"p=1": 87, "p=2": 10}
    assert result.directories == 3
    assert result.removed_directories == 0
    assert result.sentence == "Deleted 3 files and directories in a total of 3 directories."
    assert planned.sentence.startswith("Found 3 files")
    again = run(yard)
    assert again.deleted == 0
    assert again.end_version == again.start_version + 1 == result.end_version + 2


def test_the_history_says_what_was_done(yard):
    grown(yard)
    run(yard)
    run(yard, retention_hours=200)
    last = yard.log.history(4)
    info = [record.commit_info for record in reversed(last)]
    assert [item.operation for item in info] == ["VACUUM START", "VACUUM END"] * 2
    assert info[0].get("operationParameters") == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": "604800000",
    }
    assert info[2].get("operationParameters")["specifiedRetentionMillis"] == "720000000"
    assert info[0].get("operationMetrics") == {"numFilesToDelete": "3", "sizeOfDataToDelete": "97"}
    starts = [str(record.version) for record in reversed(last)][::2]
    assert info[1].get("operationParameters") == {"status": "COMPLETED", "startVersion": starts[0]}
    assert info[3].get("operationParameters") == {"status": "COMPLETED", "startVersion": starts[1]}
    assert info[1].get("operationMetrics") == {"numDeletedFiles": "3", "numVacuumedDirectories": "3"}


def test_a_retention_below_the_tables_own_is_refused_unless_the_check_is_off():
    yard = memory_yard()
    yard.commit(yard.add("x", age=10), age=10)
    with pytest.raises(UnsafeOperationError, match="168 hours"):
        run(yard, retention_hours=0)
    with pytest.raises(InvalidArgumentError):
        run(yard, retention_hours=-1)
    with pytest.raises(InvalidArgumentError):
        run(yard, retention_hours=float("nan"))
    run(yard, retention_hours=168)
    off = DeltaLog(yard.store, settings=Settings(retention_check=False))
    assert vacuum(off, Vacuum(retention_hours=0, dry_run=True)).retention_ms == 0
    assert run(yard, retention_hours=0, enforce_retention=False).deleted == 0
    start = yard.log.history(2)[1].commit_info
    assert start.get("operationParameters")["retentionCheckEnabled"] == "false"


def test_the_tables_own_retention_counts():
    yard = memory_yard(**{"delta.deletedFileRetentionDuration": "interval 2 hours"})
    old = yard.add("x", age=5)
    yard.commit(old, age=5)
    yard.commit(yard.remove(old, age=3), age=3)
    assert run(yard).deleted == 1


def test_a_longer_retention_keeps_what_checkpoints_have_forgotten():
    yard = memory_yard(**{"delta.deletedFileRetentionDuration": "interval 1 hours"})
    old = yard.add("x", age=50)
    yard.commit(old, age=50)
    yard.commit(yard.remove(old, age=40), age=40)
    yard.log.checkpoint(now_ms=yard.now_ms)
    assert yard.log.update().tombstones().is_empty()
    assert run(yard, retention_hours=45).deleted == 0
    assert run(yard, retention_hours=39).deleted == 1


def test_a_removal_without_a_time_counts_from_its_commit():
    yard = memory_yard()
    old = yard.add("x", age=500)
    yard.commit(old, age=500)
    yard.commit(yard.remove(old, age=None), age=5)
    assert run(yard).deleted == 0
    assert run(yard, retention_hours=4, enforce_retention=False).deleted == 1


def test_what_was_removed_by_a_commit_that_took_long_stays_until_that_commit_is_old():
    yard = memory_yard()
    old = yard.add("x", age=500)
    yard.commit(old, age=500)
    yard.commit(yard.remove(old, age=WEEK + 10), age=WEEK - 10)  # until then it was live
    assert run(yard).deleted == 0


def test_change_data_stays_as_long_as_its_commit():
    yard = memory_yard("p")
    young, old = (yard.cdc(f"_change_data/p=1/cdc-{name}", age=age) for name, age in (("young", 200), ("old", 300)))
    yard.commit(old, age=300)
    yard.commit(young, age=100)
    yard.put("_change_data/cdc-never", age=300)
    assert set(run(yard).files["path"]) == {"_change_data/p=1/cdc-old", "_change_data/cdc-never"}


def test_deletion_vectors_of_retained_files_stay():
    import numpy as np

    from pydelta.log.vector_files import write_vectors

    yard = memory_yard()
    rows = [np.array([0], dtype=np.uint64)]
    (first,), (first_path,) = write_vectors(rows, store=yard.store)
    (second,), (second_path,) = write_vectors(rows, store=yard.store, random_folders=True)
    (third,), (third_path,) = write_vectors(rows, store=yard.store)
    for path in (first_path, second_path, third_path):
        yard.backdate(path, age=1000)
    plain = yard.add("x", age=1000)
    yard.builder.protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=("deletionVectors",),
    )
    yard.commit(plain, age=900)
    one, two, three = (yard.named("x", vector=vector) for vector in (first, second, third))
    yard.commit(yard.remove(plain, age=800), one, age=800)
    yard.commit(yard.remove(one, age=700), two, age=700)
    yard.commit(yard.remove(two, age=20), three, age=20)
    assert set(run(yard).files["path"]) == {first_path}
    assert yard.files() == {"x", second_path, third_path}


def test_spellings_and_places_of_paths_in_the_log(yard):
    odd = [yard.add(path, age=900) for path in ("p=a b/x", "p=%3A/x", "p=ä/100%/x")]
    absolute = yard.add("p=1/absolute", age=900)
    root = yard.store.root
    yard.commit(*odd, absolute.replace(path=f"{root}/p=1/absolute"), age=800)
    elsewhere = yard.named("x").replace(path="memory://elsewhere/t/x")
    yard.commit(elsewhere, age=700)
    yard.commit(yard.remove(elsewhere, age=600), age=600)
    assert run(yard).deleted == 0


@pytest.mark.parametrize("mode", ["full", "lite", "inventory"])
@pytest.mark.parametrize("given", ["link/t", "real/t", "link/../link/t"])
@pytest.mark.parametrize("spelt", ["real/t", "link/t", "other/../link/t", "real//t"])
def test_a_table_in_a_linked_folder_keeps_files_by_whichever_path_they_are_named(tmp_path, given, spelt, mode):
    (tmp_path / "real" / "t").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    yard = Yard(LocalStore(f"{tmp_path}/{given}"), partition_columns=("p",))
    live, gone = yard.add("p=a b/live", age=900), yard.add("p=a b/gone", age=900)
    gone = gone.replace(path=f"{yard.store.root}/p=a%20b/gone")
    yard.commit(live.replace(path=f"file:{tmp_path}/{spelt}/p=a%20b/live"), live, gone, age=900)
    yard.commit(yard.remove(live, age=800), yard.remove(gone, age=800), age=800)
    inventory = from_frame(listed(yard)) if mode == "inventory" else None
    run(yard, mode="full" if inventory else mode, inventory=inventory)
    assert yard.files() == {"p=a b/live"}


def test_a_table_known_by_a_name_that_cannot_be_mapped_keeps_what_may_be_meant():
    yard = memory_yard("p")
    live = yard.add("p=1/live", age=900)
    yard.put("p=1/garbage", age=900)
    yard.commit(live.replace(path="viewfs://cluster/mnt/t/p=1/live"), age=900)
    run(yard)
    assert yard.files() == {"p=1/live"}


def listed(yard):
    """The table's files as an inventory has them."""
    found = [(info.path, info.size, False, info.modification_time_ms) for info in yard.store.list_all()]
    kinds = {"path": pl.String, "length": pl.Int64, "isDir": pl.Boolean, "modificationTime": pl.Int64}
    return pl.DataFrame(found, schema=kinds, orient="row")


def test_files_of_published_manifests_stay():
    yard = memory_yard("p")
    old = yard.add("p=1/old", age=900)
    yard.commit(old, age=900)
    publish(yard.log)
    new = yard.add("p=1/new", age=500)
    yard.commit(yard.remove(old, age=500), new, age=500)
    assert run(yard).deleted == 0, "readers of the manifest still need it"
    publish(yard.log)
    assert set(run(yard).files["path"]) == {"p=1/old"}


def test_manifests_that_another_engine_wrote_count_too():
    yard = memory_yard()
    old = yard.add("old file", age=900)
    yard.commit(old, age=900)
    yard.commit(yard.remove(old, age=500), age=500)
    yard.put("_symlink_format_manifest/manifest", age=1)
    yard.store.put("_symlink_format_manifest/manifest", f"{yard.store.root}/old file\n".encode())
    assert run(yard).deleted == 0


def test_another_table_below_this_one_is_left_alone(yard):
    yard.commit(yard.add("p=1/x", age=500), age=500)
    yard.put("sub/t/_delta_log/00000000000000000000.json", age=500)
    yard.put("sub/t/data", age=500)
    yard.put("sub/other", age=500)
    assert set(run(yard).files["path"]) == {"sub/other"}


def test_one_partition_alone():
    yard = memory_yard("p", "q")
    yard.commit(yard.add("p=1/q=1/x", age=500), age=500)
    for path in (
        "p=1/q=1/a",
        "p=2/q=1/a",
        "p=2/q=__HIVE_DEFAULT_PARTITION__/a",
        "_change_data/p=2/q=1/a",
        "a",
        "p=2/a",
    ):
        yard.put(path, age=500)
    found = run(yard, where="p = '2'", dry_run=True)
    assert set(found.files["path"]) == {"p=2/q=1/a", "p=2/q=__HIVE_DEFAULT_PARTITION__/a", "_change_data/p=2/q=1/a"}
    assert set(run(yard, where="q IS NULL").files["path"]) == {"p=2/q=__HIVE_DEFAULT_PARTITION__/a"}
    with pytest.raises(BindError):
        run(yard, where="x = 1")
    with pytest.raises(InvalidArgumentError):
        run(memory_table(), where="p = 1")


def test_of_an_object_store_only_the_partitions_that_may_match_are_listed():
    yard = memory_yard("p", "q")
    yard.commit(yard.add("p=a b/q=1/x", age=500), age=500)
    odd = ("p=a b/q=1/old", "p=c%3A/q=1/old", "_change_data/p=a b/q=2/old")
    for path in (*odd, *(f"p=many/q=1/{number:04}" for number in range(3000))):
        yard.put(path, age=500, size=1)
    for where, found, requests in (
        ("p = 'a b'", {odd[0], odd[2]}, 2),
        ("'a b' = p AND q = '2'", {odd[2]}, 2),
        ("p IN ('a b', 'c:')", set(odd), 4),
        ("p = 'c:' OR q = '2'", {odd[1], odd[2]}, 4),
        ("p = 'none'", set(), 2),
    ):
        result = run(yard, where=where, dry_run=True)
        assert (set(result.files["path"]), result.list_requests) == (found, requests), where


def memory_table():
    yard = memory_yard()
    yard.commit(yard.add("x", age=500), age=500)
    return yard


def test_a_name_that_is_no_text_is_left_alone(tmp_path):
    yard = Yard(LocalStore(str(tmp_path)), partition_columns=("p",))
    yard.commit(yard.add("p=1/live", age=500), age=500)
    yard.put("p=1/garbage", age=500)
    odd = os.fsencode(tmp_path) + b"/p=1/\xff"
    os.close(os.open(odd, os.O_CREAT))
    os.mkdir(os.fsencode(tmp_path) + b"/p=\xfe")
    assert run(yard).deleted == 1
    assert os.path.exists(odd)
    assert [info.path for info in yard.store.list_from("", prefix="p=1")] == ["p=1/live"]


def test_empty_directories_go_on_disk_unless_something_happens_in_them(tmp_path):
    yard = Yard(LocalStore(str(tmp_path)), partition_columns=("p", "q"))
    yard.commit(yard.add("p=1/q=1/x", age=500), age=500)
    yard.put("p=2/q=1/garbage", age=500)
    yard.put("p=2/q=1/.garbage.crc", age=500)
    for folder in ("p=3/q=1", "p=4", "_mine/empty", "p=5"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("p=2/q=1", "p=2", "p=3/q=1", "p=3", "p=4", "_mine/empty"):
        yard.backdate(folder, age=500)
    yard.backdate("p=5", age=1)
    planned = run(yard, dry_run=True)
    result = run(yard)
    assert (result.deleted, result.removed_directories, planned.removed_directories) == (1, 5, 5)
    assert result.sentence == "Deleted 6 files and directories in a total of 9 directories."
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if "_delta_log" not in str(path))
    assert left == ["_mine", "_mine/empty", "p=1", "p=1/q=1", "p=1/q=1/x", "p=5"]


def test_what_becomes_live_before_it_is_deleted_is_spared():
    yard = memory_yard()
    back, gone = yard.add("back", age=500), yard.add("gone", age=500)
    yard.commit(back, gone, age=500)
    yard.commit(yard.remove(back, age=400), yard.remove(gone, age=400), age=400)

    def restore(state):
        if state.phase == "listing":
            yard.commit(back, age=0)

    result = run(yard, progress=restore)
    assert yard.files() == {"back"}
    assert result.deleted == 1


def test_no_table_and_a_table_that_must_not_be_written():
    with pytest.raises(TableNotFoundError):
        vacuum(DeltaLog(MemoryStore(f"memory://vacuum{next(_NAMES)}/t")))
    yard = memory_yard()
    yard.builder.protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("somethingNew",)
    )
    yard.commit(yard.add("x", age=500), age=500)
    with pytest.raises(UnsupportedFeatureError, match="somethingNew"):
        run(yard)


class Refusing(CountingStore):
    """Deletes nothing whose name contains a text."""

    def __init__(self, inner, text, *, denied, times=10**6):
        super().__init__(inner)
        self.text, self.denied, self.times = text, denied, times

    def delete_many(self, paths):
        names = list(paths)
        bad = [name for name in names if self.text in name] if self.times > 0 else []
        self.times -= 1
        super().delete_many([name for name in names if name not in bad])
        failed = tuple((name, "refused") for name in bad)
        return DeleteReport(
            deleted=len(names) - len(bad), failed=failed, denied=self.denied and bool(bad), retryable=not self.denied
        )


def test_without_permission_it_says_what_was_deleted_and_touches_no_more():
    yard = memory_yard()
    yard.commit(yard.add("x", age=500), age=500)
    for number in range(2500):
        yard.put(f"bad-{number:04}", age=500, size=1)
    yard.put("a good one", age=500, size=5)
    store = Refusing(yard.store, "bad-", denied=True)
    with pytest.raises(StoragePermissionError, match=r"deleted 1 files \(5 bytes\), and 2500 of 2501") as caught:
        vacuum(DeltaLog(store), now_ms=yard.now_ms, options=VacuumOptions(delete_workers=1))
    assert "bad-0000: refused" in str(caught.value)
    assert len(store.paths("delete_many")) == 2, "one in which something went, one in which nothing did"
    end, start = yard.log.history(2)
    assert end.commit_info.get("operationParameters") == {"status": "FAILED", "startVersion": str(start.version)}
    assert run(yard).deleted == 2500


def test_what_the_store_asks_to_repeat_is_repeated_after_a_pause():
    yard = memory_yard()
    yard.commit(yard.add("x", age=500), age=500)
    for number in range(5):
        yard.put(f"g{number}", age=500)
    pauses = []
    options = VacuumOptions(sleep=pauses.append, attempts=4)
    store = Refusing(yard.store, "g3", denied=False, times=2)
    result = vacuum(DeltaLog(store), now_ms=yard.now_ms, options=options)
    assert (result.deleted, result.delete_requests) == (5, 3)
    assert [len(path.split(",")) for path in store.paths("delete_many")] == [4, 1, 1]
    assert 0.1 <= pauses[0] <= 0.2 <= pauses[1] <= 0.4
    yard.put("g3", age=500)
    with pytest.raises(StorageError, match="1 of 1 are still there"):
        vacuum(DeltaLog(Refusing(yard.store, "g3", denied=False)), now_ms=yard.now_ms, options=options)


def test_an_interrupted_run_begins_no_further_deletion():
    yard = memory_yard()
    yard.commit(yard.add("x", age=500), age=500)
    for number in range(5000):
        yard.put(f"g{number:04}", age=500, size=1)

    def interrupt(state):
        if state.phase == "deleting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(yard, progress=interrupt, options=VacuumOptions(delete_workers=1))
    assert len(yard.files()) == 4001  # one request of a thousand was under way
    end, start = yard.log.history(2)
    assert end.commit_info.get("operationParameters") == {"status": "FAILED", "startVersion": str(start.version)}
    run(yard)
    assert yard.files() == {"x"}


def test_deletion_is_no_faster_than_told():
    yard = memory_yard()
    yard.commit(yard.add("x", age=500), age=500)
    for number in range(3000):
        yard.put(f"g{number}", age=500, size=1)
    waited = []
    options = VacuumOptions(deletes_per_second=1000, sleep=waited.append, delete_workers=1)
    assert run(yard, options=options).deleted == 3000
    assert len(waited) == 2
    assert sum(waited) == pytest.approx(3, abs=0.5)  # nobody really slept: the second waits 1 s, the third 2 s


def test_listing_takes_as_many_requests_as_there_are_thousands_and_ranges():
    yard = memory_yard()
    adds = [yard.named(f"part-{number:05}") for number in range(9000)]
    yard.commit(*adds, age=500)
    for number in range(0, 9000, 3):
        yard.put(f"part-{number:05}", age=500, size=1)
        yard.put(f"part-{number:05}-aborted", age=500, size=1)
    store = CountingStore(yard.store)
    told = []
    result = vacuum(DeltaLog(store), now_ms=yard.now_ms, progress=told.append)
    objects = 6000 + 1
    assert result.deleted == 3000
    assert result.list_requests == len(store.paths("list_page")) <= objects / 1000 + 4
    assert result.list_requests >= 7, "ranges were listed side by side"
    assert result.listing_requests == 7
    assert [state.phase for state in told][:2] == ["needed", "listing"]
    assert told[-1].phase == "done"
    assert told[-1].deleted == told[-1].doomed == 3000
    assert told[-1].listed == objects
    assert yard.files() == {f"part-{number:05}" for number in range(0, 9000, 3)}


def test_a_directory_marker_is_no_garbage():
    yard = memory_yard("p")
    yard.commit(yard.add("p=1/x", age=500), age=500)
    yard.put("p=1", age=500, size=0)  # how a store may show the key "p=1/"
    assert run(yard).deleted == 0


def test_iceberg_metadata_is_not_ours_to_delete():
    yard = memory_yard(**{"delta.universalFormat.enabledFormats": "iceberg"})
    yard.commit(yard.add("x", age=500), age=500)
    yard.put("metadata/v1.metadata.json", age=500)
    assert run(yard).deleted == 0
    assert isinstance(run(yard).files, pl.DataFrame)
