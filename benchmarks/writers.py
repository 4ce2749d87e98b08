"""Append to one table on a real MinIO from 1, 4, 16 and 64 writers at once, beside delta-rs, and count what is lost.

The server is that of the stack's image (``scripts/stack-build minio``), or ``$MINIO``. Writers are threads of this
process, each with the table opened for itself; every append is a Parquet file of one row and a commit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError as TheirError

from pydelta.api.python.local import open_table
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.testing.commands import create_table

WRITERS = tuple(int(number) for number in os.environ.get("PYDELTA_BENCH_WRITERS", "1,4,16,64").split(","))
COMMITS = int(os.environ.get("PYDELTA_BENCH_COMMITS", "128"))
_KEY, _SECRET = "the-root-user", "the-root-secret"


def run() -> dict[str, Any]:
    """``PYDELTA_BENCH_COMMITS`` (128) appends by each number of writers; the engines take turns."""
    tests = Path(__file__).parents[1] / "tests"
    sys.path[:0] = [str(tests), str(tests / "minio")]
    from store_servers import MinioServer  # type: ignore[import-not-found]

    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = MinioServer(Path(folder), root=(_KEY, _SECRET))
        try:
            made = server.run("make-buckets", "warehouse")
            assert made.returncode == 0, made.stderr
            options = server.options(None)
            for writers in WRITERS:
                uri = f"warehouse/ours{writers}"
                result[f"{writers} writers"] = {
                    "pydelta": _pydelta(f"s3a://{uri}", options, writers),
                    "delta-rs": _delta_rs(f"s3://warehouse/theirs{writers}", server.endpoint, writers),
                }
                print(writers, result[f"{writers} writers"], flush=True)
        finally:
            server.stop()
    return result


def _row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def _raced(writers: int, open_writer: Callable[[], Callable[[int], int | None]]) -> dict[str, Any]:
    """Let each writer append its share; None of a turn is a refusal, else the number of tries."""
    each, tries, seconds, refused = max(COMMITS // writers, 1), [], [], []
    ready = threading.Barrier(writers + 1)

    def work(number: int) -> None:
        append = open_writer()
        ready.wait()
        for turn in range(each):
            started = time.perf_counter()
            took = append(number * each + turn)
            if took is None:
                refused.append(number)
            else:
                tries.append(took)
                seconds.append(time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    took, ordered = time.perf_counter() - started, sorted(seconds)
    return {
        "commits a second": round(len(seconds) / took, 1),
        "acknowledged": len(seconds),
        "refused": len(refused),
        "p50 ms": round(ordered[len(ordered) // 2] * 1000),
        "p99 ms": round(ordered[len(ordered) * 99 // 100] * 1000),
        "tries": sum(tries),
        "most tries": max(tries),
    }


def _pydelta(uri: str, options: dict[str, str], writers: int) -> dict[str, Any]:
    log = DeltaLog.for_table(uri, options=options)
    schema = StructType((StructField("id", PrimitiveType("long")),))
    create_table(log, TableDefinition(schema=schema), mode=CreateMode.CREATE, settings=Settings())

    def open_writer() -> Callable[[int], int | None]:
        table = open_table(uri, options=options)

        def append(number: int) -> int | None:
            try:
                committed = table.append(_row(number)).committed
            except DeltaError:
                return None
            assert committed is not None
            return committed.attempts

        return append

    told = _raced(writers, open_writer)
    return _counted(told, open_table(uri, options=options).scan()["id"].to_pylist())


def _delta_rs(uri: str, endpoint: str, writers: int) -> dict[str, Any]:
    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "aws_conditional_put": "etag",
    }
    deltalake.DeltaTable.create(uri, pa.schema([("id", pa.int64())]), storage_options=options)

    def open_writer() -> Callable[[int], int | None]:
        table = deltalake.DeltaTable(uri, storage_options=options)

        def append(number: int) -> int | None:
            try:
                deltalake.write_deltalake(table, _row(number), mode="append")
            except TheirError:
                return None
            return 0  # it does not say

        return append

    told = _raced(writers, open_writer)
    del told["tries"], told["most tries"]
    return _counted(told, deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table()["id"].to_pylist())


def _counted(told: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    """Compare the rows of the table with what was acknowledged."""
    assert len(rows) == len(set(rows)) == told["acknowledged"], (len(rows), len(set(rows)), told)
    return told
