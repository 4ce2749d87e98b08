"""Runs of streaming queries over tables, for the tests of sources."""

from __future__ import annotations

import json

from pyspark.sql import functions as F


def append(spark, path, first, last, files=1):
    """Append whole numbers, by as many tasks as there shall be files."""
    limit = "spark.pydelta.local.maxBytes"
    before = spark.conf.get(limit, None)
    spark.conf.set(limit, "0")  # Without tasks, they become one file.
    try:
        rows = spark.range(first, last, 1, files).withColumn("p", F.col("id") % 2)
        rows.write.format("delta").mode("append").save(path)
    finally:
        spark.conf.unset(limit) if before is None else spark.conf.set(limit, before)


class Query:
    """Runs of one query over its checkpoint; ``batches`` are those of the last run."""

    def __init__(self, folder):
        self.checkpoint = folder
        self.batches = []
        self.progress = []

    def run(self, frame, fail_in=None, **trigger):
        self.batches = []

        def each(rows, number):
            found = sorted(row[0] for row in rows.collect())
            if number == fail_in:
                raise RuntimeError("the batch is lost")
            self.batches.append(found)

        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        try:
            query.awaitTermination()
        finally:
            self.progress = [json.loads(item.json) for item in query.recentProgress]
        return self.batches

    def offsets(self):
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        found = [json.loads(file.read_text().splitlines()[-1]) for file in files]
        return [(item["reservoirVersion"], item["index"], item["isStartingVersion"]) for item in found]


def stream(spark, path, **options):
    return spark.readStream.format("delta").options(**options).load(path)


def all_of(batches):
    return sorted(row for batch in batches for row in batch)
