"""Tables by name in a Hive Metastore, two sessions at once: made, read, widened, replaced, renamed, moved, dropped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

DATABASE = "named_tables"


@pytest.fixture(scope="module")
def found(metastore_server, tmp_path_factory):
    from catalog_sync import Metastore, MetastoreAddress

    folder = tmp_path_factory.mktemp("named")
    with Metastore(MetastoreAddress.parse(metastore_server.uri)) as client:
        client.create_database(DATABASE, f"file://{metastore_server.warehouse}/{DATABASE}.db")
    script = Path(__file__).with_name("named_session.py")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    running = {
        which: subprocess.Popen(
            [sys.executable, str(script), metastore_server.uri, DATABASE, str(folder), which],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for which in ("first", "second")
    }
    results = {}
    try:
        for which, process in running.items():
            out, errors = process.communicate(timeout=400)
            assert process.returncode == 0, f"{which}: {errors[-4000:]}"
            results[which] = json.loads(out.strip().splitlines()[-1])
    finally:
        for process in running.values():
            process.kill()  # one that waits for another that failed
            process.wait(30)
    return results


@pytest.fixture
def entries(found, metastore):
    return lambda name: metastore.table(DATABASE, name)


@pytest.mark.ci
def test_what_one_session_makes_the_other_reads(found):
    assert found["second"]["seen"] == {
        "managed": [["Id", "Day", "at", "s"], 0],
        "external": [["id"], 4],
        "by_sql": [["id", "name"], 1],
        "selected": [["id", "twice"], 4],
        "there": [["id"], 3],
    }
    kinds = {"managed": True, "external": False, "by_sql": False, "selected": True, "there": False}
    assert found["second"]["managed"] == kinds
    assert found["second"]["plain"] == [], "tables of other formats stay Spark's"


def test_a_location_that_holds_a_table_and_a_name_that_is_taken(found):
    refused = found["first"]["refused"]
    assert "other columns" in refused["columns"]
    assert "already exists" in refused["taken"]
    assert "already exists" in refused["managed place"]


def test_changes_of_one_are_seen_by_the_other(found):
    assert found["first"]["evolved"] == [["id", "note"], 6]
    assert found["first"]["from the other"] == [[["1", "y"]], 1]
    assert not [text for text in found["first"]["said"] if "log, which counts" in text], "the entry followed the log"
    second = found["second"]
    assert second["replaced"] == ["fresh"]
    assert second["widened"] == ["Id", "Day", "at", "s", "extra"], (
        "as the table has them; the entry has partition columns last"
    )
    assert second["renamed"] == [1, False]
    assert second["moved"] == 9
    assert second["dropped"] == [None, True], "the entry of an external table goes, its files stay"
    assert found["first"]["dropped managed"] == [False, False]


def test_two_sessions_that_widen_a_table_at_once_lose_no_column_and_no_row(found, entries):
    columns, count = found["first"]["after the race"]
    own = [f"{which}_{number}" for which in ("first", "second") for number in range(3)]
    assert columns == sorted(["id", "note", *own])
    assert count == 6 + 6 + 1
    entry = entries("external")
    assert sorted(column.name for column in entry.sd.cols) == sorted(["id", "note", *own])


def test_entries_have_provider_path_and_real_columns(entries):
    entry = entries("external")
    assert (entry.tableType, entry.parameters["EXTERNAL"]) == ("EXTERNAL_TABLE", "TRUE")
    assert entry.parameters["spark.sql.sources.provider"] == "delta"
    assert entry.sd.serdeInfo.parameters["path"].endswith("/external")
    assert entry.partitionKeys == []
    assert entry.sd.cols[0].type == "bigint"
    replaced = entries("selected")
    assert [(column.name, column.type) for column in replaced.sd.cols] == [("fresh", "string")]
    assert replaced.tableType == "MANAGED_TABLE"
    assert entries("there").sd.serdeInfo.parameters["path"].endswith("/there2")
