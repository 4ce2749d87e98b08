"""What the page reads of tables, twins, streams and services; it writes nothing, and no store keeps another waiting."""

from __future__ import annotations

import threading
import uuid

import pytest
from ui_lake import build_lake, commit_info
from unit.sync.iceberg_fakes import FakePublisher

from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import TableName
from catalog_sync.native import native_is_behind, sync_native
from catalog_sync.sync import SyncOptions
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.watching import WatchedMetastore
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import DeltaEnvironmentError, DeltaError, InvalidArgumentError, StorageError, VersionNotFoundError
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.manifests.native_entry import SCHEMA_KEY
from pydelta.settings.clock import Deadline
from pydelta.storage import LocalStore, MemoryStore, register_store
from pydelta.testing import CountingStore
from pydelta.testing.operations import add_file, alter, append, create_table, delete_partition, hide_value, optimize
from pydelta.tools.ui.collect import MANY_SMALL, Reader, measure_garbage, read_detail
from pydelta.tools.ui.metrics import metrics_text
from pydelta.tools.ui.pages import overview_page, table_page
from pydelta.tools.ui.sources import Sources, find_places, named_place, open_catalog, walk
from pydelta.tools.ui.values import Rows, ShownPlace
from pydelta.tools.ui.watch import Watch, Watched


@pytest.fixture
def log():
    """A partitioned table of two files, at version 0."""
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/orders"))
    create_table(log, [add_file(name, [1, 2]) for name in "ab"])
    return log


def reader_of(log, **options):
    return Reader(ShownPlace(name="lake.orders", uri=log.uri), log=log, **options)


def said(state):
    return " ".join(f"{trouble.what} {trouble.next or ''}" for trouble in state.troubles)


# --- a table ---------------------------------------------------------------------------------------------------------


def test_files_are_counted_by_what_they_are(log):
    append("a", [3]).run(log)
    delete_partition("b").run(log)
    hide_log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/hidden"))
    create_table(hide_log, [add_file("a", [1, 2])], **{"delta.enableDeletionVectors": "true"})
    hide_value(1).run(hide_log)
    sums = reader_of(log).read().files
    live = [add.size for add in log.update().files.adds(log.update().files.core)]
    assert (sums.live, sums.live_bytes) == (2, sum(live))
    assert (sums.small, sums.most_in_partition, sums.with_vectors) == (2, 2, 0)
    assert (sums.removed, sums.removed_bytes > 0) == (1, True)
    assert reader_of(hide_log).read().files.with_vectors == 1


def test_a_file_alone_in_its_partition_is_not_small(log):
    assert reader_of(log).read().files.small == 0
    append("a", [3]).run(log)
    assert reader_of(log).read().files.small == 2


def test_each_read_shows_the_newest_version_and_reads_only_what_is_new(log):
    store = CountingStore(log.store)
    counted = DeltaLog(store)
    reader = reader_of(counted)
    assert reader.read().version == 0
    for number in range(3):
        append("a", [number]).run(log)
    store.reset()
    state = reader.read()
    assert state.version == 3
    assert [commit.version for commit in state.commits] == [3, 2, 1, 0]
    assert not any(path.endswith(f"{0:020d}.json") for path in store.paths("read", "read_range"))
    store.reset()
    assert reader.read().commits == state.commits
    assert not [path for path in store.paths("read") if path.startswith("_delta_log/0")]


def test_a_table_made_anew_at_the_place_of_another_shows_nothing_of_it(tmp_path):
    place = ShownPlace(name="t", uri=tmp_path.as_uri())
    for values in ([1], [1, 2, 3]):
        log = DeltaLog(LocalStore(tmp_path.as_uri()))
        create_table(log, [add_file("a", values)])
        if values == [1]:
            append("a", [9]).run(log)
            reader = Reader(place, log=DeltaLog(LocalStore(tmp_path.as_uri())))
            before = reader.read()
            for path in (tmp_path / "_delta_log").iterdir():
                path.unlink()
    state = reader.read()
    assert (before.version, state.version) == (1, 0)
    assert before.table_id != state.table_id
    assert [commit.version for commit in state.commits] == [0]


def test_last_runs_are_those_of_the_log(log):
    append("a", [3]).run(log)
    optimize("a").run(log)
    log.checkpoint()
    append("a", [4]).run(log)
    state = reader_of(log).read()
    assert (state.optimize.version, state.checkpoint.version, state.vacuum) == (2, 2, None)
    assert state.looked_back == 4


