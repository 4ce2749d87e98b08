"""The Iceberg entry in a metastore: made, moved in one change, never back; drift, refusals and removal."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import suppress

import pytest
from unit.sync.iceberg_fakes import FakePublisher, place

from catalog_sync.cli import main
from catalog_sync.entries import sync_entries
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError, NotOursError
from catalog_sync.iceberg.entry import FOLDER, IcebergDriftError, found_iceberg, metadata_number
from catalog_sync.iceberg.status import IcebergState, iceberg_status
from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import TableName, iceberg_name, twin_name
from catalog_sync.native import sync_native
from catalog_sync.sync import SyncOptions
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.commands.alter.requests import SetProperties, UnsetProperties
from pydelta.errors import InvalidArgumentError, SchemaError, TableNotFoundError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.testing import SimulatedCrash
from pydelta.testing.commands import alter_table
from pydelta.testing.operations import add_file, append, create_table

ORDERS = TableName(database="lake", name="orders")
ENTRY = iceberg_name(ORDERS)


@pytest.fixture(autouse=True)
def _no_logs_kept():
    yield
    DeltaLog.clear_cache()


@pytest.fixture
def publisher(monkeypatch):
    fake = FakePublisher()
    monkeypatch.setattr("catalog_sync.iceberg.sync.published_iceberg", fake)
    return fake


@pytest.fixture
def metastore():
    return MemoryMetastore()


@pytest.fixture
def run(metastore, publisher, capsys, monkeypatch):
    monkeypatch.setattr("catalog_sync.cli._connect", lambda uris, **how: MemoryMetastore(metastore))

    def command(*argv):
        with pytest.raises(SystemExit) as stopped:
            main(argv)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return command


def table(path, **properties):
    log = DeltaLog.for_table(str(path))
    create_table(log, [add_file("a", [1])], **properties)
    return log


def registered(metastore, path, name=ORDERS, **properties):
    log = table(path, **properties)
    sync_native(metastore, name, log.update())
    return log


def names(metastore):
    return sorted(".".join(key) for key in metastore.entries)


def entry(metastore):
    return metastore.entries[ENTRY.database, ENTRY.name]


def committed_by_another(metastore, number=9):
    """What Trino or Iceberg's own catalog does: the pointer moves, and our parameters stay."""
    there = entry(metastore)
    there.parameters["previous_metadata_location"] = there.parameters["metadata_location"]
    theirs = there.parameters["metadata_location"].rpartition("/")[0] + f"/0000{number}-uuid.metadata.json"
    there.parameters["metadata_location"] = theirs
    return theirs


# --- made and moved ------------------------------------------------------------------------------------------------


