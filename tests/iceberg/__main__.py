"""``python -m tests.iceberg --seeds 20 --steps 200``: change tables at random, compare what other engines read."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.iceberg.spark_reader import SparkReader
from tests.iceberg.world import WrongRowsError, run_seed


def main() -> int:
    """Run the seeds; 0 when all readers agreed."""
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg", description="Compare readers of Iceberg entries.")
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--steps", type=int, default=200, help="steps of each (200)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--trace", action="store_true", help="print the steps of each seed, and the stack of a failure")
    parser.add_argument("--spark", help="an interpreter with PySpark, whose Iceberg reads after a tenth of the steps")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        spark = None
        if asked.spark:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iceberg-spark-")))
            spark = stack.enter_context(SparkReader(asked.spark, folder))
        return _run(asked, spark)


def _run(asked: argparse.Namespace, spark: SparkReader | None) -> int:
    wrong = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="iceberg-seed-"))
        try:
            world = run_seed(folder, seed, asked.steps, spark)
            versions, seconds = world.log.update().version + 1, time.monotonic() - began
            print(f"seed {seed}: {versions} versions, {seconds:.0f} s, {world.left_to_spark} left to Spark", flush=True)
            if asked.trace:
                print("\n".join(world.trace))
        except WrongRowsError as error:
            wrong += 1
            print(error, flush=True)
            if asked.trace:
                traceback.print_exc()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
