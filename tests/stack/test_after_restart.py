"""Every container was restarted: objects, metastore entries and rows are what they were, and the stack goes on."""

from __future__ import annotations

import pytest
from conftest import DATABASE, INGEST_ORDERS, ORDERS, ROOT, WAREHOUSE, trino_rows

pytestmark = pytest.mark.after_restart


def test_the_store_kept_its_objects(store_at):
    assert store_at(f"{ROOT}/objects").read("kept") == b"through the restart"


def test_the_metastore_kept_its_tables_and_partitions(metastore):
    assert {"orders", "by_make", "orders_by_hand"} <= set(metastore.get_all_tables(DATABASE))
    assert len(metastore.get_partition_names(DATABASE, "orders_by_hand", -1)) == 3
    assert metastore.get_database("lake").locationUri == f"{WAREHOUSE}/lake"


def test_trino_reads_the_same_rows(sql):
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.orders")) == sorted(ORDERS)
    without_first_day = sorted(row for row in ORDERS if row[4] != min(row[4] for row in ORDERS))
    assert trino_rows(sql(f"SELECT * FROM hive.{DATABASE}.orders_by_hand")) == without_first_day


def test_the_cluster_takes_jobs_again(sql, submit):
    before = sql(f"SELECT count(*) FROM delta.{DATABASE}.by_make")[0][0]
    done = submit(*INGEST_ORDERS, "--table", f"{ROOT}/by_make")
    assert done.code == 0, done.errors
    assert sql(f"SELECT count(*) FROM delta.{DATABASE}.by_make")[0][0] == before + len(ORDERS)