def test_only_as_many_commits_as_asked_for_are_looked_back(log):
    append("a", [3]).run(log)
    optimize("a").run(log)
    append("a", [4]).run(log)
    state = reader_of(log, commits=1).read()
    assert (len(state.commits), state.looked_back, state.optimize) == (1, 1, None)


def test_what_is_wrong_is_said_with_what_to_do_next(log):
    for number in range(MANY_SMALL):
        append("a", [number]).run(log)
    for info in list(log.store.list_all("_delta_log")):
        if "checkpoint" in info.path:
            log.store.delete_many([info.path])
    state = Reader(ShownPlace(name="lake.orders", uri=log.uri), log=DeltaLog(log.store)).read()
    assert f"{MANY_SMALL + 1} small files could be merged. OPTIMIZE the table." in said(state)
    assert f"No checkpoint for {MANY_SMALL + 1} commits, though delta.checkpointInterval is 10." in said(state)
    assert f"pydelta checkpoint {log.uri}" in said(state)
    assert state.weight == 1


def test_manifests_that_are_behind_are_said_with_versions_and_age(log):
    publish(log)
    assert reader_of(log).read().twin.state == "current"
    append("a", [3]).run(log)
    append("a", [4]).run(log)
    state = reader_of(log).read()
    assert (state.twin.state, state.twin.manifest_version, state.twin.lag_versions) == ("behind", 0, 2)
    assert state.twin.lag_seconds >= 0
    assert "The manifests are 2 versions behind" in said(state)
    assert f"pydelta generate {log.uri}" in said(state)


@pytest.mark.parametrize("damage", ["no table", "no json", "a hole"])
def test_a_table_that_cannot_be_read_is_told_and_no_error(tmp_path, damage):
    log_folder = tmp_path / "_delta_log"
    if damage != "no table":
        create_table(DeltaLog(LocalStore(tmp_path.as_uri())), [add_file("a", [1])])
    if damage == "no json":
        (log_folder / f"{1:020d}.json").write_text("{nope")
    elif damage == "a hole":
        (log_folder / f"{2:020d}.json").write_text('{"commitInfo": {}}')
    state = Reader(ShownPlace(name="t", uri=tmp_path.as_uri())).read()
    assert (state.version, state.weight) == (None, 2)
    assert state.troubles[0].next
    assert "Traceback" not in said(state)


def test_nothing_is_written_by_reading(tmp_path):
    query = build_lake(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    watch = Watch(
        Watched(sources=Sources(folders=[str(tmp_path)]), checkpoints=[str(query)], garbage=60.0, fresh=0, patience=600)
    )
    view = watch.overview()
    for table in view.tables:
        for commit in table.commits[:3]:
            watch.detail(table, commit.version)
    while not all(table.garbage for table in watch.overview().tables if table.version is not None):
        pass
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# --- garbage ---------------------------------------------------------------------------------------------------------


def test_garbage_is_what_a_dry_run_of_vacuum_finds(tmp_path):
    log = DeltaLog(LocalStore(tmp_path.as_uri()))
    create_table(log, [add_file("a", [1])])
    stray = tmp_path / "p=a" / "stray.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x" * 70)
    import os

    os.utime(stray, (1, 1))
    found = measure_garbage(log, seconds=600)
    assert (found.files, found.bytes, found.source) == (1, 70, "a listing of the table")
    assert stray.exists()


def test_a_listing_that_takes_too_long_says_what_else_there_is(log):
    with pytest.raises(DeltaError, match="took longer than 0 s") as failed:
        measure_garbage(log, seconds=0.0)
    assert "--inventory" in failed.value.hint


def test_what_the_last_vacuum_said_stands_for_garbage(tmp_path):
    build_lake(tmp_path)
    state = Reader(ShownPlace(name="c", uri=(tmp_path / "lake/customers").as_uri())).read()
    assert (state.garbage.bytes, state.vacuum.version) == (0, 4)
    assert "VACUUM of version 4" in state.garbage.source


# --- a commit --------------------------------------------------------------------------------------------------------


def detail_of(tmp_path, version, table="orders"):
    build_lake(tmp_path)
    return read_detail(DeltaLog(LocalStore((tmp_path / "lake" / table).as_uri())), version)


def test_a_commit_is_told_in_words(tmp_path):
    found = detail_of(tmp_path, 1)
    assert (found.commit.operation, found.commit.who, found.commit.rows) == ("WRITE", "ada", Rows(inserted=1000))
    assert "1,000 rows written" in found.phrases
    assert "took 1.8 s" in found.phrases
    assert (found.added_files, found.added_rows, found.removed_files) == (1, 1000, 0)
    assert found.waited == (0, 0)
    assert ("reads", "nothing: it only adds") in found.facts


