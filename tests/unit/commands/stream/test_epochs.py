"""Batches of a stream in the log: each once, and said to be what it is."""

from __future__ import annotations

import uuid

import pytest

from pydelta.commands.stream.sink import Epoch, EpochTransaction, OutputMode, sink_options
from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.storage import MemoryStore
from pydelta.testing.tables import TableBuilder
from pydelta.txn import Operation


@pytest.fixture
def log():
    store = MemoryStore(f"memory://{uuid.uuid4().hex}/t")
    TableBuilder(store, columns={"x": "long"}).commit()
    return DeltaLog.for_table(store.root, store=store)


def commit(log, number):
    txn = EpochTransaction(log, Epoch(query_id="q", epoch_id=number, mode=OutputMode.APPEND))
    if not txn.commit_once("q", number):
        return None
    add = AddFile(path=f"{number}.parquet", partition_values={}, size=7, modification_time=1, data_change=True)
    metrics = {"numFiles": 1, "numOutputRows": 3, "numOutputBytes": 7}
    return txn.commit([add], Operation(name="WRITE", parameters={"mode": "Append"}, metrics=metrics)).version


def test_an_epoch_is_committed_once_and_named(log):
    assert [commit(log, 0), commit(log, 1), commit(log, 1), commit(log, 0)] == [1, 2, None, None]
    info = log.update().commit_info
    assert info.operation == "STREAMING UPDATE"
    assert info.get("operationParameters") == {"outputMode": "Append", "queryId": "q", "epochId": "1"}
    assert info.get("operationMetrics") == {
        "numRemovedFiles": "0",
        "numAddedFiles": "1",
        "numOutputRows": "3",
        "numOutputBytes": "7",
    }
    assert info.get("isBlindAppend") is True
    assert log.update().set_transactions["q"].version == 1


def test_output_modes():
    assert [OutputMode.parse(text) for text in ("Append", "COMPLETE")] == [OutputMode.APPEND, OutputMode.COMPLETE]
    with pytest.raises(UnsupportedFeatureError, match="not update") as caught:
        OutputMode.parse("Update")
    assert "MERGE" in caught.value.hint
    with pytest.raises(InvalidArgumentError, match="upsert"):
        OutputMode.parse("upsert")


def test_options_of_a_batch_are_the_writers_without_those_that_number_it():
    given = {"mergeSchema": "true", "txnAppId": "a", "partitionOverwriteMode": "dynamic"}
    assert sink_options(given, mode=OutputMode.APPEND) == {"mergeSchema": "true"}
    assert sink_options(given, mode=OutputMode.COMPLETE) == {"mergeSchema": "true", "partitionOverwriteMode": "static"}
    with pytest.raises(InvalidArgumentError, match="txnVersion"):
        sink_options({"TXNVERSION": "1"}, mode=OutputMode.APPEND)
