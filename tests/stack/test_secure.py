"""A secure stack refuses who speaks in clear, has no password or no right; and vouches for each server by name."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trino
from conftest import STORE_ROOT, run_on_trino, trino_address
from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol import TBinaryProtocol
from thrift.transport import TTransport

from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.thrift.transport import transport_to
from pydelta.storage import open_store

pytestmark = pytest.mark.secure

TRINO_HOST, TRINO_PORT = "trino", 8443
METASTORE_HOST, METASTORE_PORT = "hive-metastore", 9083
STORE = urlsplit(os.environ["S3_ENDPOINT"])
SERVERS = [(TRINO_HOST, TRINO_PORT), (METASTORE_HOST, METASTORE_PORT), (STORE.hostname, STORE.port or 443)]


def _answer(connection, method, path, body=None, **headers):
    connection.request(method, path, body=body, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.read().decode(errors="replace")


def _as(user, password, statement):
    with trino.dbapi.connect(**trino_address(user, password)) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchall()


def _handshake(context, host, port, name):
    with (
        socket.create_connection((host, port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=name) as link,
    ):
        return link.version()


@pytest.mark.parametrize(("host", "port"), SERVERS)
def test_a_server_is_vouched_for_by_the_stack_s_authority_and_by_its_name(host, port):
    assert _handshake(ssl.create_default_context(), host, port, host) in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(ssl.create_default_context(), host, port, "somebody-else")
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no authority
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        _handshake(nobody, host, port, host)


@pytest.mark.skipif(STORE.hostname != "minio", reason="an S3 of somebody else's has answers of its own")
def test_the_store_refuses_plain_http():
    status, said = _answer(http.client.HTTPConnection(STORE.hostname, STORE.port, timeout=60), "GET", "/warehouse")
    assert (status, said.strip()) == (400, "Client sent an HTTP request to an HTTPS server.")


def test_the_engine_s_own_client_reaches_the_store():
    store = open_store(f"{STORE_ROOT}work")
    store.put("stack_tests/secure", b"by TLS")
    assert store.read("stack_tests/secure") == b"by TLS"
    store.delete_many(["stack_tests/secure"])


def test_the_metastore_refuses_who_speaks_in_clear():
    transport = transport_to(METASTORE_HOST, METASTORE_PORT, budget=lambda: 60.0)
    transport.open()
    client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
    with pytest.raises((TTransport.TTransportException, OSError)):
        client.get_all_databases()
    transport.close()


def test_the_metastore_answers_by_tls():
    with Metastore(MetastoreAddress.parse(None)) as client:
        assert client.address.tls
        assert "lake" in client.databases()


def test_trino_takes_no_statement_without_a_password():
    link = http.client.HTTPSConnection(TRINO_HOST, TRINO_PORT, timeout=60, context=ssl.create_default_context())
    status, _ = _answer(link, "POST", "/v1/statement", "SELECT 1", **{"X-Trino-User": "admin"})
    assert status == 401


def test_trino_takes_no_statement_by_plain_http():
    link = http.client.HTTPConnection(TRINO_HOST, 8080, timeout=60)
    status, said = _answer(link, "POST", "/v1/statement", "SELECT 1", **{"X-Trino-User": "admin"})
    assert status == 403, said


@pytest.mark.parametrize("user", ["admin", "reader", "nobody"])
def test_trino_takes_no_wrong_password(user):
    with pytest.raises(trino.exceptions.HttpError, match="401"):
        _as(user, "wrong", "SELECT 1")


def test_a_password_lets_in_as_its_own_user_alone():
    address = trino_address("reader", os.environ["TRINO_READER_PASSWORD"])
    asked = trino.dbapi.connect(**(address | {"user": "admin"}))
    with asked as connection, pytest.raises(trino.exceptions.TrinoUserError, match="cannot impersonate"):
        connection.cursor().execute("SELECT 1")


def test_who_may_read_reads():
    assert run_on_trino("SELECT current_user") == [["admin"]]
    found = _as(
        "reader", os.environ["TRINO_READER_PASSWORD"], "SELECT schema_name FROM hive.information_schema.schemata"
    )
    assert ["lake_symlink"] in found
    found = _as(
        "reader", os.environ["TRINO_READER_PASSWORD"], "SELECT schema_name FROM iceberg.information_schema.schemata"
    )
    assert ["lake_iceberg"] in found


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SCHEMA delta.stack_tests_more WITH (location = 's3://warehouse/stack_tests_more')",
        "CREATE TABLE delta.lake.stack_tests_made (id int)",
        "CREATE TABLE iceberg.lake_iceberg.stack_tests_made (id int)",
        "SELECT * FROM system.runtime.queries",
        "ALTER SCHEMA delta.lake RENAME TO more",
    ],
)
def test_who_may_only_read_is_denied_the_rest(statement):
    with pytest.raises(trino.exceptions.TrinoUserError, match="Access Denied"):
        _as("reader", os.environ["TRINO_READER_PASSWORD"], statement)


def test_the_keys_of_servers_are_not_in_other_containers():
    assert not Path("/tls").exists()
