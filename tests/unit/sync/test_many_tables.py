"""A sync of whole databases by the clock: all or a list of them, tables left out, and tables to be changed first."""

from __future__ import annotations

import json

import pytest

from catalog_sync.cli import main
from catalog_sync.inspect import SyncState, sync_status
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import databases_of, sync_native
from catalog_sync.sync import sync_table
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.log import DeltaLog
from pydelta.protocol.actions import encode_json
from pydelta.testing.operations import add_file, append, create_table
from pydelta.txn import Operation, start_transaction


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


def registered(metastore, place, name, **properties):
    """A table with its own entry and no twin."""
    log = DeltaLog.for_table(str(place))
    create_table(log, [add_file("a", [1])], **properties)
    sync_native(metastore, name, log.update())
    return log


def changed(log, *, columns=None, **properties):
    """A commit that changes the table's properties, or adds a column of a type."""
    txn = start_transaction(log)
    metadata = txn.snapshot.metadata
    fields = json.loads(metadata.schema_string)["fields"]
    fields += [{"name": "v", "type": columns, "nullable": True, "metadata": {}}] if columns else []
    text = encode_json({"type": "struct", "fields": fields})
    configuration = dict(metadata.configuration) | properties
    txn.update_metadata(metadata.replace(schema_string=text, configuration=configuration))
    txn.commit([], Operation(name="CHANGED"))


def test_databases_are_named_one_by_one_or_in_a_list_or_are_all(metastore, tmp_path):
    for database in ("lake", "sales", "shop"):
        registered(metastore, tmp_path / database, TableName(database=database, name="t"))
    assert databases_of(metastore, ["sales, lake", "sales"]) == ["sales", "lake"]
    assert set(databases_of(metastore, ["*"])) >= {"lake", "sales", "shop"}


def test_a_sync_of_all_databases_makes_a_twin_beside_each_table(metastore, run, tmp_path):
    for database in ("lake", "sales"):
        registered(metastore, tmp_path / database, TableName(database=database, name="orders"))
    code, out, _ = run("sync", "--database", "*", "--json")
    assert code == 0
    assert {row["twin"] for row in json.loads(out)} == {"lake_symlink.orders", "sales_symlink.orders"}
    assert run("sync", "--database", "*", "--json")[0] == 0, "databases of twins hold no table of their own"


def test_a_table_that_cannot_have_a_twin_fails_a_sync_and_with_warn_is_a_warning_with_its_name(
    metastore, run, tmp_path
):
    bad = TableName(database="lake", name="bad")
    log = registered(metastore, tmp_path / "bad", bad)
    sync_table(log, metastore, twin_name(bad))
    changed(log, columns="variant")
    registered(metastore, tmp_path / "good", TableName(database="lake", name="good"))
    assert run("sync", "--database", "lake")[0] == 1
    code, out, err = run("sync", "--database", "lake", "--warn", "--json")
    assert code == 0
    rows = {row["twin"]: row for row in json.loads(out)}
    assert rows["lake_symlink.good"]["version"] == 0
    assert rows["lake_symlink.bad"]["warning"] is True
    assert "'v'" in rows["lake_symlink.bad"]["message"]
    assert err.startswith("Warning: lake_symlink.bad: ")


def test_a_metastore_that_is_away_is_no_warning(run, monkeypatch):
    from catalog_sync.errors import MetastoreUnavailableError

    def away(*_, **__):
        raise MetastoreUnavailableError("It does not answer.")

    monkeypatch.setattr("catalog_sync.cli._connect", away)
    assert run("sync", "--database", "*", "--warn")[0] == 2


def test_a_table_whose_property_leaves_it_out_loses_its_twin_and_gets_it_back(metastore, run, tmp_path):
    name = TableName(database="lake", name="orders")
    log = registered(metastore, tmp_path / "t", name)
    twin = twin_name(name)
    assert run("sync", "--database", "lake")[0] == 0
    changed(log, **{"pydelta.sync.enabled": "false"})
    assert run("sync", "--database", "lake", "--dry-run")[0] == 0
    assert metastore.table(twin.database, twin.name) is not None
    for _ in range(2):
        code, out, _ = run("sync", "--database", "lake")
        assert (code, "left out" in out) == (0, True)
        assert metastore.table(twin.database, twin.name) is None
    found = sync_status(log, metastore, twin, now_ms=0)
    assert (found.state, found.problem, found.lag_versions) == (SyncState.LEFT_OUT, None, None)
    append("c", [2]).run(log)
    changed(log, **{"pydelta.sync.enabled": "true"})
    assert run("sync", "--database", "lake")[0] == 0
    assert metastore.table(twin.database, twin.name) is not None
    assert sync_status(log, metastore, twin, now_ms=0).state == SyncState.CURRENT
