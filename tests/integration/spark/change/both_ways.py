"""Run a command on two copies of a table, by Spark's jobs and in this process; what is told must be the same."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter

import pytest
from pyspark.sql import functions as F

from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

_COPIES = itertools.count()
LIMIT = "spark.pydelta.local.maxBytes"
ANSI = "spark.sql.ansi.enabled"
ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def session(spark):
    """The session, with its zone and the way of its commands put back afterwards."""
    zone, ansi = spark.conf.get(ZONE), spark.conf.get(ANSI)
    yield spark
    spark.conf.set(ZONE, zone)
    spark.conf.set(ANSI, ansi)
    spark.conf.unset(LIMIT)


def make(spark, path, data, *, partition_by=(), **properties):
    frame = spark.createDataFrame(data)
    options = {name.replace("_", "."): value for name, value in properties.items()}
    frame.repartition(2, "id").write.format("delta").partitionBy(*partition_by).options(**options).save(path)


SHAPES = {
    "plain": ({}, []),
    "partitioned": ({}, ["p"]),
    "vectors": ({"delta_enableDeletionVectors": "true"}, []),
    "partitioned, vectors and feed": (
        {"delta_enableDeletionVectors": "true", "delta_enableChangeDataFeed": "true"},
        ["p"],
    ),
    "feed": ({"delta_enableChangeDataFeed": "true"}, []),
    "mapped": ({"delta_columnMapping_mode": "name"}, ["p"]),
    "ids": ({"delta_enableRowTracking": "true"}, []),
    "ids, feed and mapped": (
        {
            "delta_enableRowTracking": "true",
            "delta_enableChangeDataFeed": "true",
            "delta_columnMapping_mode": "name",
        },
        [],
    ),
    "ids, feed and partitioned": (
        {
            "delta_enableRowTracking": "true",
            "delta_enableChangeDataFeed": "true",
            "delta_enableDeletionVectors": "true",
        },
        ["p"],
    ),
}


def texts_of(frame):
    names = [f"hex({name})" if name == "b" else f"`{name}`" for name in frame.columns]
    texts = frame.selectExpr(f"CAST(struct({', '.join(names)}) AS STRING) AS row")
    return Counter(texts.toArrow().column("row").to_pylist())


def state_of(spark, path, shape):
    """Rows with their ids and versions, as text that tells NaN, -0.0 and null apart; the feed; the counts."""
    table = DeltaTable.forPath(spark, path)
    frame = table.toDFWithRowTracking() if "ids" in shape else table.toDF()
    if "ids" in shape and "partitioned" in shape:  # new files of several partitions get their ids in any order
        first = spark.read.format("delta").option("versionAsOf", 0).load(path).count()
        number = frame.columns[-2]
        frame = frame.withColumn(number, F.when(F.col(f"`{number}`") < first, F.col(f"`{number}`")))
    found = {"rows": texts_of(frame)}
    if "feed" in shape and DeltaLog.for_table(path).update().version:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
        found["feed"] = texts_of(feed.drop("_commit_timestamp"))
    return found


OF_ROWS = ("numDeletedRows", "numUpdatedRows")
OF_FILES = (
    "numCopiedRows", "numRemovedFiles", "numRemovedBytes", "numDeletionVectorsAdded", "numDeletionVectorsRemoved",
    "numDeletionVectorsUpdated",
)  # fmt: skip


def history(path):
    """What the history says; of files as long as both tables have the same ones, which is up to the first change."""
    found = []
    for record in DeltaLog.for_table(path).history():
        fields = record.commit_info.fields
        metrics = fields.get("operationMetrics") or {}
        same = (*OF_ROWS, *OF_FILES) if record.version <= 1 else OF_ROWS
        parameters = re.sub(r"#\d+", "#", str(fields.get("operationParameters")))  # Spark numbers columns as it goes
        counts = {name: metrics[name] for name in same if name in metrics}
        found.append((record.version, fields["operation"], parameters, fields.get("isBlindAppend"), counts))
    return found


def differing(left, right, path=""):
    """The parts of two outcomes that are not the same, with where they are."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return [item for key in left for item in differing(left[key], right[key], f"{path}.{key}")]
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [item for place, pair in pairs for item in differing(*pair, f"{path}[{place}]")]
    return [] if left == right else [(path, left, right)]


def twice(spark, path, run, shape):
    """Run a command on two copies of a table, by Spark alone and here; what is told must be the same."""
    outcomes, ways = [], None
    for limit in ("0", "64m"):
        copy = f"{path}-{next(_COPIES)}-{limit}"  # no two copies at one place: they are of one table and one version
        shutil.copytree(path, copy)
        spark.conf.set(LIMIT, limit)
        try:
            told = run(copy)
        except Exception as error:  # noqa: BLE001 - both ways must say the same
            told = f"{type(error).__name__}: {str(error).replace(copy, 'PATH')}"
        finally:
            spark.conf.unset(LIMIT)
        DeltaLog.clear_cache()
        outcomes.append((told, state_of(spark, copy, shape), history(copy)))
        last = DeltaLog.for_table(copy).history(1)[0].commit_info.fields.get("operationMetrics") or {}
        if limit == "0":
            assert not {"scannedBy", "rewrittenBy"} & last.keys()
        else:
            ways = last.get("scannedBy"), last.get("rewrittenBy")
        shutil.rmtree(copy)
    assert outcomes[0] == outcomes[1], differing(*outcomes)
    return ways
