"""Streams into tables: one version a batch, once, whoever dies when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import dying_copy
import pytest
from dying_copy import PHASES
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from pydelta.api.streams.connections import close_ended
from pydelta.errors import DeltaError, InvalidArgumentError, SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def source(spark, tmp_path):
    """Two files that a stream takes one by one: ids 0 to 9, and 10 to 19."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in (0, 1):
        rows = range(number * 10, number * 10 + 10)
        lines = [json.dumps({"id": row, "p": row % 2, "v": 1}) for row in rows]
        file = folder / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def read(spark, folder, schema="id long, p long, v long"):
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def run(frame, target, checkpoint, mode="append", **options):
    writer = frame.writeStream.format("delta").outputMode(mode).option("checkpointLocation", str(checkpoint))
    query = writer.options(**options).trigger(availableNow=True).start(str(target))
    query.awaitTermination()
    return query


def ids(spark, path):
    return sorted(row.id for row in spark.read.format("delta").load(str(path)).select("id").collect())


def commits(path):
    log = DeltaLog.for_table(str(path))
    return [record.commit_info for record in reversed(log.history())]


def test_each_batch_is_a_version_that_names_query_and_epoch(spark, source, tmp_path):
    target = tmp_path / "t"
    writer = read(spark, source).writeStream.format("delta").partitionBy("p").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start(str(target))
    query.awaitTermination()
    assert ids(spark, target) == list(range(20))
    found = commits(target)
    assert [(info.operation, info.get("operationParameters")) for info in found] == [
        ("STREAMING UPDATE", {"outputMode": "Append", "queryId": query.id, "epochId": epoch}) for epoch in ("0", "1")
    ]
    assert [info.get("isBlindAppend") for info in found] == [True, True]
    metrics = found[1].get("operationMetrics")
    assert (metrics["numAddedFiles"], metrics["numRemovedFiles"], metrics["numOutputRows"]) == ("2", "0", "10")
    snapshot = DeltaLog.for_table(str(target)).update()
    assert snapshot.partition_columns == ("p",)
    assert snapshot.set_transactions[query.id].version == 1
    assert query.lastProgress.sink.description.startswith("DeltaSink[")


def test_batch_that_landed_before_the_checkpoint_said_so_counts_once(spark, source, tmp_path):
    target, checkpoint = tmp_path / "t", tmp_path / "c"
    run(read(spark, source), target, checkpoint)
    (checkpoint / "commits" / "1").unlink()  # as if it was killed between the two
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run(read(spark, source), target, checkpoint)
    assert ids(spark, target) == list(range(20))
    assert DeltaLog.for_table(str(target)).update().version == 1


def test_application_id_takes_the_place_of_the_querys(spark, source, tmp_path):
    target = tmp_path / "t"
    run(read(spark, source), target, tmp_path / "c", txnAppId="copy")
    shutil.rmtree(tmp_path / "c")
    run(read(spark, source), target, tmp_path / "c", txnAppId="copy")  # another query, the same application
    assert ids(spark, target) == list(range(20))
    assert DeltaLog.for_table(str(target)).update().set_transactions["copy"].version == 1


def test_complete_mode_replaces_the_whole_table(spark, source, tmp_path):
    target = tmp_path / "t"
    counted = read(spark, source).groupBy("p").count()
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run(counted, target, tmp_path / "c", mode="complete")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sorted(spark.read.format("delta").load(str(target)).collect()) == [(0, 10), (1, 10)]
    last = commits(target)[-1]
    assert last.get("operationParameters")["outputMode"] == "Complete"
    assert int(last.get("operationMetrics")["numRemovedFiles"]) > 0


def test_from_table_to_table_by_name_and_as_an_option(spark, source, tmp_path):
    run(read(spark, source), tmp_path / "a", tmp_path / "c1")
    frame = spark.readStream.format("delta").load(str(tmp_path / "a"))
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c2")).trigger(availableNow=True)
    try:
        writer.toTable("copied", format="delta", partitionBy="p").awaitTermination()
        assert sorted(row.id for row in spark.table("copied").collect()) == list(range(20))
        assert spark.sql("DESCRIBE DETAIL copied").first().partitionColumns == ["p"]
        again = frame.writeStream.option("checkpointLocation", str(tmp_path / "c3")).trigger(availableNow=True)
        again.toTable("copied").awaitTermination()  # a table that is there needs no format
        assert spark.table("copied").count() == 40
    finally:
        spark.sql("DROP TABLE IF EXISTS copied")
    by_option = frame.writeStream.format("delta").option("path", str(tmp_path / "o")).trigger(availableNow=True)
    by_option.option("checkpointLocation", str(tmp_path / "c4")).start().awaitTermination()
    assert ids(spark, tmp_path / "o") == list(range(20))


def test_new_column_needs_merge_schema(spark, source, tmp_path):
    target = tmp_path / "t"
    run(read(spark, source, "id long, p long"), target, tmp_path / "c")
    with pytest.raises(SchemaError) as caught:
        run(read(spark, source), target, tmp_path / "c2")
    assert isinstance(caught.value, StreamingQueryException)
    assert "mergeSchema" in str(caught.value)
    assert ids(spark, target) == list(range(20))
    run(read(spark, source), target, tmp_path / "c2", mergeSchema=True)
    assert spark.read.format("delta").load(str(target)).where("v = 1").count() == 20


