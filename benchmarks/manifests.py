"""Measure what it costs to show readers of manifests ten changed partitions of ten thousand.

Beside it, on the same directories and the same metastore: every manifest written again, and ``MSCK REPAIR TABLE`` on a
plain external table. Then every manifest of a thousand files, beside the peers on copies of the same log. The reference
engine takes part where ``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._peer import Peer, reference_engine
from benchmarks._timing import interleave, ratios
from catalog_sync.names import TableName
from catalog_sync.sync import sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.thrift.embedded import EmbeddedMetastore
from pydelta.log import DeltaLog
from pydelta.manifests import ManifestOptions, publish
from pydelta.protocol.actions import AddFile
from pydelta.testing.operations import add_file, create_table, table_metadata
from pydelta.txn import Operation, start_transaction

PARTITIONS, CHANGED, ROUNDS, FILES = 10_000, 10, 5, 1_000

_REPAIR = """
spark.sql("CREATE EXTERNAL TABLE bench.plain (x BIGINT) PARTITIONED BY (p STRING) STORED AS PARQUET LOCATION '{root}'")
def turn(statistics):
    spark.conf.set("spark.sql.hive.gatherFastStats", statistics)
    started = time.perf_counter()
    spark.sql("MSCK REPAIR TABLE bench.plain")
    return time.perf_counter() - started
"""

_REFERENCE = """
from delta.tables import DeltaTable
def turn(path):
    started = time.perf_counter()
    DeltaTable.forPath(spark, path).generate("symlink_format_manifest")
    return time.perf_counter() - started