def test_a_delete_with_a_vector_tells_hidden_rows(tmp_path):
    found = detail_of(tmp_path, 7)
    assert found.commit.rows == Rows(deleted=6)
    assert (found.added[0].rows, found.added[0].hidden_rows) == (1000, 6)
    assert (found.added_rows, found.removed_rows) == (994, 1000)


def test_a_commit_behind_another_says_how_many_landed_between(tmp_path):
    found = detail_of(tmp_path, 8)
    assert found.waited == (6, 1)
    assert found.commit.rows == Rows(inserted=3, updated=2, deleted=1)


def test_optimize_changes_no_row(tmp_path):
    assert detail_of(tmp_path, 2, "customers").commit.rows == Rows(inserted=0, updated=0, deleted=0)


def test_a_commit_that_changes_the_schema_says_how(log):
    from pydelta.protocol.actions import encode_json
    from pydelta.txn import Operation, start_transaction

    txn = start_transaction(log)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("p", "string"), ("y", "double"))
    ]
    schema = encode_json({"type": "struct", "fields": fields})
    properties = {**txn.snapshot.metadata.configuration, "fs.s3a.secret.key": "hush"}
    txn.update_metadata(txn.snapshot.metadata.replace(schema_string=schema, configuration=properties))
    txn.commit([], Operation(name="CHANGE COLUMNS"))
    changes = read_detail(log, 1).changes
    assert "Column y (double) is added." in changes
    assert "Column x is dropped or renamed." in changes
    assert "Property fs.s3a.secret.key is (hidden)." in changes


def test_a_version_that_is_not_there_is_told(log):
    with pytest.raises(VersionNotFoundError):
        read_detail(log, 7)


def test_long_commits_are_shown_in_part_and_counted_whole():
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/long"))
    create_table(log, [add_file("a", [number]) for number in range(250)])
    found = read_detail(log, 0)
    assert (found.added_files, len(found.added), found.added_rows) == (250, 100, 250)
    assert len(found.lines) + found.more_lines == 253


# --- twins -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(log):
    """The table with its entries in a metastore, the table registered at a place that a URI names."""
    content = MemoryMetastore()
    native = TableName(database="lake", name="orders")
    sync_target(
        content,
        SyncTarget(log=log, native=native, twin=TableName(database="lake_symlink", name="orders")),
        SyncOptions(),
    )
    return content


def catalog_of(content, before=None):
    def connect():
        found = MemoryMetastore(content, before=before)
        found._sleep = lambda seconds: None
        return found

    return WatchedMetastore(connect, ["lake"], "{database}_symlink")


def test_tables_come_from_the_metastore_and_twins_are_compared(log, lake):
    watch = Watch(Watched(sources=Sources(), catalog=catalog_of(lake), fresh=0, patience=600))
    [table] = watch.overview().tables
    assert (table.place.name, table.place.registered) == ("lake.orders", True)
    assert (table.twin.name, table.twin.state, table.twin.seen_version) == ("lake_symlink.orders", "current", 0)
    append("a", [3]).run(log)
    [table] = watch.overview().tables
    assert (table.version, table.twin.state, table.twin.lag_versions) == (1, "behind", 1)
    assert "The twin lake_symlink.orders is 1 version behind" in said(table)
    assert "catalog_sync sync lake.orders" in said(table)


def test_an_entry_with_other_columns_is_behind_until_a_sync(log, lake):
    watch = Watch(Watched(sources=Sources(), catalog=catalog_of(lake), fresh=0, patience=600))
    assert watch.overview().tables[0].native_behind is False
    assert 'pydelta_table_native_behind{table="lake.orders"} 0.0' in metrics_text(watch.overview()).decode()
    append("a", [3]).run(log)
    assert watch.overview().tables[0].native_behind is False, "a commit of rows changes no column"
    alter("added").run(log)
    view = watch.overview()
    assert 'pydelta_table_native_behind{table="lake.orders"} 1.0' in metrics_text(view).decode()
    assert "The metastore shows other columns or properties of the table" in said(view.tables[0])
    sync_native(lake, TableName(database="lake", name="orders"), log.update())
    assert watch.overview().tables[0].native_behind is False


