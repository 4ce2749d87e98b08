"""From a directory of HDFS, or a disk, to vacuumed tables: list, deliver, load, vacuum."""

from __future__ import annotations

import time

import pytest

from jobs import inventory, load_inventory, vacuum
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.testing.garbage import HOUR_MS, Yard
from pydelta.tools.inventory import find_deliveries

NAMES = ("p=1/live é %41.parquet", "p=1/old x.parquet")


def some_table(location):
    """One file that is live, one that was removed, one that no commit names, and a directory with nothing in it."""
    yard = Yard(open_store(location), partition_columns=("p",), now_ms=int(time.time() * 1000))
    for path in (*NAMES, "p=2/stray #?.parquet", "p=1/_hidden/x"):
        yard.put(path, age=1000, size=0)
    live, old = map(yard.named, NAMES)
    yard.commit(live, old, age=900)
    yard.commit(yard.remove(old, age=800), age=800)
    return yard


@pytest.mark.parametrize(
    ("lake", "reports", "file_format"),
    [("{hdfs}", "{hdfs}", "Parquet"), ("{hdfs}", "{disk}", "CSV"), ("{disk}", "{hdfs}", "CSV")],
    ids=["hdfs", "hdfs listed on disk", "disk listed on hdfs"],
)
def test_from_a_directory_to_vacuumed_tables(root, tmp_path, lake, reports, file_format):
    places = {"hdfs": root, "disk": str(tmp_path / "a disk")}
    lake, reports = f"{lake}/lake 1".format(**places), f"{reports}/reports".format(**places)
    yard = some_table(f"{lake}/orders")
    before = yard.files()
    arguments = ["--source", lake, "--destination", f"{reports}/daily", "--format", file_format, "--keep", "1"]
    inventory.run({}, arguments)
    (delivered,) = inventory.run({}, arguments)
    assert delivered.get("message") is None
    assert (delivered["objects"] >= len(before) + 2, len(delivered["removed"])) == (True, 1)
    (found,) = find_deliveries(open_store(f"{reports}/daily"), delivered["bucket"])
    assert found.complete

    table = f"{reports}/datalake_report"
    named = ["--table-location", f"db.orders={yard.store.root}"]
    loaded = load_inventory.run({}, ["--source", f"{reports}/daily", "--location", table, *named])
    assert (loaded["warnings"], loaded["buckets"][0]["rows"]) == ([], delivered["objects"])
    assert loaded["buckets"][0]["bucket"] == delivered["bucket"]

    clock = yard.now_ms + HOUR_MS
    (planned,) = vacuum.run({}, [yard.store.root, "--inventory", table, "--dry-run"], now_ms=clock)
    assert (planned.get("message"), planned["found"]) == (None, 2)
    (done,) = vacuum.run({}, [yard.store.root, "--inventory", table], now_ms=clock)
    assert (done.get("message"), done["deleted"]) == (None, 2)
    assert before - yard.files() == {"p=1/old x.parquet", "p=2/stray #?.parquet"}
    DeltaLog.clear_cache()
