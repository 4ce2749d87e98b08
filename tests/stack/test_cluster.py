"""Jobs on the Spark cluster: what they write lies in the store as a Delta table; what they refuse leaves nothing."""

from __future__ import annotations

import json
import subprocess
import urllib.request

import pytest
from conftest import DATABASE, INGEST_ORDERS, ORDERS, ORDERS_FILE, ROOT, WORK

from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.log import DeltaLog
from pydelta.protocol.schema import parse_schema
from pydelta.testing import CountingStore
from pydelta.testing.commands import create_table

pytestmark = pytest.mark.before_submit


@pytest.fixture(scope="module")
def orders(store_at, submit):
    """The table ``orders``, written by two jobs from a file in the store."""
    lines = ["id,customer,amount,at,day", *(",".join(map(str, row)) for row in ORDERS)]
    folder, _, name = ORDERS_FILE.rpartition("/")
    store_at(folder).put(name, "\n".join(lines).encode())
    return submit(*INGEST_ORDERS, "--table", f"{ROOT}/orders", "--partition-by", "day", "--batch-id", "orders:1")


def test_a_job_writes_a_table(orders, store_at):
    assert orders.code == 0, orders.errors
    assert orders.result["rows"] == len(ORDERS)
    snapshot = DeltaLog.for_table(f"{ROOT}/orders", store=store_at(f"{ROOT}/orders")).snapshot()
    assert snapshot.version == 0
    assert snapshot.num_files == orders.result["files"]
    assert snapshot.partition_columns == ("day",)
    held = {info.path for info in store_at(f"{ROOT}/orders").list_all()}
    assert set(snapshot.files.core["path"]) <= held


def test_the_cluster_ran_it_and_the_client_did_not(orders):
    with urllib.request.urlopen("http://spark-master:8080/json/", timeout=10) as answer:
        state = json.load(answer)
    assert orders.code == 0
    finished = [application for application in state["completedapps"] if application["name"] == "ingest"]
    assert finished, "the master knows of no application named ingest"
    assert finished[-1]["cores"] > 0


def test_the_same_batch_again_changes_nothing(orders, submit, store_at):
    again = submit(*INGEST_ORDERS, "--table", f"{ROOT}/orders", "--batch-id", "orders:1")
    assert again.code == 0, again.errors
    assert again.result["skipped"] is True
    assert DeltaLog.for_table(f"{ROOT}/orders", store=store_at(f"{ROOT}/orders")).snapshot().version == 0


def test_an_input_that_is_not_there_is_one_clear_line_and_leaves_nothing(submit, store_at):
    done = submit("ingest", "--input", f"{WORK}/{DATABASE}/no.csv", "--format", "csv", "--table", f"{ROOT}/none")
    assert done.code == 1
    assert "no.csv" in done.result["message"]
    assert "Traceback" not in done.errors
    assert list(store_at(f"{ROOT}/none").list_all()) == []


def test_a_job_that_there_is_not_names_those_there_are(submit):
    done = submit("injest")
    assert done.code == 1
    assert "There is no job injest" in done.errors
    assert "ingest" in done.errors.replace("injest", "")


def test_a_snapshot_opens_with_three_requests(orders, store_at):
    """The hint of the last checkpoint, one listing, the commit."""
    store = CountingStore(store_at(f"{ROOT}/orders"))
    assert DeltaLog.for_table(f"{ROOT}/orders", store=store).snapshot().num_files == orders.result["files"]
    assert [verb for verb, _ in store.calls] == ["read", "list_from", "read"]


def test_a_writer_and_a_reader_date_a_commit_the_same(store_at):
    """MinIO tells the time of one object in seconds and lists it in milliseconds."""
    writer = DeltaLog.for_table(f"{ROOT}/dated", store=store_at(f"{ROOT}/dated"))
    schema = parse_schema('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')
    create_table(writer, TableDefinition(schema=schema), mode=CreateMode.CREATE, settings=writer.settings)
    reader = DeltaLog.for_table(f"{ROOT}/dated", store=store_at(f"{ROOT}/dated"))
    assert reader is not writer
    assert reader.snapshot().timestamp_ms == writer.snapshot().timestamp_ms


def test_the_command_lines_work_with_the_environment_of_the_client(orders):
    done = subprocess.run(
        ["pydelta", "detail", f"{ROOT}/orders", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["numFiles"] == orders.result["files"]
    listed = subprocess.run(["catalog_sync", "--help"], capture_output=True, text=True, check=False)
    assert (listed.returncode, "add-partition" in listed.stdout) == (0, True)
