"""The scheduler maintains what is registered in ``lake`` by its properties, and its book is a table like any other."""

from __future__ import annotations

import time

import pytest
from conftest import ROOT, STORE_OPTIONS

import pydelta
from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog

pytestmark = [pytest.mark.before_submit, pytest.mark.spark, pytest.mark.slow, pytest.mark.in_turn]

_LONGEST = 3600
"""Seconds; only for a scheduler that does nothing at all."""


@pytest.fixture(scope="module")
def spark():
    session = pydelta.session("maintenance-tests", conf={"spark.sql.shuffle.partitions": "2"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def client():
    with Metastore(MetastoreAddress.parse(None)) as metastore:
        yield metastore


def _until(holds):
    give_up = time.monotonic() + _LONGEST
    while not holds():
        assert time.monotonic() < give_up, "the scheduler did not do it"
        time.sleep(3)


def _registered(spark, client, name):
    """A table that has passed its bound and has garbage, and is registered in ``lake``."""
    location = f"{ROOT}/{name.name}"
    for _ in range(2):
        spark.range(0, 100, numPartitions=6).write.format("delta").mode("overwrite").save(location)
    spark.sql(
        f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('pydelta.maintenance.compact.minFiles' = '5', "
        "'pydelta.maintenance.compact.minAge' = '0 seconds', 'pydelta.maintenance.vacuum' = 'lite', "
        "'delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    log = DeltaLog.for_table(location, options=STORE_OPTIONS)
    sync_native(client, name, log.update())
    return log


def test_a_table_past_its_bound_is_compacted_and_vacuumed_once_and_the_book_says_so(spark, client, sql):
    run = int(time.time())  # the book keeps what it says of tables of earlier runs
    names = [TableName(database="lake", name=f"stack_tests_maintained_{run}_{number}") for number in (1, 2)]

    def rows(log):
        found = f"SELECT action, outcome, saved_files, error FROM delta.ops.maintenance WHERE location = '{log.uri}'"
        return {action: rest for action, *rest in sql(found)} if client.table("ops", "maintenance") else {}

    try:
        first = _registered(spark, client, names[0])
        _until(lambda: set(rows(first)) == {"compact", "vacuum lite"})
        assert rows(first)["compact"] == ["done", 5, None]
        assert rows(first)["vacuum lite"][0] == "done"
        assert first.update().num_files == 1
        assert spark.read.format("delta").load(first.uri).count() == 100
        version = first.update().version
        second = _registered(spark, client, names[1])
        _until(lambda: set(rows(second)) == {"compact", "vacuum lite"})  # so turns have been made meanwhile
        assert first.update().version == version
        assert sql(f"SELECT count(*) FROM delta.ops.maintenance WHERE location = '{first.uri}'") == [[2]]
    finally:
        for name in names:
            client.drop(name.database, name.name)
