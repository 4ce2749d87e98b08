"""The inventory table in the metastore, and tables by name, by database, or all: ``jobs/vacuum.py``."""

from __future__ import annotations

import pytest

from catalog_sync.names import TableName
from catalog_sync.native import native_location, sync_native
from jobs import compact, inventory, load_inventory, vacuum
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.testing.operations import add_file, create_table

DAY = 86_400_000


@pytest.fixture
def tables(tmp_path, metastore, database):
    """Two tables, each with a file that no version needs."""
    for name in ("orders", "people"):
        log = DeltaLog.for_table(str(tmp_path / "lake" / name))
        create_table(log, [add_file("a", [1])])
        log.store.put("p=a/stray.parquet", b"1")
        sync_native(metastore, TableName(database=database, name=name), log.update())
    yield
    DeltaLog.clear_cache()


def test_many_tables_by_one_reading_of_the_table_that_the_metastore_knows(
    tables, tmp_path, metastore, metastore_server, database
):
    reports = str(tmp_path / "reports")
    (made,) = inventory.run({}, ["--source", str(tmp_path / "lake"), "--destination", reports])
    asked = ["--metastore", metastore_server.uri]
    report = f"{database}.datalake_report"
    loaded = load_inventory.run({}, ["--source", reports, "--table", report, "--database", database, *asked])
    assert loaded["location"].endswith(f"/{database}.db/datalake_report")
    assert native_location(metastore.table(database, "datalake_report")) == loaded["location"]
    core = DeltaLog.for_table(loaded["location"]).update()
    assert core.num_files == 1
    assert load_inventory.run({}, ["--source", reports, "--table", report, *asked])["version"] is None

    later = made["created_ms"] + 8 * DAY
    rows = vacuum.run({}, [f"{database}.orders", "--inventory", report, "--dry-run", *asked], now_ms=later)
    assert [(row["table"], row["files"]) for row in rows] == [(f"{database}.orders", ["p=a/stray.parquet"])]
    rows = vacuum.run({}, ["--database", database, "--inventory", report, *asked], now_ms=later)
    deleted = {row["table"].partition(".")[2]: row["deleted"] for row in rows}
    assert deleted == {"orders": 1, "people": 1, "datalake_report": 0}
    everything = vacuum.run({}, ["--all-databases", f"{database}.orders", "--dry-run", *asked], now_ms=later)
    names = [row["table"] for row in everything]
    assert len(names) == len(set(names))
    assert f"{database}.people" in names


@pytest.mark.spark
def test_every_table_of_a_database_is_compacted(spark, tmp_path, metastore, metastore_server, database):
    for name, parts in (("many", 3), ("one", 1)):
        path = str(tmp_path / name)
        for _ in range(parts):
            spark.range(5).coalesce(1).write.format("delta").mode("append").save(path)
        sync_native(metastore, TableName(database=database, name=name), DeltaLog.for_table(path).update())
    broken = DeltaLog.for_table(str(tmp_path / "broken"))
    create_table(broken)
    sync_native(metastore, TableName(database=database, name="broken"), broken.update())
    (tmp_path / "broken" / "_delta_log" / "00000000000000000000.json").unlink()
    DeltaLog.clear_cache()
    rows = compact.run_database(spark, ["--database", database, "--metastore", metastore_server.uri])
    found = {row["table"].partition(".")[2]: (row.get("files_removed"), row.get("exit_code", 0)) for row in rows}
    assert found == {"many": (3, 0), "one": (0, 0), "broken": (None, 1)}
    DeltaLog.clear_cache()


def test_names_that_are_none_are_refused(tmp_path, metastore_server, database):
    asked = ["--metastore", metastore_server.uri]
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        vacuum.run({}, [f"{database}.nothing", *asked])
    with pytest.raises(InvalidArgumentError, match="no database nowhere"):
        load_inventory.run({}, ["--source", str(tmp_path), "--table", "nowhere.t", *asked])
