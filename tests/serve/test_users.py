"""A server with users: who comes in by Thrift and by Spark Connect, and what a limited user sees and is denied."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
from pathlib import Path

import pytest
from live_server import Client, Failed, LiveServer
from pyhive import hive
from TCLIService import ttypes

ADMIN, ANN = "of-the-admin", "of-the-reader"
ADA = hashlib.sha256(b"ada").hexdigest()
FILE = """
[roles.op]
admin = true
[roles.an]
tables = ["lake.orders", "lake.items"]
filters = {"lake.orders" = "region = 'EU'"}
masks."lake.orders" = {customer = "hash"}
[users.admin]
role = "op"
password-variable = "PW_ADMIN"
[users.ann]
role = "an"
password-variable = "PW_ANN"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    (folder / "users.toml").write_text(FILE)
    server = LiveServer(
        folder / "server", "--access", folder / "users.toml", environment={"PW_ADMIN": ADMIN, "PW_ANN": ANN}
    )
    admin = come_in(server, "admin", ADMIN)
    for text in (
        "CREATE DATABASE lake", "CREATE TABLE lake.orders (id INT, region STRING, customer STRING) USING delta",
        "INSERT INTO lake.orders VALUES (1, 'EU', 'ada'), (2, 'US', 'bob')",
        "CREATE TABLE lake.items (id INT) USING delta",
        "CREATE TABLE lake.secret (s STRING) USING delta", "INSERT INTO lake.secret VALUES ('top')",
    ):  # fmt: skip
        admin.run(text)
    admin.close()
    yield server
    server.stop()
    for password in (ADMIN, ANN):
        assert password not in server.said()


def come_in(server, user, password, **more):
    client = object.__new__(Client)
    client.connection = hive.connect(
        "127.0.0.1", port=server.thrift, username=user, password=password, auth="LDAP", **more
    )
    return client


@pytest.fixture(scope="module")
def ann(served):
    client = come_in(served, "ann", ANN)
    yield client
    client.close()


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("ann", ADMIN), ("eve", ANN), ("admin", "x")])
def test_nobody_comes_in_with_another_password(served, user, password):
    with pytest.raises(Exception, match="Error validating the login"):
        come_in(served, user, password)


@pytest.mark.parametrize(
    "words", [b"\0ann\0", b"admin\0ann\0" + ANN.encode(), b"ann", b"", b"\0\0", b"\xff\0\xff\0\xff"]
)
def test_a_log_in_that_is_not_a_name_and_its_password_ends_the_connection(served, words):
    with socket.create_connection(("127.0.0.1", served.thrift), 60) as link:
        for code, said in ((1, b"PLAIN"), (2, words)):
            link.sendall(struct.pack(">bi", code, len(said)) + said)
        assert link.recv(1) in (b"", b"\x03")


def test_the_server_behind_lets_nobody_in_who_has_only_a_password_of_a_user(served):
    """Spark's own server listens beside, on a port of the loopback that this machine's users could find."""
    said = {port: answer(port, "ann", ANN) for port in listening(served) if port != served.thrift}
    assert 5 not in said.values(), said
    assert {3, 4} & set(said.values()), "one of them is Spark's own Thrift server, which refuses"
    assert answer(served.thrift, "ann", ANN) == 5


def answer(port, user, password):
    """The code of SASL with which a port answers a log-in; None for a port that speaks otherwise."""
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as link:
            for code, said in ((1, b"PLAIN"), (2, f"\0{user}\0{password}".encode())):
                link.sendall(struct.pack(">bi", code, len(said)) + said)
            return link.recv(1)[0]
    except (OSError, IndexError):
        return None


def listening(server):
    """Ports at which processes of the server's session of processes accept connections."""
    inodes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == server.process.pid:
                inodes |= {os.readlink(link)[8:-1] for link in (folder / "fd").iterdir() if os.path.islink(link)}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_she_sees_her_tables_by_thrift(ann):
    assert ann.run("SELECT * FROM lake.orders") == [(1, "EU", ADA)]
    assert ann.run("SHOW TABLES IN lake") == [("lake", "items", False), ("lake", "orders", False)]
    assert ann.run("SHOW DATABASES") == [("lake",)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM lake.secret",
        "INSERT INTO lake.items VALUES (1)",
        "DESCRIBE HISTORY lake.orders",
        "SET",
        "VACUUM lake.items",
    ],
)
def test_the_rest_is_denied_by_thrift(ann, text):
    with pytest.raises(Failed, match="DELTA_ACCESS_DENIED") as caught:
        ann.run(text)
    assert caught.value.state == "42501"


def fetched(client, method, request):
    found = getattr(client.connection.client, method)(request)
    assert found.status.statusCode == 0, found.status.errorMessage
    asked = ttypes.TFetchResultsReq(operationHandle=found.operationHandle, orientation=0, maxRows=100)
    columns = client.connection.client.FetchResults(asked).results.columns
    return [column.stringVal.values for column in columns if column.stringVal is not None]