def test_an_entry_that_others_wrote_is_neither_behind_nor_current(log, lake):
    entry = lake.table("lake", "orders")
    assert native_is_behind(entry, log.update()) is False
    del entry.parameters[SCHEMA_KEY]
    assert native_is_behind(entry, log.update()) is None
    assert native_is_behind(None, log.update()) is None


def test_an_iceberg_entry_is_shown_with_its_version_and_its_lag(log, lake, monkeypatch):
    publisher = FakePublisher()
    monkeypatch.setattr("catalog_sync.iceberg.sync.published_iceberg", publisher)
    entry = TableName(database="lake_iceberg", name="orders")
    watch = Watch(Watched(sources=Sources(), catalog=catalog_of(lake), fresh=0, patience=600))
    assert watch.overview().tables[0].iceberg is None
    sync_iceberg(log, lake, entry, iceberg=True)
    view = watch.overview()
    [table] = view.tables
    assert (table.iceberg.name, table.iceberg.state, table.iceberg.version) == ("lake_iceberg.orders", "current", 0)
    assert "lake_iceberg.orders, current" in table_page(view, table)
    assert 'pydelta_table_iceberg_version{table="lake.orders"} 0.0' in metrics_text(view).decode()
    append("a", [3]).run(log)
    view = watch.overview()
    [table] = view.tables
    assert (table.iceberg.state, table.iceberg.lag_versions) == ("behind", 1)
    assert "The Iceberg entry lake_iceberg.orders is 1 version behind" in said(table)
    assert "1 version" in overview_page(view)
    lake.entries["lake_iceberg", "orders"].parameters["metadata_location"] = "s3://theirs/00001-uuid.metadata.json"
    [table] = watch.overview().tables
    assert (table.iceberg.state, table.weight) == ("drift", 2)
    assert "Another writer has committed" in said(table)


def test_a_metastore_that_fails_hides_no_table(log, lake):
    fails = []

    def before(verb):
        if fails:
            raise StorageError("The metastore at thrift://hms:9083 does not answer.", hint="Start it.")

    watch = Watch(Watched(sources=Sources(), catalog=catalog_of(lake, before), fresh=0, patience=600))
    assert watch.overview().table("lake.orders").version == 0
    fails.append(1)
    append("a", [3]).run(log)
    view = watch.overview()
    assert "Check that it runs" in view.troubles[0].next
    [table] = view.tables
    assert (table.version, table.twin.state, table.weight) == (1, "unknown", 2)


def test_the_entry_point_opens_the_metastore_s_catalog():
    import tomllib
    from importlib.metadata import EntryPoint
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["pydelta.catalogs"].items()
    opened = EntryPoint(name, value, "pydelta.catalogs").load()("thrift://127.0.0.1:9", ["lake"], {}, 1.0)
    assert isinstance(opened, WatchedMetastore)
    with pytest.raises(DeltaError, match=r"127\.0\.0\.1"):
        opened.tables()


def test_without_an_entry_point_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("pydelta.tools.ui.sources.entry_points", lambda group: ())
    with pytest.raises(DeltaEnvironmentError, match="No package that speaks to a metastore") as failed:
        open_catalog(None, [], {}, 1.0)
    assert "pip" in failed.value.hint


# --- where tables are ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_walk_finds_tables_and_looks_into_none(tmp_path, kind):
    store = LocalStore(tmp_path.as_uri()) if kind == "local" else MemoryStore(f"memory://{uuid.uuid4()}")
    for path in ("a/x", "a/y", "b", "c/d/e"):
        store.put(f"{path}/_delta_log/{0:020d}.json", b"{}")
        for number in range(3):
            store.put(f"{path}/p=1/part-{number}.parquet", b"")
    store.put("a/x/p=1/_delta_log/inner", b"")
    store.put("c/d/plain.parquet", b"")
    found, trouble = walk(store, Deadline(None))
    assert [path for path in found if path != "a/x/p=1"] == ["a/x", "a/y", "b", "c/d/e"]
    assert trouble is None


def test_a_walk_of_many_keys_skips_what_lies_in_tables():
    store = MemoryStore(f"memory://{uuid.uuid4()}")
    for table in ("a", "b"):
        store.put(f"{table}/_delta_log/{0:020d}.json", b"{}")
        for number in range(2500):
            store.put(f"{table}/part-{number:05d}.parquet", b"")
    counted = CountingStore(store)
    assert walk(counted, Deadline(None))[0] == ["a", "b"]
    assert len(counted.paths("list_page")) <= 3


