"""The whole life of a table on each server, each part of it with the key that the stack gives to who does it."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import polars as pl
import pyarrow as pa
import pytest
from store_servers import SERVERS

import pydelta
from jobs import inventory, load_inventory, vacuum
from pydelta.errors import DeltaConcurrentModificationException, StoragePermissionError
from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.storage import discarding, open_store
from pydelta.testing.tables import TableBuilder
from pydelta.tools.doctor.doctor import check_store
from pydelta.tools.maintenance.journal import Row, append_rows
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

pytestmark = pytest.mark.parametrize("server", SERVERS, indirect=True)
NOW = ("--retention-hours", "0", "--no-retention-check")
WRITERS = 8


@pytest.fixture
def uri(database):
    return f"s3a://warehouse/{database}/orders"


@pytest.fixture
def opened(server, uri):
    """Opens the table as a user."""

    def as_user(user):
        DeltaLog.clear_cache()
        return pydelta.open(uri, options=server.options(user))

    return as_user


@pytest.fixture
def table(server, uri, opened):
    """As Spark's key makes it: six ids in two partitions, and a partition that is gone."""
    builder = TableBuilder(
        open_store(uri, server.options("spark")), columns={"id": "long", "p": "string"}, partition_columns=("p",)
    )
    builder.commit()
    made = opened("spark")
    made.append(rows(*range(6)))
    made.append(pa.table({"id": [100], "p": ["gone"]}))
    return made


def rows(*ids):
    return pa.table({"id": list(ids), "p": [f"p{number % 2}" for number in ids]})


def ids(table):
    return sorted(pl.from_arrow(table.scan(columns=["id"]))["id"].to_list())


def log_as(server, uri, user):
    DeltaLog.clear_cache()
    return DeltaLog.for_table(uri, options=server.options(user))


def held(server, uri):
    """Data files that the store has."""
    found = [info.path for info in open_store(uri, server.options(None)).list_all()]
    return {path for path in found if path.endswith(".parquet") and not path.startswith("_")}


def live(server, uri):
    snapshot = log_as(server, uri, None).update()
    return {add.path for add in snapshot.files.adds(snapshot.files.core)}


def test_what_writers_and_readers_do_needs_no_more_than_their_rights(server, uri, table, opened):
    together = Barrier(WRITERS)

    def append(number):
        own = pydelta.open(uri, options=server.options("spark"))
        together.wait()
        return own.append(rows(10 + number)).version

    with ThreadPoolExecutor(WRITERS) as pool:
        versions = list(pool.map(append, range(WRITERS)))
    assert sorted(versions) == list(range(3, 3 + WRITERS)), "of each race for a version one won, and all got there"
    writer = opened("spark")
    assert writer.delete("id < 3").num_deleted_rows == 3
    wanted = sorted([3, 4, 5, 100, *range(10, 10 + WRITERS)])
    for user in ("spark", "notebook", "trino", "presto", "sync", "maintain", "vacuum", "metastore", "page"):
        assert ids(opened(user)) == wanted, user

    log = log_as(server, uri, "spark")
    assert log.checkpoint().version == log.update().version
    cleaned = log.cleanup(int(time.time() * 1000) + 10 * 86_400_000, retention_ms=0)
    assert cleaned.deleted > 0 and cleaned.failed == ()
    assert ids(opened("trino")) == wanted

    view = Watch(
        Watched(sources=Sources(tables=[uri], options=server.options("page"), seconds=600), fresh=0, patience=600)
    ).overview()
    assert [found.version for found in view.tables] == [log.update().version]
    assert not [trouble for found in view.tables for trouble in found.troubles if "AccessDenied" in trouble.what]


def test_the_key_of_the_sync_publishes_and_takes_back_manifests(server, uri, table, opened):
    first = publish(log_as(server, uri, "sync"))
    assert len(first.written) == 3
    opened("spark").delete("p = 'gone'")
    second = publish(log_as(server, uri, "maintain"))
    assert [path for path in second.removed if "p=gone" in path]
    manifests = [info.path for info in open_store(uri, server.options("presto")).list_all() if "manifest" in info.path]
    assert len([path for path in manifests if path.startswith("_symlink_format_manifest/")]) == 2
    opened("spark").append(rows(50))
    assert publish(log_as(server, uri, "spark")).version == 4, "a writer that syncs its own table"
    opened("spark").append(rows(51))
    for user in ("trino", "inventory", "page", "metastore"):
        with pytest.raises(StoragePermissionError):
            publish(log_as(server, uri, user))
    assert publish(log_as(server, uri, "sync")).version == 5