def test_lists_of_jdbc_have_her_tables_alone(ann):
    session = ann.connection.sessionHandle
    assert fetched(ann, "GetSchemas", ttypes.TGetSchemasReq(sessionHandle=session))[0] == ["lake"]
    tables = ttypes.TGetTablesReq(sessionHandle=session, schemaName="%", tableName="%")
    assert fetched(ann, "GetTables", tables)[2] == ["items", "orders"]
    some = ttypes.TGetTablesReq(sessionHandle=session, schemaName="lake", tableName="sec%")
    assert fetched(ann, "GetTables", some)[2] == []
    columns = ttypes.TGetColumnsReq(sessionHandle=session, schemaName="lake", tableName="%")
    assert fetched(ann, "GetColumns", columns)[3] == ["id", "id", "region", "customer"]


def test_other_calls_and_settings_are_denied(served, ann):
    session = ann.connection.sessionHandle
    found = ann.connection.client.GetFunctions(ttypes.TGetFunctionsReq(sessionHandle=session, functionName="x"))
    assert (found.status.statusCode, found.status.sqlState) == (3, "42501")
    with pytest.raises(hive.OperationalError, match="the setting"):
        come_in(served, "ann", ANN, configuration={"set:hiveconf:spark.sql.ansi.enabled": "false"})
    with pytest.raises(hive.OperationalError, match="the setting"):
        come_in(served, "ann", ANN, configuration={"hive.server2.proxy.user": "admin"})
    assert come_in(served, "ann", ANN, database="lake").run("SELECT id FROM orders") == [(1,)]


BODY = """
from pyspark.sql import functions as F
from pydelta.tables import DeltaTable
for text in ALLOWED:
    tell([text, str(eval(text))])
for text in DENIED:
    try:
        eval(text)
        tell([text, "done"])
    except Exception as error:
        tell([text, "denied" if "ACCESS_DENIED" in str(error) else str(error)[:200]])
"""
ALLOWED = {
    "spark.table('lake.orders').filter('id > 0').select(F.upper('region'), 'customer').collect()": ADA,
    "spark.table('lake.orders').join(spark.table('lake.items'), 'id', 'left').select('region').collect()": "EU",
    "spark.table('lake.orders').groupBy('id').pivot('region').count().collect()": "EU=1",
    "spark.read.option('versionAsOf', 1).table('lake.orders').count()": "1",
    "spark.sql('SELECT * FROM lake.orders WHERE id = :i', args={'i': 1}).toPandas().shape": "(1, 3)",
    "spark.createDataFrame([(1,)], 'a int').collect()": "a=1",
}
DENIED = [
    "spark.table('lake.secret').collect()",
    "spark.range(1).select(F.expr('(SELECT max(s) FROM lake.secret)')).collect()",
    "spark.read.format('delta').load('/x').collect()",
    "spark.read.text('/etc/hostname').collect()",
    "spark.range(1).select(F.udf(lambda x: x, 'long')('id')).collect()",
    "spark.range(1).mapInPandas(lambda i: i, 'id long').collect()",
    "spark.range(1).select(F.reflect(F.lit('java.lang.System'), F.lit('getenv'), F.lit('PATH'))).collect()",
    "spark.range(1).select(F.expr(\"reflect('java.lang.System', 'getenv', 'PATH')\")).collect()",
    "spark.table('lake.orders').select('_metadata.file_path').collect()",
    "spark.range(1).write.mode('append').saveAsTable('lake.items')",
    "spark.range(1).writeTo('lake.items').append()",
    "DeltaTable.forName(spark, 'lake.items').delete()",
    "DeltaTable.forName(spark, 'lake.orders').history().collect()",
    "spark.readStream.table('lake.orders').writeStream.format('memory').queryName('q').start()",
    "spark.range(1).createOrReplaceTempView('v')",
    "spark.table('lake.orders').explain()",
    "spark.table('lake.orders').inputFiles()",
    "spark.catalog.listTables('lake')",
    "spark.conf.set('spark.sql.ansi.enabled', 'false')",
    "spark.conf.get('spark.connect.authenticate.token')",
]


def test_what_she_does_by_connect(served):
    body = f"ALLOWED, DENIED = {list(ALLOWED)!r}, {DENIED!r}\n{BODY}"
    found = dict(served.remote(body, url=f"sc://localhost:{served.connect}/;token=ann:{ANN}"))
    assert {text: found[text] for text in DENIED} == dict.fromkeys(DENIED, "denied")
    for text, expected in ALLOWED.items():
        assert expected in found[text], (text, found[text])


def test_an_admin_sees_everything_by_connect(served):
    body = "tell(spark.table('lake.secret').count() + spark.table('lake.orders').count())"
    assert served.remote(body, url=f"sc://localhost:{served.connect}/;token=admin:{ADMIN}") == [3]


@pytest.mark.parametrize("token", ["ann:wrong", "ann", f"eve:{ANN}"])
def test_nobody_else_comes_in_by_connect(served, token):
    with pytest.raises(AssertionError, match="UNAUTHENTICATED"):
        served.remote("tell(spark.range(1).count())", url=f"sc://localhost:{served.connect}/;token={token}")
