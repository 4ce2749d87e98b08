"""The Iceberg entry in a real metastore, and the REST catalog over it, read by PyIceberg and DuckDB."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import duckdb
import duckdb_extensions
import polars as pl
import pytest
from leaks import secret
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, UnauthorizedError

import pydelta
from catalog_sync.cli import main
from catalog_sync.errors import MetastoreError
from catalog_sync.iceberg.entry import METADATA_KEY, found_iceberg
from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import TableName, iceberg_name
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog


@pytest.fixture(autouse=True)
def _address(metastore_server, monkeypatch):
    monkeypatch.setenv("PYDELTA_METASTORE", metastore_server.uri)
    yield
    DeltaLog.clear_cache()


@pytest.fixture
def entry(database):
    return iceberg_name(TableName(database=database, name="orders"))


@pytest.fixture
def log(table, tmp_path):
    return DeltaLog.for_table(str(tmp_path / "orders"))


@pytest.fixture
def table(tmp_path):
    found = pydelta.LocalTable.create(
        str(tmp_path / "orders"),
        pl.DataFrame({"Id": list(range(30)), "day": [f"d {at % 3}" for at in range(30)]}),
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": "true"},
    )
    found.delete("Id = 7")
    return found


def run(capsys, *argv):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_a_table_with_hidden_rows_has_no_twin_and_an_iceberg_entry(capsys, table, log, database, metastore, entry):
    place = log.uri
    code, out, err = run(capsys, "sync", place, "--entry", f"{database}.orders", "--iceberg", "--warn")
    assert (code, f"Warning: {database}_symlink.orders" in err) == (0, True)
    assert f"{entry}: version 1, 3 files added" in out
    made = metastore.table(entry.database, entry.name)
    assert [(column.name, column.type) for column in made.sd.cols] == [("id", "bigint"), ("day", "string")]
    assert made.parameters["table_type"] == "ICEBERG"
    code, out, err = run(capsys, "status", f"{database}.orders", "--json")
    assert json.loads(out)[0]["iceberg"]["state"] == "current"
    table.delete("Id = 8")
    table.append(pl.DataFrame({"Id": [100], "day": ["d 9"]}))
    code, out, _ = run(capsys, "sync", "--database", database, "--json", "--warn")
    found = json.loads(out)[0]["iceberg"]
    assert (found["version"], found["previous"], found["full"], found["filesAdded"]) == (3, 1, False, 1)
    assert (
        metastore.table(entry.database, entry.name)
        .parameters["previous_metadata_location"]
        .endswith("/v1.metadata.json")
    )


def test_the_metastore_refuses_a_change_after_another_s(log, metastore, entry, metastore_server):
    sync_iceberg(log, metastore, entry, iceberg=True)
    before = metastore.table(entry.database, entry.name)
    expected = (METADATA_KEY, before.parameters[METADATA_KEY])
    with Metastore(MetastoreAddress.parse(metastore_server.uri)) as other:
        theirs = other.table(entry.database, entry.name)
        theirs.parameters[METADATA_KEY] = "file:///theirs/metadata/00001-uuid.metadata.json"
        other.alter(theirs, expected=expected)
    with pytest.raises(MetastoreError, match="has been modified"):
        metastore.alter(before, expected=expected)
    assert found_iceberg(metastore.table(entry.database, entry.name)).has_drifted


def test_columns_that_the_metastore_refuses_to_change_do_not_hold_the_entry_back(table, log, metastore, entry):
    sync_iceberg(log, metastore, entry, iceberg=True)
    made = metastore.table(entry.database, entry.name)
    made.sd.cols[0].type = "date"  # The metastore refuses to turn it into a number.
    metastore.drop(entry.database, entry.name)
    metastore.create(made)
    table.append(pl.DataFrame({"Id": [100], "day": ["d 9"]}))
    assert sync_iceberg(log, metastore, entry).version == 2
    after = metastore.table(entry.database, entry.name)
    assert [(column.name, column.type) for column in after.sd.cols] == [("id", "bigint"), ("day", "string")]


# --- the REST catalog over it --------------------------------------------------------------------------------------


@pytest.fixture
def served(log, database, metastore, entry, metastore_server, tmp_path):
    """The address of ``catalog_sync serve`` over the metastore, and a user's token."""
    sync_iceberg(log, metastore, entry, iceberg=True)
    users = tmp_path / "users"
    token = secret("token of the REST catalog")
    users.write_text(f"ann:{token}\n")
    users.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "catalog_sync.cli", "serve", "--port", str(port), "--users", str(users)]
    process = subprocess.Popen(
        [*command, "--metastore", metastore_server.uri, "--database", database], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        assert f"http://127.0.0.1:{port}" in line
        yield f"http://127.0.0.1:{port}", token
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()


def test_pyiceberg_reads_the_lake_by_one_address(served, table, log, database, metastore, entry):
    address, token = served
    catalog = RestCatalog("lake", uri=address, token=token)
    assert catalog.list_namespaces() == [(database,)]
    assert catalog.list_tables(database) == [(database, "orders")]
    assert catalog.namespace_exists(database)
    assert not catalog.namespace_exists("other")
    assert catalog.load_namespace_properties(database) == {}
    assert catalog.table_exists(f"{database}.orders")
    assert not catalog.table_exists(f"{database}.none")
    rows = catalog.load_table(f"{database}.orders").scan(row_filter="day = 'd 1'").to_arrow()
    assert sorted(rows["Id"].to_pylist()) == [at for at in range(30) if at % 3 == 1 and at != 7]
    table.append(pl.DataFrame({"Id": [100], "day": ["d 1"]}))
    sync_iceberg(log, metastore, entry)
    loaded = catalog.load_table(f"{database}.orders")
    assert loaded.scan().to_arrow().num_rows == 30
    assert loaded.current_snapshot().summary["pydelta.version"] == "2"
    with pytest.raises(NoSuchTableError):
        catalog.load_table(f"{database}.none")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("other")
    with pytest.raises(UnauthorizedError):
        RestCatalog("lake", uri=address, token="x" * 20)
    with pytest.raises(NotImplementedError):
        catalog.drop_table(f"{database}.orders")


def test_duckdb_attaches_it(served, database):
    address, token = served
    with duckdb.connect() as link:
        for name in ("httpfs", "avro", "iceberg"):
            duckdb_extensions.import_extension(name, con=link)
            link.sql(f"LOAD {name}")
        link.sql(f"CREATE SECRET lake (TYPE iceberg, TOKEN '{token}')")
        link.sql(
            f"ATTACH 'lake' AS lake (TYPE iceberg, SECRET lake, ENDPOINT '{address}', ACCESS_DELEGATION_MODE 'none')"
        )
        assert link.sql(f'SELECT count(*), sum("Id") FROM lake.{database}.orders').fetchall() == [(29, 428)]
        assert link.sql(f"SELECT count(*) FROM lake.{database}.orders WHERE day = 'd 1'").fetchall() == [(9,)]
        with pytest.raises(duckdb.Error):
            link.sql(f"INSERT INTO lake.{database}.orders VALUES (1, 'd 1')")


NOT_REQUESTS = [
    b"GET /v1/config\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"GET /v1/config HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n",
    b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
    b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"GET /v1/namespaces/%00%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://elsewhere/v1/config HTTP/1.1\r\nHost: x\r\n\r\n",
]


def test_what_is_not_a_request_of_the_specification_gets_its_error(served):
    host, _, port = served[0].removeprefix("http://").partition(":")
    for sent in NOT_REQUESTS:
        with socket.create_connection((host, int(port)), timeout=20) as link:
            link.sendall(sent)
            answer = b""
            while not answer.rstrip().endswith(b"}") and (part := link.recv(65536)):
                answer += part
        status = int(answer.split(b" ", 2)[1])
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert 400 <= status < 500, sent[:60]
        assert set(body["error"]) == {"message", "type", "code"}


def test_no_address_of_a_stopped_metastore_is_waited_for_at_the_start(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "catalog_sync.cli", "serve", "--host", "10.1.2.3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "asks for no log-in" in done.stderr) == (1, True)
    missing = tmp_path / "users"
    done = subprocess.run(
        [sys.executable, "-m", "catalog_sync.cli", "serve", "--users", str(missing)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, f"{missing} cannot be read" in done.stderr) == (1, True)


def test_a_request_without_a_token_is_told_so(served):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{served[0]}/v1/config", timeout=20)
    assert refused.value.code == 401
    assert json.loads(refused.value.read())["error"]["type"] == "NotAuthorizedException"
