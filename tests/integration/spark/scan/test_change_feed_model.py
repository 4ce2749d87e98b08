"""Random operations on a table with a feed: what it says of each version is the difference of the rows, exactly."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark

_GONE = ("delete", "update_preimage")
_COME = ("insert", "update_postimage")


def _rows(frame):
    return Counter((row["id"], row["p"], row["v"]) for row in frame.collect())


def _new(spark, chance):
    first = chance.randrange(30)
    return spark.range(first, first + 4, 1, 1).selectExpr("id", "cast(id % 3 as int) as p", f"'{first}' as v")


def _step(spark, path, chance):
    table = DeltaTable.forPath(spark, path)
    bound, number = chance.randrange(30), chance.randrange(3)

    def write(**options):
        mode = "overwrite" if options else "append"
        rows = _new(spark, chance)
        if "replaceWhere" in options:
            rows = rows.where(options["replaceWhere"])
        rows.write.format("delta").mode(mode).options(**options).save(path)

    steps = {
        "append": write,
        "delete": lambda: table.delete(f"id % 5 = {number}"),
        "delete partition": lambda: table.delete(f"p = {number}"),
        "update": lambda: table.update(f"id > {bound}", {"v": "concat(v, 'u')"}),
        "move": lambda: table.update(f"id = {bound}", {"p": f"{number}"}),
        "replace rows": lambda: write(replaceWhere=f"id >= {bound}"),
        "replace partition": lambda: write(replaceWhere=f"p = {number}"),
        "dynamic": lambda: write(partitionOverwriteMode="dynamic"),
        "optimize": lambda: table.optimize().executeCompaction(),
        "restore": lambda: table.restoreToVersion(chance.randrange(DeltaLog.for_table(path).update().version + 1)),
    }
    name = chance.choice(sorted(steps))
    steps[name]()
    return name


@pytest.mark.ci
@pytest.mark.parametrize("vectors", [False, True], ids=["rewritten", "vectors"])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_version_of_the_feed_is_the_difference_of_the_rows(spark, tmp_path, seed, vectors):
    path, chance = str(tmp_path / "t"), random.Random(seed)
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": str(vectors).lower()}
    first = spark.range(0, 20, 1, 2).selectExpr("id", "cast(id % 3 as int) as p", "'a' as v")
    first.write.format("delta").options(**properties).partitionBy("p").save(path)
    done = [_step(spark, path, chance) for _ in range(9)]
    newest = DeltaLog.for_table(path).update().version
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path).collect()
    before: Counter = Counter()
    for version in range(newest + 1):
        after = _rows(spark.read.format("delta").option("versionAsOf", version).load(path))
        said = [row for row in feed if row["_commit_version"] == version]
        gone = Counter((r["id"], r["p"], r["v"]) for r in said if r["_change_type"] in _GONE)
        come = Counter((r["id"], r["p"], r["v"]) for r in said if r["_change_type"] in _COME)
        assert gone <= before, (done, version)
        assert before - gone + come == after, (done, version)
        before = after
