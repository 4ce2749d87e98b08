"""The DataFrame API and DeltaTable of a remote PySpark session, which has no JVM, against ``pydelta serve``."""

from __future__ import annotations

import pytest
from live_server import LiveServer

from pydelta.log import DeltaLog


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    found = LiveServer(tmp_path_factory.mktemp("frames"))
    yield found
    found.stop()


def log(live, name):
    return DeltaLog.for_table(str(live.warehouse / name)).update()


def test_frames_are_written_and_read_by_name_and_by_path(live, tmp_path):
    told = live.remote(
        f"""
        from pyspark.sql import functions as F
        ids = lambda frame: sorted(row[0] for row in frame.collect())
        spark.range(3).write.format("delta").saveAsTable("framed")
        spark.range(3, 5).write.mode("append").format("delta").saveAsTable("framed")
        spark.range(5, 6).write.insertInto("framed")
        tell(ids(spark.table("framed")))
        tell(ids(spark.read.option("versionAsOf", 0).table("framed")))
        tell(ids(spark.table("framed").join(spark.range(2, 9), "id").where(F.col("framed.id") > 2)))
        path = "{tmp_path / "by path"}"
        frame = spark.range(4).withColumn("p", (F.col("id") % 2).cast("string"))
        frame.write.format("delta").partitionBy("p").save(path)
        spark.range(7, 8).withColumn("p", F.lit("1")).write.format("delta").mode("overwrite").option(
            "replaceWhere", "p = '1'").save(path)
        tell(ids(spark.read.format("delta").load(path)))
        tell(ids(spark.read.format("delta").option("versionAsOf", "0").load(path)))
        spark.table("framed").write.format("delta").saveAsTable("copied")
        tell(ids(spark.table("copied")))
        spark.range(2).write.saveAsTable("other", format="parquet")
        tell(ids(spark.table("other")))
        """
    )
    assert told == [
        [0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 2, 7], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1],
    ]  # fmt: skip
    assert log(live, "framed").version == 2
    partitioned = DeltaLog.for_table(str(tmp_path / "by path")).update()
    assert partitioned.metadata.partition_columns == ("p",)
    assert not DeltaLog.for_table(str(live.warehouse / "other")).table_exists()


def test_the_second_writer_api_and_merge_into(live):
    told = live.remote(
        """
        from pyspark.sql import functions as F
        ids = lambda name: sorted(row[0] for row in spark.table(name).collect())
        spark.range(4).writeTo("second").using("delta").tableProperty("delta.appendOnly", "false").create()
        spark.range(4, 6).writeTo("second").append()
        spark.range(10, 12).writeTo("second").overwrite(F.col("id") >= 4)
        tell(ids("second"))
        spark.range(1).writeTo("second").using("delta").createOrReplace()
        tell(ids("second"))
        source = spark.range(3).alias("s")
        source.mergeInto("second", F.expr("second.id = s.id")).whenMatched(F.col("s.id") == 0).delete() \\
            .whenNotMatched().insertAll().merge()
        tell(ids("second"))
        """
    )
    assert told == [[0, 1, 2, 3, 10, 11], [0], [1, 2]]
    assert log(live, "second").version == 4


def test_a_frame_reads_what_the_table_holds_when_it_is_asked(live):
    told = live.remote(
        """
        spark.range(2).write.format("delta").saveAsTable("fresh")
        frame = spark.table("fresh")
        tell(frame.count())
        frame.createOrReplaceTempView("seen")
        spark.range(2, 5).write.insertInto("fresh")
        tell([spark.table("fresh").count(), spark.sql("SELECT count(*) FROM seen").first()[0]])
        """
    )
    assert told == [2, [5, 5]]


def test_a_plan_of_three_hundred_steps_runs(live):
    told = live.remote(
        """
        from pyspark.sql import functions as F
        spark.range(1).write.format("delta").saveAsTable("deep")
        frame = spark.table("deep")
        for step in range(300):
            frame = frame.withColumn(f"c{step}", F.lit(step))
        tell([frame.count(), len(frame.columns)])
        """
    )
    assert told == [[1, 301]]


