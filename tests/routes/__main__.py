"""``make test SUITE=simulation ARGS=--routes``: run seeds by every way into the engine, and print what differs."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SETTINGS = {
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; 0 when every way did the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.routes", description="Run commands by every way.")
    parser.add_argument("--seconds", type=float, default=600, help="start no seed after this time (600)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="how many, at most")
    parser.add_argument("--connect", action="store_true", help="by a remote session of pydelta serve")
    parser.add_argument("--show", action="store_true", help="print what each seed does")
    asked = parser.parse_args(arguments)
    sys.path[:0] = ["tests/serve", "tests"]
    with tempfile.TemporaryDirectory(prefix="routes-") as folder:
        return _run(asked, Path(folder))


def _run(asked: argparse.Namespace, folder: Path) -> int:
    from tests.routes.run import run_seed, ways_of

    server, spark = _served(folder) if asked.connect else (None, _session(folder))
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    broken: list[int] = []
    began = time.monotonic()
    for seed in range(asked.first, asked.first + asked.seeds):
        if time.monotonic() > began + asked.seconds:
            break
        place = folder / str(seed)
        place.mkdir()
        outcome = run_seed(seed, ways_of(spark), place, spark)
        counts += outcome.counts + Counter(seeds=1)
        if asked.show or outcome.wrong:
            print("\n".join([f"seed {seed}", *outcome.trace, *outcome.wrong]), flush=True)
        broken += [seed] if outcome.wrong else []
        shutil.rmtree(place)
    print(f"{dict(counts)} in {time.monotonic() - began:.0f} s, {len(broken)} differ: {broken}")
    spark.stop()
    if server is not None:
        server.stop()
    return int(bool(broken))


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    import pydelta

    builder = SparkSession.builder.master("local[2]")
    java = f"-Dderby.system.home={folder} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.driver.extraJavaOptions": java}
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return pydelta.enable(spark)


def _served(folder: Path) -> tuple[Any, Any]:
    """Start a server, and a remote session in this process."""
    from live_server import LiveServer
    from pyspark.sql.connect.session import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    server = LiveServer(folder / "server")
    return server, SparkSession(f"sc://127.0.0.1:{server.connect}/;user_id=ann")


if __name__ == "__main__":
    sys.exit(main())