def test_what_a_refused_transaction_staged_is_left_to_vacuum_and_said_once(server, uri, table, opened, caplog):
    before = ids(opened("spark"))
    discarding._TOLD.clear()
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(DeltaConcurrentModificationException):
            patched.setattr("pydelta.txn.commit._publish", _lost)
            opened("spark").append(rows(7))
    assert ids(opened("spark")) == before
    told = [record.getMessage() for record in caplog.records if "stay until VACUUM deletes them" in record.getMessage()]
    assert len(told) == 1 and "s3a://warehouse" in told[0]
    orphans = held(server, uri) - live(server, uri)
    assert len(orphans) >= 2

    (found,) = vacuum.run(server.options("vacuum"), [uri, *NOW])
    assert found.get("error") is None and found["deleted"] == len(orphans)
    assert held(server, uri) == live(server, uri)
    assert ids(opened("trino")) == before


def _lost(*_):
    raise DeltaConcurrentModificationException("Somebody else changed what this transaction read.")


def test_vacuum_by_an_inventory_needs_two_keys_and_no_other_will_do(server, uri, table, opened, database):
    writer = opened("spark")
    writer.delete("id < 4")
    before = ids(writer)
    open_store(uri, server.options("spark")).put("p=p0/stray.parquet", b"123")
    orphans = held(server, uri) - live(server, uri)
    deliveries = f"s3a://inventory/{database}"
    report = f"s3a://warehouse/inventory/{database}"
    for user in ("spark", "vacuum", "sync"):
        (refused,) = inventory.run(
            server.options(user), ["--source", f"s3a://warehouse/{database}", "--destination", deliveries]
        )
        assert refused["error"] == "DELTA_STORAGE_PERMISSION_DENIED"
    own = server.options("inventory")
    (listed,) = inventory.run(own, ["--source", f"s3a://warehouse/{database}", "--destination", deliveries])
    assert "error" not in listed and listed["objects"] > 0
    loaded = load_inventory.run(own, ["--source", deliveries, "--table", "inventory.report", "--location", report])
    assert (loaded["problems"], loaded["version"]) == ([], 0)

    for user in ("spark", "inventory", "maintain", "sync"):
        (refused,) = vacuum.run(server.options(user), [uri, "--inventory", report, *NOW])
        assert refused["error"] == "DELTA_STORAGE_PERMISSION_DENIED", user
    assert ids(opened("trino")) == before
    assert orphans <= held(server, uri)
    (found,) = vacuum.run(server.options("vacuum"), [uri, "--inventory", report, *NOW])
    assert "error" not in found and found["deleted"] == len(orphans)
    assert held(server, uri) == live(server, uri)
    assert ids(opened("trino")) == before


def test_the_book_of_maintenance_is_kept_with_its_own_key(server, database):
    place = f"s3a://warehouse/ops/{database}"
    row = Row(at_ms=1, table="a.b", location="s3a://warehouse/a/b", action="compact", reason="test", outcome="done")
    for version in range(12):
        assert append_rows(log_as(server, place, "maintain"), [row], now_ms=1_700_000_000_000) == version
    log = log_as(server, place, "maintain")
    log.checkpoint()
    assert log.cleanup(int(time.time() * 1000) + 10 * 86_400_000, retention_ms=0).failed == ()
    with pytest.raises(StoragePermissionError):
        append_rows(log_as(server, place, "sync"), [row], now_ms=1_700_000_000_000)


@pytest.mark.parametrize("user", ["spark", "notebook"])
def test_doctor_finds_nothing_wrong_with_the_store_for_who_writes(server, store, database, user):
    for place in ("s3a://warehouse", f"s3a://warehouse/{database}", f"s3a://work/{database}"):
        wrong = [check for check in check_store(place, server.options(user)) if check.state == "failed"]
        assert wrong == [], place
    assert [info.path for info in store(None, "_pydelta").list_all()] == []
    assert [info.path for info in store(None, database).list_all()] == []
