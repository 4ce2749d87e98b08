"""Steps of queries that either engine takes: the same programs in both processes."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import functions as F


def append(spark, path, first, last, files):
    rows = spark.range(first, last, 1, files).withColumn("p", F.col("id") % 2)
    rows.write.format("delta").mode("append").save(path)


def query(spark, table, checkpoint, out, options, fail_in=None, columns=None):
    """Run a query over a table, and add the ids of its batches to a file; the batch ``fail_in`` is planned and lost."""

    def each(rows, number):
        found = [list(map(str, row)) for row in rows.drop("_commit_timestamp").collect()]
        if number == fail_in:
            raise RuntimeError("the batch is lost")
        with Path(out).open("a") as file:
            file.write(json.dumps(sorted(found)) + "\n")

    frame = spark.readStream.format("delta").options(**options).load(table)
    frame = frame if columns is None else frame.select(*columns)
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    running = writer.trigger(availableNow=True).start()
    if fail_in is None:
        running.awaitTermination()
        return
    try:
        running.awaitTermination()
    except Exception as error:
        if "the batch is lost" not in str(error):
            raise
    else:
        raise AssertionError(f"batch {fail_in} did not come")


def stopped(spark, condition, **given):
    """Run a query that ends with an error of this name."""
    try:
        query(spark, **given)
    except Exception as error:
        if condition not in str(error):
            raise
    else:
        raise AssertionError(f"{condition} did not come")


def copy(spark, table, checkpoint, target, forget=None):
    """Copy a table by a stream; ``forget`` takes the mark of a batch's end away, as if the process had been killed."""
    frame = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table)
    writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(target).awaitTermination()
    if forget is not None:
        for name in (f"{forget}", f".{forget}.crc"):
            (Path(checkpoint) / "commits" / name).unlink(missing_ok=True)


def perform(spark, steps):
    for step in steps:
        given = dict(step)
        kind = given.pop("kind")
        if kind == "sql":
            spark.sql(given["text"])
        else:
            {"append": append, "query": query, "stopped": stopped, "copy": copy}[kind](spark, **given)
