"""Trino reads the Iceberg entry: hidden rows, renamed columns, nulls and odd partition values, after every step."""

from __future__ import annotations

import datetime as dt
import decimal

import pytest
from conftest import DATABASE, ROOT, STORE_OPTIONS

from catalog_sync.errors import MetastoreUnavailableError
from catalog_sync.iceberg.entry import METADATA_KEY, IcebergDriftError, found_iceberg
from catalog_sync.iceberg.status import IcebergState, iceberg_status
from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import TableName, iceberg_name
from catalog_sync.sync import SyncOptions
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog

pytestmark = [pytest.mark.before_submit, pytest.mark.spark, pytest.mark.slow]

NAME = TableName(database=DATABASE, name="by_iceberg")
ENTRY = iceberg_name(NAME)
LOCATION = f"{ROOT}/{NAME.name}"
STEPS = [
    "DELETE FROM {0} WHERE id % 7 = 3",
    "UPDATE {0} SET amount = amount + 1 WHERE city = 'a/b'",
    "ALTER TABLE {0} RENAME COLUMN customer TO client",
    "ALTER TABLE {0} ADD COLUMNS (note STRING)",
    "INSERT INTO {0} SELECT id + 1000, client, amount, at, at_local, city, concat('n', id) FROM {0} WHERE id < 20",
    "ALTER TABLE {0} DROP COLUMN amount",
    "MERGE INTO {0} t USING (SELECT id FROM {0} WHERE id < 40) s ON t.id = s.id WHEN MATCHED AND t.id % 2 = 0 THEN "
    "DELETE WHEN MATCHED THEN UPDATE SET note = 'merged'",
    "OPTIMIZE {0}",
    "DELETE FROM {0} WHERE city IS NULL",
]


@pytest.fixture(scope="module")
def spark():
    import pydelta

    session = pydelta.session(
        "iceberg-tests", conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def client():
    with Metastore(MetastoreAddress.parse(None)) as found:
        yield found


@pytest.fixture(scope="module")
def log(spark, client):
    cities = "element_at(array('Aachen', 'b c', '50%', 'x=y', 'a/b', 'é中', NULL), CAST(id % 7 AS int) + 1)"
    rows = spark.range(500).selectExpr(
        "id",
        "concat('c', id % 9) AS customer",
        "CAST(id / 4 AS decimal(12,2)) AS amount",
        "timestamp_seconds(1704067200 + id) AS at",
        "CAST(timestamp_seconds(1704067200 + id) AS timestamp_ntz) AS at_local",
        f"{cities} AS city",
    )
    rows.write.format("delta").partitionBy("city").option("delta.enableDeletionVectors", "true").option(
        "delta.columnMapping.mode", "name"
    ).save(LOCATION)
    yield DeltaLog.for_table(LOCATION, options=STORE_OPTIONS)
    client.drop(ENTRY.database, ENTRY.name)


def texts(rows):
    """Rows of either client as texts, times in UTC without their zone."""

    def text(value):
        if isinstance(value, dt.datetime):
            aware = value.astimezone(dt.UTC) if value.tzinfo is not None else value
            return aware.replace(tzinfo=None).isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    return sorted((tuple(map(text, row)) for row in rows), key=repr)


def test_trino_reads_what_spark_reads_after_every_step(spark, client, log, sql):
    for step in [None, *STEPS]:
        if step is not None:
            spark.sql(step.format(f"delta.`{LOCATION}`"))
        result = sync_iceberg(log, client, ENTRY, iceberg=True)
        assert result.version == log.update().version
        frame = spark.read.format("delta").load(LOCATION)
        names = ", ".join(f'"{name}"' for name in frame.columns)
        assert texts(sql(f"SELECT {names} FROM iceberg.{ENTRY}")) == texts(frame.collect()), step
        for where in ("id < 40", "city = 'a/b'", "city IS NULL", "at >= TIMESTAMP'2024-01-01 00:03:00 UTC'"):
            count = frame.where(where.replace(" UTC'", "'")).count()
            assert sql(f"SELECT count(*) FROM iceberg.{ENTRY} WHERE {where}") == [[count]], (step, where)
    assert sql(f'SELECT count(*) FROM iceberg.{ENTRY.database}."{ENTRY.name}$snapshots"')[0][0] > 1


@pytest.mark.parametrize("statement", ["DELETE FROM {0}", "DROP TABLE {0}", "ALTER TABLE {0} EXECUTE expire_snapshots"])
def test_the_iceberg_catalog_is_read_only(log, client, sql, statement):
    sync_iceberg(log, client, ENTRY, iceberg=True)
    with pytest.raises(Exception, match=r"(?i)access denied"):
        sql(statement.format(f"iceberg.{ENTRY}"))


def test_another_writer_is_waited_for_by_the_metastore_s_lock(spark, log, client):
    sync_iceberg(log, client, ENTRY, iceberg=True)
    spark.sql(f"DELETE FROM delta.`{LOCATION}` WHERE id = 1001")
    with Metastore(MetastoreAddress.parse(None)) as other:
        number, state = other.lock_table(ENTRY.database, ENTRY.name, user="other", host="there")
        assert state == "ACQUIRED"
        before = found_iceberg(other.table(ENTRY.database, ENTRY.name))
        with pytest.raises(MetastoreUnavailableError, match="holds the metastore's lock"):
            sync_iceberg(log, client, ENTRY, SyncOptions(wait_seconds=1))
        assert found_iceberg(other.table(ENTRY.database, ENTRY.name)) == before
        other.unlock_table(number)
    assert sync_iceberg(log, client, ENTRY).version == log.update().version


def test_another_writer_s_commit_is_drift_until_it_is_adopted(log, client, sql):
    sync_iceberg(log, client, ENTRY, iceberg=True)
    entry = client.table(ENTRY.database, ENTRY.name)
    theirs = entry.parameters["previous_metadata_location"]
    entry.parameters[METADATA_KEY] = theirs
    client.alter(entry)
    with pytest.raises(IcebergDriftError):
        sync_iceberg(log, client, ENTRY, SyncOptions(full=True))
    assert iceberg_status(log, client, ENTRY, now_ms=0).state is IcebergState.DRIFT
    assert sync_iceberg(log, client, ENTRY, SyncOptions(adopt=True)).version == log.update().version
    found = found_iceberg(client.table(ENTRY.database, ENTRY.name))
    assert (found.has_drifted, found.metadata != theirs) == (False, True)
