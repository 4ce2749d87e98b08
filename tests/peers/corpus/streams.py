"""Streams out of and into tables: what the reference engine's documentation shows."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("streams")


def made(at, *more, properties=""):
    at.sql(f"CREATE TABLE delta.`{at.p}` (id INT, v STRING) USING delta {properties}")
    for text in ("INSERT INTO delta.`{p}` VALUES (1, 'a'), (2, 'b')", "INSERT INTO delta.`{p}` VALUES (3, 'c')", *more):
        at.sql(text)


def read(at, **options):
    return at.spark.readStream.format("delta").options(**options).load(at.p)


def batches(frame, checkpoint):
    """The rows of each batch; what ended the query, if it did not end by itself, as the conditions that it names."""
    found = []

    def each(rows, _):
        found.append(sorted(str(row) for row in rows.collect()))

    query = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        found.append([word for word in CONDITIONS if word in str(error)])
    return found


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
            return batches(read(at, **options), at.d + "/c")

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
