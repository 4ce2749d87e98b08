"""Measure MERGE of one key into a table of many files whose statistics exclude none, with a record index and without.

Both turns are the same statement on the same table: the index's folder is moved away for the other one. The index is
refreshed between turns, so that it covers the file that the last MERGE wrote; that is measured too. In the end the
rows are read back.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import pydelta
from pydelta.commands.records.index import FOLDER
from pydelta.log import DeltaLog
from pydelta.protocol.actions import encode_json
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

FILES = int(os.environ.get("PYDELTA_BENCH_FILES", "10000"))
ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "1000"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "5"))


def _key(number: int) -> str:
    """Return 32 characters that look random, a different text for each number."""
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}{number * 0xC2B2AE3D27D4EB4F % (1 << 64):016x}"


def make_table(path: str) -> None:
    """Write the files in one commit. ``id`` and ``key`` are spread over all files; ``key`` is text."""
    builder = TableBuilder(open_store(path), columns={"id": "long", "key": "string", "v": "double"})
    ids = np.random.default_rng(7).permutation(FILES * ROWS)
    adds = []
    for number in range(FILES):
        own = ids[number * ROWS : (number + 1) * ROWS].astype(np.int64)
        rows = pa.table({"id": own, "key": [_key(n) for n in own.tolist()], "v": own / 2})
        bounds = {
            "numRecords": ROWS,
            "minValues": {name: pc.min(rows.column(name)).as_py() for name in ("id", "key")},
            "maxValues": {name: pc.max(rows.column(name)).as_py() for name in ("id", "key")},
            "nullCount": {"id": 0, "key": 0},
        }
        adds.append(builder.file(rows).replace(stats=encode_json(bounds)))
    builder.commit(*adds)
    DeltaLog.for_table(path).checkpoint()


def run() -> dict[str, Any]:
    """10,000 files (``PYDELTA_BENCH_FILES``) of 1,000 rows; medians. ``ratio`` is with the index over without."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t"
        make_table(path)
        for name in ("id", "key"):
            result[name] = _by(path, name)
            print(name, result[name], flush=True)
    return result


def _by(path: str, name: str) -> dict[str, Any]:
    table = pydelta.open(path)
    started = time.perf_counter()
    made = table.index_records([name])
    making = time.perf_counter() - started
    folder, aside = f"{path}/{FOLDER}", f"{path}/{FOLDER}-aside"
    seconds: dict[str, list[float]] = {"with": [], "with, opened": [], "without": [], "refresh": []}
    processor: dict[str, list[float]] = {"with": [], "with, opened": [], "without": []}
    files: dict[str, list[int]] = {kind: [] for kind in seconds}
    merged: dict[int, float] = {}
    for turn in range(ROUNDS + 1):
        for kind in ("with", "with, opened", "without"):
            number = (turn * 7919 + len(kind) * 104_729) % (FILES * ROWS)
            source = pa.table({"id": [number], "key": [_key(number)], "v": [float(turn)]})
            if kind == "without":
                os.rename(folder, aside)
            started, worked = time.perf_counter(), time.process_time()
            target = table if kind == "with, opened" else pydelta.open(path)
            done = target.merge(source, on=name)
            took, worked = time.perf_counter() - started, time.process_time() - worked
            if kind == "without":
                os.rename(aside, folder)
            assert done.num_updated_rows == 1, done
            merged[number] = float(turn)
            started = time.perf_counter()
            table.index_records()
            if turn:
                seconds[kind].append(took)
                processor[kind].append(worked)
                seconds["refresh"].append(time.perf_counter() - started)
                files[kind].append(done.num_candidate_files)
    found = table.scan(f"id IN ({', '.join(map(str, merged))})", columns=["id", "v"]).to_pydict()
    assert dict(zip(found["id"], found["v"], strict=True)) == merged
    assert table.scan(columns=["id"]).num_rows == FILES * ROWS
    table.drop_record_index()
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    return {
        "ratio": round(medians["with"] / medians["without"], 3),
        "processor": {kind: round(statistics.median(values), 3) for kind, values in processor.items()},
        "seconds": {kind: round(value, 3) for kind, value in medians.items()},
        "making": round(making, 1),
        "megabytes": round(made.num_bytes / 1e6),
        "files opened": {kind: max(values) for kind, values in files.items() if values},
    }
