"""Copy a table as a stream, one file a batch, beside the reference engine; then go on, and watch the driver's memory.

``BENCH_BATCHES`` (500) and ``BENCH_MEMORY_BATCHES`` (2000) set how many. Both engines read one source, in turns of 50
batches. The time of a batch is Spark's own ``triggerExecution``. The reference engine replays its log in two tasks, as
suits two cores; its default is 50.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._peer import Peer, reference_engine
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action, AddFile, Metadata, Protocol
from pydelta.txn import Operation, start_transaction

BATCHES = int(os.environ.get("BENCH_BATCHES", "500"))
MEMORY_BATCHES = int(os.environ.get("BENCH_MEMORY_BATCHES", "2000"))
TURN = 50
ROWS = 1_000
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("amount", "double"), ("note", "string"))
        ],
    }
)
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
}
_TURN = """
import gc, os

def memory():
    gc.collect()
    spark._jvm.System.gc()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    pages = int(open("/proc/self/statm").read().split()[1])
    python = pages * os.sysconf("SC_PAGE_SIZE")
    return [(runtime.totalMemory() - runtime.freeMemory()) // 1_000_000, python // 1_000_000]

def turn(source, target, checkpoint, told):
    began = time.perf_counter()
    query = (
        spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source)
        .writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target)
    )
    query.awaitTermination()
    seconds = time.perf_counter() - began
    batches = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    with open(told, "w") as file:
        json.dump({"batches": batches, "memory": memory()}, file)
    return seconds
"""
_OURS = "import pydelta\npydelta.enable(spark)\n" + _TURN


def run() -> dict[str, Any]:
    """Milliseconds a batch of both, their ratio, and megabytes of the driver's heap and Python as batches go by."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = _Source(root / "source")
        result: dict[str, Any] = {"batches": BATCHES, "rows a batch": ROWS}
        contestants = {"pydelta": Peer(sys.executable, _OURS, CONF), "reference": reference_engine(_TURN, CONF)}
        taken: dict[str, list[float]] = {name: [] for name, peer in contestants.items() if peer is not None}
        memory: list[tuple[int, int, int]] = []
        for _ in range(BATCHES // TURN):
            source.grow(TURN)
            for name in taken:
                told = _told(contestants[name], root, name)
                taken[name] += told["batches"]
        for name, values in taken.items():
            result[name] = _summary(values)
        if "reference" in taken:
            medians = {name: statistics.median(values) for name, values in taken.items()}
            result["pydelta : reference, median"] = round(medians["pydelta"] / medians["reference"], 2)
            contestants["reference"].__exit__(None, None, None)  # type: ignore[union-attr]
        done = BATCHES
        while done < MEMORY_BATCHES:
            source.grow(TURN)
            told = _told(contestants["pydelta"], root, "pydelta")
            taken["pydelta"] += told["batches"]
            done += TURN
            memory.append((done, *told["memory"]))
        contestants["pydelta"].__exit__(None, None, None)  # type: ignore[union-attr]
        if memory:
            result["pydelta after all batches"] = _summary(taken["pydelta"])
            result["batches, heap MB, Python MB"] = memory[:: max(1, len(memory) // 8)] + memory[-1:]
        return result


def _told(peer: Peer | None, root: Path, name: str) -> dict[str, Any]:
    assert peer is not None
    told = root / f"{name}.json"
    peer(str(root / "source"), str(root / name), str(root / f"{name}-checkpoint"), str(told))
    found: dict[str, Any] = json.loads(told.read_text())
    assert len(found["batches"]) == TURN, f"{name} took {len(found['batches'])} batches for {TURN} files"
    return found


def _summary(milliseconds: list[float]) -> dict[str, float]:
    steady = milliseconds[5:]  # the first ones of all compile
    return {
        "p50 ms": round(statistics.median(steady)),
        "p95 ms": round(statistics.quantiles(steady, n=20)[-1]),
        "first 50, median ms": round(statistics.median(milliseconds[5:55])),
        "last 50, median ms": round(statistics.median(milliseconds[-50:])),
    }


class _Source:
    """A table that grows by commits of one file."""

    def __init__(self, path: Path) -> None:
        self._path, self._number = path, 0
        path.mkdir()
        create: list[Action] = [
            Protocol(min_reader_version=1, min_writer_version=2),
            Metadata(id="00000000-0000-0000-0000-000000000001", schema_string=SCHEMA, created_time=0),
        ]
        self._log = DeltaLog.for_table(str(path))
        start_transaction(self._log).commit(create, Operation(name="CREATE TABLE"))

    def grow(self, commits: int) -> None:
        """Append that many files, a commit each."""
        for number in range(self._number, self._number + commits):
            keys = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
            note = pa.array([f"note {number}"] * ROWS)
            file = self._path / f"part-{number:06}.parquet"
            pq.write_table(pa.table({"id": keys, "amount": keys.cast(pa.float64()), "note": note}), file)
            add = AddFile(
                path=file.name,
                partition_values={},
                size=file.stat().st_size,
                modification_time=number,
                data_change=True,
                stats=f'{{"numRecords":{ROWS}}}',
            )
            start_transaction(self._log).commit([add], Operation(name="WRITE", parameters={"mode": "Append"}))
        self._number += commits
