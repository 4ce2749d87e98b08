"""Streams out of and into tables: what the reference engine's documentation shows."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from differ.programs import Corpus
from pyspark.sql import functions as F

corpus = Corpus("streams")


def made(at, *more, properties=""):
    at.sql(f"CREATE TABLE delta.`{at.p}` (id INT, v STRING) USING delta {properties}")
    for text in ("INSERT INTO delta.`{p}` VALUES (1, 'a'), (2, 'b')", "INSERT INTO delta.`{p}` VALUES (3, 'c')", *more):
        at.sql(text)


def read(at, **options):
    return at.spark.readStream.format("delta").options(**options).load(at.p)


def batches(frame, checkpoint):
    """The rows of each batch; what ended the query, if it did not end by itself, as the conditions that it names.

    ``frame`` may be a function that gives it: then it is no matter whether ``load`` or ``start`` refuses an option.
    """
    kept = Path(f"{checkpoint}-{uuid.uuid4()}")  # a file: by Spark Connect the function runs in another process

    def each(rows, _):
        with kept.open("a") as file:
            file.write(json.dumps(sorted(str(row) for row in rows.collect())) + "\n")

    ended = []
    try:
        streamed = frame() if callable(frame) else frame
        query = streamed.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        ended = [[word for word in CONDITIONS if word in str(error)]]
    lines = kept.read_text().splitlines() if kept.exists() else []
    return [json.loads(line) for line in lines] + ended


CONDITIONS = ("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SCHEMA_CHANGED_WITH_VERSION",
              "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", "DELTA_METADATA_MISMATCH")  # fmt: skip


def write(frame, at, mode="append", **options):
    writer = frame.writeStream.format("delta").outputMode(mode).options(**options)
    writer.option("checkpointLocation", at.d + "/c").trigger(availableNow=True).start(at.d + "/o").awaitTermination()
    return at.spark.read.format("delta").load(at.d + "/o")


DELETE, UPDATE = "DELETE FROM delta.`{p}` WHERE id = 3", "UPDATE delta.`{p}` SET v = 'x' WHERE id = 2"
for name, (more, options) in {
    "all rows": ((), {}),
    "from a version": ((), {"startingVersion": "2"}),
    "from a version of the future": ((), {"startingVersion": "99"}),
    "from a time": ((), {"startingTimestamp": "2001-01-01"}),
    "from a time of the future": ((), {"startingTimestamp": "2999-01-01"}),
    "a version and a time": ((), {"startingVersion": "1", "startingTimestamp": "2001-01-01"}),
    "a file a batch": ((), {"startingVersion": "0", "maxFilesPerTrigger": "1"}),
    "no file a batch": ((), {"maxFilesPerTrigger": "0"}),
    "bytes": ((), {"startingVersion": "0", "maxBytesPerTrigger": "1b"}),
    "a delete": ((DELETE,), {"startingVersion": "0"}),
    "a delete ignored": ((DELETE,), {"startingVersion": "0", "ignoreDeletes": "true"}),
    "an update": ((UPDATE,), {"startingVersion": "0"}),
    "an update for a delete": ((UPDATE,), {"startingVersion": "0", "ignoreDeletes": "true"}),
    "an update ignored": ((UPDATE,), {"startingVersion": "0", "ignoreChanges": "true"}),
    "an update skipped": ((UPDATE, DELETE), {"startingVersion": "0", "skipChangeCommits": "true"}),
    "everything excluded": ((), {"startingVersion": "0", "excludeRegex": "parquet"}),
    "a version to travel to": ((), {"versionAsOf": "1"}),
}.items():

    def add(name=name, more=more, options=options):
        @corpus.python(name, history=False)
        def program(at):
            made(at, *more)
            return batches(lambda: read(at, **options), at.d + "/c")

    add()


@corpus.python("the change feed", history=False)
def feed(at):
    made(at, UPDATE, DELETE, properties="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    frame = read(at, readChangeFeed="true", startingVersion="0", maxFilesPerTrigger="1").drop("_commit_timestamp")
    return batches(frame, at.d + "/c")


@corpus.python("a column that comes while the query runs", history=False)
def column(at):
    made(at)
    frame = read(at)
    at.tell(batches(frame, at.d + "/c"))
    at.sql("ALTER TABLE delta.`{p}` ADD COLUMN n INT")
    at.sql("INSERT INTO delta.`{p}` VALUES (4, 'd', 5)")
    [stopped] = batches(frame, at.d + "/c")
    at.tell(all(isinstance(name, str) and not name.startswith("Row(") for name in stopped))
    return batches(read(at), at.d + "/c")


@corpus.python("into a table")
def copy(at):
    made(at)
    return write(read(at), at)


@corpus.python("into a table in complete mode")
def complete(at):
    made(at)
    return write(read(at).groupBy("v").count(), at, mode="complete")


@corpus.python("into a table in update mode")
def update(at):
    made(at)
    return write(read(at).groupBy("v").count(), at, mode="update")


@corpus.python("into a table with a new column")
def merged(at):
    made(at)
    at.sql("CREATE TABLE delta.`{d}/o` (id INT) USING delta")
    return write(read(at), at, mergeSchema="true")


@corpus.python("into a table by name", history=False)
def named(at):
    made(at)
    writer = read(at).writeStream.format("delta").option("checkpointLocation", at.d + "/c").trigger(availableNow=True)
    writer.toTable(at.t).awaitTermination()
    return at.spark.table(at.t)


@corpus.python("MERGE of each batch")
def upsert(at):
    made(at)
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")

    def each(rows, _):
        target = at.DeltaTable.forName(rows.sparkSession, at.t).alias("t")
        merge = target.merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
        merge.execute()

    writer = read(at, maxFilesPerTrigger="1").writeStream.foreachBatch(each).option("checkpointLocation", at.d + "/c")
    writer.trigger(availableNow=True).start().awaitTermination()
    return at.spark.table(at.t)


@corpus.python("each batch written once")
def once(at):
    made(at)

    def each(rows, number):
        for _ in range(2):
            writer = rows.write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", number)
            writer.save(at.d + "/o")

    writer = read(at).writeStream.foreachBatch(each).option("checkpointLocation", at.d + "/c")
    writer.trigger(availableNow=True).start().awaitTermination()
    return at.spark.read.format("delta").load(at.d + "/o")


# What the documentation shows besides, in words of our own


@corpus.python("from a table by name", history=False)
def by_name(at):
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")
    at.sql("INSERT INTO {t} VALUES (1, 'a')")
    at.sql("INSERT INTO {t} VALUES (2, 'b'), (3, 'c')")
    return batches(at.spark.readStream.option("maxFilesPerTrigger", "1").table(at.t), at.d + "/c")


@corpus.python("rows by the time of their events, with a watermark", history=False)
def event_time(at):
    at.sql("CREATE TABLE delta.`{p}` (id INT, at TIMESTAMP) USING delta")
    for time in ("05:15", "01:10", "09:40", "03:20"):
        at.sql(f"INSERT INTO delta.`{{p}}` SELECT id, TIMESTAMP'2024-01-01 {time}:00' FROM range(2)")
    frame = read(at, withEventTimeOrder="true", maxFilesPerTrigger="1").withWatermark("at", "10 seconds")
    counted = frame.groupBy(F.window("at", "1 hour").alias("w")).count().select("w.start", "count")
    return write(counted, at)


@corpus.python("events counted as they come, in complete mode, by name", history=False)
def counted(at):
    made(at)
    frame = read(at, maxFilesPerTrigger="1").groupBy("v").count()
    writer = frame.writeStream.format("delta").outputMode("complete").option("checkpointLocation", at.d + "/c")
    writer.trigger(availableNow=True).toTable(at.t).awaitTermination()
    return at.spark.table(at.t)


@corpus.python("a running total by MERGE in SQL, in update mode", history=False)
def totals(at):
    made(at)
    at.sql("CREATE TABLE {t} (v STRING, n BIGINT) USING delta")
    text = "MERGE INTO {t} t USING changes c ON t.v = c.v WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

    def each(rows, _):
        rows.createOrReplaceTempView("changes")
        rows.sparkSession.sql(at.named(text))

    frame = read(at, maxFilesPerTrigger="1").groupBy("v").agg(F.count("*").alias("n"))
    writer = frame.writeStream.foreachBatch(each).outputMode("update").option("checkpointLocation", at.d + "/c")
    writer.trigger(availableNow=True).start().awaitTermination()
    return at.spark.table(at.t)


@corpus.python("no key twice: a MERGE that only inserts", history=False)
def distinct(at):
    made(at, "INSERT INTO delta.`{p}` VALUES (3, 'again'), (4, 'd')")
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")

    def each(rows, _):
        target = at.DeltaTable.forName(rows.sparkSession, at.t).alias("t")
        target.merge(rows.dropDuplicates(["id"]).alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()

    writer = read(at, startingVersion="0", maxFilesPerTrigger="1").writeStream.foreachBatch(each)
    writer.option("checkpointLocation", at.d + "/c").trigger(availableNow=True).start().awaitTermination()
    return at.spark.table(at.t).select("id")


@corpus.python("changes of one table applied to another", history=False)
def applied(at):
    made(at, UPDATE, DELETE, properties="TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    at.sql("CREATE TABLE {t} (id INT, v STRING) USING delta")

    def each(rows, _):
        newest = rows.where("_change_type != 'update_preimage'")
        target = at.DeltaTable.forName(rows.sparkSession, at.t).alias("t")
        merge = target.merge(newest.alias("s"), "t.id = s.id").whenMatchedDelete("s._change_type = 'delete'")
        merge = merge.whenMatchedUpdate(set={"v": "s.v"})
        merge.whenNotMatchedInsert("s._change_type != 'delete'", {"id": "s.id", "v": "s.v"}).execute()

    frame = read(at, readChangeFeed="true", startingVersion="0", maxFilesPerTrigger="1")
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", at.d + "/c")
    writer.trigger(availableNow=True).start().awaitTermination()
    return at.spark.table(at.t)


@corpus.python("a renamed column, followed by its schema log", history=False)
def renamed(at):
    made(at, properties="TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    checkpoint = at.d + "/c"
    options = {"schemaTrackingLocation": checkpoint + "/schemas", "allowSourceColumnRename": "always"}

    def some():
        found = batches(read(at, **options), checkpoint)
        return [part for part in found if part and part[0].startswith("Row(")]

    at.tell(some())
    at.tell(some())
    at.sql("ALTER TABLE delta.`{p}` RENAME COLUMN v TO w")
    at.sql("INSERT INTO delta.`{p}` VALUES (4, 'd')")
    return [some() for _ in range(3)]