def test_a_table_that_asks_for_it_gets_the_entry_that_readers_of_iceberg_know(metastore, publisher, tmp_path):
    log = table(tmp_path / "t", pydelta_sync_iceberg="true")
    result = sync_iceberg(log, metastore, ENTRY)
    assert (result.version, result.previous, result.metadata) == (0, None, place(log, 1))
    made = entry(metastore)
    assert made.parameters == {
        "EXTERNAL": "TRUE",
        "external.table.purge": "false",
        "table_type": "ICEBERG",
        "metadata_location": place(log, 1),
        "pydelta.sync.icebergMetadata": place(log, 1),
        "pydelta.table.location": log.uri,
        "pydelta.table.id": log.update().metadata.id,
        "pydelta.sync.version": "0",
    }
    assert (made.tableType, made.sd.location, made.partitionKeys) == ("EXTERNAL_TABLE", f"{log.uri}/{FOLDER}", [])
    assert (made.sd.inputFormat, made.sd.outputFormat, made.sd.serdeInfo.serializationLib) == (
        "org.apache.hadoop.mapred.FileInputFormat",
        "org.apache.hadoop.mapred.FileOutputFormat",
        "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    )
    assert [(column.name, column.type) for column in made.sd.cols] == [("p", "string"), ("x", "bigint")]


def test_it_follows_the_table_and_names_the_metadata_before(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    append("b", [2]).run(log)
    result = sync_iceberg(log, metastore, ENTRY)
    assert (result.previous, result.version) == (0, 1), "a later sync needs no flag"
    assert entry(metastore).parameters["previous_metadata_location"] == place(log, 1)
    assert entry(metastore).parameters["metadata_location"] == place(log, 2)
    assert not metastore.locks[ENTRY.database, ENTRY.name], "the lock is released"


def test_what_is_current_takes_one_call_and_what_asks_for_none_gets_none(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    assert sync_iceberg(log, metastore, ENTRY) is None
    assert metastore.calls == ["get_table_req"]
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    metastore.calls.clear()
    result = sync_iceberg(log, metastore, ENTRY)
    assert (result.calls, metastore.calls, result.is_changed) == (1, ["get_table_req"], False)
    assert publisher.calls == 1


def test_parameters_of_others_stay_and_a_table_is_found_by_no_other_place(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    entry(metastore).parameters["owned.by"] = "somebody"
    append("b", [2]).run(log)
    sync_iceberg(log, metastore, ENTRY)
    assert entry(metastore).parameters["owned.by"] == "somebody"
    other = table(tmp_path / "u")
    with pytest.raises(NotOursError, match="is the Iceberg entry of the table at"):
        sync_iceberg(other, metastore, ENTRY)
    entry(metastore).parameters = {"made": "by hand"}
    with pytest.raises(NotOursError, match="did not make"):
        sync_iceberg(log, metastore, ENTRY)


def test_off_removes_nothing_and_says_how(metastore, run, tmp_path):
    log = registered(metastore, tmp_path / "t")
    assert run("sync", "lake.orders", "--iceberg")[0] == 0
    append("b", [2]).run(log)
    code, out, _ = run("sync", "lake.orders", "--no-iceberg")
    assert (code, "catalog_sync drop lake_iceberg.orders removes it" in out) == (0, True)
    assert found_iceberg(entry(metastore)).version == 0
    code, out, _ = run("sync", "lake.orders", "--json")
    assert json.loads(out)[0]["iceberg"]["version"] == 1


def test_a_change_of_types_that_the_metastore_refuses_moves_the_entry_first(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    publisher.kinds = {"x": "string"}
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    publisher.kinds = {"x": "date"}
    append("b", [2]).run(log)
    sync_iceberg(log, metastore, ENTRY)
    assert [(column.name, column.type) for column in entry(metastore).sd.cols] == [("p", "string"), ("x", "date")]
    assert found_iceberg(entry(metastore)).version == 1


# --- others at the same time ---------------------------------------------------------------------------------------


class Meanwhile(MemoryMetastore):
    """Does something before the first call of a verb, or at its number."""

    def __init__(self, content, verb, what):
        super().__init__(content, before=self._look)
        self._verb, self._what = verb, what

    def _look(self, verb):
        if verb.startswith(self._verb) and self._what is not None:
            what, self._what = self._what, None
            what()


def test_another_writer_s_commit_is_refused_and_only_adopt_overwrites_it(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    theirs = committed_by_another(metastore)
    append("b", [2]).run(log)
    with pytest.raises(IcebergDriftError, match="Another writer has committed"):
        sync_iceberg(log, metastore, ENTRY)
    assert entry(metastore).parameters["metadata_location"] == theirs
    status = iceberg_status(log, metastore, ENTRY, now_ms=0)
    assert (status.state, status.metadata) == (IcebergState.DRIFT, theirs)
    result = sync_iceberg(log, metastore, ENTRY, SyncOptions(adopt=True))
    assert (result.version, entry(metastore).parameters["metadata_location"]) == (1, place(log, 2))
    assert iceberg_status(log, metastore, ENTRY, now_ms=0).state is IcebergState.CURRENT


@pytest.mark.parametrize("verb", ["lock", "alter_table"])
def test_a_commit_of_another_between_reading_and_moving_wins(metastore, publisher, tmp_path, verb):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    append("b", [2]).run(log)
    with pytest.raises(IcebergDriftError):
        sync_iceberg(log, Meanwhile(metastore, verb, lambda: committed_by_another(metastore)), ENTRY)
    assert entry(metastore).parameters["metadata_location"].endswith("-uuid.metadata.json")


def test_a_sync_that_is_overtaken_leaves_the_later_version(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    append("b", [2]).run(log)

    def overtake():
        """A sync that published later metadata, and moved the entry to it."""
        append("c", [3]).run(log)
        published = publisher(log, SyncOptions()).entry
        there = entry(metastore)
        there.parameters |= {
            "metadata_location": published.metadata_location,
            "pydelta.sync.icebergMetadata": published.metadata_location,
            "pydelta.sync.version": "2",
        }

    for verb in ("alter_table", "lock"):
        result = sync_iceberg(log, Meanwhile(metastore, verb, overtake), ENTRY)
        assert (result.version, found_iceberg(entry(metastore)).version) == (2, 2), verb
        overtake = None


def test_many_syncs_at_once_only_move_forward(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    seen, failed = [], []

    def watch(verb):
        seen.append(found_iceberg(entry(metastore)).version)

    def syncs():
        for _ in range(4):
            try:
                sync_iceberg(DeltaLog.for_table(log.uri), MemoryMetastore(metastore, before=watch), ENTRY)
            except MetastoreError as error:
                failed.append(error)
            except AssertionError:  # The fake publisher lost a number, which the real one tries again.
                continue

    threads = [threading.Thread(target=syncs) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(6):
        append("b", [at]).run(log)
    for thread in threads:
        thread.join()
    sync_iceberg(log, metastore, ENTRY)
    assert failed == []
    assert seen == sorted(seen)
    assert found_iceberg(entry(metastore)).version == 6


def test_a_lock_that_another_holds_is_waited_for_and_then_reported(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    append("b", [2]).run(log)
    number, state = metastore.lock_table(ENTRY.database, ENTRY.name, user="trino", host="there")
    assert state == "ACQUIRED"
    with pytest.raises(MetastoreUnavailableError, match="holds the metastore's lock"):
        sync_iceberg(log, metastore, ENTRY, SyncOptions(wait_seconds=0.5))
    assert metastore.locks[ENTRY.database, ENTRY.name] == [number]
    metastore.unlock_table(number)
    assert sync_iceberg(log, metastore, ENTRY).version == 1


def test_a_metastore_without_locks_is_asked_once(metastore, publisher, tmp_path):
    class WithoutLocks(MemoryMetastore):
        def _lock(self, request):
            from pymetastore.hive_metastore import ttypes

            raise ttypes.MetaException(message="no such table as HIVE_LOCKS")

    client = WithoutLocks(metastore)
    for at in range(2):
        log = table(tmp_path / f"t{at}")
        assert sync_iceberg(log, client, TableName(database="lake_iceberg", name=f"t{at}"), iceberg=True).version == 0
    assert client.calls.count("lock") == 1


@pytest.mark.parametrize("at", range(8))
def test_a_crash_at_each_call_leaves_the_old_entry_or_the_new_one(metastore, publisher, tmp_path, at):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    append("b", [2]).run(log)
    left = [at]

    def crash(verb):
        left[0] -= 1
        if left[0] < 0:
            raise SimulatedCrash(verb)

    with suppress(SimulatedCrash):
        sync_iceberg(log, MemoryMetastore(metastore, before=crash), ENTRY, SyncOptions(wait_seconds=0.1))
    assert entry(metastore).parameters["metadata_location"] in (place(log, 1), place(log, 2))
    assert not found_iceberg(entry(metastore)).has_drifted
    metastore.locks.clear()  # They expire by themselves.
    shutil.rmtree(tmp_path / "t" / "_pydelta" / "leases", ignore_errors=True)
    assert sync_iceberg(log, metastore, ENTRY).version == 1


def test_an_entry_whose_metadata_is_gone_may_go_to_a_smaller_number(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    for at in range(3):
        append("b", [at]).run(log)
        sync_iceberg(log, metastore, ENTRY, iceberg=True)
    shutil.rmtree(tmp_path / "t" / "_pydelta" / "iceberg")
    append("b", [9]).run(log)
    assert sync_iceberg(log, metastore, ENTRY).metadata == place(log, 1)


# --- refused, replaced, left out, dropped --------------------------------------------------------------------------


def refusal():
    return SchemaError("Iceberg has no type for the column 'v' (variant).", hint="Leave it out.")


def test_a_refused_table_is_a_warning_and_keeps_its_twin(metastore, run, publisher, tmp_path):
    registered(metastore, tmp_path / "t", pydelta_sync_iceberg="true")
    publisher.refuses = refusal()
    code, out, err = run("sync", "--warn", "--database", "lake")
    assert (code, "lake_symlink.orders: version 0" in out) == (0, True)
    assert "Warning: lake_iceberg.orders: " in err
    assert "variant" in err
    code, out, err = run("sync", "lake.orders", "--json")
    (row,) = json.loads(out)
    assert (code, row["version"], row["iceberg"]["name"]) == (1, 0, "lake_iceberg.orders")
    assert "variant" in row["iceberg"]["message"]
    assert names(metastore) == ["lake.orders", "lake_symlink.orders"]


def test_a_twin_that_cannot_be_made_does_not_keep_the_iceberg_entry_away(metastore, publisher, tmp_path, monkeypatch):
    log = registered(metastore, tmp_path / "t", pydelta_sync_iceberg="true")

    def refuse(*_, **__):
        raise SchemaError("no twin")

    monkeypatch.setattr("catalog_sync.entries.sync_target", refuse)
    target = SyncTarget(log=log, native=ORDERS, twin=twin_name(ORDERS), registered=True)
    found = sync_entries(metastore, target, SyncOptions())
    assert (str(found.twin_error.message), found.iceberg.version) == ("no twin", 0)
    with pytest.raises(SchemaError):
        found.check()


def test_a_replaced_table_needs_adopt(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    sync_iceberg(log, metastore, ENTRY, iceberg=True)
    shutil.rmtree(tmp_path / "t")
    DeltaLog.clear_cache()
    log = table(tmp_path / "t")
    with pytest.raises(NotOursError, match="an earlier table"):
        sync_iceberg(log, metastore, ENTRY)
    assert iceberg_status(log, metastore, ENTRY, now_ms=0).state is IcebergState.NOT_OURS
    assert sync_iceberg(log, metastore, ENTRY, SyncOptions(adopt=True)).version == 0
    assert found_iceberg(entry(metastore)).table_id == log.update().metadata.id


def test_a_table_dropped_meanwhile_gets_no_entry_back(metastore, publisher, tmp_path):
    log = registered(metastore, tmp_path / "t", pydelta_sync_iceberg="true")
    target = SyncTarget(log=log, native=ORDERS, twin=twin_name(ORDERS), registered=True)
    sync_entries(metastore, target, SyncOptions(), iceberg=False)

    def dropped():
        metastore.drop("lake", "orders")

    found = sync_entries(Meanwhile(metastore, "lock", dropped), target, SyncOptions())
    assert isinstance(found.iceberg_error, TableNotFoundError)
    assert names(metastore) == ["lake_symlink.orders"]


@pytest.mark.parametrize(("said", "left"), [
    ("lake.orders", ["lake.orders"]),
    ("lake_iceberg.orders", ["lake.orders", "lake_symlink.orders"]),
    ("lake_symlink.orders", ["lake.orders", "lake_iceberg.orders"]),
])  # fmt: skip
def test_drop_takes_what_was_named(metastore, run, tmp_path, said, left):
    log = registered(metastore, tmp_path / "t")
    run("sync", "lake.orders", "--iceberg")
    code, out, err = run("drop", said, "--dry-run")
    assert (code, "would be dropped" in out, len(names(metastore))) == (0, True, 3), err
    code, out, err = run("drop", said)
    assert (code, names(metastore)) == (0, left), err
    assert log.store.head(f"{FOLDER}/metadata/v1.metadata.json") is not None, "no data is touched"


def test_drop_of_a_table_without_a_twin_and_of_a_drifted_entry(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    run("sync", "lake.orders", "--iceberg")
    run("drop", "lake_symlink.orders")
    committed_by_another(metastore)
    code, _, err = run("drop", "lake.orders")
    assert (code, "SYNC_ICEBERG_DRIFT" in err, names(metastore)) == (1, True, ["lake.orders", "lake_iceberg.orders"])
    assert run("drop", "lake.orders", "--adopt")[0] == 0
    assert names(metastore) == ["lake.orders"]


def test_what_was_left_behind_is_told_and_pruned(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    registered(metastore, tmp_path / "u", TableName(database="lake", name="kept"))
    run("sync", "--database", "lake", "--iceberg")
    metastore.drop("lake", "orders")
    _, out, _ = run("sync", "--database", "lake", "--json")
    orphans = [row["twin"] for row in json.loads(out) if "orphan" in row]
    assert orphans == ["lake_symlink.orders", "lake_iceberg.orders"]
    theirs = committed_by_another(metastore)
    run("sync", "--database", "lake", "--prune")
    assert names(metastore) == [
        "lake.kept", "lake_iceberg.kept", "lake_iceberg.orders", "lake_symlink.kept",
    ], "another writer's stays"  # fmt: skip
    assert entry(metastore).parameters["metadata_location"] == theirs
    run("sync", "--database", "lake", "--prune", "--adopt")
    assert names(metastore) == ["lake.kept", "lake_iceberg.kept", "lake_symlink.kept"]


def test_a_table_that_is_left_out_loses_both_unless_it_asks_for_iceberg(metastore, publisher, tmp_path):
    log = registered(metastore, tmp_path / "t", pydelta_sync_enabled="false")
    target = SyncTarget(log=log, native=ORDERS, twin=twin_name(ORDERS), registered=True)
    sync_entries(metastore, target, SyncOptions(), iceberg=True)
    assert names(metastore) == ["lake.orders", "lake_iceberg.orders"]
    sync_entries(metastore, target, SyncOptions())
    assert names(metastore) == ["lake.orders"]
    other = registered(
        metastore, tmp_path / "u", TableName(database="lake", name="u"),
        pydelta_sync_enabled="false", pydelta_sync_iceberg="true",
    )  # fmt: skip
    u = TableName(database="lake", name="u")
    sync_entries(metastore, SyncTarget(log=other, native=u, twin=twin_name(u), registered=True), SyncOptions())
    assert names(metastore) == ["lake.orders", "lake.u", "lake_iceberg.u"]


# --- status --------------------------------------------------------------------------------------------------------


def test_status_shows_version_and_lag_and_exits_4_at_drift(metastore, run, tmp_path):
    log = registered(metastore, tmp_path / "t")
    run("sync", "lake.orders", "--iceberg")
    append("b", [2]).run(log)
    append("b", [3]).run(log)
    code, out, _ = run("status", "lake.orders", "--json")
    found = json.loads(out)[0]["iceberg"]
    assert (code, found["name"], found["state"], found["version"], found["lagVersions"]) == (
        0, "lake_iceberg.orders", "behind", 0, 2,
    )  # fmt: skip
    assert found["lagSeconds"] > 0
    code, out, _ = run("status", "lake.orders")
    assert "lake_iceberg.orders" in out
    committed_by_another(metastore)
    code, out, err = run("status", "lake.orders")
    assert (code, "drift" in out, "lake_iceberg.orders: Another writer" in err) == (4, True, True)


def test_the_states_without_an_entry_and_with_a_stopped_one(metastore, publisher, tmp_path):
    log = table(tmp_path / "t")
    assert iceberg_status(log, metastore, ENTRY, now_ms=0) is None
    asking = table(tmp_path / "u", pydelta_sync_iceberg="true")
    assert iceberg_status(asking, metastore, ENTRY, now_ms=0).state is IcebergState.NOT_SYNCED
    stopped = table(tmp_path / "v", pydelta_sync_iceberg="false")
    sync_iceberg(stopped, metastore, ENTRY, iceberg=True)
    found = iceberg_status(stopped, metastore, ENTRY, now_ms=0)
    assert (found.state, "catalog_sync drop lake_iceberg.orders" in found.problem) == (IcebergState.STOPPED, True)
    assert sync_iceberg(stopped, metastore, ENTRY).stopped


def test_a_table_that_asks_for_an_older_format_is_blocked_until_it_does_not(metastore, tmp_path):
    log = registered(metastore, tmp_path / "t", **{"pydelta.iceberg.formatVersion": "3"})
    assert sync_iceberg(log, metastore, ENTRY, iceberg=True).version == 0
    alter_table(log, SetProperties(properties={"pydelta.iceberg.formatVersion": "2"}))
    with pytest.raises(UnsupportedFeatureError, match="format version 2, but its entry is of version 3"):
        sync_iceberg(log, metastore, ENTRY)
    found = iceberg_status(log, metastore, ENTRY, now_ms=0)
    assert (found.state, found.version) == (IcebergState.BLOCKED, 0)
    assert "Iceberg has no way back" in found.problem
    alter_table(log, UnsetProperties(names=("pydelta.iceberg.formatVersion",)))
    assert sync_iceberg(log, metastore, ENTRY).version == 2
    assert iceberg_status(log, metastore, ENTRY, now_ms=0).state is IcebergState.CURRENT


def test_names_and_numbers(tmp_path):
    with pytest.raises(InvalidArgumentError, match="would have the same name"):
        iceberg_name(ORDERS, "{database}")
    assert metadata_number("s3://b/t/_pydelta/iceberg/metadata/v12.metadata.json", "s3a://b/t") == 12
    assert metadata_number("file:///a b/_pydelta/iceberg/metadata/v1.metadata.json", "file:///a%20b") == 1
    assert metadata_number("s3://b/u/_pydelta/iceberg/metadata/v12.metadata.json", "s3a://b/t") is None
    assert metadata_number("s3://b/t/_pydelta/iceberg/metadata/00012-x.metadata.json", "s3a://b/t") is None
    assert metadata_number(None, "s3a://b/t") is None
