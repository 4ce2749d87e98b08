"""Measure what a process that has just begun takes: an answer of the command line, and one commit of 300,000 files."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

FILES = 300_000
ROUNDS = 7

_REPLAY = """
import json, sys, time
from benchmarks._timing import peak_mb
from pydelta.log import DeltaLog
began = time.perf_counter()
files = DeltaLog.for_table(sys.argv[1]).snapshot().files.num_files
took = time.perf_counter() - began
print(json.dumps([files, took, peak_mb()]))
"""


def run() -> dict[str, Any]:
    """Medians of seven turns, each in a process of its own; the shell's answer is that of ``pydelta history``."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            deltalake.write_deltalake(f"{folder}/small", pa.table({"id": pa.array([1], pa.int64())}), mode="append")
        command = str(Path(sys.executable).with_name("pydelta"))
        answers = [_seconds([command, "history", f"{folder}/small"]) for _ in range(ROUNDS + 1)][1:]
        _commit_of_many(Path(folder) / "many")
        replays = [_replayed(f"{folder}/many") for _ in range(ROUNDS)]
    return {
        "pydelta history, 3 commits": {"s": round(statistics.median(answers), 3)},
        f"replay of a commit of {FILES:,} adds": {
            "s": round(statistics.median(seconds for seconds, _ in replays), 2),
            "peak MB": round(max(peak for _, peak in replays)),
        },
    }


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began
    assert "WRITE" in done.stdout, done.stdout
    return took


def _replayed(path: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _REPLAY, path], capture_output=True, text=True, check=True)
    files, seconds, peak = json.loads(done.stdout)
    assert files == FILES
    return seconds, peak


def _commit_of_many(folder: Path) -> None:
    """Make a table whose one commit adds the files, with statistics, in 84 partitions."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}}
              for name, kind in (("id", "long"), ("day", "string"))]  # fmt: skip
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001", "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["day"],
        "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    with (log / f"{0:020d}.json").open("w") as out:
        out.write('{"commitInfo":{"operation":"WRITE"}}\n{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
        out.write(json.dumps({"metaData": metadata}) + "\n")
        for number in range(FILES):
            day = f"d{number % 84}"
            stats = f'{{"numRecords":10,"minValues":{{"id":{number}}},"maxValues":{{"id":{number}}}}}'
            add = {
                "path": f"day={day}/part-{number:09d}-5c1f3b0e-1f60.c000.snappy.parquet",
                "partitionValues": {"day": day}, "size": number + 1, "modificationTime": 0, "dataChange": True,
                "stats": stats,
            }  # fmt: skip
            out.write(json.dumps({"add": add}, separators=(",", ":")) + "\n")
