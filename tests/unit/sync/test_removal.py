"""Twins that are dropped on request, and those that dropped, renamed and re-created tables have left behind."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from catalog_sync.cli import main
from catalog_sync.errors import NotOursError
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import sync_native
from catalog_sync.removal import Claim, drop_twin, find_orphans, prune_orphans
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.target_sync import sync_target
from catalog_sync.targets import SyncTarget
from catalog_sync.thrift.memory import MemoryMetastore
from catalog_sync.twin import LOCATION_KEY
from pydelta.errors import TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, append, create_table

RULE = "{database}_symlink"
ORDERS = TableName(database="lake", name="orders")
TWIN = twin_name(ORDERS)


@pytest.fixture(autouse=True)
def _no_logs_kept():
    yield
    DeltaLog.clear_cache()


@pytest.fixture
def metastore():
    return MemoryMetastore()


@pytest.fixture
def run(metastore, capsys, monkeypatch):
    monkeypatch.setattr("catalog_sync.cli._connect", lambda uris, **how: MemoryMetastore(metastore))

    def command(*argv):
        with pytest.raises(SystemExit) as stopped:
            main(argv)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return command


def table(place, **properties):
    log = DeltaLog.for_table(str(place))
    create_table(log, [add_file("a", [1])], **properties)
    return log


def registered(metastore, place, name=ORDERS, **properties):
    """A table with both entries."""
    log = table(place, **properties)
    sync_table(log, metastore, twin_name(name))
    sync_native(metastore, name, log.update())
    return log


def names(metastore):
    return sorted(".".join(key) for key in metastore.entries)


# --- dropping --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["lake.orders", "lake_symlink.orders", "LAKE.Orders"])
def test_a_twin_is_dropped_by_the_name_of_its_table_or_its_own(metastore, run, tmp_path, said):
    log = registered(metastore, tmp_path / "t")
    code, out, _ = run("drop", said, "--dry-run")
    assert (code, "would be dropped" in out, names(metastore)) == (0, True, ["lake.orders", "lake_symlink.orders"])
    code, out, _ = run("drop", said, "--json")
    (row,) = json.loads(out)
    assert (code, row["twin"], row["table"], row["dropped"]) == (0, "lake_symlink.orders", log.uri, True)
    assert names(metastore) == ["lake.orders"]
    assert log.store.head("_symlink_format_manifest/p=a/manifest") is not None, "no data is touched"
    code, _, err = run("drop", said)
    assert code == 1
    assert "lake_symlink.orders" in err


def test_or_by_the_location_of_its_table(metastore, run, tmp_path):
    log = registered(metastore, tmp_path / "t", pydelta_sync_table="lake.orders", pydelta_sync_enabled="true")
    code, out, _ = run("drop", log.uri)
    assert (code, names(metastore)) == (0, ["lake.orders"])
    assert "The next commit makes it again" in out
    registered(metastore, tmp_path / "plain", TableName(database="lake", name="plain"))
    code, _, err = run("drop", str(tmp_path / "plain"))
    assert (code, "--entry" in err) == (1, True)
    assert run("drop", str(tmp_path / "plain"), "--entry", "lake.plain")[0] == 0
    assert names(metastore) == ["lake.orders", "lake.plain"]


def test_also_where_the_table_and_its_entry_are_gone(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    metastore.drop("lake", "orders")
    shutil.rmtree(tmp_path / "t")
    assert run("drop", "lake.orders")[0] == 0
    assert names(metastore) == []
    log = registered(metastore, tmp_path / "u")
    shutil.rmtree(tmp_path / "u")
    assert run("drop", log.uri, "--twin", "lake_symlink.orders")[0] == 0
    assert names(metastore) == ["lake.orders"]


def test_what_is_not_ours_stays(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    entry = metastore.table("lake_symlink", "orders")
    theirs = copy.deepcopy(entry)
    theirs.tableName = "theirs"
    theirs.parameters = {"made": "by hand"}
    metastore.create(theirs)
    alike = copy.deepcopy(entry)  # as CREATE TABLE … LIKE makes it
    alike.tableName, alike.sd.location = "alike", f"{tmp_path.as_uri()}/elsewhere"
    metastore.create(alike)
    before = names(metastore)
    for name in ("theirs", "alike"):
        with pytest.raises(NotOursError):
            drop_twin(metastore, TableName(database="lake_symlink", name=name))
        code, _, err = run("drop", f"lake_symlink.{name}")
        assert (code, "SYNC_NOT_OURS" in err) == (1, True)
    code, _, err = run("drop", "lake.nothing", "lake_symlink.orders")
    assert (code, "no twin lake_symlink.nothing" in err) == (1, True)
    assert names(metastore) == [item for item in before if item != "lake_symlink.orders"], "one stops no other"
    assert find_orphans(metastore, ["lake"], rule=RULE) == []


def test_the_twin_of_another_place_is_not_dropped_by_this_one_s_name(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    metastore.drop("lake", "orders")
    other = table(tmp_path / "other")
    sync_native(metastore, ORDERS, other.update())
    code, _, err = run("drop", "lake.orders")
    assert code == 1
    assert "catalog_sync drop lake_symlink.orders" in err
    assert run("drop", "lake_symlink.orders")[0] == 0


def test_the_twin_of_an_earlier_table_at_the_place_goes_with_adopt_alone(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    table(tmp_path / "t")
    code, _, err = run("drop", "lake.orders")
    assert (code, "--adopt" in err, "there is another table at" in err) == (1, True, True)
    assert run("drop", "lake.orders", "--adopt")[0] == 0
    assert names(metastore) == ["lake.orders"]


def test_a_log_that_cannot_be_read_does_not_say_whose_a_twin_is(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text("{")
    code, _, err = run("drop", "lake.orders")
    assert (code, "LOG_CORRUPTED" in err) == (1, True)
    metastore.drop("lake", "orders")
    (orphan,) = find_orphans(metastore, ["lake"], rule=RULE)
    assert orphan.claim is Claim.UNKNOWN
    assert prune_orphans(metastore, [orphan], rule=RULE, adopt=True) == []


def test_a_table_s_own_entry_is_never_taken_for_its_twin(metastore, tmp_path):
    log = registered(metastore, tmp_path / "t")
    before = copy.deepcopy(metastore.entries)
    with pytest.raises(NotOursError, match="not a twin"):
        sync_table(log, metastore, ORDERS)
    with pytest.raises(NotOursError):
        drop_twin(metastore, ORDERS)
    assert repr(metastore.entries) == repr(before)


# --- left behind -----------------------------------------------------------------------------------------------


def test_a_sync_of_a_database_tells_what_was_left_behind_and_prunes_it(metastore, run, tmp_path):
    for name in ("dropped", "gone", "moved", "right"):
        registered(metastore, tmp_path / name, TableName(database="lake", name=name))
    for name in ("dropped", "gone", "moved"):
        metastore.drop("lake", name)
    shutil.rmtree(tmp_path / "gone")
    other = table(tmp_path / "other")
    sync_native(metastore, TableName(database="lake", name="moved"), other.update())
    code, out, err = run("sync", "--database", "lake", "--json")
    rows = {row["twin"].rpartition(".")[2]: row for row in json.loads(out) if "orphan" in row}
    assert set(rows) == {"dropped", "gone", "moved"}
    assert "no longer registered" in rows["dropped"]["orphan"]
    assert "there is no longer a table at" in rows["gone"]["orphan"]
    assert f"lake.moved is the table at {other.uri} now" in rows["moved"]["orphan"]
    assert [row["dropped"] for row in rows.values()] == [False] * 3
    assert (code, "is the twin of the table at" in err) == (1, True), "lake.moved cannot have its twin's name"
    _, out, _ = run("sync", "--database", "lake", "--prune", "--dry-run")
    assert out.count("would be dropped (catalog_sync drop lake_symlink.") == 3
    assert len(names(metastore)) == 6
    _, out, _ = run("sync", "--database", "lake", "--prune")
    assert out.count("; dropped\n") == 3
    assert names(metastore) == ["lake.moved", "lake.right", "lake_symlink.right"]
    code, out, _ = run("sync", "--database", "lake")
    assert (code, "left behind" in out) == (0, False)
    assert "lake_symlink.moved" in names(metastore)


def test_the_twin_of_a_registered_table_whose_files_are_gone_is_left_behind_too(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    code, out, _ = run("sync", "--database", "lake", "--json")
    failed, orphan = json.loads(out)
    assert (code, failed["error"]) == (1, TableNotFoundError.code)
    assert orphan["orphan"].startswith("its table is registered; there is no longer a table at")
    run("sync", "--database", "lake", "--prune")
    assert names(metastore) == ["lake.orders"]


def test_twins_of_earlier_tables_are_told_and_pruned_with_adopt_alone(metastore, run, tmp_path):
    registered(metastore, tmp_path / "t")
    metastore.drop("lake", "orders")
    shutil.rmtree(tmp_path / "t")
    registered(metastore, tmp_path / "t", TableName(database="lake", name="again"))
    _, out, _ = run("sync", "--database", "lake", "--prune")
    assert "there is another table at" in out
    assert "lake_symlink.orders" in names(metastore)
    run("sync", "--database", "lake", "--prune", "--adopt")
    assert names(metastore) == ["lake.again", "lake_symlink.again"]


def test_twins_of_several_databases_in_one(metastore, tmp_path):
    """By a rule without {database} the tables of all databases have their twins in one."""
    for database in ("lake", "sea"):
        log = table(tmp_path / database)
        sync_native(metastore, TableName(database=database, name=database), log.update())
        sync_table(log, metastore, TableName(database="twins", name=database))
    assert find_orphans(metastore, ["lake"], rule="twins") == []
    metastore.drop("sea", "sea")
    (orphan,) = find_orphans(metastore, ["lake"], rule="twins")
    assert orphan.twin == TableName(database="twins", name="sea")
    assert find_orphans(metastore, ["twins"], rule="twins") == []


def test_a_table_that_is_registered_meanwhile_keeps_its_twin(metastore, tmp_path):
    log = registered(metastore, tmp_path / "t")
    metastore.drop("lake", "orders")
    orphans = find_orphans(metastore, ["lake"], rule=RULE)
    assert len(orphans) == 1
    sync_native(metastore, ORDERS, log.update())
    assert prune_orphans(metastore, orphans, rule=RULE) == []
    metastore.drop("lake", "orders")
    entry = metastore.table("lake_symlink", "orders")
    entry.parameters[LOCATION_KEY] = "file:///elsewhere"
    metastore.alter(entry)
    assert prune_orphans(metastore, orphans, rule=RULE) == []
    assert names(metastore) == ["lake_symlink.orders"]


# --- while a sync runs -----------------------------------------------------------------------------------------


class Meanwhile(MemoryMetastore):
    """Does something before the first call of a verb."""

    def __init__(self, content, verb, what):
        super().__init__(content, before=self._look)
        self._verb, self._what = verb, what

    def _look(self, verb):
        if verb.startswith(self._verb) and self._what is not None:
            what, self._what = self._what, None
            what()


@pytest.mark.parametrize("verb", ["get_table", "create_table", "add_partitions", "alter_table"])
def test_a_table_that_is_dropped_while_it_is_synced_gets_neither_entry_back(metastore, tmp_path, verb):
    log = table(tmp_path / "t")
    sync_native(metastore, ORDERS, log.update())

    def dropped():
        metastore.drop("lake", "orders")

    target = SyncTarget(log=log, native=ORDERS, twin=TWIN, registered=True)
    with pytest.raises(TableNotFoundError, match="dropped, renamed or moved"):
        sync_target(Meanwhile(metastore, verb, dropped), target, SyncOptions())
    assert names(metastore) == []


def test_nor_does_one_that_is_renamed(metastore, tmp_path):
    log = registered(metastore, tmp_path / "t")
    append("b", [2]).run(log)
    renamed = TableName(database="lake", name="renamed")

    def rename():
        for database in ("lake", "lake_symlink"):
            metastore.entries[database, "renamed"] = metastore.entries.pop((database, "orders"))
            metastore.parts[database, "renamed"] = metastore.parts.pop((database, "orders"))

    target = SyncTarget(log=log, native=ORDERS, twin=TWIN, registered=True)
    with pytest.raises(TableNotFoundError, match="dropped, renamed or moved"):
        sync_target(Meanwhile(metastore, "get_table", rename), target, SyncOptions())
    assert names(metastore) == ["lake.renamed", "lake_symlink.renamed"]
    result, _ = sync_target(metastore, SyncTarget(log=log, native=renamed, twin=twin_name(renamed)), SyncOptions())
    assert result.version == 1


def test_a_location_that_is_given_with_a_name_is_registered(metastore, tmp_path):
    log = table(tmp_path / "t")
    _, changed = sync_target(metastore, SyncTarget(log=log, native=ORDERS, twin=TWIN), SyncOptions())
    assert changed
    assert names(metastore) == ["lake.orders", "lake_symlink.orders"]