def test_a_walk_that_takes_too_long_says_so(tmp_path):
    (tmp_path / "x").mkdir()
    found, trouble = walk(LocalStore(tmp_path.as_uri()), Deadline(0))
    assert found == []
    assert "Not all of" in trouble.what


def test_folders_that_hold_no_table_and_two_tables_of_one_name_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("one", "two"):
        create_table(DeltaLog(LocalStore((tmp_path / folder / "t u").as_uri())), [add_file("a", [1])])
    folders = [str(tmp_path / name) for name in ("empty", "one", "two")]
    found = find_places(Sources(folders=folders), None)
    assert "There is no Delta table below" in found.troubles[0].what
    assert [place.name for place in found.places] == ["t u", (tmp_path / "two" / "t u").as_uri()]
    assert [Reader(place).read().version for place in found.places] == [0, 0]


def test_a_location_may_be_given_a_name():
    assert named_place("sales=s3a://b/t") == ShownPlace(name="sales", uri="s3a://b/t")
    assert named_place("/data/p=1/t").uri == "file:///data/p%3D1/t"
    with pytest.raises(InvalidArgumentError, match="has no name"):
        named_place("=s3a://b/t")


# --- stores that do not answer ---------------------------------------------------------------------------------------


class HangingStore(CountingStore):
    """Answers no listing until it may."""

    may = threading.Event()

    def list_from(self, start, *, prefix):
        self.may.wait()
        return super().list_from(start, prefix=prefix)


def test_a_store_that_does_not_answer_is_a_line_and_keeps_nothing_else_waiting(log):
    place = f"hangs-{uuid.uuid4().hex}"
    register_store("uihang", lambda uri, options: HangingStore(MemoryStore(uri.replace("uihang:", "memory:"))))
    create_table(DeltaLog(MemoryStore(f"memory://{place}/t")), [add_file("a", [1])])
    sources = Sources(tables=[f"slow=uihang://{place}/t", f"quick={log.uri}"])
    watch = Watch(Watched(sources=sources, fresh=0, patience=0.2))
    HangingStore.may.clear()
    try:
        while True:  # the other one is shown while this one hangs, on whatever machine
            view = watch.overview()
            slow, quick = view.table("slow"), view.table("quick")
            if quick is not None and quick.version == 0 and slow.weight == 2:
                break
        assert slow.version is None
        assert "its store has not answered for" in said(slow)
        assert "pydelta doctor" in said(slow)
        with pytest.raises(TimeoutError):
            watch.detail(slow, 0)
    finally:
        HangingStore.may.set()
    while watch.overview().table("slow").version != 0:
        pass


def test_an_error_that_nobody_foresaw_is_a_line_of_its_table(log, monkeypatch):
    other = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/other"))
    create_table(other, [add_file("a", [1])])
    watch = Watch(Watched(sources=Sources(tables=[f"a={log.uri}", f"b={other.uri}"]), fresh=0, patience=600))
    assert [table.weight for table in watch.overview().tables] == [0, 0]
    read = Reader.read

    def fails_for_a(reader, twin_of=None):
        if reader.place.name == "a":
            raise RuntimeError("password=hush is odd")
        return read(reader, twin_of)

    monkeypatch.setattr(Reader, "read", fails_for_a)
    append("a", [2]).run(other)
    first, second = watch.overview().tables
    assert (first.place.name, first.version, first.weight) == ("a", 0, 2)
    assert "RuntimeError: password=(hidden) is odd" in said(first)
    assert (second.place.name, second.version, second.weight) == ("b", 1, 0)


# --- more of garbage and commits ---


def test_an_inventory_stands_in_for_a_listing(tmp_path):
    import polars as pl

    log = DeltaLog(LocalStore(tmp_path.as_uri()))
    create_table(log, [add_file("a", [1])])
    rows = pl.DataFrame(
        {
            "path": [f"{log.uri}/p=a/gone.parquet"],
            "length": [33],
            "isDir": [False],
            "modificationTime": [1_700_000_000_000],
        }
    )
    found = measure_garbage(log, seconds=600, inventory=from_frame(rows))
    assert (found.files, found.bytes, found.source) == (1, 33, "an inventory")


def test_commit_info_without_metrics_says_that_rows_are_not_recorded():
    from pydelta.log.history import CommitRecord
    from pydelta.tools.ui.commits import commit_state

    state = commit_state(CommitRecord(version=1, timestamp_ms=1, commit_info=commit_info("WRITE")))
    assert not state.rows.known
    assert commit_state(CommitRecord(version=1, timestamp_ms=1, commit_info=None)).operation is None
