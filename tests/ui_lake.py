"""A small lake for tests of the page: tables in every state that it tells apart, and a query's checkpoint."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa

from pydelta.log import DeltaLog
from pydelta.manifests import publish
from pydelta.protocol.actions import AddFile, CommitInfo, DeletionVectorDescriptor, Protocol, SetTransaction
from pydelta.storage import LocalStore
from pydelta.testing import TableBuilder

__all__ = ["QUERY", "SCRIPT", "build_lake", "commit_info", "give_times", "write_checkpoint_of_query"]

SCRIPT = "<script>alert('x')</script>"
QUERY = "6f1a9d02-5c1e-4f53-9f5b-2a8f3f0f7f11"
_HOUR = 3600


def commit_info(operation: str, **fields: object) -> CommitInfo:
    """What a commit says of itself, as an engine would write it."""
    return CommitInfo({"timestamp": time.time_ns() // 1_000_000, "operation": operation, **fields})


def give_times(table: Path, every: float) -> None:
    """Let the commits of a table lie some seconds apart, the newest a minute ago."""
    commits = sorted((table / "_delta_log").glob("*[0-9].json"))
    for age, path in enumerate(reversed(commits)):
        moment = time.time() - 60 - age * every
        os.utime(path, (moment, moment))


def _small_file(number: int, day: str) -> AddFile:
    return AddFile(
        path=f"day={day}/part-{number:05d}.parquet", partition_values={"day": day}, size=40_000 + number * 100,
        modification_time=1_700_000_000_000, data_change=True, stats=json.dumps({"numRecords": 500}),
    )  # fmt: skip


def _orders(folder: Path) -> str:
    """Partitioned; its manifests are two versions behind; the last commit was made behind another one."""
    store = LocalStore(f"file://{folder}")
    vectors = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("deletionVectors",),
        writer_features=("deletionVectors", "appendOnly", "invariants"),
    )  # fmt: skip
    table = TableBuilder(store, columns={"id": "long", "customer": "string", "amount": "decimal(9,2)", "day": "string"},
                         partition_columns=["day"], properties={"delta.enableDeletionVectors": "true"},
                         protocol=vectors)  # fmt: skip
    table.commit(commit_info("CREATE TABLE", userName="ada", operationParameters={"partitionBy": '["day"]'}))
    files = []
    for day in range(1, 7):
        rows = pa.table({"id": list(range(day * 1000)), "customer": ["c"] * day * 1000})
        files.append(table.file(rows, {"day": f"2024-01-0{day}"}))
        metrics = {"numFiles": "1", "numOutputRows": str(day * 1000), "numOutputBytes": str(files[-1].size)}
        table.commit(
            commit_info("WRITE", userName="ada", engineInfo="pydelta/0.1.0", readVersion=table.version,
                        isBlindAppend=True, operationParameters={"mode": "Append", "partitionBy": '["day"]'},
                        operationMetrics={**metrics, "executionTimeMs": "1840"}),
            files[-1],
        )  # fmt: skip
    log = DeltaLog(store)
    publish(log)
    log.checkpoint()
    hidden = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", size_in_bytes=40,
        cardinality=6,
    )  # fmt: skip
    now = time.time_ns() // 1_000_000
    table.commit(
        commit_info("DELETE", userName=SCRIPT, readVersion=table.version,
                    operationParameters={"predicate": '["(customer = \'c17\')"]', "token": "abc123"},
                    operationMetrics={"numDeletedRows": "6", "numDeletionVectorsAdded": "1", "executionTimeMs": "412"}),
        files[0].remove(deletion_timestamp=now), files[0].replace(deletion_vector=hidden),
    )  # fmt: skip
    added = table.file(pa.table({"id": [1, 2, 3], "customer": ["x", "y", "z"]}), {"day": "2024-01-06"})
    table.commit(
        commit_info("MERGE", userName="grace", readVersion=table.version - 1, engineInfo="pydelta/0.1.0",
                    operationParameters={"matchedPredicates": "[]", "source": "s3a://AKIAABCDEFGHIJKLMNOP:pw@b/x"},
                    operationMetrics={"numTargetRowsInserted": "3", "numTargetRowsUpdated": "2",
                                      "numTargetRowsDeleted": "1", "numTargetFilesAdded": "1"}),
        added,
    )  # fmt: skip
    give_times(folder, 0.4 * _HOUR)
    return table.metadata.id


def _events(folder: Path) -> None:
    """Many small files written by a stream, no checkpoint for long."""
    table = TableBuilder(LocalStore(f"file://{folder}"), columns={"id": "long", "day": "string"},
                         partition_columns=["day"])  # fmt: skip
    table.commit(commit_info("CREATE TABLE", userName="ada"))
    for batch in range(60):
        table.commit(
            commit_info("STREAMING UPDATE", operationParameters={"outputMode": "Append", "queryId": QUERY,
                        "epochId": str(batch)}, operationMetrics={"numAddedFiles": "3", "numOutputRows": "1500"}),
            SetTransaction(app_id=QUERY, version=batch, last_updated=time.time_ns() // 1_000_000),
            *(_small_file(3 * batch + number, "2024-02-01") for number in range(3)),
        )  # fmt: skip
    give_times(folder, 30)


def _customers(folder: Path) -> None:
    """In order: checkpoint, OPTIMIZE, VACUUM, manifests."""
    store = LocalStore(f"file://{folder}")
    table = TableBuilder(store, columns={"id": "long", "name": "string", "city": "string"})
    first = table.file(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    second = table.file(pa.table({"id": [3], "name": ["c"]}))
    table.commit(commit_info("CREATE TABLE AS SELECT", userName="ada", operationMetrics={"numOutputRows": "2"}), first)
    table.commit(commit_info("WRITE", userName="ada", operationMetrics={"numOutputRows": "1"}), second)
    both = table.file(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    table.commit(
        commit_info("OPTIMIZE", operationMetrics={"numAddedFiles": "1", "numRemovedFiles": "2"}, readVersion=1),
        first.remove(deletion_timestamp=1, data_change=False), second.remove(deletion_timestamp=1, data_change=False),
        both.replace(data_change=False),
    )  # fmt: skip
    table.commit(commit_info("VACUUM START", operationMetrics={"numFilesToDelete": "2", "sizeOfDataToDelete": "1500"}))
    table.commit(commit_info("VACUUM END", operationMetrics={"numDeletedFiles": "2"}))
    log = DeltaLog(store)
    log.checkpoint()
    publish(log)
    give_times(folder, 7 * _HOUR)


def write_checkpoint_of_query(folder: Path, table_id: str, *, batch: int, version: int) -> None:
    """A query's checkpoint folder as Spark writes it: it has read the table up to a version, and that batch is done."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    offset = {"sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": version + 1, "index": -1,
              "isStartingVersion": False}  # fmt: skip
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000 - 90_000, "conf": {}}
    (folder / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(settings)}\n{json.dumps(offset)}")
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def build_lake(folder: Path) -> Path:
    """Write everything below a folder, and return the checkpoint of the query that copies ``lake.orders``."""
    orders = _orders(folder / "lake" / "orders")
    _events(folder / "lake" / "events")
    _customers(folder / "lake" / "customers")
    odd = TableBuilder(
        LocalStore((folder / "lake" / "odd <b>name & 'quotes'").as_uri()),
        columns={"a column <i>": "long"},
        properties={"owner": SCRIPT, "fs.s3a.secret.key": "do-not-show"},
    )
    odd.commit(odd.file(pa.table({"a column <i>": [1]})), operation="WRITE")
    broken = folder / "lake" / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020d}.json").write_text('{"add": {"path": "part-0')
    query = folder / "checkpoints" / "events"
    write_checkpoint_of_query(query, orders, batch=59, version=5)
    return query
