"""Time how VACUUM finds files to delete: by an inventory, by our listing, by the reference engine.

A table by year, month, day and hour, nine of ten of its objects live, the tenth of no version. All are dry runs: the
finding is measured, not the deleting. 200,000 objects lie on the S3 service that ``S3_ENDPOINT`` names (a MinIO); a
million are simulated by a server that takes ``LATENCY_MS`` for each listing, as S3 does. The reference engine takes
part where ``PYDELTA_REFERENCE_PYTHON`` names a Python that has its pyspark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks._peer import Peer, reference_engine
from jobs import inventory, load_inventory
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Metadata, encode_json
from pydelta.storage import open_store
from pydelta.txn import Operation, start_transaction

LATENCY_MS = 30
ROUNDS = 3
HOUR_FILES = {"MinIO": (200_000, 8_760), "simulated": (1_000_000, 17_520)}
"""Objects, and hours that they are spread over."""

OURS = """
    import json, sys, time
    from benchmarks._timing import peak_mb
    from pydelta.commands.vacuum.inventory_sources import inventory_from_delta
    from pydelta.testing.commands import vacuum
    from pydelta.commands.vacuum.command import Vacuum
    from pydelta.log import DeltaLog
    table, report, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    started = time.perf_counter()
    log = DeltaLog.for_table(table, options=conf)
    found = inventory_from_delta(DeltaLog.for_table(report, options=conf)) if report else None
    result = vacuum(log, Vacuum(
        retention_hours=0.0, dry_run=True, mode="inventory" if report else "full", inventory=found,
        enforce_retention=False,
    ))
    took = time.perf_counter() - started
    told = {"seconds": took, "found": result.files.height, "lists": result.list_requests}
    print(json.dumps({**told, "peak MB": peak_mb()}))
"""

_REFERENCE = """
import tempfile
with tempfile.TemporaryDirectory() as folder:  # a first VACUUM that is not counted
    spark.range(10).write.format("delta").save(folder + "/t")
    spark.sql("VACUUM delta.`" + folder + "/t` RETAIN 0 HOURS DRY RUN").collect()
def turn(table, report):
    using = ""
    if report:
        using = (
            "USING INVENTORY (SELECT concat('s3a://', bucket, '/', key) AS path, length, isDir, modificationTime "
            "FROM delta.`" + report + "`)"
        )
    started = time.perf_counter()
    spark.sql("VACUUM delta.`" + table + "` " + using + " RETAIN 0 HOURS DRY RUN").collect()
    return time.perf_counter() - started
"""

_PACKAGES = "org.apache.hadoop:hadoop-aws:3.5.0"


def run() -> dict[str, Any]:
    """Seconds, ratios to the reference engine's listing, requests, peak memory of ours."""
    result: dict[str, Any] = {"latency of a simulated listing, ms": LATENCY_MS}
    if os.environ.get("S3_ENDPOINT"):
        with _on_minio(*HOUR_FILES["MinIO"]) as (table, conf):
            result["200,000 on MinIO"] = _compare(table, conf, lambda: None)
    else:
        print("S3_ENDPOINT is not set: without the part on MinIO", file=sys.stderr)
    with _simulated(*HOUR_FILES["simulated"]) as (table, conf, counts):
        result["1,000,000 simulated"] = _compare(table, conf, counts)
    return result


