"""The command line of catalog_sync against a real metastore; the native entry; the hook after commits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_sync.cli import main
from catalog_sync.errors import NotOursError
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import native_location, native_tables, sync_native
from catalog_sync.sync import sync_table
from pydelta.commands.alter.requests import AddColumns, First, NewColumn
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType
from pydelta.settings import Settings
from pydelta.storage.backoff import Backoff
from pydelta.testing import SimulatedCrash
from pydelta.testing.commands import alter_table
from pydelta.testing.operations import add_file, append, create_table, delete_partition


@pytest.fixture(autouse=True)
def _address(metastore_server, monkeypatch):
    monkeypatch.setenv("PYDELTA_METASTORE", metastore_server.uri)
    yield
    DeltaLog.clear_cache()


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "orders")


@pytest.fixture
def log(location):
    return DeltaLog.for_table(location)


@pytest.fixture
def name(database, metastore, metastore_server):
    metastore.create_database(f"{database}_symlink", f"file://{metastore_server.warehouse}/{database}_symlink.db")
    return TableName(database=database, name="orders")


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def write_rows(log, partition, values):
    """A real file with rows, committed."""
    add = add_file(partition, values)
    folder = log.uri.removeprefix("file://") + f"/p={partition}"
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": values}), f"{log.uri.removeprefix('file://')}/{add.path}")
    return add


def test_sync_by_location_registers_both_entries(capsys, log, location, metastore, name):
    create_table(log, [write_rows(log, "a", [1, 2])])
    code, out, err = run(capsys, "sync", location, "--entry", str(name))
    assert (code, err) == (0, "")
    assert f"{name.database}_symlink.orders: version 0" in out
    entry = metastore.table(name.database, "orders")
    assert native_location(entry) == log.uri
    assert [(column.name, column.type) for column in entry.sd.cols] == [("x", "bigint"), ("p", "string")]
    assert entry.parameters["spark.sql.sources.provider"] == "delta"
    assert json.loads(entry.parameters["spark.sql.sources.schema.part.0"])["type"] == "struct"
    assert [str(found) for found, _ in native_tables(metastore, name.database)] == [str(name)]


def test_sync_by_name_and_by_database_and_as_json(capsys, log, location, name):
    create_table(log, [write_rows(log, "a", [1])])
    run(capsys, "sync", location, "--entry", str(name))
    append("b", [2]).run(log)
    code, out, _ = run(capsys, "sync", str(name), "--json")
    (row,) = json.loads(out)
    assert (code, row["version"], row["previous"], row["manifestsWritten"]) == (0, 1, 0, 1)
    append("c", [2]).run(log)
    code, out, _ = run(capsys, "sync", "--database", name.database, "--json")
    assert [row["version"] for row in json.loads(out)] == [2]


def test_status_says_how_far_behind(capsys, log, location, name):
    create_table(log, [add_file("a", [1])])
    code, out, _ = run(capsys, "status", location, "--entry", str(name), "--json")
    (row,) = json.loads(out)
    assert (row["tableVersion"], row["manifestVersion"], row["metastoreVersion"], row["lagVersions"]) == (
        0,
        None,
        None,
        None,
    )
    run(capsys, "sync", location, "--entry", str(name))
    append("b", [1]).run(log)
    append("b", [2]).run(log)
    code, out, _ = run(capsys, "status", str(name), "--json")
    (row,) = json.loads(out)
    assert (row["tableVersion"], row["manifestVersion"], row["metastoreVersion"], row["lagVersions"]) == (2, 0, 0, 2)
    assert 0 < row["lagSeconds"] < 600
    assert row["state"] == "behind"
    code, out, _ = run(capsys, "status", str(name))
    assert (code, "2 versions" in out) == (0, True)


def test_status_goes_on_behind_a_table_that_is_gone_and_one_that_cannot_be_read(capsys, tmp_path, metastore, name):
    names = ("a_gone", "b_broken", "c_right")
    for table in names:
        place = tmp_path / table
        create_table(DeltaLog.for_table(str(place)), [add_file("a", [1])])
        assert run(capsys, "sync", str(place), "--entry", f"{name.database}.{table}")[0] == 0
    shutil.rmtree(tmp_path / "a_gone")
    (tmp_path / "b_broken" / "_delta_log" / f"{1:020}.json").write_text("{")
    code, out, err = run(capsys, "status", "--database", name.database, "--json")
    rows = {row["twin"].rpartition(".")[2]: row for row in json.loads(out)}
    assert {table: rows[table]["state"] for table in names} == {
        "a_gone": "no table",
        "b_broken": "error",
        "c_right": "current",
    }
    gone = rows["a_gone"]
    assert (gone["tableVersion"], gone["metastoreVersion"], gone["lagVersions"]) == (None, 0, None)
    assert code == 4
    code, out, err = run(capsys, "status", "--database", name.database)
    assert (code, "c_right" in out) == (4, True)
    assert f"catalog_sync drop {name.database}_symlink.a_gone" in err


def test_verify_is_right_then_wrong_then_right_again(capsys, log, location, metastore, name):
    create_table(log, [write_rows(log, "a", [1]), write_rows(log, "b", [2])])
    code, _, err = run(capsys, "verify", location, "--entry", str(name))
    assert (code, "there is no entry" in err) == (4, True)
    run(capsys, "sync", location, "--entry", str(name))
    assert run(capsys, "verify", str(name))[0] == 0
    metastore.drop_partitions(f"{name.database}_symlink", "orders", ["p=a"])
    code, _, err = run(capsys, "verify", str(name))
    assert (code, "missingPartitions: p=a" in err) == (4, True)
    run(capsys, "sync", str(name), "--full")
    code, out, _ = run(capsys, "verify", str(name), "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)


def test_preview_reads_what_the_manifest_names(capsys, log, location, name):
    create_table(log, [write_rows(log, "a b", [1, 2, 3]), write_rows(log, "c", [9])])
    run(capsys, "sync", location, "--entry", str(name))
    code, out, _ = run(capsys, "preview", location, "p=a b", "-n", "2", "--json")
    assert (code, json.loads(out)) == (0, [{"x": 1}, {"x": 2}])
    code, _, err = run(capsys, "preview", location, "p=zz")
    assert (code, "p=a b, p=c" in err) == (1, True)


def test_a_partition_before_its_first_rows(capsys, log, location, metastore, name):
    create_table(log, [add_file("a", [1])])
    run(capsys, "sync", location, "--entry", str(name))
    code, out, _ = run(capsys, "add-partition", str(name), "p=tomorrow")
    assert (code, "p=tomorrow" in out) == (0, True)
    twin = twin_name(name)
    names = lambda: sorted(metastore.partition_names(twin.database, twin.name))  # noqa: E731
    assert names() == ["p=a", "p=tomorrow"]
    assert log.store.read("_symlink_format_manifest/p=tomorrow/manifest") == b""
    append("a", [5]).run(log)
    sync_table(log, metastore, twin)
    run(capsys, "sync", str(name), "--full")
    assert names() == ["p=a", "p=tomorrow"], "it stays while it waits"
    append("tomorrow", [7]).run(log)
    sync_table(log, metastore, twin)
    assert log.store.read("_symlink_format_manifest/p=tomorrow/manifest") != b""
    delete_partition("tomorrow").run(log)
    sync_table(log, metastore, twin)
    assert names() == ["p=a"], "and goes like any other once it has had rows"
    assert run(capsys, "add-partition", str(name), "q=1")[0] == 1


def test_ddl_is_what_the_sync_would_create(capsys, log, location, name, metastore):
    create_table(log, [add_file("it's", [1])])
    sync_table(log, metastore, twin_name(name))
    code, out, _ = run(capsys, "ddl", location, "--entry", str(name), "--partitions")
    assert code == 0
    assert out.startswith(f"CREATE EXTERNAL TABLE `{name.database}_symlink`.`orders` (\n  `x` bigint\n)")
    assert "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'" in out
    assert r"ADD IF NOT EXISTS PARTITION (`p` = 'it\'s')" in out


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["sync"], 1, "No table was named"),
        (["sync", "nodb"], 1, "not the name of a table"),
        (["sync", "no.table"], 1, "no Delta table no.table"),
        (["sync", "/not/there", "--entry", "a.b"], 1, "not a Delta table"),
        (["sync", "--database", "nodb"], 1, "no database 'nodb'"),
        (["sync", "a.b", "--metastore", "nonsense"], 1, "not the address of a metastore"),
    ],
)
def test_what_a_user_gets_wrong(capsys, argv, code, said):
    found, _, err = run(capsys, *argv)
    assert found == code
    assert said in err
    assert "Next:" in err
    assert "Traceback" not in err


def test_a_metastore_that_is_down_is_exit_code_2(capsys, log, location):
    create_table(log, [add_file("a", [1])])
    code, _, err = run(capsys, "sync", location, "--entry", "a.b", "--metastore", "thrift://127.0.0.1:1")
    assert (code, "does not answer" in err) == (2, True)


def test_the_native_entry_follows_the_columns_and_never_takes_anothers(log, metastore, name, tmp_path):
    create_table(log, [add_file("a", [1])])
    assert sync_native(metastore, name, log.update())
    assert not sync_native(metastore, name, log.update())
    other = DeltaLog.for_table(str(tmp_path / "other"))
    create_table(other, [])
    with pytest.raises(NotOursError, match="Delta table at"):
        sync_native(metastore, name, other.update())


def test_columns_of_the_native_entry_move_and_change_as_they_please(log, metastore, name, monkeypatch):
    """A metastore compares types by position: a new column comes before the partition columns and moves them."""
    create_table(log, [add_file("a", [1])])
    assert sync_native(metastore, name, log.update())
    alter_table(log, AddColumns(columns=(NewColumn(path=("y",), data_type=PrimitiveType("date")),)))
    assert sync_native(metastore, name, log.update())
    shown = [(item.name, item.type) for item in metastore.table(name.database, name.name).sd.cols]
    assert shown == [("x", "bigint"), ("y", "date"), ("p", "string")]
    alter_table(
        log, AddColumns(columns=(NewColumn(path=("z",), data_type=PrimitiveType("boolean"), position=First()),))
    )
    calls, alter = [], metastore.alter

    def broken_off(entry, **how):
        calls.append(len(entry.sd.cols))
        if len(calls) == 3:
            raise SimulatedCrash
        alter(entry, **how)

    monkeypatch.setattr(metastore, "alter", broken_off)
    with pytest.raises(SimulatedCrash):
        sync_native(metastore, name, log.update())
    monkeypatch.undo()
    assert calls == [4, 0, 4], "refused, fewer columns, all of them"
    assert sync_native(metastore, name, log.update()), "what was broken off is made good"
    assert [item.name for item in metastore.table(name.database, name.name).sd.cols] == ["z", "x", "y", "p"]


def test_the_native_entry_of_a_place_with_odd_characters(metastore, name, tmp_path):
    odd_place = tmp_path / "50% of a b"
    log = DeltaLog.for_table(str(odd_place))
    create_table(log, [])
    assert sync_native(metastore, name, log.update())
    entry = metastore.table(name.database, name.name)
    assert entry.sd.serdeInfo.parameters["path"] == f"file://{odd_place}", "plain, as Spark and Trino read it"
    assert not sync_native(metastore, name, log.update())
    assert DeltaLog.for_table(native_location(entry)).uri == log.uri


def test_a_table_that_asks_for_it_is_synced_after_every_commit(location, metastore, metastore_server, name):
    settings = Settings.resolve({"spark.pydelta.sync.metastore": metastore_server.uri})
    log = DeltaLog.for_table(location, settings=settings)
    properties = {"pydelta_sync_enabled": "true", "pydelta_sync_table": str(name)}
    committed = create_table(log, [add_file("a", [1])], **properties)
    assert committed.hook_failures == ()
    append("b", [2]).run(log)
    delete_partition("a").run(log)
    twin = twin_name(name)
    assert metastore.partition_names(twin.database, twin.name) == ["p=b"]
    assert metastore.table(twin.database, twin.name).parameters["pydelta.sync.version"] == "2"
    assert native_location(metastore.table(name.database, name.name)) == log.uri


def test_a_hook_that_cannot_reach_the_metastore_fails_no_commit(location, name, monkeypatch):
    monkeypatch.setenv("PYDELTA_METASTORE", "thrift://127.0.0.1:1")
    monkeypatch.setattr("catalog_sync.thrift.client._BACKOFF", Backoff(first_ms=0))
    log = DeltaLog.for_table(location)
    committed = create_table(log, [add_file("a", [1])], pydelta_sync_enabled="true", pydelta_sync_table=str(name))
    assert [failure.name for failure in committed.hook_failures] == ["metastore_sync"]
    assert log.update().version == 0


def test_a_rule_that_names_the_twin_as_the_table_is_refused():
    with pytest.raises(InvalidArgumentError):
        twin_name(TableName(database="lake", name="t"), "{database}")
