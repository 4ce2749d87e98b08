"""One task with 5,000 partitions, in a process of its own so that its peak memory can be told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import io, json, os, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from pydelta.protocol.schema import PrimitiveType
from pydelta.engines.arrow.tasks.write_files import PartitionColumn, WriteTask, run_task

folder, order = Path(sys.argv[1]), sys.argv[2]
partitions, rows_each, batch_rows = 5_000, 120, 4_096
text = os.urandom(200).hex()

def batches():
    total = partitions * rows_each
    for start in range(0, total, batch_rows):
        ids = range(start, min(start + batch_rows, total))
        keys = [i // rows_each if order == "sorted" else i % partitions for i in ids]
        texts = [f"{i:09d}{text}" for i in ids]
        yield pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts), pa.array(keys, pa.int64())], names="its")

class Stream(io.BytesIO):
    def write(self, data):  # counted and dropped: what the store keeps is not the task's memory
        size = memoryview(data).nbytes
        self.written = getattr(self, "written", 0) + size
        return size

    def tell(self):
        return getattr(self, "written", 0)

    def abort(self):
        pass

class Store:
    def open_writer(self, path):
        return Stream()

task = WriteTask(
    table_uri=folder.as_uri(),
    store_options={},
    file_schema=pa.schema([("i", pa.int64()), ("t", pa.string())]),
    partition_columns=(PartitionColumn(name="p", data_type=PrimitiveType("long")),),
    indexed=((("i",), PrimitiveType("long")),),
)
records = run_task(batches(), task, partition_id=0, store=Store())
# Not ru_maxrss: a child begins with the peak of the process that forked it.
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
peak = int(status["VmHWM"].split()[0])
print(json.dumps({
    "peak_mb": peak // 1024,
    "rows": sum(record.num_rows for record in records),
    "files": len(records),
    "partitions": len({record.partition_values["p"] for record in records}),
}))
"""


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize(("order", "most_files"), [("sorted", 5_010), ("shuffled", 15_000)])
def test_five_thousand_partitions_stay_under_a_gigabyte(tmp_path, order, most_files):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), order], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["rows"] == 600_000
    assert found["partitions"] == 5_000
    assert found["files"] <= most_files
    assert found["peak_mb"] < 1_000
