"""The commands of the stack's schedule over each server and a metastore, each with the key that it gets there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rights_asked import USERS
from store_servers import SERVERS

from catalog_sync.names import TableName
from catalog_sync.native import sync_native
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from jobs.schedule import parse_schedule
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.testing.garbage import Yard
from pydelta.tools.maintenance.journal import read_rows

ROOT = Path(__file__).resolve().parents[2]
DAY = 24

pytestmark = [pytest.mark.parametrize("server", SERVERS, indirect=True), pytest.mark.slow, pytest.mark.ci]


@pytest.fixture
def schedule(server, metastore, tmp_path):
    """Runs the commands of a line of jobs/schedule.conf, which all have to end well; what the last one prints."""
    env = os.environ | {
        "STORE_ROOT": "s3a://",
        "PYDELTA_METASTORE": metastore,
        "PYDELTA_FS_S3A_ENDPOINT": server.endpoint,
        "PYDELTA_FS_S3A_ENDPOINT_REGION": "us-east-1",
        "PYDELTA_FS_S3A_PATH_STYLE_ACCESS": "true",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{ROOT / 'images/spark/bin'}:{os.environ['PATH']}",
        "MAINTAIN_VACUUM": "lite",
    }
    for user in USERS:
        env |= {f"STORE_{user.upper()}_KEY": user, f"STORE_{user.upper()}_SECRET": server.secrets[user]}
    places = {"python": sys.executable, "/opt/jobs/": f"{ROOT}/jobs/", "/opt/status/": f"{tmp_path}/"}
    entries = parse_schedule((ROOT / "jobs" / "schedule.conf").read_text(), env)

    def here(word):
        if word == "catalog_sync":
            return [sys.executable, "-m", "catalog_sync.cli"]
        for there, path in places.items():
            word = path if word == there else word.replace(there, path) if there.startswith("/") else word
        return [word.replace("vacuum python ", f"vacuum {sys.executable} ")]

    def run(name, *more, without=()):
        (entry,) = [entry for entry in entries if any(name in word for word in entry.commands[0][:4])]
        said = ""
        for command in entry.commands:
            words = [part for word in command for part in here(word)]
            for option in without:
                del words[words.index(option) : words.index(option) + 2]
            done = subprocess.run([*words, *more], env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            said = done.stdout
        return said

    return run


@pytest.fixture
def lake(server, metastore):
    """The databases of a stack, and the table lake.orders, of which a file was removed long ago."""
    uri = "s3a://warehouse/lake/orders"
    store = open_store(uri, server.options("spark"))
    retention = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    yard = Yard(store, now_ms=time.time_ns() // 1_000_000, properties=retention)
    old = yard.add("old", age=40 * DAY)
    yard.commit(yard.add("live", age=40 * DAY), old, age=40 * DAY)
    yard.commit(yard.remove(old, age=30 * DAY), age=30 * DAY)
    with Metastore(MetastoreAddress.parse(metastore)) as client:
        for name in ("lake", "lake_symlink", "inventory"):
            client.create_database(name, f"s3a://warehouse/{name}")
        log = DeltaLog.for_table(uri, options=server.options("spark"))
        sync_native(client, TableName.parse("lake.orders"), log.update())
        yield client


def files(server):
    found = [info.path for info in open_store("s3a://warehouse/lake/orders", server.options(None)).list_all()]
    return {path for path in found if not path.startswith("_")}


def test_each_command_of_the_schedule_does_its_work_with_its_key(server, lake, schedule):
    schedule("catalog_sync")
    assert lake.table("lake_symlink", "orders") is not None
    orders = open_store("s3a://warehouse/lake/orders", server.options("presto"))
    assert orders.read("_symlink_format_manifest/manifest").split() == [b"s3://warehouse/lake/orders/live"]

    open_store("s3a://warehouse/lake/orders", server.options("spark")).put("stray", b"123")
    loaded = json.loads(schedule("inventory.py").splitlines()[-1])
    assert loaded["problems"] == []
    assert lake.table("inventory", "datalake_report") is not None

    assert files(server) == {"live", "old", "stray"}
    found = json.loads(schedule("maintain.py", without=("--every", "--listen", "--refusals")).splitlines()[-1])
    assert found["exit_code"] == 0, found
    assert files(server) == {"live", "stray"}, found
    assert lake.table("ops", "maintenance") is not None
    (row,) = read_rows(
        DeltaLog.for_table("s3a://warehouse/ops/maintenance", options=server.options("page")), since_ms=0
    )
    assert (row.action, row.outcome, row.files_removed) == ("vacuum lite", "done", 1)

    schedule("vacuum.py", "--retention-hours", "0", "--no-retention-check")
    assert files(server) == {"live"}
