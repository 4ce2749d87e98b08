"""Runs of streaming queries over tables, for the tests of sources."""

from __future__ import annotations

import functools
import itertools
import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def append(spark, path, first, last, files=1):
    """Append whole numbers in some files, which a range of as many slices as there are cores does not become."""
    bounds = [first + (last - first) * number // files for number in range(files + 1)]
    parts = [spark.range(start, end, 1, 1) for start, end in itertools.pairwise(bounds)]
    rows = functools.reduce(DataFrame.union, parts)
    rows.withColumn("p", F.col("id") % 2).write.format("delta").mode("append").save(path)


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
