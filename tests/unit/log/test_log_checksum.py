"""Version checksums: exact, carried forward, never trusted over the log."""

from __future__ import annotations

import json

import pytest
from log_tables import V2_PROTOCOL, add, commit, create, info, log_of, new_store, remove

from pydelta.log.side_files import decode_checksum, read_checksum
from pydelta.log.snapshot import FileSums
from pydelta.protocol.actions import DomainMetadata, SetTransaction
from pydelta.protocol.paths import LOG_DIR, checksum_file
from pydelta.testing import CountingStore


def path(version: int) -> str:
    return f"{LOG_DIR}/{checksum_file(version)}"


def test_a_checksum_says_what_the_version_holds():
    store = new_store()
    create(store, add(1), protocol=V2_PROTOCOL, enableInCommitTimestamps="true")
    domains = [DomainMetadata(domain="d", configuration="c", removed=False)]
    commit(store, 1, [info(txnId="x1", inCommitTimestamp=77), SetTransaction(app_id="a", version=1), *domains, add(2)])
    log = log_of(store)
    assert log.write_checksum(log.snapshot()) is True
    body = json.loads(store.read(path(1)))
    assert {name: body[name] for name in ("numFiles", "tableSizeBytes", "numMetadata", "numProtocol")} == {
        "numFiles": 2, "tableSizeBytes": 203, "numMetadata": 1, "numProtocol": 1,
    }  # fmt: skip
    assert (body["txnId"], body["inCommitTimestampOpt"]) == ("x1", 77)
    assert body["setTransactions"] == [{"appId": "a", "version": 1}]
    assert body["domainMetadata"] == [{"domain": "d", "configuration": "c", "removed": False}]
    assert body["metadata"]["id"] == "t1"
    assert body["protocol"]["readerFeatures"] == ["v2Checkpoint"]


def test_a_checksum_is_never_written_over():
    store = new_store()
    create(store, add(1))
    store.put(path(0), b"of another writer")
    log = log_of(store)
    assert log.write_checksum(log.snapshot()) is False
    assert store.read(path(0)) == b"of another writer"


def test_the_checksum_before_is_carried_forward_so_that_no_file_list_is_read():
    inner = new_store()
    create(inner, add(1), add(2))
    log = log_of(inner)
    log.write_checksum(log.snapshot())
    log.checkpoint()
    store = CountingStore(inner)
    log = log_of(store)
    before = log.update()
    actions = [info(), add(3), remove(add(1))]
    commit(store, 1, actions)
    after = log.apply_commit(before, 1, actions)
    assert log.write_checksum(after) is True
    assert not after.files.is_materialized
    assert read_checksum(store, 1).sums == FileSums(num_files=2, size_bytes=205)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b"garbage", b'{"numFiles":1}', b'{"numFiles":-1,"tableSizeBytes":1,"numMetadata":1,"numProtocol":1}'],
)
def test_a_damaged_checksum_is_no_checksum_and_the_next_one_is_right(damage: bytes):
    assert decode_checksum(damage) is None
    store = new_store()
    create(store, add(1))
    store.put(path(0), damage)
    log = log_of(store)
    before = log.update()
    commit(store, 1, [info(), add(2)])
    log.write_checksum(log.apply_commit(before, 1, [info(), add(2)]))
    assert read_checksum(store, 1).sums == FileSums(num_files=2, size_bytes=203)


def test_a_checksum_of_another_table_is_not_carried_forward():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    log.write_checksum(log.snapshot())
    body = json.loads(store.read(path(0)))
    body["numFiles"] = 50
    body["metadata"]["id"] = "other"
    store.put(path(0), json.dumps(body).encode())
    fresh = log_of(store)
    before = fresh.update()
    commit(store, 1, [info(), add(2)])
    fresh.write_checksum(fresh.apply_commit(before, 1, [info(), add(2)]))
    assert read_checksum(store, 1).sums.num_files == 2


def test_a_lying_checksum_changes_nothing_that_is_read():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    log.write_checksum(log.snapshot())
    store.put(path(0), store.read(path(0)).replace(b'"numFiles":1', b'"numFiles":9'))
    assert log_of(store).snapshot().num_files == 1


def test_an_add_that_refreshes_a_live_file_is_not_counted_twice():
    store = new_store()
    create(store, add(1))
    log = log_of(store)
    log.write_checksum(log.update())
    actions = [info("COMPUTE STATS"), add(1, data_change=False)]
    commit(store, 1, actions)
    log.write_checksum(log.update())
    assert read_checksum(store, 1).sums.num_files == 1
