"""Measure the time and memory to open a log of a million live files and prune it to one partition.

Each contestant runs in a process of its own, so that memory is its own and nothing is warm but the file cache.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FILES = 1_000_000
BATCH = 50_000
DAYS = 84
ROUNDS = 3
FIELDS = [("id", "long"), ("price", "double"), ("name", "string"), ("day", "date")]

OURS = """
    from pydelta.log import DeltaLog
    import datetime as dt
    from pydelta.predicate import Column, Compare, Literal
    started = time.perf_counter()
    snapshot = DeltaLog.for_table(path).snapshot()
    opened = time.perf_counter()
    found = snapshot.files.select(Compare("=", Column(("day",)), Literal(dt.date(2024, 3, 3), "date"))).height
    pruned = time.perf_counter()
    peak = peak_mb()
    wanted = Compare("=", Column(("id",)), Literal(500_000_123, "long"))
    extra["skip by statistics s"] = (snapshot.files.select(None, [wanted]).height, time.perf_counter() - pruned)[1]
"""

THEIRS = """
    import deltalake
    started = time.perf_counter()
    table = deltalake.DeltaTable(path)
    opened = time.perf_counter()
    found = len(table.file_uris(partition_filters=[("day", "=", "2024-03-03")]))
    pruned = time.perf_counter()
    peak = peak_mb()
"""


def run() -> dict[str, Any]:
    """Medians of seconds to open and to prune, and of the peak of memory, each contestant in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        size = make_table(Path(folder))
        results: dict[str, list[dict[str, float]]] = {"pydelta": [], "delta-rs": []}
        for _ in range(ROUNDS):
            for name, code in (("pydelta", OURS), ("delta-rs", THEIRS)):
                results[name].append(_measure(code, folder))
    medians: dict[str, dict[str, float]] = {}
    for name, runs in results.items():
        assert len({one["found"] for one in runs}) == 1
        medians[name] = {key: round(statistics.median(one[key] for one in runs), 3) for key in runs[0]}
    assert medians["pydelta"]["found"] == medians["delta-rs"]["found"]
    return {
        "files": FILES,
        "checkpoint MB": round(size / 1e6),
        **medians,
        "ratio of open and prune to delta-rs": round(
            medians["pydelta"]["open and prune s"] / medians["delta-rs"]["open and prune s"], 2
        ),
    }


def _measure(code: str, path: str) -> dict[str, float]:
    program = "\n".join(
        (
            "import json, sys, time",
            "from benchmarks._timing import peak_mb",
            "path, extra = sys.argv[1], {}",
            textwrap.dedent(code),
            "print(json.dumps({'open s': opened - started, 'open and prune s': pruned - started, 'found': found, "
            "'peak MB': peak, **extra}))",
        )
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def make_table(folder: Path) -> int:
    """A table of ``FILES`` files in ``DAYS`` partitions, all in one checkpoint; gives the checkpoint's size."""
    log = folder / "_delta_log"
    log.mkdir()
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS]
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, {"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    target = log / f"{0:020d}.checkpoint.parquet"
    from pydelta.log import DeltaLog
    from pydelta.log.checkpoint.rows import STATE_TYPES, FileRows

    rows = FileRows(snapshot=DeltaLog.for_table(str(folder)).snapshot(), expired_before_ms=0)
    types = rows.types()
    schema = pa.schema([("add", types["add"]), *((kind, STATE_TYPES[kind]) for kind in ("protocol", "metaData"))])
    metadata["format"] = {"provider": "parquet", "options": []}
    metadata["configuration"] = []
    with pq.ParquetWriter(target, schema) as writer:
        writer.write_table(pa.Table.from_pylist([{"protocol": protocol}, {"metaData": metadata}], schema=schema))
        for start in range(0, FILES, BATCH):
            add = _adds(start, types["add"])
            others = [pa.nulls(BATCH, STATE_TYPES[kind]) for kind in ("protocol", "metaData")]
            writer.write_table(pa.Table.from_arrays([add, *others], schema=schema))
    DeltaLog.clear_cache()
    return target.stat().st_size


def _adds(start: int, kind: pa.DataType) -> Any:
    rows = []
    for number in range(start, start + BATCH):
        day = f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
        least = {"id": number * 1000, "price": number * 0.5, "name": f"aaaaaaaa{number}"}
        most = {"id": number * 1000 + 999, "price": number * 0.5 + 10, "name": f"zzzzzz{number}"}
        stats = {"numRecords": 1000, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}
        rows.append(
            {
                "path": f"day={day}/part-{number:08d}-5c1f3b0e-1f60-4a3e-9b64-{number:012d}.c000.snappy.parquet",
                "partitionValues": [("day", day)],
                "size": 1_000 + number,
                "modificationTime": 1_700_000_000_000,
                "dataChange": False,
                "stats": json.dumps(stats, separators=(",", ":")),
                "stats_parsed": stats,
            }
        )
    return pa.array(rows, type=kind)
