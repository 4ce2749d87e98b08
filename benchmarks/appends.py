"""Measure whether a commit takes the same time after 1,000 small appends, next to delta-rs on its own table."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import deltalake
import pyarrow as pa

from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action, AddFile, Metadata, Protocol
from pydelta.txn import Operation, start_transaction

APPENDS = 1_000
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def run() -> dict[str, Any]:
    """Milliseconds a commit, median of the first and of the last hundred; checkpoints are part of it."""
    with tempfile.TemporaryDirectory() as folder:
        ours = _ours(f"{folder}/ours")
        theirs = _delta_rs(f"{folder}/theirs")
    return {"pydelta, commit alone": _ends(ours), "delta-rs, commit and a Parquet file of one row": _ends(theirs)}


def _ends(seconds: list[float]) -> dict[str, float]:
    """The median is a plain commit; the mean has the checkpoint of every tenth commit in it."""
    first, last = seconds[:100], seconds[-100:]
    return {
        "first hundred, median ms": round(statistics.median(first) * 1000, 1),
        "last hundred, median ms": round(statistics.median(last) * 1000, 1),
        "first hundred, mean ms": round(statistics.mean(first) * 1000, 1),
        "last hundred, mean ms": round(statistics.mean(last) * 1000, 1),
    }


def _ours(path: str) -> list[float]:
    log = DeltaLog.for_table(path)
    create: list[Action] = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="00000000-0000-0000-0000-000000000001", schema_string=SCHEMA, created_time=0),
    ]
    start_transaction(log).commit(create, Operation(name="CREATE TABLE"))
    seconds = []
    for number in range(APPENDS):
        add = AddFile(
            path=f"part-{number:05d}.parquet",
            partition_values={},
            size=1000,
            modification_time=number,
            data_change=True,
            stats=f'{{"numRecords":1,"minValues":{{"id":{number}}},"maxValues":{{"id":{number}}},"nullCount":{{"id":0}}}}',
        )
        started = time.perf_counter()
        start_transaction(log).commit([add], Operation(name="WRITE", parameters={"mode": "Append"}))
        seconds.append(time.perf_counter() - started)
    return seconds


def _delta_rs(path: str) -> list[float]:
    seconds = []
    table = pa.table({"id": pa.array([1], pa.int64())})
    deltalake.write_deltalake(path, table)
    opened = deltalake.DeltaTable(path)
    for _ in range(APPENDS):
        started = time.perf_counter()
        deltalake.write_deltalake(opened, table, mode="append")
        seconds.append(time.perf_counter() - started)
    return seconds