"""


def run() -> dict[str, Any]:
    """Both questions."""
    with tempfile.TemporaryDirectory() as folder:
        changed = _ten_of_ten_thousand(Path(folder))
        print(changed, flush=True)
        return {"10 of 10,000 partitions": changed, "1,000 files": _thousand_files(Path(folder) / "files")}


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# --- ten changed partitions of ten thousand ----------------------------------------------------------------


def _ten_of_ten_thousand(folder: Path) -> dict[str, Any]:
    root = folder / "orders"
    adds = [add_file(f"p{number:05}", [number]) for number in range(PARTITIONS)]
    sample = folder / "sample.parquet"
    pq.write_table(pa.table({"x": [1]}), sample)
    _link(root, sample, adds)
    create_table(DeltaLog.for_table(str(root)), adds)
    twin = TableName(database="bench", name="orders")
    seconds: dict[str, list[float]] = {}

    def note(name: str, took: float) -> None:
        seconds.setdefault(name, []).append(took)
        print(f"  {name}: {took:.2f} s", flush=True)

    with EmbeddedMetastore(folder / "metastore", memory="1g") as server:
        address = MetastoreAddress.parse(server.uri)
        with Metastore(address) as client:
            client.create_database("bench", f"file://{server.warehouse}/bench.db")

        def sync() -> None:
            with Metastore(address) as client:
                sync_table(DeltaLog.for_table(str(root)), client, twin)

        def sync_anew() -> None:
            DeltaLog.clear_cache()
            sync()

        def process() -> None:
            command = [sys.executable, "-m", "catalog_sync.cli", "sync", str(root), "--twin", str(twin)]
            command += ["--entry", "bench.native", "--metastore", server.uri]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        def generate() -> None:
            DeltaLog.clear_cache()
            publish(DeltaLog.for_table(str(root)), ManifestOptions(full=True, keep_emptied=True))

        hive = {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": server.uri,
            "spark.sql.warehouse.dir": f"{root}-warehouse",
            "spark.driver.memory": "2g",
        }
        with Peer(sys.executable, _REPAIR.replace("{root}", str(root)), hive) as spark:
            note("first sync of all", _timed(sync))
            note("first MSCK REPAIR", spark("true"))
            for turn in range(ROUNDS):
                _change(root, sample, f"a{turn}")
                note("GENERATE + sync", _timed(sync))
                note("GENERATE in full", _timed(generate))
                note("MSCK REPAIR", spark("true"))
                _change(root, sample, f"b{turn}")
                note("GENERATE + sync, log opened anew", _timed(sync_anew))
                note("MSCK REPAIR without statistics", spark("false"))
                _change(root, sample, f"c{turn}")
                note("GENERATE + sync, a process from its start", _timed(process))
            spark("false")
            with Metastore(address) as client:
                both = [set(client.partition_names("bench", name)) for name in ("orders", "plain")]
            assert both[0] == both[1], "both ways lead to the same partitions"
            assert len(both[0]) == PARTITIONS + ROUNDS * 3 * (CHANGED // 2)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ours = medians["GENERATE + sync"]
    times = {name: round(medians[name] / ours) for name in medians if name.startswith(("MSCK", "GENERATE in"))}
    return {"seconds": {name: round(value, 3) for name, value in medians.items()}, "times as long": times}


def _change(root: Path, sample: Path, name: str) -> None:
    """A file more in five partitions, and five partitions more, as one commit."""
    old = [add_file(f"p{number * 1999:05}", [1]) for number in range(CHANGED // 2)]
    new = [add_file(f"{name}-{number}", [1]) for number in range(CHANGED - len(old))]
    _link(root, sample, [*old, *new])
    start_transaction(DeltaLog.for_table(str(root))).commit([*old, *new], Operation(name="WRITE"))


def _link(root: Path, sample: Path, adds: list[AddFile]) -> None:
    for add in adds:
        path = root / add.path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(sample, path)


# --- every manifest of a thousand files --------------------------------------------------------------------


def _thousand_files(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with reference_engine(_REFERENCE) or nullcontext() as reference:
        for name, partitions in (("unpartitioned", 0), ("in 100 partitions", 100)):
            base = folder / f"base-{partitions}"
            _write_log(base, partitions)
            contestants = _contestants(folder / f"{partitions}", base, reference)
            medians = interleave(contestants, rounds=5)
            to = "delta-spark" if reference is not None else "delta-rs"
            shown = {who: round(value * 1000, 1) for who, value in medians.items()}
            result[name] = {**ratios(medians, to=to), "milliseconds": shown}
            print(name, result[name], flush=True)
            _same_lines(folder / f"{partitions}", contestants)
    return result


def _write_log(base: Path, partitions: int) -> None:
    log = DeltaLog.for_table(str(base))
    txn = start_transaction(log)
    metadata = table_metadata()
    txn.update_metadata(metadata if partitions else metadata.replace(partition_columns=()))
    adds = [add_file(f"p{number % (partitions or 1):03}", [number]) for number in range(FILES)]
    if not partitions:
        adds = [add.replace(path=f"part-{at:05}.parquet", partition_values={}) for at, add in enumerate(adds)]
    txn.commit(adds, Operation(name="CREATE TABLE AS SELECT"))


def _contestants(folder: Path, base: Path, reference: Peer | None) -> dict[str, Callable[[], object]]:
    roots = {who: folder / who for who in ("pydelta", "delta-rs", "delta-spark")}
    for root in roots.values():
        shutil.copytree(base, root)

    def ours() -> None:
        DeltaLog.clear_cache()
        publish(DeltaLog.for_table(str(roots["pydelta"])), ManifestOptions(full=True))

    def delta_rs() -> None:
        deltalake.DeltaTable(str(roots["delta-rs"])).generate()

    contestants: dict[str, Callable[[], object]] = {"pydelta": ours, "delta-rs": delta_rs}
    if reference is not None:
        contestants["delta-spark"] = lambda: reference(str(roots["delta-spark"]))
    return contestants


def _same_lines(folder: Path, contestants: Mapping[str, object]) -> None:
    """Each contestant has named every file once."""
    for who in contestants:
        manifests = [path for path in (folder / who / "_symlink_format_manifest").rglob("manifest") if path.is_file()]
        lines = [line for path in manifests for line in path.read_text().splitlines()]
        assert len(lines) == len(set(lines)) == FILES, f"{who} has {len(lines)} lines"
