"""Measure what an Iceberg entry costs: by changed partitions of ten thousand, the first sync of a million files, scans.

The first sync runs in a process of its own, so that memory is its own. Scans by Trino take part where ``TRINO`` names
that of a stack (``_entries.py``).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from benchmarks import _entries, log_open
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg
from pydelta.protocol.actions import AddFile
from pydelta.storage import open_store
from pydelta.testing import CountingStore
from pydelta.testing.operations import add_file, create_table
from pydelta.txn import Operation, start_transaction

PARTITIONS, CHANGED, ROUNDS = 10_000, (1, 10, 100, 1_000), 3

_FIRST = """
    from pydelta.log import DeltaLog
    from pydelta.manifests.iceberg import publish_iceberg
    log = DeltaLog.for_table(path)
    started = time.perf_counter()
    log.update().files.core
    opened, before = time.perf_counter(), time.process_time()
    result = publish_iceberg(log)
    done, cpu = time.perf_counter(), time.process_time() - before
    found = {"open s": opened - started, "publish s": done - opened, "CPU s": cpu, "peak MB": peak_mb(),
        "puts": result.puts, "manifests": result.manifests_written}
"""
_NEXT = """
    import dataclasses
    from pydelta.log import DeltaLog
    from pydelta.manifests.iceberg import publish_iceberg
    from pydelta.txn import Operation, start_transaction
    log = DeltaLog.for_table(path)
    snapshot = log.update()
    changed = snapshot.files.adds(snapshot.files.core[::100_000])
    now_ms = int(time.time() * 1000)
    transaction = start_transaction(log)
    transaction.commit([
        *(add.remove(deletion_timestamp=now_ms, data_change=True) for add in changed),
        *(add.replace(path=add.path + ".new") for add in changed),
    ], Operation(name="WRITE"))
    log.update()
    started, before = time.perf_counter(), time.process_time()
    result = publish_iceberg(log)
    done, cpu = time.perf_counter(), time.process_time() - before
    found = {"publish s": done - started, "CPU s": cpu, "peak MB": peak_mb(), "puts": result.puts,
        "files": len(changed), "manifests": result.manifests_written, "kept": result.manifests_kept}
"""


def run() -> dict[str, Any]:
    """What changes cost, what the first sync costs, and what readers wait for."""
    scans = {}
    if os.environ.get("TRINO"):
        scans = {"scans by Trino, seconds": _entries.scans()}
    else:
        print("TRINO is not set: without the scans by Trino through the entries of a stack", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        by_partitions = _changed_partitions(Path(folder) / "orders")
        print(by_partitions, flush=True)
        large = Path(folder) / "large"
        large.mkdir()
        log_open.make_table(large)
        first = _measure(_FIRST, str(large))
        size = sum(path.stat().st_size for path in (large / "_pydelta" / "iceberg").rglob("*.avro"))
        return {
            "changed of 10,000 partitions": by_partitions,
            "first sync of 1,000,000 files": {**first, "MB written": round(size / 1e6)},
            "10 files of 1,000,000 replaced": _measure(_NEXT, str(large)),
            **scans,
        }


def _changed_partitions(root: Path) -> dict[str, Any]:
    """Replace the file of some partitions, and publish."""
    store = CountingStore(open_store(str(root)))
    log = DeltaLog(store)
    create_table(log, [add_file(f"p{number:05}", [number]) for number in range(PARTITIONS)])
    log.update()
    started = time.perf_counter()
    first = publish_iceberg(log)
    found: dict[str, Any] = {"first sync s": round(time.perf_counter() - started, 2), "first puts": first.puts}
    for changed in CHANGED:
        seconds, puts, gets, written = [], [], [], []
        for turn in range(ROUNDS):
            adds = _replace(log, changed, turn)
            store.reset()
            started = time.perf_counter()
            result = publish_iceberg(log)
            seconds.append(time.perf_counter() - started)
            puts.append(len(store.paths("put", "put_if_absent")))
            gets.append(len(store.paths("read", "read_range", "head")))
            written.append(result.manifests_written)
            assert (result.files_added, result.files_removed) == (len(adds), len(adds))
        found[f"{changed} changed"] = {
            "seconds": round(statistics.median(seconds), 3),
            "puts": max(puts),
            "reads": max(gets),
            "manifests": max(written),
        }
    return found


def _replace(log: DeltaLog, changed: int, turn: int) -> list[AddFile]:
    """Replace the file of every n-th partition."""
    snapshot = log.update()
    frame = snapshot.files.core.sort("pv:p")
    adds = snapshot.files.adds(frame[turn :: PARTITIONS // changed][:changed])
    now_ms = int(time.time() * 1000)
    transaction = start_transaction(log)
    new = [add.replace(path=f"{add.path}.{turn}") for add in adds]
    removes = [add.remove(deletion_timestamp=now_ms, data_change=True) for add in adds]
    transaction.commit([*removes, *new], Operation(name="WRITE"))
    log.update()
    return adds


def _measure(code: str, path: str) -> dict[str, float]:
    program = "\n".join(
        (
            "import json, sys, time",
            "from benchmarks._timing import peak_mb",
            "path = sys.argv[1]",
            textwrap.dedent(code),
            "print(json.dumps({name: round(value, 2) for name, value in found.items()}))",
        )
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured
