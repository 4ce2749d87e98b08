"""Measure a log of many live files: open, append, prune to a partition, delete it, checkpoint; time and peak memory.

The log is made by columns: a V2 checkpoint with its sidecars, nothing else. Sizes are 1,000 to 1,000,000 files, or
those that ``FILES`` names (``FILES=10000000,20000000``). Each size is measured in a process of its own; so is, before
anything is changed, a dry run of VACUUM by an inventory of all these files and of a hundredth more that no version has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SIDECAR_ROWS: Final = 50_000
DAYS: Final = 100
STRAYS: Final = 100
"""Of so many files there is one more that no version has."""

FIELDS: Final = [("id", "long"), ("day", "string")]

BEGINNING: Final = """
    import json, sys, time
    from benchmarks._timing import peak_mb
    path, files, days, strays, took = sys.argv[1], *map(int, sys.argv[2:]), {}
"""

STEPS: Final = """
    from pydelta.log import DeltaLog
    from pydelta.log.runs import removes_of
    from pydelta.predicate import Column, Compare, Literal
    from pydelta.protocol.actions import AddFile
    from pydelta.txn import Operation, start_transaction
    from pydelta.txn.hooks import behind_commits

    def step(name, run):
        started, spent = time.perf_counter(), time.process_time()
        result = run()
        seconds = {"s": time.perf_counter() - started, "processor s": time.process_time() - spent}
        took[name] = {**{key: round(value, 2) for key, value in seconds.items()}, "peak MB": peak_mb()}
        return result

    def append(number):
        add = AddFile(path=f"day=d7/new-{number}.parquet", partition_values={"day": "d7"}, size=1, modification_time=0,
                      data_change=True, stats='{"numRecords":1}')
        return start_transaction(log).commit([add], Operation(name="WRITE"))

    log = DeltaLog.for_table(path)
    snapshot = step("open", log.snapshot)
    step("first append", lambda: append(0))
    step("100 appends with ten checkpoints", lambda: [append(number) for number in range(1, 101)])
    step("wait for these", behind_commits.join)
    day = Compare("=", Column(("day",)), Literal("d7", "string"))
    found = step("prune to a partition", lambda: log.update().files.select(day))
    assert found.height == files // days + 101, found.height

    def delete():
        txn = start_transaction(log)
        gone = txn.snapshot.files.add_actions(txn.read_files([day]))
        return txn.commit(removes_of(gone, deletion_timestamp=1_800_000_000_000), Operation(name="DELETE"))

    committed = step("delete it", delete)
    assert committed.snapshot.num_files == files - files // days
    result = step("checkpoint", log.checkpoint)
    assert result.num_adds == files - files // days
    step("checkpoint after one append, which reads the last one", lambda: log.checkpoint(append(101).snapshot))
    step("checkpoint after one append, naming sidecars again", lambda: log.checkpoint(append(102).snapshot))
    step("the same, a whole one", lambda: log.checkpoint(append(103).snapshot, whole=True))
    txn = start_transaction(log)
    metadata = txn.snapshot.metadata
    txn.update_metadata(metadata.replace(configuration=metadata.configuration | {"delta.checkpointPolicy": "classic"}))
    classic = txn.commit([], Operation(name="SET TBLPROPERTIES")).snapshot
    step("the same, a classic one", lambda: log.checkpoint(classic))
    print(json.dumps(took))
"""

VACUUM: Final = """
    from pydelta.testing.commands import vacuum
    from pydelta.commands.vacuum.command import Vacuum
    from pydelta.commands.vacuum.inventory_sources import from_parquet
    from pydelta.log import DeltaLog
    started, spent = time.perf_counter(), time.process_time()
    found = vacuum(DeltaLog.for_table(path), Vacuum(
        retention_hours=0.0, dry_run=True, mode="inventory", inventory=from_parquet(path + "/_inventory"),
        enforce_retention=False,
    ))
    assert found.files.height == files // strays, found.files.height
    seconds = {"s": time.perf_counter() - started, "processor s": time.process_time() - spent}
    print(json.dumps({**{key: round(value, 2) for key, value in seconds.items()}, "peak MB": peak_mb()}))
"""


def run() -> dict[str, Any]:
    """Seconds, processor seconds and peak memory of each step, by number of files."""
    sizes = [int(text) for text in os.environ.get("FILES", "").split(",") if text] or SIZES
    measured: dict[str, Any] = {}
    for files in sizes:
        with tempfile.TemporaryDirectory() as folder:
            made = make_log(Path(folder), files)
            make_inventory(Path(folder), files)
            measured[f"{files:,} files"] = {
                "checkpoint MB": round(made / 1e6, 1),
                "VACUUM by an inventory, dry run": _measure(VACUUM, folder, files),
                **_measure(STEPS, folder, files),
            }
    return measured


def _measure(steps: str, path: str, files: int) -> dict[str, Any]:
    program = textwrap.dedent(BEGINNING) + textwrap.dedent(steps)
    command = [sys.executable, "-c", program, path, str(files), str(DAYS), str(STRAYS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def make_log(folder: Path, files: int) -> int:
    """Make the log of a table with so many live files in ``DAYS`` partitions; returns the checkpoint's bytes."""
    from pydelta.log import DeltaLog
    from pydelta.log.checkpoint.rows import STATE_TYPES, FileRows
    from pydelta.log.side_files import CheckpointHint, V2File, encode_hint
    from pydelta.protocol.actions import CommitInfo, Metadata, Protocol, encode_commit

    log = folder / "_delta_log"
    (log / "_sidecars").mkdir(parents=True)
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS]
    metadata = Metadata(
        id="00000000-0000-0000-0000-000000000001",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("day",),
        configuration={"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsStruct": "false"},
        created_time=0,
    )
    names = ("v2Checkpoint",)
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=names, writer_features=names)
    (log / f"{0:020d}.json").write_bytes(encode_commit([CommitInfo({"operation": "WRITE"}), protocol, metadata]))
    rows = FileRows(snapshot=DeltaLog.for_table(str(folder)).snapshot(), expired_before_ms=0)
    DeltaLog.clear_cache()
    types = rows.types()
    schema = pa.schema(list(types.items()))
    sidecars: list[dict[str, Any]] = []
    for start in range(0, files, SIDECAR_ROWS):
        count = min(SIDECAR_ROWS, files - start)
        target = log / "_sidecars" / f"{start:012d}.parquet"
        nothing = pa.nulls(count, types["remove"])
        pq.write_table(pa.Table.from_arrays([_adds(start, count, types["add"]), nothing], schema=schema), target)
        sidecars.append({"path": target.name, "sizeInBytes": target.stat().st_size, "modificationTime": 0})
    state = [
        {"checkpointMetadata": {"version": 0}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}},
        {"metaData": {
            "id": metadata.id, "format": {"provider": "parquet", "options": []}, "schemaString": metadata.schema_string,
            "partitionColumns": ["day"], "configuration": list(metadata.configuration.items()), "createdTime": 0,
        }},
        *({"sidecar": sidecar} for sidecar in sidecars),
    ]  # fmt: skip
    main = log / f"{0:020d}.checkpoint.00000000-0000-0000-0000-000000000000.parquet"
    pq.write_table(pa.Table.from_pylist(state, schema=pa.schema(list((STATE_TYPES | types).items()))), main)
    size = main.stat().st_size
    hint = CheckpointHint(
        version=0,
        size=files + 2,
        size_in_bytes=size,
        num_of_add_files=files,
        v2=V2File(name=main.name, size_in_bytes=size, modification_time_ms=int(main.stat().st_mtime * 1000)),
    )
    (log / "_last_checkpoint").write_bytes(encode_hint(hint))
    return size + sum(sidecar["sizeInBytes"] for sidecar in sidecars)


def make_inventory(folder: Path, files: int) -> None:
    """Write what a store's report would say of the files of ``make_log``: ``_inventory``, in several Parquet files."""
    target = folder / "_inventory"
    target.mkdir()
    for start in range(0, files, 20 * SIDECAR_ROWS):
        count = min(20 * SIDECAR_ROWS, files - start)
        number = pl.int_range(start, start + count, eager=True)
        known = _paths(number, "part")
        paths = pl.concat([known, _paths(number.filter(number % STRAYS == 0), "stray")]).shuffle(seed=start)
        report = pl.DataFrame({"path": folder.as_uri() + "/" + paths}).with_columns(
            length=pl.lit(1_000, pl.Int64), isDir=pl.lit(False), modificationTime=pl.lit(1_700_000_000_000, pl.Int64)
        )
        report.write_parquet(target / f"{start:012d}.parquet", compression="zstd")


def _paths(number: pl.Series, kind: str) -> pl.Series:
    frame = number.alias("n").to_frame()
    day = "day=d" + (pl.col("n") % DAYS).cast(pl.String)
    name = f"/{kind}-" + pl.col("n").cast(pl.String).str.zfill(12) + "-5c1f3b0e-1f60.c000.snappy.parquet"
    return frame.select((day + name).alias("path"))["path"]


def _adds(start: int, count: int, kind: pa.StructType) -> Any:
    number = pl.int_range(start, start + count, eager=True).alias("n")
    day = ("d" + (number % DAYS).cast(pl.String)).to_frame("day")["day"]
    text = number.cast(pl.String)
    frame = pl.DataFrame({"n": text, "path": _paths(number, "part")}).select(
        path=pl.col("path"),
        stats='{"numRecords":1000,"minValues":{"id":' + pl.col("n") + '},"maxValues":{"id":' + pl.col("n")
        + '},"nullCount":{"id":0}}',
    )  # fmt: skip
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    known = {
        "path": frame["path"].to_arrow().cast(pa.string()),
        "partitionValues": pa.MapArray.from_arrays(offsets, pa.repeat("day", count), day.to_arrow().cast(pa.string())),
        "size": (number + 1_000).to_arrow().cast(pa.int64()),
        "modificationTime": pa.repeat(pa.scalar(1_700_000_000_000, pa.int64()), count),
        "dataChange": pa.repeat(pa.scalar(False), count),
        "stats": frame["stats"].to_arrow().cast(pa.string()),
    }
    arrays = [known.get(field.name, pa.nulls(count, field.type)) for field in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