def _keys(objects: int, hours: int) -> Iterator[str]:
    """Paths in a table, hour by hour."""
    files = -(-objects // hours)
    for number in range(objects):
        hour, file = divmod(number, files)
        day, clock = divmod(hour, 24)
        month, in_month = divmod(day, 28)
        year, in_year = divmod(month, 12)
        yield (
            f"year={2023 + year}/month={in_year + 1:02}/day={in_month + 1:02}/hour={clock:02}/"
            f"part-{file:05}-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}.c000.snappy.parquet"
        )


def _write_log(log: DeltaLog, paths: list[str]) -> None:
    """Nine of ten are live, by a checkpoint; the commit that added them keeps its first line alone."""
    names = ("year", "month", "day", "hour")
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", *names)]
    txn = start_transaction(log)
    schema = encode_json({"type": "struct", "fields": fields})
    txn.update_metadata(Metadata(id=str(uuid.uuid4()), schema_string=schema, partition_columns=names))
    txn.commit([], Operation(name="CREATE TABLE"))
    lines = ['{"commitInfo":{"timestamp":1717200000000,"operation":"WRITE"}}']
    for number, path in enumerate(paths):
        if number % 10:
            values = ",".join(
                f'"{name}":"{value}"' for name, _, value in (p.partition("=") for p in path.split("/")[:4])
            )
            lines.append(
                f'{{"add":{{"path":"{path}","partitionValues":{{{values}}},"size":1000,"modificationTime":1717200000000,'
                '"dataChange":true,"stats":"{\\"numRecords\\":1}"}}'
            )
    commit = "_delta_log/00000000000000000001.json"
    log.store.put(commit, "\n".join(lines).encode())
    log.checkpoint(log.update())
    log.store.put(commit, lines[0].encode())
    DeltaLog.clear_cache()


@contextmanager
def _on_minio(objects: int, hours: int) -> Iterator[tuple[str, dict[str, str]]]:
    conf = {
        "fs.s3a.endpoint": os.environ["S3_ENDPOINT"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    table = f"s3a://{os.environ.get('S3_BUCKET', 'work')}/bench-{uuid.uuid4()}/t"
    store = open_store(table, conf)
    paths = list(_keys(objects, hours))
    try:
        started = time.perf_counter()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda path: store.put(path, b"1"), paths, chunksize=500))
        print(f"{objects} objects put in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        _write_log(DeltaLog.for_table(table, options=conf), paths)
        yield table, conf
    finally:
        store.delete_many([info.path for info in store.list_all()])


@contextmanager
def _simulated(objects: int, hours: int) -> Iterator[tuple[str, dict[str, str], Callable[[], dict[str, int]]]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = list(_keys(objects, hours))
        contents = Path(folder, "contents")
        _write_log(DeltaLog.for_table(str(contents / "t")), paths)
        names = Path(folder, "keys")
        names.write_text("\n".join(f"t/{path}" for path in paths))
        command = [sys.executable, "-m", "benchmarks._s3_list_server", str(contents), str(names), str(LATENCY_MS)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"

            def counts() -> dict[str, int]:
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"{endpoint}/counts", timeout=30) as answer:
                    return dict(json.load(answer))

            conf = {
                "fs.s3a.endpoint": endpoint,
                "fs.s3a.path.style.access": "true",
                "fs.s3a.access.key": "bench",
                "fs.s3a.secret.key": "bench",
            }
            yield "s3a://bench/t", conf, counts
        finally:
            server.terminate()
            server.wait()


def _compare(table: str, conf: Mapping[str, str], counts: Callable[[], dict[str, int] | None]) -> dict[str, Any]:
    """Make the inventory table, then let everyone find what can go."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report"
        started = time.perf_counter()
        (made,) = inventory.run(conf, ["--source", table, "--destination", f"{folder}/deliveries"])
        result["inventory job s"] = round(time.perf_counter() - started, 1)
        result["inventory job lists"] = made["list_requests"]
        started = time.perf_counter()
        load_inventory.run(conf, ["--source", f"{folder}/deliveries", "--location", report])
        result["load job s"] = round(time.perf_counter() - started, 1)
        counts()
        seconds: dict[str, list[float]] = {}
        found = set()
        for _ in range(ROUNDS):
            for name, using in (("pydelta inventory", report), ("pydelta full", "")):
                one = _ours(table, using, conf)
                seconds.setdefault(name, []).append(one["seconds"])
                found.add(one["found"])
                print(f"{name}: {one['seconds']:.1f} s", file=sys.stderr, flush=True)
                result[f"{name}, peak MB"] = max(one["peak MB"], result.get(f"{name}, peak MB", 0))
                result[f"{name}, requests"] = counts() or {"LIST by its own count": one["lists"]}
        with _reference(conf) or nullcontext() as reference:
            for name, using in (("delta-spark inventory", report), ("delta-spark listing", "")) if reference else ():
                seconds[name] = [reference(table, using) for _ in range(2 if using else 1)][-1:]
                print(f"{name}: {seconds[name][0]:.1f} s", file=sys.stderr, flush=True)
                result[f"{name}, requests"] = counts()
    assert len(found) == 1
    medians = {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}
    result |= {"found": found.pop(), "seconds": {name: round(value, 2) for name, value in medians.items()}}
    for peer in ("delta-spark listing", "delta-spark inventory"):
        if peer in medians:
            for name in ("pydelta inventory", "pydelta full"):
                result[f"{peer} : {name}"] = round(medians[peer] / medians[name], 1)
    print(json.dumps(result, indent=1), flush=True)
    return result


def _ours(table: str, report: str, conf: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-c", textwrap.dedent(OURS), table, report, json.dumps(dict(conf))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def _reference(conf: Mapping[str, str]) -> Peer | None:
    settings = {
        "spark.driver.memory": "4g",
        "spark.jars.packages": _PACKAGES,
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "4",
    }
    if jars := os.environ.get("PYDELTA_REFERENCE_S3A_JARS"):  # a folder of hadoop-aws and what it needs
        del settings["spark.jars.packages"]
        settings["spark.jars"] = ",".join(map(str, sorted(Path(jars).glob("*.jar"))))
    return reference_engine(_REFERENCE, settings | {f"spark.hadoop.{name}": value for name, value in conf.items()})
