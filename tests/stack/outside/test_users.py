"""A user whose role is limited sees the same rows in Trino and at the SQL server, and on the page no others.

The users are those of ``tests/stack/outside/users.toml``. Expected rows come from a model of the filter and the masks.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import hashlib
import json
import os
import random
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import thrift_sasl
from pyhive import hive
from thrift.transport import TSSLSocket

from jobs.verify.superset import Superset, SupersetError
from jobs.verify.trino import Trino, TrinoError

CA, READER = os.environ["SSL_CERT_FILE"], os.environ["TRINO_READER_PASSWORD"]
ADMIN = os.environ["TRINO_ADMIN_PASSWORD"]
PORTS = {name: int(os.environ[f"{name}_PORT"]) for name in ("TRINO", "THRIFT", "CONNECT", "UI", "BI")}
SEEN, WHOLE, SECRET = "lake.users_seen", "lake.users_whole", "lake.users_secret"
COLUMNS = ("id", "region", "day", "customer", "phone", "note", "card", "amount", "level", "open")
TYPES = (
    "id INT, region STRING, day DATE, customer STRING, "
    "phone STRING, note STRING, card STRING, amount DECIMAL(9,2), level BIGINT, open STRING"
)
SEED = int(os.environ.get("USERS_SEED", "41"))
DAY = datetime.date(2024, 1, 1)


def rows():
    """Rows of the table, with nulls, short and foreign texts."""
    chosen = random.Random(SEED)
    texts = [None, "", "abcd", "abcde", "0123456789", "Straße 12", "日本語のテキスト", "it's"]
    found = []
    for _ in range(120):
        text = lambda: chosen.choice(texts)  # noqa: E731
        found.append(
            (chosen.choice([None, *range(1, 7)]), chosen.choice(["EU", "EU", "EU", "US", None, "eu", "EU "]),
             chosen.choice([None, *(DAY + datetime.timedelta(days) for days in range(4))]),
             text(), text(), text(), text(), chosen.choice([None, decimal.Decimal("1.50")]),
             chosen.choice([None, 7]), text())
        )  # fmt: skip
    return found


def seen(row):
    """What the role of ann sees of a row; None if nothing."""
    found = dict(zip(COLUMNS, row, strict=True))
    if (
        found["region"] != "EU"
        or found["id"] not in (1, 2, 3, 4)
        or not found["day"]
        or found["day"] < datetime.date(2024, 1, 2)
    ):
        return None
    customer, phone = found["customer"], found["phone"]
    found["customer"] = None if customer is None else hashlib.sha256(customer.encode()).hexdigest()
    found["phone"] = None if phone is None else "****" + phone[-4:] if len(phone) > 4 else "****"
    return tuple((found | {"note": None, "card": "hidden", "amount": None, "level": 0}).values())


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    return f"DATE'{value}'" if isinstance(value, datetime.date) else str(value)


def thrift(user, password):
    """A connection of PyHive by TLS."""
    socket = TSSLSocket.TSSLSocket("localhost", PORTS["THRIFT"], ca_certs=CA, cert_reqs=ssl.CERT_REQUIRED)
    made = lambda: hive.get_installed_sasl("localhost", "PLAIN", "hive", user, password)  # noqa: E731
    return hive.connect(thrift_transport=thrift_sasl.TSaslClientTransport(made, "PLAIN", socket))


def ask(connection, text):
    cursor = connection.cursor()
    cursor.execute(text)
    return cursor.fetchall() if cursor.description else []


def trino(user):
    return Trino(f"https://localhost:{PORTS['TRINO']}", user, password=ADMIN if user == "admin" else READER)


def superset(user, password=None):
    return Superset(f"http://127.0.0.1:{PORTS['BI']}", user, password or (ADMIN if user == "admin" else READER))


def connect(body, user="ann", password=READER):
    """What a body tells in a process of its own, with ``spark`` a remote session."""
    script = (
        "import json\nfrom pyspark.sql import SparkSession, functions as F\n"
        f"spark = SparkSession.builder.remote('sc://localhost:{PORTS['CONNECT']}/;use_ssl=true').getOrCreate()\n"
        "tell = lambda value: print('told ' + json.dumps(value, default=str), flush=True)\n" + body
    )
    environment = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": f"{user}:{password}", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": CA}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("told ")]


def page(path, user=None, password=READER):
    request = urllib.request.Request(f"http://127.0.0.1:{PORTS['UI']}{path}")
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def texts(found):
    """Rows as sorted texts, so that each client's types of values are the same."""
    return sorted(
        json.dumps([None if value is None else str(value) for value in row], ensure_ascii=False) for row in found
    )


