"""One metastore for all tests of this folder; a database for each."""

from __future__ import annotations

import uuid

import pytest

from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.thrift.embedded import EmbeddedMetastore


@pytest.fixture(scope="session")
def metastore_server(tmp_path_factory):
    server = EmbeddedMetastore(tmp_path_factory.mktemp("metastore"))
    yield server
    server.stop()


@pytest.fixture
def metastore(metastore_server):
    with Metastore(MetastoreAddress.parse(metastore_server.uri)) as client:
        yield client


@pytest.fixture
def database(metastore, metastore_server):
    name = f"db_{uuid.uuid4().hex[:10]}"
    metastore.create_database(name, f"file://{metastore_server.warehouse}/{name}.db")
    return name