def test_delta_table_of_a_remote_session_does_what_the_classic_one_does(live):
    told = live.remote(
        """
        from pyspark.sql import functions as F
        from pydelta.tables import DeltaTable
        rows = lambda frame: sorted(map(list, frame.collect()))
        table = (DeltaTable.createIfNotExists(spark).tableName("remote").addColumn("id", "bigint")
            .addColumn("n", "int", comment="a number").property("delta.enableChangeDataFeed", "true").execute())
        spark.sql("INSERT INTO remote VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        deleted = table.delete(F.col("id") == 1)
        tell([type(deleted).__name__, deleted.num_deleted_rows, deleted.version])
        updated = table.update("id = 2", {"n": F.col("n") + 10})
        tell([type(updated).__name__, updated.num_updated_rows, updated.version, updated.skipped])
        tell(table.purge().version)
        source = spark.createDataFrame([(3, 30), (5, 50)], "id bigint, n int").alias("s")
        merged = (table.alias("t").merge(source, F.col("t.id") == F.col("s.id"))
            .whenMatchedUpdate(condition="s.n > 1", set={"n": "s.n"})
            .whenNotMatchedInsert(values={"id": F.col("s.id"), "n": "s.n"})
            .whenNotMatchedBySourceDelete(condition=F.col("t.id") == 4).execute())
        tell(rows(merged))
        tell(rows(table.toDF()))
        tell([row.operation for row in table.history(2).collect()])
        tell(table.detail().first()["numFiles"] > 0)
        plus = F.udf(lambda value: value == 5, "boolean")
        tell(table.delete(plus(F.col("id"))).num_deleted_rows)
        spark.sql("INSERT INTO remote VALUES (6, 6)")  # two files at least, whoever wrote those before
        tell(rows(table.optimize().executeCompaction().select("metrics.numFilesAdded")))
        table.restoreToVersion(1)
        tell(rows(table.toDF()))
        clone = table.clone("cloned", isShallow=True)
        tell(rows(clone.toDF()))
        tell(rows(DeltaTable.forName(spark, "cloned").toDF()))
        location = table.detail().first()["location"]
        tell([DeltaTable.isDeltaTable(spark, location), DeltaTable.isDeltaTable(spark, location + "/none")])
        tell(DeltaTable.forPath(spark, location).vacuum(dryRun=True).count() >= 0)
        tell(rows(table.fsck()))
        written, cleaned = table.checkpoint(), table.cleanup()
        tell([type(written).__name__, written.version == table.history(1).first()["version"], written.sidecars == ()])
        tell([type(cleaned).__name__, cleaned.deleted, cleaned.failed == ()])
        """
    )
    assert told == [
        ["DeleteResult", 1, 2], ["UpdateResult", 1, 3, False], None, [[3, 1, 1, 1]],
        [[2, 12], [3, 30], [5, 50]], ["MERGE", "UPDATE"], True, 1, [[1]],
        [[1, 1], [2, 2], [3, 3], [4, 4]], [[1, 1], [2, 2], [3, 3], [4, 4]], [[1, 1], [2, 2], [3, 3], [4, 4]],
        [True, False], True, [], ["CheckpointResult", True, True], ["CleanupResult", 0, True],
    ]  # fmt: skip


def test_streams_of_a_remote_session_read_and_write_delta_tables(live, tmp_path):
    told = live.remote(
        f"""
        spark.range(5).write.format("delta").saveAsTable("source")
        query = (spark.readStream.table("source").writeStream.format("delta").queryName("copy")
            .option("checkpointLocation", "{tmp_path}/one").trigger(availableNow=True).toTable("target"))
        query.awaitTermination()
        tell([query.name, len(query.id) > 30, query.lastProgress.numInputRows, spark.table("target").count()])
        location = spark.sql("DESCRIBE DETAIL source").first()["location"]
        query = (spark.readStream.format("delta").load(location).writeStream.format("delta")
            .option("checkpointLocation", "{tmp_path}/two").start("{tmp_path}/out"))
        spark.range(5, 8).write.insertInto("source")
        query.processAllAvailable()
        tell([query.isActive, spark.read.format("delta").load("{tmp_path}/out").count()])
        query.stop()
        tell([query.isActive, [item.id for item in spark.streams.active]])
        """
    )
    assert told == [["copy", True, 5, 5], [True, 8], [False, []]]


