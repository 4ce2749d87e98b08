"""Rows that a job took from Kafka, killed once and run again: Trino counts each record once, in both catalogs."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import DATABASE, WAREHOUSE

from catalog_sync.names import TableName, twin_name

pytestmark = pytest.mark.kafka

NAME = TableName(database=DATABASE, name="from_kafka")


@pytest.fixture(scope="module")
def records():
    """How many records ``scripts/test-stack-kafka`` has sent, numbered from 1."""
    return int(os.environ["KAFKA_RECORDS"])


def facts(records):
    """Rows, different ids, their sum, and that of the amounts, as they must be."""
    total = records * (records + 1) // 2
    return [records, records, total, f"{total + records / 4:.2f}"]


def counted(sql, table):
    row = sql(f"SELECT count(*), count(DISTINCT id), sum(id), sum(amount) FROM {table}")[0]
    return [*row[:3], str(row[3])]


def test_the_delta_catalog_has_each_record_once(sql, records):
    assert counted(sql, f"delta.{NAME}") == facts(records)


def test_the_twin_has_each_record_once(sql, records):
    done = subprocess.run(["catalog_sync", "sync", str(NAME)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted(sql, f"hive.{twin_name(NAME)}") == facts(records)


def test_the_job_that_was_killed_had_written_some_of_them(store_at):
    """Commits of before the kill are in the log: the run after it went on, and did not begin again."""
    store = store_at(f"{WAREHOUSE}/{DATABASE}/{NAME.name}")
    lines = b"\n".join(store.read(info.path) for info in store.list_all("_delta_log") if info.path.endswith(".json"))
    batches = {
        action["txn"]["version"] for action in map(json.loads, filter(None, lines.splitlines())) if "txn" in action
    }
    assert {0, 1, 2} < batches
