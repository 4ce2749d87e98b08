"""dbt with its adapter for Spark against ``pydelta serve``: seeds, models, snapshots, tests and docs, run twice."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pydelta.log import DeltaLog

pytestmark = pytest.mark.in_turn

PROJECT = Path(__file__).resolve().parent / "dbt_project"
BUILD = Path(__file__).resolve().parents[2] / "build"
SCHEMA = "dbt_lake"
LATER = """\
id,customer,amount,updated_at
1,ada,11.00,2024-01-05 08:00:00
2,grace,20.25,2024-01-01 09:00:00
4,edsger,40.75,2024-01-03 11:00:00
5,grace,7.00,2024-01-06 12:00:00
"""
"""Order 1 costs more, order 3 is gone, order 5 is new."""


@pytest.fixture(scope="session")
def dbt_program():
    """The command of an environment with the project's constraints, made once for each state of them."""
    constraints = PROJECT / "constraints.txt"
    key = hashlib.sha256(constraints.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = BUILD / f"dbt-{key}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "dbt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [folder / "bin" / "pip", "--disable-pip-version-check", "-q", "install"]
            subprocess.run([*pip, "--no-deps", "-r", constraints], check=True)
            (folder / "ready").touch()
    return folder / "bin" / "dbt"


class Dbt:
    """dbt in a copy of the project."""

    def __init__(self, program, folder, server):
        self.folder = folder / "project"
        shutil.copytree(PROJECT, self.folder)
        self.server = server
        self.program = program
        target = {
            "type": "spark",
            "method": "thrift",
            "host": "127.0.0.1",
            "port": server.thrift,
            "user": "dbt",
            "schema": SCHEMA,
            "threads": 3,
            "connect_retries": 0,
        }
        profile = {"lake": {"target": "test", "outputs": {"test": target}}}
        (self.folder / "profiles.yml").write_text(json.dumps(profile))

    def __call__(self, *arguments, fails=False):
        """Run a command; the results of its nodes by name."""
        results = self.folder / "target" / "run_results.json"
        results.unlink(missing_ok=True)
        done = subprocess.run(
            [self.program, *arguments, "--profiles-dir", ".", "--no-use-colors"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "DO_NOT_TRACK": "1"},
        )
        assert done.returncode == (1 if fails else 0), done.stdout[-4000:] + done.stderr[-1000:]
        found = json.loads(results.read_text())["results"] if results.exists() else []
        return {item["unique_id"].split(".")[2]: item["status"] for item in found}

    def version(self, name, schema=SCHEMA):
        return DeltaLog.for_table(str(self.server.warehouse / f"{schema}.db" / name)).update().version


@pytest.fixture(scope="module")
def dbt(dbt_program, live, tmp_path_factory):
    return Dbt(dbt_program, tmp_path_factory.mktemp("dbt"), live)


@pytest.fixture(scope="module")
def rows(live):
    client = live.client("reader")
    yield client.run
    client.close()


@pytest.fixture(scope="module")
def first(dbt):
    """The project has been run once."""
    return {**dbt("seed"), **dbt("run"), **dbt("snapshot")}


@pytest.fixture(scope="module")
def second(dbt, first):
    """Run once more, with other rows in the seed."""
    (dbt.folder / "seeds" / "raw_orders.csv").write_text(LATER)
    return {**dbt("seed"), **dbt("run"), **dbt("snapshot")}


def test_seeds_tables_views_and_snapshots_are_made(dbt, first, rows):
    models = {"raw_orders", "orders", "totals", "latest", "by_day", "checked"}
    assert first == dict.fromkeys(models | {"by_timestamp", "by_check"}, "success")
    kinds = {row[1]: row[3] for row in rows(f"SHOW TABLE EXTENDED IN {SCHEMA} LIKE '*'")}
    assert set(kinds) == models
    assert {name for name, text in kinds.items() if "Provider: delta" in text} == models - {"totals"}
    assert "Type: VIEW" in kinds["totals"]
    assert rows(f"SELECT customer, orders, CAST(total AS STRING) FROM {SCHEMA}.totals ORDER BY customer") == [
        ("ada", 2, "15.50"),
        ("edsger", 1, "40.75"),
        ("grace", 1, "20.25"),
    ]
    assert rows(f"DESCRIBE HISTORY {SCHEMA}.orders LIMIT 1")[0][3] == "dbt"


def test_docs_of_the_project_are_kept_with_the_table(first, rows):
    described = rows(f"DESCRIBE EXTENDED {SCHEMA}.orders")
    assert ("id", "bigint", "The order's number") in described
    assert ("Comment", "What was ordered, one row per order", "") in described


def test_a_contract_becomes_constraints_of_the_table(live, first, rows):
    from live_server import Failed

    with pytest.raises(Failed, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        rows(f"INSERT INTO {SCHEMA}.checked VALUES (9, 'nobody', -1.00)")
    with pytest.raises(Failed, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        rows(f"INSERT INTO {SCHEMA}.checked VALUES (NULL, 'nobody', 1.00)")


def test_the_second_run_merges_what_is_new_and_keeps_the_rest(dbt, second, rows):
    assert set(second.values()) == {"success"}
    assert rows(f"SELECT id, CAST(amount AS STRING) FROM {SCHEMA}.latest ORDER BY id") == [
        (1, "11.00"),
        (2, "20.25"),
        (3, "5.00"),
        (4, "40.75"),
        (5, "7.00"),
    ]
    history = rows(f"DESCRIBE HISTORY {SCHEMA}.latest")
    assert history[0][4] == "MERGE"
    assert json.loads(history[0][12])["numTargetRowsInserted"] == "1"
    assert json.loads(history[0][12])["numTargetRowsUpdated"] == "1"
    assert dbt.version("latest") == 1
    assert rows(f"SELECT id FROM {SCHEMA}.orders ORDER BY id") == [(1,), (2,), (4,), (5,)]


def test_insert_overwrite_replaces_only_the_partitions_that_it_writes(second, rows):
    assert rows(f"SELECT id, CAST(day AS STRING) FROM {SCHEMA}.by_day ORDER BY id, day") == [
        (1, "2024-01-01"),
        (1, "2024-01-05"),
        (2, "2024-01-01"),
        (3, "2024-01-02"),
        (4, "2024-01-03"),
        (5, "2024-01-06"),
    ]


def test_snapshots_by_time_and_by_comparison_keep_each_state_of_a_row(second, rows):
    def states(name):
        columns = "id, CAST(amount AS STRING), dbt_valid_to IS NULL"
        return rows(f"SELECT {columns} FROM {SCHEMA}_kept.{name} ORDER BY id, dbt_valid_from, 3")

    kept = [(1, "10.50", False), (1, "11.00", True), (2, "20.25", True)]
    assert states("by_timestamp") == [*kept, (3, "5.00", True), (4, "40.75", True), (5, "7.00", True)]
    # this one closes what is gone, too
    assert states("by_check") == [*kept, (3, "5.00", False), (4, "40.75", True), (5, "7.00", True)]


def test_a_new_column_of_an_incremental_model_is_added(dbt, second, rows):
    (dbt.folder / "seeds" / "raw_orders.csv").write_text(LATER + "6,ada,1.00,2024-01-07 12:00:00\n")
    dbt("seed")
    assert dbt("run", "--select", "latest", "--vars", "{wider: true}") == {"latest": "success"}
    assert rows(f"SELECT id, note FROM {SCHEMA}.latest WHERE id > 4 ORDER BY id") == [(5, None), (6, "wider")]


def test_tests_pass_and_one_that_must_fail_fails(dbt, second):
    (dbt.folder / "seeds" / "raw_orders.csv").write_text(LATER)
    dbt("build", "--select", "raw_orders", "orders", "latest", "--full-refresh")
    passed = dbt("test")
    assert len(passed) == 6
    assert set(passed.values()) == {"pass"}
    failed = dbt("test", "--vars", "{dear: 20}", fails=True)
    assert {name for name, status in failed.items() if status == "fail"} == {"no_order_is_dear"}


def test_docs_have_the_columns_and_the_kind_of_each_table(dbt, second):
    dbt("docs", "generate")
    catalog = json.loads((dbt.folder / "target" / "catalog.json").read_text())
    assert catalog["errors"] is None
    nodes = {name.split(".")[2]: node for name, node in catalog["nodes"].items()}
    assert {"raw_orders", "orders", "totals", "latest", "by_day", "checked", "by_check"} <= set(nodes)
    columns = {name: item["type"] for name, item in nodes["orders"]["columns"].items()}
    assert columns["id"] == "long"  # as SHOW TABLE EXTENDED draws the schema, which dbt reads
    assert set(columns) == {"id", "customer", "amount", "updated_at", "day"}
    assert nodes["totals"]["metadata"]["type"] == "view"
    assert nodes["orders"]["metadata"]["type"] == "table"
