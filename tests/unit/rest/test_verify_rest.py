"""What make verify reads through a REST catalog: rows that are not hidden, and why there are none."""

from __future__ import annotations

import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import polars as pl
import pytest
from leaks import secret

import pydelta
from catalog_sync.names import TableName
from catalog_sync.rest.application import RestCatalog
from catalog_sync.rest.tables import FolderTables
from jobs.verify.rest import RestCatalogError, RestReader
from pydelta.api.console.guard import Guard
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg

TOKEN = secret("token of the REST catalog")
ORDERS = TableName(database="lake", name="orders")


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def log(tmp_path):
    table = pydelta.LocalTable.create(
        str(tmp_path / "lake" / "orders"),
        pl.DataFrame({"id": list(range(20)), "day": [f"d {at % 3}" for at in range(20)]}),
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.delete("id = 7")
    found = DeltaLog.for_table(str(tmp_path / "lake" / "orders"))
    publish_iceberg(found)
    yield found
    DeltaLog.clear_cache()


@pytest.fixture
def address(log, tmp_path):
    users = tmp_path / "users"
    users.write_text(f"ann:{TOKEN}\n")
    users.chmod(0o600)
    catalog = RestCatalog(FolderTables(roots=[str(tmp_path / "lake")]), Guard.read(str(users), None, None))
    server = make_server("127.0.0.1", 0, catalog, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_rows_come_through_the_catalog_and_by_the_store_of_the_run(log, address):
    reader = RestReader(address=address, token=TOKEN)
    found = reader.rows(ORDERS, log.store, log.uri)
    assert sorted(found.get_column("id").to_list()) == [at for at in range(20) if at != 7]
    assert set(found.columns) == {"id", "day"}
    assert reader.status_without_token() == 401
    assert TOKEN not in repr(reader)


def test_a_table_that_is_not_there_and_a_wrong_token_are_told_with_the_address(log, address):
    with pytest.raises(RestCatalogError, match=rf"{address} does not give lake\.none: .*no table lake\.none") as caught:
        RestReader(address=address, token=TOKEN).rows(TableName(database="lake", name="none"), log.store, "file:///")
    assert "make logs SERVICE=iceberg" in caught.value.hint
    with pytest.raises(RestCatalogError, match="asks for a token"):
        RestReader(address=address, token="wrong").rows(ORDERS, log.store, "file:///")


def test_a_catalog_that_does_not_answer_is_told_with_its_address(log):
    reader = RestReader(address="127.0.0.1:1", token=TOKEN)
    with pytest.raises(RestCatalogError, match=r"127\.0\.0\.1:1 does not answer"):
        reader.status_without_token()
    with pytest.raises(RestCatalogError, match=r"127\.0\.0\.1:1 does not give lake\.orders"):
        reader.rows(ORDERS, log.store, "file:///")
