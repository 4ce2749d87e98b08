"""Time a whole VACUUM, finding and deleting, on a local disk: FULL, LITE, and when nothing is left.

A table of 100 partitions after 300 commits, each of which replaced the 200 files of the one before: 59,800 files to
delete, 200 live. Every contestant gets copies of its own of the very same table (hard links), turn by turn, and must
leave exactly the live files. The reference engine (deleting in parallel, as it can) takes part where
``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake

from benchmarks._peer import reference_engine
from benchmarks._timing import ratios
from pydelta.commands.vacuum.command import Vacuum, VacuumMode
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action, AddFile, Metadata
from pydelta.testing.commands import vacuum
from pydelta.txn import Operation, start_transaction

COMMITS, FILES, PARTITIONS, ROUNDS = 300, 200, 100, 3

_REFERENCE = """
for name in ("retentionDurationCheck.enabled", "vacuum.parallelDelete.enabled"):
    spark.conf.set("spark.databricks.delta." + name, str(name.startswith("vacuum")).lower())
def turn(kind, path):
    started = time.perf_counter()
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS {'LITE' if kind == 'lite' else 'FULL'}").collect()
    return time.perf_counter() - started
"""


def run() -> dict[str, Any]:
    """Seconds of each, and ratios."""
    with tempfile.TemporaryDirectory(prefix="bench-deletion-") as folder:
        original = Path(folder) / "original"
        _make(original)
        reference = reference_engine(_REFERENCE, {"spark.databricks.delta.snapshotPartitions": "2"})
        contestants: dict[str, Callable[[str, str], float]] = {"pydelta": _ours, "delta-rs": _delta_rs}
        if reference is not None:
            contestants["delta-spark"] = reference
        seconds: dict[str, dict[str, list[float]]] = {}
        try:
            for turn in range(ROUNDS + 1):
                for name, contestant in contestants.items():
                    copy = Path(folder) / f"{name}-{turn}"
                    for kind in ("full", "again", "lite"):
                        if kind != "again":
                            _remove(copy)
                            subprocess.run(["cp", "-al", str(original), str(copy)], check=True)
                        took = contestant("full" if kind == "again" else kind, str(copy))
                        left = sum(1 for file in copy.rglob("*.parquet") if "_delta_log" not in file.parts)
                        if left != FILES:
                            raise RuntimeError(f"{name} left {left} files after {kind}")
                        if turn:  # the first one warms
                            seconds.setdefault(kind, {}).setdefault(name, []).append(took)
                    _remove(copy)
        finally:
            if reference is not None:
                reference.__exit__(None, None, None)
    result: dict[str, Any] = {}
    for kind, found in seconds.items():
        medians = {name: statistics.median(values) for name, values in found.items()}
        result[kind] = {"seconds": medians, "ratios": ratios(medians, to="pydelta")}
    return result


def _remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


def _make(path: Path) -> None:
    """The table, and a small file wherever its log ever named one."""
    path.mkdir()
    for number in range(PARTITIONS):
        (path / f"p={number}").mkdir()
    log = DeltaLog.for_table(str(path))
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("x", "p")]
    schema = json.dumps({"type": "struct", "fields": fields})
    txn = start_transaction(log)
    txn.update_metadata(Metadata(id=str(uuid.uuid4()), schema_string=schema, partition_columns=("p",)))
    txn.commit([], Operation(name="CREATE TABLE"))
    live: list[AddFile] = []
    for _ in range(COMMITS):
        files = [_file(path, number % PARTITIONS) for number in range(FILES)]
        actions: list[Action] = [add.remove(deletion_timestamp=_now_ms()) for add in live]
        start_transaction(log).commit([*actions, *files], Operation(name="WRITE"))
        live = files
    DeltaLog.clear_cache()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _file(path: Path, partition: int) -> AddFile:
    name = f"p={partition}/part-{uuid.uuid4()}.c000.snappy.parquet"
    (path / name).write_bytes(b"x" * 100)
    return AddFile(
        path=name,
        partition_values={"p": str(partition)},
        size=100,
        modification_time=_now_ms(),
        data_change=True,
        stats='{"numRecords":1}',
    )


def _ours(kind: str, path: str) -> float:
    mode: VacuumMode = "lite" if kind == "lite" else "full"
    started = time.perf_counter()
    vacuum(DeltaLog.for_table(path), Vacuum(retention_hours=0, enforce_retention=False, mode=mode))
    return time.perf_counter() - started


def _delta_rs(kind: str, path: str) -> float:
    started = time.perf_counter()
    table = deltalake.DeltaTable(path)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=kind == "full")
    return time.perf_counter() - started