@pytest.fixture(scope="module", autouse=True)
def tables():
    with thrift("admin", ADMIN) as admin:
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows())
        for name, types in ((SEEN, TYPES), (WHOLE, TYPES)):
            ask(admin, f"CREATE TABLE IF NOT EXISTS {name} ({types}) USING delta PARTITIONED BY (region)")
            ask(admin, f"INSERT OVERWRITE {name} VALUES {values}")
        ask(admin, f"CREATE TABLE IF NOT EXISTS {SECRET} (s STRING) USING delta")
        ask(admin, f"INSERT OVERWRITE {SECRET} VALUES ('top')")
    give_up = time.monotonic() + 600
    while not _has_twins():
        assert time.monotonic() < give_up, "the twins were not made"
        time.sleep(5)
    yield
    with thrift("admin", ADMIN) as admin:
        for name in (SEEN, WHOLE, SECRET):
            ask(admin, f"DELETE FROM {name}")  # The server's key cannot delete files, so the tables stay.


def _has_twins():
    """Return whether the twins show what was written."""
    admin = trino("admin")
    found = {name for [name] in admin.rows("SHOW TABLES FROM hive.lake_symlink")}
    if not {"users_seen", "users_whole", "users_secret"} <= found:
        return False
    count = "SELECT count(*) FROM "
    return all(
        admin.rows(count + f"hive.lake_symlink.{name}") == admin.rows(count + f"delta.lake.{name}")
        and admin.rows(count + f"hive.lake_symlink.{name}") != [[0]]
        for name in ("users_seen", "users_whole", "users_secret")
    )


@pytest.fixture(scope="module")
def ann():
    with thrift("ann", READER) as connection:
        yield connection


MODEL = [found for row in rows() if (found := seen(row)) is not None]


def test_the_model_has_rows_to_compare():
    assert 3 < len(MODEL) < len(rows())
    assert {row[1] for row in MODEL} == {"EU"}


@pytest.mark.parametrize("name", [f"delta.{SEEN}", "hive.lake_symlink.users_seen"])
def test_trino_filters_and_masks_as_the_model_does(name):
    columns = ", ".join(COLUMNS)
    assert texts(trino("ann").rows(f"SELECT {columns} FROM {name}")) == texts(MODEL)


def test_the_server_filters_and_masks_as_the_model_does(ann):
    assert texts(ask(ann, f"SELECT {', '.join(COLUMNS)} FROM {SEEN}")) == texts(MODEL)
    [found] = connect(f"tell([list(row) for row in spark.table('{SEEN}').collect()])")
    assert texts(found) == texts(MODEL)


def queries(count):
    """Random queries that both engines read the same."""
    chosen = random.Random(SEED)
    for _ in range(count):
        column, other = chosen.sample([name for name in COLUMNS if name != "day"], 2)
        value = chosen.choice(["1", "3"]) if column in ("id", "level") else "1.5" if column == "amount" else "'hidden'"
        where = chosen.choice(
            [
                "",
                f"WHERE {column} IS NOT NULL",
                f"WHERE {column} = {value}",
                f"WHERE {other} IN (SELECT {other} FROM {{table}})",
            ]
        )
        on = f"WHERE a.{column} IS NOT NULL"
        yield chosen.choice(
            [
                f"SELECT {column}, {other} FROM {{table}} {where}",
                f"SELECT {column}, count(*), count({other}) FROM {{table}} {where} GROUP BY {column}",
                f"WITH x AS (SELECT {column}, {other} FROM {{table}} {where}) SELECT count(*), min({column}) FROM x",
                f"SELECT a.{column}, b.{other} FROM {{table}} a JOIN {{table}} b ON a.id = b.id {on}",
                f"SELECT {column} FROM {{table}} {where} UNION ALL SELECT {column} FROM {{table}}",
            ]
        )


@pytest.mark.parametrize("text", list(queries(12)))
def test_trino_and_the_server_answer_a_query_alike(ann, text):
    assert texts(ask(ann, text.format(table=SEEN))) == texts(trino("ann").rows(text.format(table=f"delta.{SEEN}")))


def test_each_shows_the_tables_of_the_role_alone(ann):
    mine = ["users_seen", "users_whole"]
    assert [row[0] for row in trino("ann").rows("SHOW TABLES FROM delta.lake")] == mine
    assert sorted(row[0] for row in trino("ann").rows("SHOW TABLES FROM hive.lake_symlink")) == mine
    names = [row[0] for row in trino("ann").rows("SHOW SCHEMAS FROM delta")]
    assert [name for name in names if name != "information_schema"] == ["lake", "lake_iceberg", "lake_symlink"]
    assert ask(ann, "SHOW DATABASES") == [("lake",), ("lake_iceberg",), ("lake_symlink",)]
    assert sorted(row[1] for row in ask(ann, "SHOW TABLES IN lake_symlink")) == mine
    assert texts(ask(ann, "SELECT * FROM lake_symlink.users_seen")) == texts(MODEL)
    assert [row[1] for row in ask(ann, "SHOW TABLES IN lake")] == mine
    [found] = connect("tell([row.tableName for row in spark.sql('SHOW TABLES IN lake').collect()])")
    assert found == mine
    status, text = page("/api/tables", "ann")
    assert status == 200
    assert sorted(table["place"]["name"] for table in json.loads(text)["tables"]) == [f"lake.{name}" for name in mine]


DENIED_TO_TRINO = [
    f"SELECT * FROM delta.{SECRET}",
    "SELECT * FROM hive.lake_symlink.users_secret",
    f"SELECT (SELECT max(s) FROM delta.{SECRET})",
    'SELECT * FROM delta.lake."users_seen$history"',
    'SELECT * FROM delta.lake."users_seen$partitions"',
    'SELECT * FROM hive.lake_symlink."users_seen$partitions"',
    "SELECT * FROM TABLE(delta.system.table_changes('lake', 'users_seen', 0))",
    f"INSERT INTO delta.{WHOLE} SELECT * FROM delta.{WHOLE}",
    f"DELETE FROM delta.{WHOLE}",
    f"DROP TABLE delta.{WHOLE}",
    f"CREATE VIEW delta.lake.users_view AS SELECT * FROM delta.{WHOLE}",
    "CREATE TABLE delta.lake.users_made (id int)",
    "CREATE SCHEMA delta.users_more",
    "SELECT * FROM system.runtime.queries",
    "CALL delta.system.drop_extended_stats('lake', 'users_seen')",
]


@pytest.mark.parametrize("statement", DENIED_TO_TRINO)
def test_trino_denies_the_rest(statement):
    with pytest.raises(TrinoError, match=r"Access Denied|PERMISSION_DENIED"):
        trino("ann").rows(statement)


def test_trino_s_statistics_show_no_value_that_is_masked_or_filtered():
    shown = json.dumps(trino("ann").rows(f"SHOW STATS FOR delta.{SEEN}"), ensure_ascii=False)
    assert "1.5" not in shown.replace("1.50", "1.5"), shown
    assert '"7' not in shown, shown


DENIED_TO_THRIFT = [
    f"SELECT * FROM {SECRET}",
    f"SELECT (SELECT max(s) FROM {SECRET})",
    "SELECT * FROM delta.`s3a://warehouse/lake/users_seen`",
    "SELECT * FROM parquet.`s3a://warehouse/lake/users_seen`",
    f"SELECT * FROM table_changes('{SEEN}', 0)",
    f"SELECT _metadata FROM {SEEN}",
    "SELECT reflect('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')",
    f"DESCRIBE HISTORY {SEEN}",
    f"DESCRIBE DETAIL {SEEN}",
    f"DESCRIBE {SECRET}",
    f"INSERT INTO {WHOLE} SELECT * FROM {WHOLE}",
    f"DELETE FROM {WHOLE}",
    f"CREATE TEMPORARY VIEW v AS SELECT * FROM {WHOLE}",
    f"OPTIMIZE {WHOLE}",
    f"DROP TABLE {WHOLE}",
    "SET",
]


@pytest.mark.parametrize("statement", DENIED_TO_THRIFT)
def test_the_server_denies_the_rest_by_jdbc(ann, statement):
    with pytest.raises(hive.OperationalError, match="DELTA_ACCESS_DENIED"):
        ask(ann, statement)


DENIED_TO_CONNECT = {
    "another table": f"spark.table('{SECRET}').collect()",
    "a subquery in a text": f"spark.range(1).select(F.expr('(SELECT max(s) FROM {SECRET})')).collect()",
    "a path": "spark.read.format('delta').load('s3a://warehouse/lake/users_seen').collect()",
    "a file": "spark.read.text('/etc/passwd').collect()",
    "a function": "spark.range(1).select(F.udf(lambda x: 'x')('id')).collect()",
    "a method of Java": "spark.range(1).select(F.reflect(F.lit('java.lang.System'), F.lit('getenv'))).collect()",
    "a write": f"spark.table('{WHOLE}').write.mode('append').saveAsTable('{WHOLE}')",
    "a setting": "spark.conf.set('spark.sql.ansi.enabled', 'false')",
    "the server's token": "spark.conf.get('spark.connect.authenticate.token')",
    "a list of tables": "spark.catalog.listTables('lake')",
    "a view": "spark.range(1).createOrReplaceTempView('v')",
    "an explanation": f"spark.table('{SEEN}').explain()",
}