def test_a_function_of_foreach_batch_uses_the_engine_as_any_client_does(live, tmp_path):
    told = live.remote(
        f"""
        spark.range(6).selectExpr("id", "id % 3 AS kind").write.format("delta").saveAsTable("events")
        spark.sql("CREATE TABLE counts (kind BIGINT, n BIGINT) USING delta")

        def count(batch, number):
            from pydelta.tables import DeltaTable

            found = batch.groupBy("kind").count()
            target = DeltaTable.forName(batch.sparkSession, "counts").alias("t")
            (target.merge(found.alias("s"), "t.kind = s.kind")
                .whenMatchedUpdate(set={{"n": "t.n + s.count"}})
                .whenNotMatchedInsert(values={{"kind": "s.kind", "n": "s.count"}}).execute())
            written = batch.write.format("delta").mode("append").option("txnAppId", "copy").option("txnVersion", number)
            written.save("{tmp_path}/copy")
            batch.sparkSession.table("counts").write.format("delta").mode("overwrite").saveAsTable("latest")

        for rows in (0, 4):
            more = spark.range(6, 6 + rows).selectExpr("id", "id % 3 AS kind")
            more.write.format("delta").mode("append").saveAsTable("events")
            query = (spark.readStream.table("events").writeStream.foreachBatch(count)
                .option("checkpointLocation", "{tmp_path}/marks").trigger(availableNow=True).start())
            query.awaitTermination()
        tell(sorted(map(list, spark.table("counts").collect())))
        tell(sorted(map(list, spark.table("latest").collect())))
        tell(sorted(row.id for row in spark.read.format("delta").load("{tmp_path}/copy").collect()))
        tell([row.operation for row in spark.sql("DESCRIBE HISTORY counts").collect()])
        """
    )
    counts = [[0, 4], [1, 3], [2, 3]]
    assert told == [counts, counts, list(range(10)), ["MERGE", "MERGE", "CREATE TABLE"]]


