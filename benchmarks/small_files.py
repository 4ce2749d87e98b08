"""Measure what a read costs by the number of files that hold the same rows, and after how many reads merging pays.

From it comes the default of ``pydelta.maintenance.compact.minFiles``: the number of files from which a full read takes
half as long again as that of the merged table.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from typing import Any

import pydelta
from benchmarks._timing import interleave
from pydelta.tables import DeltaTable

ROWS = 1_000_000
FILES = (1, 10, 25, 50, 100, 200)
ROUNDS = 3


def run() -> dict[str, Any]:
    """A million rows in 1 to 200 files: a full aggregate, a count of some rows by an unsorted column, OPTIMIZE."""
    spark = pydelta.session(app_name="bench-small-files", conf={"spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as folder:
        for count in FILES:
            rows = spark.range(ROWS, numPartitions=count).selectExpr(
                "(id * 7919) % 1000000 AS id", "rand(7) AS v", "concat('customer-', id % 100000) AS s"
            )
            rows.write.format("delta").save(f"{folder}/{count}")

        def aggregate(count: int) -> None:
            spark.read.format("delta").load(f"{folder}/{count}").selectExpr("sum(v)", "max(s)").collect()

        def some(count: int) -> None:
            spark.read.format("delta").load(f"{folder}/{count}").where("id % 1000 = 7 AND v > 0.5").count()

        result: dict[str, Any] = {}
        for name, query in (("aggregate", aggregate), ("filter", some)):
            medians = interleave({str(count): partial(query, count) for count in FILES}, rounds=ROUNDS)
            result[name] = {count: round(seconds * 1000) for count, seconds in medians.items()}
        merging = {}
        for count in FILES[1:]:
            seconds = []
            for turn in range(2):  # the first warms up
                shutil.copytree(f"{folder}/{count}", f"{folder}/merged-{count}-{turn}")
                table = DeltaTable.forPath(spark, f"{folder}/merged-{count}-{turn}")
                started = time.perf_counter()
                table.optimize().executeCompaction()
                seconds.append(time.perf_counter() - started)
            merging[str(count)] = round(seconds[-1] * 1000)
    result["optimize"] = merging
    once = result["aggregate"]
    print("files   aggregate ms   filter ms   OPTIMIZE ms   reads until it pays")
    for name, spent in once.items():
        saved = spent - once["1"]
        pays = f"{merging[name] / saved:.0f}" if name in merging and saved > 0 else ""
        print(f"{name:>5} {spent:>14} {result['filter'][name]:>11} {merging.get(name, ''):>13} {pays:>21}")
    slow = [int(name) for name, spent in once.items() if spent >= 1.5 * once["1"]]
    print(f"A full read takes half as long again from {min(slow, default=0)} files on.")
    return result | {"half_as_long_again": min(slow, default=None)}