@pytest.mark.parametrize(
    ("mode", "options", "kind", "words"),
    [
        ("update", {}, UnsupportedFeatureError, "foreachBatch and MERGE"),
        ("append", {"txnVersion": "3", "txnAppId": "a"}, InvalidArgumentError, "txnVersion"),
        ("append", {"mergeSchemas": "true"}, InvalidArgumentError, "mergeSchema"),
        ("append", {"replaceWhere": "id > 1"}, InvalidArgumentError, "replaceWhere"),
    ],
)
def test_what_cannot_be_is_refused_before_the_query_starts(spark, source, tmp_path, mode, options, kind, words):
    with pytest.raises(kind, match=words) as caught:
        run(read(spark, source), tmp_path / "t", tmp_path / "c", mode=mode, **options)
    assert isinstance(caught.value, AnalysisException)
    assert not (tmp_path / "t").exists()


def test_no_path_and_columns_without_a_type_are_refused(spark, source, tmp_path):
    writer = read(spark, source).writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(InvalidArgumentError, match="No path"):
        writer.start()
    with pytest.raises(SchemaError, match="column n"):
        run(read(spark, source).withColumn("n", F.lit(None)), tmp_path / "t", tmp_path / "c")


def test_errors_of_spark_itself_come_as_they_are(spark, source, tmp_path):
    with pytest.raises(AnalysisException, match="watermark") as caught:
        run(read(spark, source).groupBy("p").count(), tmp_path / "t", tmp_path / "c")
    assert not isinstance(caught.value, DeltaError)


def test_merge_in_foreach_batch_counts_once(spark, source, tmp_path):
    target = str(tmp_path / "t")
    spark.range(0, 5).selectExpr("id", "0L AS p", "0L AS v").write.format("delta").save(target)

    def upsert(rows, number):
        session = rows.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", "upsert")
        session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        merge = DeltaTable.forPath(session, target).alias("t").merge(rows.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdate(set={"v": "t.v + s.v"}).whenNotMatchedInsertAll().execute()

    def start():
        writer = read(spark, source).writeStream.foreachBatch(upsert).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    start()
    (tmp_path / "c" / "commits" / "1").unlink()
    (tmp_path / "c" / "commits" / ".1.crc").unlink(missing_ok=True)
    start()
    assert ids(spark, target) == list(range(20))
    assert DeltaLog.for_table(target).update().version == 2
    assert spark.read.format("delta").load(target).agg(F.sum("v")).first()[0] == 20


def test_a_query_that_has_ended_leaves_no_thread(spark, source, tmp_path):
    def threads():
        return {thread for thread in threading.enumerate() if "connection" in repr(thread._target).lower()}

    run(read(spark, source), tmp_path / "t0", tmp_path / "c0")
    before = threads()
    for number in (1, 2, 3):
        run(read(spark, source), tmp_path / f"t{number}", tmp_path / f"c{number}")
    more = threads() - before
    assert more, "queries are served by threads"
    give_up = time.monotonic() + 120
    while len(threads() & (before | more)) > len(before):  # all but the last query's, which the next one closes
        close_ended(spark)
        assert time.monotonic() < give_up, f"{len(more)} threads stay"
        time.sleep(0.1)


@pytest.mark.ci
def test_killed_in_every_phase_of_a_batch_nothing_is_lost_or_doubled(spark, tmp_path):
    source, target, checkpoint = (str(tmp_path / name) for name in "stc")
    files = 2 * len(PHASES) + 1
    spark.range(0, 10 * files, 1, files).write.format("delta").save(source)
    for number, phase in enumerate(PHASES):
        arguments = [sys.executable, dying_copy.__file__, source, target, checkpoint, phase]
        killed = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, f"{phase}: {killed.stderr[-2000:]}"
        landed = commits(target)
        assert len(landed) > number, f"{phase}: {len(landed)} batches"
        assert ids(spark, target) == sorted(set(ids(spark, target))), phase
    run(spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source), target, checkpoint)
    assert ids(spark, target) == list(range(10 * files))
    epochs = [int(info.get("operationParameters")["epochId"]) for info in commits(target)]
    assert epochs == list(range(len(epochs)))


@pytest.mark.parametrize(
    "properties", [("autoOptimize.autoCompact",), ("autoOptimize.autoCompact", "autoOptimize.optimizeWrite")]
)
def test_many_small_batches_do_not_end_in_as_many_files(spark, tmp_path, properties):
    folder, target = tmp_path / "source", str(tmp_path / "t")
    folder.mkdir()
    for number in range(12):
        file = folder / f"{number}.json"
        file.write_text("\n".join(json.dumps({"id": number * 4 + row, "p": row % 2, "v": 1}) for row in range(4)))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    given = ", ".join(f"'delta.{name}'='true'" for name in properties)
    spark.sql(f"CREATE TABLE delta.`{target}` (id long, p long, v long) USING delta TBLPROPERTIES ({given})")
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    try:
        run(read(spark, folder).repartition(2), target, tmp_path / "c")
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
    assert ids(spark, target) == list(range(48))
    done = [info.operation for info in commits(target)]
    assert done.count("STREAMING UPDATE") == 12
    assert done.count("OPTIMIZE") >= 2
    written = 12 if "autoOptimize.optimizeWrite" in properties else 24
    assert DeltaLog.for_table(target).update().num_files < written / 3
