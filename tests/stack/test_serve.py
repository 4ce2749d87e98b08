"""Rows that clients of the SQL server wrote from outside: Trino reads the same in both catalogs."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import DATABASE

from catalog_sync.names import TableName, twin_name

pytestmark = pytest.mark.serve

# 90 rows as they were inserted, 20 merged: ids 0 to 109, amount id / 4
FACTS = [110, 110, 109 * 110 // 2, f"{109 * 110 / 8:.2f}", 20]


@pytest.fixture(scope="module")
def name():
    """The table that ``scripts/test-stack-serve`` had the clients make."""
    return TableName(database=DATABASE, name=os.environ["SERVED_TABLE"])


def facts(sql, table):
    found = sql(f"SELECT count(*), count(DISTINCT id), sum(id), sum(amount), count_if(name = 'merged') FROM {table}")[0]
    return [*found[:3], str(found[3]), found[4]]


def test_trino_s_delta_catalog_reads_what_the_clients_wrote(sql, name):
    assert facts(sql, f"delta.{name}") == FACTS
    days = sql(f"SELECT CAST(day AS varchar), count(*) FROM delta.{name} GROUP BY day ORDER BY day")
    assert days == [["2024-01-01", 37], ["2024-01-02", 37], ["2024-01-03", 36]]


def test_the_twin_has_the_same_rows_after_a_sync(sql, name):
    done = subprocess.run(["catalog_sync", "sync", str(name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert facts(sql, f"hive.{twin_name(name)}") == FACTS