def test_the_server_denies_the_rest_by_connect():
    tried = "".join(
        f"try:\n    {body}\n    tell([{name!r}, 'done'])\nexcept Exception as error:\n"
        f"    tell([{name!r}, 'denied' if 'ACCESS_DENIED' in str(error) else str(error)[:300]])\n"
        for name, body in DENIED_TO_CONNECT.items()
    )
    assert connect(tried) == [[name, "denied"] for name in DENIED_TO_CONNECT]


def test_nobody_comes_in_with_a_wrong_password():
    for user, password in (("ann", "wrong"), ("nobody", READER), ("admin", READER)):
        with pytest.raises(Exception, match="Error validating the login"):
            thrift(user, password)
        assert page("/", user, password)[0] == 401
        with pytest.raises(TrinoError, match="401"):
            Trino(f"https://localhost:{PORTS['TRINO']}", user, password=password).rows("SELECT 1")
    with pytest.raises(AssertionError, match="UNAUTHENTICATED"):
        connect("tell(spark.range(1).count())", password="wrong")


def test_the_page_shows_the_role_s_tables_and_no_value_that_is_masked():
    assert page("/")[0] == 401
    assert page(f"/table?name={SEEN}", "ann")[0] == 200
    assert page(f"/preview?name={WHOLE}", "ann")[0] == 200
    assert page(f"/api/preview?name={WHOLE}", "ann")[0] == 200
    for path in (
        f"/preview?name={SEEN}",
        f"/commit?name={SEEN}&version=1",
        "/runs",
        "/cluster",
        "/lineage",
        "/metrics",
    ):
        assert page(path, "ann")[0] == 403, path
    for path in (f"/table?name={SECRET}", f"/preview?name={SECRET}"):
        assert page(path, "ann")[0] == 404, path
    assert SECRET not in page("/", "ann")[1]
    assert SECRET in page("/", "admin", ADMIN)[1]


def test_superset_shows_each_user_what_trino_shows_her():
    columns = ", ".join(f"CAST({name} AS varchar) AS {name}" for name in COLUMNS)
    for user in ("ann", "reader", "admin"):
        client = superset(user)
        assert list(client.databases()) == ["Trino"]
        for name in (SEEN, WHOLE):
            statement = f"SELECT {columns} FROM delta.{name}"
            shown = client.rows(client.databases()["Trino"], statement)
            assert sorted(map(repr, shown)) == sorted(map(repr, trino(user).rows(statement))), (user, name)


def test_superset_denies_the_rest():
    client = superset("ann")
    number = client.databases()["Trino"]
    for statement in (
        f"SELECT * FROM delta.{SECRET}",
        "SELECT count(*) AS n FROM delta.lake.flights",
        "SHOW CATALOGS FROM x",
    ):
        with pytest.raises(SupersetError):
            client.rows(number, statement)
    for chart in client.charts("flights"):
        with pytest.raises(SupersetError):
            client.number(chart)
    reader = superset("reader")
    assert {chart.name: reader.number(chart) for chart in reader.charts("flights")}["Flights"] == 336_776
    for user, password in (("ann", "wrong"), ("nobody", READER), ("admin", READER), ("Ann", READER)):
        with pytest.raises(SupersetError, match="HTTP status 401"):
            superset(user, password)


def test_superset_s_log_in_to_trino_has_no_right_and_takes_no_other_name():
    address, password = f"https://localhost:{PORTS['TRINO']}", os.environ["BI_TRINO_PASSWORD"]
    with pytest.raises(TrinoError, match=r"Access Denied|403"):
        Trino(address, "superset", password=password).rows(f"SELECT count(*) FROM delta.{WHOLE}")
    for taken in ("root", "superset2", "Ann"):
        with pytest.raises(TrinoError, match="cannot impersonate"):
            acting(address, password, taken).rows("SELECT 1")
    assert acting(address, password, "ann").rows("SELECT current_user") == [["ann"]]
    with pytest.raises(TrinoError, match="Access Denied"):
        acting(address, password, "ann").rows(f"SELECT * FROM delta.{SECRET}")


def acting(address, password, name):
    """A client that logs in as Superset does, and takes the name of a user."""
    client = Trino(address, "superset", password=password)
    client._headers["X-Trino-User"] = name
    return client