def test_errors_have_the_classes_that_users_of_pyspark_catch(live):
    told = live.remote(
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F
        from pydelta.tables import DeltaTable
        spark.range(2).write.format("delta").saveAsTable("strict")
        table = DeltaTable.forName(spark, "strict")
        tries = [
            lambda: spark.table("none").collect(),
            lambda: spark.read.format("delta").load("/none").collect(),
            lambda: spark.read.format("delta").schema("a int").load("/none").collect(),
            lambda: spark.range(1).write.format("delta").saveAsTable("strict"),
            lambda: spark.range(1).select(F.lit("x").alias("z")).write.insertInto("nowhere"),
            lambda: DeltaTable.forName(spark, "none"),
            lambda: table.delete("nope = 1"),
            lambda: table.vacuum(0),
            lambda: spark.sql("VACUUM"),
        ]
        for action in tries:
            try:
                action()
                tell("no error")
            except PySparkException as error:
                bad = [word for word in ("py4j", "Traceback", "Undeclared") if word in str(error)]
                tell([type(error).__name__, error.getCondition(), bad])
        try:
            table.update("id = 1", {"id": 3})
        except TypeError as error:
            tell("TypeError")
        for wrong in (lambda new: new.addColumn("id", 5), lambda new: new.comment(5), lambda new: new.property("a", 5)):
            try:
                wrong(DeltaTable.create(spark))
            except TypeError as error:
                tell(error.message)
        tell(spark.table("strict").count())
        """
    )
    assert told == [
        ["AnalysisException", "TABLE_OR_VIEW_NOT_FOUND", []],
        ["AnalysisException", "PATH_NOT_FOUND", []],
        ["UnsupportedOperationException", "DELTA_UNSUPPORTED_SCHEMA_DURING_READ", []],
        ["AnalysisException", "TABLE_OR_VIEW_ALREADY_EXISTS", []],
        ["AnalysisException", "TABLE_OR_VIEW_NOT_FOUND", []],
        ["AnalysisException", "DELTA_MISSING_DELTA_TABLE", []],
        ["AnalysisException", "UNRESOLVED_COLUMN.WITH_SUGGESTION", []],
        ["IllegalArgumentException", "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT", []],
        ["ParseException", "PARSE_SYNTAX_ERROR", []],
        "TypeError",
        "Column data type must be str or DataType, found 5 of type int.",
        "Table comment must be str, found 5 of type int.",
        "Value of property must be str, found 5 of type int.",
        2,
    ]


def test_columns_of_frames_that_a_table_gave_out_are_the_tables(live):
    told = live.remote(
        """
        from pyspark.sql import functions as F
        from pydelta.tables import DeltaTable
        rows = lambda frame: sorted(map(list, frame.collect()))
        table = DeltaTable.createIfNotExists(spark).tableName("own").addColumn("id", "bigint").addColumn("a.b", "int")
        table = table.execute()
        spark.sql("INSERT INTO own VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        frame, named = table.toDF(), table.alias("t").toDF()
        tell(table.delete(frame.id == 1).num_deleted_rows)
        more = frame["`a.b`"] + F.when(frame.id > 3, 6).otherwise(0)
        tell(table.update(frame["id"] > 3, {"`a.b`": more}).num_updated_rows)
        source = spark.createDataFrame([(3, 30), (5, 50)], "id bigint, n int")
        for at, columns in ((table, frame), (table.alias("t"), named)):
            more = {"`a.b`": columns["`a.b`"] + source.n}
            (at.merge(source, columns.id == source.id).whenMatchedUpdate(columns.id == 3, more)
                .whenNotMatchedBySourceUpdate(columns.id == 2, {"`a.b`": -columns["`a.b`"]}).execute())
            tell(rows(table.toDF()))
        other = DeltaTable.forName(spark, "remote").toDF() if spark.catalog.tableExists("remote") else spark.range(1)
        derived = table.toDF()
        for run in (lambda: table.delete(other.id == 2), lambda: table.merge(derived, derived.id == F.lit(1))):
            try:
                run()
                tell("ran")
            except Exception as error:
                tell(str(error).split("\\n")[0])
        tell(table.toDF().count())
        """
    )
    assert told[:2] == [1, 1]
    assert told[2:4] == [[[2, -2], [3, 33], [4, 10]], [[2, 2], [3, 63], [4, 10]]]
    assert "CANNOT_RESOLVE" in told[4] and "is the table's and the source's" in told[5], told
    assert told[6] == 3


def test_keys_are_erased_by_a_remote_table(live):
    told = live.remote(
        """
        from pydelta.tables import DeltaTable
        spark.sql("CREATE TABLE people USING delta AS SELECT 'ann@example.org' AS who UNION ALL SELECT 'bob'")
        table = DeltaTable.forName(spark, "people")
        keys = {"who": ["ann@example.org"]}
        planned = table.erase(keys, dryRun=True)
        tell([planned.dry_run, planned.is_proven, planned.num_files_found])
        try:
            table.erase(keys)
        except Exception as error:
            tell(type(error).__name__ + " " + str("given up" in str(error)))
        done = table.erase(keys, "drop")
        tell([done.is_proven, done.num_deleted_rows, done.first_given_up])
        tell(sorted(row[0] for row in table.toDF().collect()))
        """
    )
    assert told[0][:2] == [True, False]
    assert told[0][2] >= 1
    assert told[1].endswith("True")
    assert told[2:] == [[True, 1, 0], ["bob"]]
