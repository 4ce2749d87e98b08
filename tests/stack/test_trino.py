"""Trino reads what Spark wrote: the Delta table through its log, chosen files of it through symlink manifests."""

from __future__ import annotations

import pytest
from conftest import DATABASE, INGEST_ORDERS, ORDERS, ROOT, in_trino, symlink_storage, symlink_table, trino_rows
from pymetastore.hive_metastore import ttypes

from pydelta.log import DeltaLog

pytestmark = pytest.mark.after_submit

COLUMNS = {"id": "bigint", "customer": "string", "amount": "decimal(10,2)", "at": "timestamp"}


@pytest.fixture(scope="module", autouse=True)
def _registered(register):
    for name in ("orders", "by_make"):
        register(name)


def test_the_delta_catalog_reads_equal_rows(sql):
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.orders")) == sorted(ORDERS)


def test_types_survive(sql):
    types = {row[0]: row[1] for row in sql(f"DESCRIBE delta.{DATABASE}.orders")}
    assert types == {
        "id": "bigint",
        "customer": "varchar",
        "amount": "decimal(10,2)",
        "at": "timestamp(3) with time zone",  # all that Trino's connector gives
        "day": "date",
    }


def test_the_table_of_the_job_that_the_host_submitted(sql):
    assert trino_rows(sql(f"SELECT * FROM delta.{DATABASE}.by_make")) == sorted(ORDERS)


def test_a_later_commit_is_in_the_next_query(sql, submit):
    before = sql(f"SELECT count(*) FROM delta.{DATABASE}.by_make")[0][0]
    done = submit(*INGEST_ORDERS, "--table", f"{ROOT}/by_make")
    assert done.code == 0, done.errors
    assert sql(f"SELECT count(*) FROM delta.{DATABASE}.by_make")[0][0] == before + len(ORDERS)


def test_the_hive_catalog_reads_just_the_files_of_hand_made_manifests(sql, store_at, metastore):
    snapshot = DeltaLog.for_table(f"{ROOT}/orders", store=store_at(f"{ROOT}/orders")).snapshot()
    files = dict(zip(snapshot.files.core["pv:day"], snapshot.files.core["path"], strict=True))
    assert len(files) == snapshot.num_files == 3, "one file a day"
    left_out, *listed = sorted(files)
    manifests = store_at(f"{ROOT}/orders_by_hand")
    if "orders_by_hand" not in metastore.get_all_tables(DATABASE):
        metastore.create_table(symlink_table("orders_by_hand", f"{ROOT}/orders_by_hand", COLUMNS, {"day": "date"}))
        manifests.put(f"day={left_out}/manifest", b"")  # a partition without files
        for day in listed:
            manifests.put(f"day={day}/manifest", f"{in_trino(ROOT)}/orders/{files[day]}\n".encode())
        metastore.add_partitions(
            [
                ttypes.Partition(
                    dbName=DATABASE,
                    tableName="orders_by_hand",
                    values=[day],
                    sd=symlink_storage(f"{ROOT}/orders_by_hand/day={day}", COLUMNS),
                    parameters={},
                )
                for day in sorted(files)
            ]
        )
    rows = trino_rows(sql(f"SELECT * FROM hive.{DATABASE}.orders_by_hand"))
    assert rows == sorted(row for row in ORDERS if row[4] != left_out)


def test_the_hive_catalog_is_read_only(sql):
    with pytest.raises(Exception, match=r"(?i)access denied"):
        sql(f"CREATE TABLE hive.{DATABASE}.refused (id bigint)")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE delta.{0}.orders",
        "DELETE FROM delta.{0}.orders",
        "INSERT INTO delta.{0}.orders SELECT * FROM delta.{0}.orders",
        "CREATE TABLE delta.{0}.refused (id bigint)",
        "CALL delta.system.register_table('{0}', 'refused', '{1}/orders')",
        "CALL delta.system.unregister_table('{0}', 'orders')",
        "CALL delta.system.vacuum('{0}', 'orders', '7d')",
        "ALTER TABLE delta.{0}.orders EXECUTE optimize",
        "DROP SCHEMA delta.{0} CASCADE",
    ],
)
def test_the_delta_catalog_is_read_only_unless_it_is_told_otherwise(sql, statement):
    with pytest.raises(Exception, match=r"(?i)access denied"):
        sql(statement.format(DATABASE, in_trino(ROOT)))
    assert sql(f"SELECT count(*) FROM delta.{DATABASE}.orders") == [[len(ORDERS)]]


@pytest.mark.parametrize("catalog", ["delta", "hive"])
def test_column_indexes_are_not_used(sql, catalog):
    settings = {row[0]: row[1] for row in sql(f"SHOW SESSION LIKE '{catalog}.parquet_use_column_index'")}
    assert settings == {f"{catalog}.parquet_use_column_index": "false"}


def test_many_different_values_are_counted_with_what_memory_there_is(sql):
    """More than a query may keep in memory: what does not fit is spilled."""
    ids = "UNNEST(sequence(1, 4000)) a(high) CROSS JOIN UNNEST(sequence(1, 10000)) b(low)"
    assert sql(f"SELECT count(DISTINCT high * 10000 + low) FROM {ids}") == [[40_000_000]]
