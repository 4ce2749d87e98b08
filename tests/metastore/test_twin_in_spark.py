"""A session whose catalog is the metastore: the twin's name stands for the Delta table, and Hive never reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def found(metastore_server, tmp_path_factory):
    from catalog_sync import Metastore, MetastoreAddress

    folder = tmp_path_factory.mktemp("twin")
    with Metastore(MetastoreAddress.parse(metastore_server.uri)) as client:
        for name in ("twin_in_spark", "twin_in_spark_symlink"):
            client.create_database(name, f"file://{metastore_server.warehouse}/{name}.db")
    script = Path(__file__).with_name("twin_session.py")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    done = subprocess.run(
        [sys.executable, str(script), metastore_server.uri, "twin_in_spark", str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.ci
def test_every_way_to_read_gives_the_rows_of_the_table(found):
    assert len(found["expected"]) == 40
    for way, rows in found["read"].items():
        assert rows == found["expected"], way
    assert found["columns"][0] == found["columns"][1], "with the table's own spelling of names"
    assert found["older version"] == found["expected"]


def test_it_is_planned_from_the_log_as_a_parquet_scan(found):
    assert "FileScan parquet" in found["plan"]
    assert [text.split(",")[0] for text in found["index"]] == ["Delta[version=0"], "the files come from our index"
    assert "hive" not in found["plan"].lower()
    assert found["files"][0] == found["files"][1] > 0, "partitions are pruned"
    assert found["join"] == [40, False]
    assert "FileScan parquet" in found["explain"]


def test_what_is_written_to_it_is_committed_to_the_table(found):
    assert found["written"] == [3, 3]
    assert found["deleted"] == [2, 4]
    assert found["forName"] == found["expected after"]
    assert len(found["forName"]) == 42


def test_changes_in_sql_are_commits_of_the_table_and_leave_the_manifests_to_the_sync(found):
    first, second, third = [200, 0, "n0"], [201, 1, "n1"], [305, 1, "n5"]
    assert found["in SQL"] == {
        "insert": [first, second],
        "insert after with": [first, second, third],
        "update": [first, second, [305, 1, "x"]],
        "merge": [first, [305, 1, "x"]],
        "delete under an alias": [[305, 1, "x"]],
        "insert overwrite": [[400, 1, "y"]],
    }
    assert found["commits in SQL"] == [6, True]
    assert found["truncated"] == [0, True]


def test_statements_that_would_change_it_through_hive_are_refused(found):
    assert {name: text for name, text in found["refused"].items() if text is None} == {}
    for text in found["refused"].values():
        assert "the entry by which other engines read the Delta table" in text
    assert "catalog_sync drop twin_in_spark_symlink.orders" in found["refused"]["drop"], "and what to do instead"
    assert found["unchanged"] == [True, True]
    assert found["described"] == [True, 4]


def test_a_table_that_goes_or_gets_another_name_takes_its_twin_along(found):
    lake, twins = "twin_in_spark", "twin_in_spark_symlink"
    taken = found["taken along"]
    names = ("drop", "hooked", "managed", "moved", "place", "rename")
    assert [item[0] for item in taken["before"]] == [
        f"{place}.take_{name}" for place in (lake, twins) for name in names
    ]
    after = {item[0]: item[1:] for item in taken["after"]}
    assert set(after) == {
        f"{lake}.take_gone_there",
        f"{lake}.take_hook",
        f"{lake}.take_place",
        f"{lake}.take_renamed",
        f"{twins}.take_hook",
        f"{twins}.take_renamed",
    }, "a twin whose manifests are elsewhere now is made anew by the next sync"
    assert after[f"{twins}.take_renamed"] == ["1", ["p=a"]], "with its partitions"
    assert taken["property"] == f"{lake}.take_hook"
    assert {item[0] for item in taken["after a commit"]} == {f"{lake}.take_hook", f"{twins}.take_hook"}
    assert [item[2] for item in taken["after a commit"]] == [[], ["p=a", "p=b"]]
    assert taken["of other tables"] == [f"{twins}.take_earlier"], "the twin of another table is not ours to drop"


def test_its_iceberg_entry_goes_along_too_and_stands_for_the_table(found):
    taken = found["taken along"]
    names = ("drop", "hooked", "managed", "moved", "place", "rename")
    assert taken["iceberg before"] == [[f"take_{name}", True, 1] for name in names]
    assert taken["iceberg after"] == [["take_hook", True, 2], ["take_renamed", True, 1]], "the rename was a commit"
    assert found["as iceberg"] == [["1", "a"]], "Spark reads the Delta table under that name"
    assert "catalog_sync drop twin_in_spark_iceberg.take_drop" in found["dropped as iceberg"]


def test_msck_brings_no_partition_back(found):
    assert found["msck"] == [["day=0", "day=1", "day=2"]] * 2


def test_other_tables_of_the_metastore_stay_with_hive(found):
    assert found["a table of Hive's own"] == [["1"], ["2"]]


def test_without_this_engine_spark_gives_no_rows_of_it(found):
    """What docs/guides/trino.md warns of. A release of Spark that reads it right may change the guide."""
    direct = found["without pydelta, convertMetastoreParquet=true"]
    through_hive = found["without pydelta, convertMetastoreParquet=false"]
    assert "not a Parquet file" in direct or "FAILED_READ_FILE" in direct
    assert through_hive != found["expected after"]
