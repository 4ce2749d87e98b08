"""Clients of the real services, as a container on the stack's network sees them.

What the store's places begin with is in the environment: buckets of S3, or directories of HDFS.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trino
import trino.auth
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol

from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.thrift.transport import transport_to
from pydelta.log import DeltaLog
from pydelta.storage import Store, open_store

DATABASE = "stack_tests"
STORE_ROOT = os.environ["STORE_ROOT"]
ON_HDFS = STORE_ROOT.startswith("hdfs:")
WAREHOUSE, INVENTORY, WORK = PLACES = tuple(f"{STORE_ROOT}{name}" for name in ("warehouse", "inventory", "work"))
ROOT = f"{WAREHOUSE}/{DATABASE}"
STORE_OPTIONS = {
    "fs.s3a.endpoint": os.environ["S3_ENDPOINT"],
    "fs.s3a.endpoint.region": os.environ["S3_REGION"],
    "fs.s3a.path.style.access": os.environ["S3_PATH_STYLE"],
    "fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
    "fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", metavar="K/N", help="of the tests marked in_turn the K-th of N parts; without it all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    if turn is None:
        return
    number, of = map(int, turn.split("/"))
    slow = sorted({item.nodeid.split("::")[0] for item in items if item.get_closest_marker("in_turn")})
    files = set(slow) - set(slow[number - 1 :: of])
    left = [item for item in items if item.get_closest_marker("in_turn") and item.nodeid.split("::")[0] in files]
    config.hook.pytest_deselected(items=left)
    out = set(left)
    items[:] = [item for item in items if item not in out]


_OWN_JOBS = {"vacuum": "vacuum", "inventory": "inventory"}
"""Jobs that another user of the store than Spark's runs, as scripts/stack-run has it."""


def key_of(user: str) -> dict[str, str]:
    """The key of a user of the store, as variables; where the store has one key, that one."""
    name = user.upper()
    return {
        "AWS_ACCESS_KEY_ID": os.environ[f"STORE_{name}_KEY"],
        "AWS_SECRET_ACCESS_KEY": os.environ[f"STORE_{name}_SECRET"],
    }


ORDERS = [
    (
        number,
        f"customer {number % 7}",
        f"{number}.{number % 100:02}",
        f"2024-01-0{1 + number % 3} 12:00:{number % 60:02}",
        f"2024-01-0{1 + number % 3}",
    )
    for number in range(300)
]
"""Rows as texts and numbers, as ``trino_rows`` gives them: id, customer, amount, time in UTC, day."""
SCHEMA = "id bigint, customer string, amount decimal(10,2), at timestamp, day date"
ORDERS_FILE = f"{WORK}/{DATABASE}/orders.csv"
INGEST_ORDERS = ("ingest", "--input", ORDERS_FILE, "--format", "csv", "--option", "header=true", "--schema", SCHEMA)
"""The job that loads ``ORDERS`` and its arguments, but for the table's; test_cluster.py writes the file."""


@dataclass(frozen=True)
class Submitted:
    """How a job ended: its exit code, its line of JSON (None where it printed none), what it said beside that."""

    code: int
    result: dict[str, Any] | None
    errors: str


@pytest.fixture(scope="session")
def store_at():
    """Opens the stack's store at a URI."""

    def at(uri: str) -> Store:
        return open_store(uri, STORE_OPTIONS)

    return at


@pytest.fixture
def metastore() -> Iterator[ThriftHiveMetastore.Client]:
    host, _, port = os.environ["METASTORE"].partition(":")
    tls = os.environ.get("METASTORE_TLS") == "true"
    transport = transport_to(host, int(port), budget=lambda: 60.0, tls=tls)
    transport.open()
    yield ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
    transport.close()


def trino_address(user: str | None = None, password: str | None = None) -> dict[str, Any]:
    """Where Trino is and who asks, as its client takes it: by TLS, with a password, where the stack is secure."""
    address = os.environ["TRINO"]
    host, _, port = address.removeprefix("https://").partition(":")
    who = user or os.environ.get("TRINO_USER") or "tests"
    found: dict[str, Any] = {"host": host, "port": int(port), "user": who}
    if address.startswith("https://"):
        said = password or os.environ["TRINO_PASSWORD"]
        trusted = "/etc/ssl/certs/ca-certificates.crt"  # the client of Trino brings others of its own
        found |= {"http_scheme": "https", "auth": trino.auth.BasicAuthentication(who, said), "verify": trusted}
    return found


def run_on_trino(statement: str) -> list[list[Any]]:
    """Run a statement on Trino; rows come back as lists."""
    with contextlib.closing(trino.dbapi.connect(**trino_address())) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        found: list[list[Any]] = cursor.fetchall()
    return found


@pytest.fixture(scope="session")
def sql():
    """Runs a statement on Trino; rows come back as lists."""
    return run_on_trino


def job_variables(job: str, user: str | None = None) -> dict[str, str]:
    """The environment in which ``make submit`` runs a job: with the key that it gets there."""
    found = os.environ | key_of(user or _OWN_JOBS.get(job, "spark"))
    if job == "erase":  # As scripts/stack-run has it: it writes with Spark's key and deletes with VACUUM's.
        deletes = key_of("vacuum")
        found |= {f"ERASE_{name.removeprefix('AWS_')}": held for name, held in deletes.items() if held}
    return found


@pytest.fixture(scope="session")
def submit():
    """Runs a job on the cluster by the command behind ``make submit``."""

    def run(job: str, *arguments: str, user: str | None = None) -> Submitted:
        command = ["submit", job, *arguments]
        done = subprocess.run(command, env=job_variables(job, user), capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
        return Submitted(done.returncode, result, done.stderr)

    return run


@pytest.fixture(scope="session")
def register():
    """Makes the entry of a Delta table of the tests' database, by which Trino finds it."""

    def run(name: str, location: str | None = None) -> None:
        location = location or f"{ROOT}/{name}"
        with Metastore(MetastoreAddress.parse(None)) as client:
            table = TableName(database=DATABASE, name=name)
            sync_native(client, table, DeltaLog.for_table(location, options=STORE_OPTIONS).update())

    return run


def in_trino(uri: str) -> str:
    """Spell a location as Trino and manifests do: ``s3`` for ``s3a``."""
    return uri.replace("s3a://", "s3://")


def trino_rows(rows: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Rows of ``orders`` in the order of their ids, values as in ``ORDERS``."""
    return sorted((row[0], row[1], str(row[2]), f"{row[3]:%Y-%m-%d %H:%M:%S}", str(row[4])) for row in rows)


def symlink_table(name: str, location: str, columns: dict[str, str], partition_columns: dict[str, str]) -> ttypes.Table:
    """A metastore entry over manifests, as Trino's hive connector reads it."""
    return ttypes.Table(
        tableName=name,
        dbName=DATABASE,
        owner="tests",
        tableType="EXTERNAL_TABLE",
        parameters={"EXTERNAL": "TRUE"},
        partitionKeys=[ttypes.FieldSchema(name=key, type=kind) for key, kind in partition_columns.items()],
        sd=symlink_storage(location, columns),
    )


def symlink_storage(location: str, columns: dict[str, str]) -> ttypes.StorageDescriptor:
    return ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(name=key, type=kind) for key, kind in columns.items()],
        location=location,
        inputFormat="org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", parameters={}
        ),
        parameters={},
    )
