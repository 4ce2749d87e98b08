"""Compare a MERGE of many rows into many more with delta-rs: time and peak memory, one process each, no JVM.

Half of the source's rows are in the table, scattered over all its files; half are new. Both engines read the source as
a stream from one Parquet file. ``pydelta`` must stay below a ceiling, so it keeps the source in temporary files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._timing import peak_mb, sums_of_files

ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "100000000"))
SOURCE = int(os.environ.get("PYDELTA_BENCH_SOURCE", str(ROWS // 10)))
FILE_ROWS = 1_000_000
CONTESTANTS = tuple(os.environ.get("PYDELTA_BENCH_ENGINES", "pydelta,delta-rs").split(","))
_ODD = 7919


def _rows(ids: np.ndarray[Any, np.dtype[np.int64]], seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    states = pa.array(["open", "paid", "sent", "lost"])
    return pa.table(
        {
            "id": ids,
            "v": random.random(len(ids)),
            "n": random.integers(0, 1 << 30, len(ids), dtype=np.int32),
            "state": states.take(pa.array(ids % 4)),
        }
    )


def _make(folder: str) -> None:
    """Write the table, whose keys are scattered over the files, and the source."""
    import deltalake

    for first in range(0, ROWS, FILE_ROWS):
        ids = np.arange(first, min(first + FILE_ROWS, ROWS), dtype=np.int64) * _ODD % ROWS
        deltalake.write_deltalake(f"{folder}/table", _rows(ids, first), mode="append")
    with pq.ParquetWriter(f"{folder}/source.parquet", _rows(np.empty(0, np.int64), 0).schema) as writer:
        for first in range(0, SOURCE, FILE_ROWS):
            places = np.arange(first, min(first + FILE_ROWS, SOURCE), dtype=np.int64)
            there = places * (ROWS // SOURCE)
            writer.write_table(_rows(np.where(places % 2 == 0, there, ROWS + places), first + 1))


def _source(path: str) -> pa.RecordBatchReader:
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(65_536))


def _pydelta(table: str, source: str) -> None:
    import pydelta

    pydelta.open(table).merge(_source(source), on="id")


def _delta_rs(table: str, source: str) -> None:
    import deltalake

    merge = deltalake.DeltaTable(table).merge(_source(source), "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _left(path: str) -> dict[str, float]:
    """Return sums over the table's rows, by which the results are compared."""
    sums = sums_of_files(path, ["id", "n", "v"])
    return sums | {"v": round(sums["v"], 3)}


def run() -> dict[str, Any]:
    """100,000,000 rows (``PYDELTA_BENCH_ROWS``) and 10,000,000 of the source (``PYDELTA_BENCH_SOURCE``)."""
    result: dict[str, Any] = {"rows": ROWS, "source": SOURCE}
    with tempfile.TemporaryDirectory() as folder:
        _make(folder)
        left = []
        for name in CONTESTANTS:
            copy = f"{folder}/copy"
            shutil.copytree(f"{folder}/table", copy)
            command = [sys.executable, "-m", "benchmarks.large_merge", name, copy, f"{folder}/source.parquet"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            result[name] = json.loads(done.stdout)
            print(name, result[name], file=sys.stderr, flush=True)
            left.append(_left(copy))
            shutil.rmtree(copy)
        assert all(item == left[0] for item in left), left
    return result


def main() -> None:
    """Be one of the processes: ``ENGINE TABLE SOURCE``."""
    name, table, source = sys.argv[1:]
    started = time.perf_counter()
    (_pydelta if name == "pydelta" else _delta_rs)(table, source)
    print(json.dumps({"seconds": round(time.perf_counter() - started, 2), "peak MB": peak_mb()}))


if __name__ == "__main__":
    main()
