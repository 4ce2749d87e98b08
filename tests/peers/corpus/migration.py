"""Three whole programs, of the kinds that documentation of Delta shows, each with nothing changed but its import."""

from __future__ import annotations

from differ.programs import Corpus
from pyspark.sql import functions as F

corpus = Corpus("migration")


@corpus.python("first steps: create, change, look back")
def _first_steps(at):
    """A table by path: written, overwritten, changed by condition, merged, read at an older version."""
    spark, path = at.spark, at.p
    spark.range(0, 5).write.format("delta").save(path)
    at.tell(spark.read.format("delta").load(path))
    spark.range(5, 10).write.format("delta").mode("overwrite").save(path)
    table = at.DeltaTable.forPath(spark, path)
    table.update(condition=F.expr("id % 2 == 0"), set={"id": F.expr("id + 100")})
    table.delete(condition=F.expr("id % 2 == 0"))
    new = spark.range(0, 20)
    (
        table.alias("old")
        .merge(new.alias("new"), "old.id = new.id")
        .whenMatchedUpdate(set={"id": F.col("new.id")})
        .whenNotMatchedInsert(values={"id": F.col("new.id")})
        .execute()
    )
    at.tell(table.toDF())
    at.tell(spark.read.format("delta").option("versionAsOf", 0).load(path))
    at.tell(table.history(2).select("version", "operation"))
    table.restoreToVersion(1)
    at.tell(table.toDF())


@corpus.python("keep the history of each customer (SCD 2)")
def _slowly_changing(at):
    """A dimension whose old rows stay, closed: one MERGE with the changed rows twice in its source."""
    spark = at.spark
    (
        at.DeltaTable.createIfNotExists(spark)
        .tableName(at.t)
        .addColumn("customer", "INT")
        .addColumn("address", "STRING")
        .addColumn("current", "BOOLEAN")
        .addColumn("since", "DATE")
        .addColumn("until", "DATE", nullable=True, comment="null while it is current")
        .property("delta.enableChangeDataFeed", "true")
        .execute()
    )
    spark.sql(
        at.named(
            "INSERT INTO {t} VALUES (1, 'old road 1', true, DATE'2024-01-01', NULL), "
            "(2, 'lake 2', true, DATE'2024-01-01', NULL)"
        )
    )
    updates = spark.sql(
        "SELECT * FROM VALUES (1, 'new road 9', DATE'2024-06-01'), (3, 'hill 3', DATE'2024-06-02') AS u(customer, address, since)"
    )
    dimension = at.DeltaTable.forName(spark, at.t)
    moved = (
        updates.alias("u")
        .join(dimension.toDF().alias("d"), "customer")
        .where("d.current AND u.address <> d.address")
        .selectExpr("NULL AS merge_key", "u.*")
    )
    staged = moved.union(updates.selectExpr("customer AS merge_key", "*"))
    (
        dimension.alias("d")
        .merge(staged.alias("s"), "d.customer = s.merge_key")
        .whenMatchedUpdate(
            condition="d.current = true AND d.address <> s.address", set={"current": "false", "until": "s.since"}
        )
        .whenNotMatchedInsert(
            values={
                "customer": "s.customer",
                "address": "s.address",
                "current": "true",
                "since": "s.since",
                "until": "null",
            }
        )
        .execute()
    )
    at.tell(dimension.toDF())
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).table(at.t)
    at.tell(changes.drop("_commit_timestamp"))


@corpus.python("load each day once, and keep the table in order")
def _daily_load(at):
    """A job that may run twice for a day, with the errors it branches on, and maintenance behind it."""
    spark = at.spark
    spark.sql(
        at.named(
            "CREATE TABLE {t} (day DATE, id BIGINT, amount DECIMAL(10,2), kind STRING DEFAULT 'sale') USING delta "
            "PARTITIONED BY (day) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        )
    )
    spark.sql(at.named("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (amount > 0)"))
    rows = spark.sql(
        "SELECT DATE'2024-01-01' AS day, id, CAST(id + 1 AS DECIMAL(10,2)) AS amount, 'sale' AS kind FROM range(3)"
    )
    for _ in range(2):
        writer = rows.write.format("delta").mode("append").option("txnAppId", "daily").option("txnVersion", 20240101)
        writer.saveAsTable(at.t)
    at.tell(spark.table(at.t))
    bad = rows.withColumn("amount", F.lit(-1).cast("decimal(10,2)"))
    at.attempt(lambda: bad.write.format("delta").mode("append").saveAsTable(at.t))
    again = rows.withColumn("amount", F.col("amount") * 2).withColumn("amount", F.col("amount").cast("decimal(10,2)"))
    again.write.format("delta").mode("overwrite").option("replaceWhere", "day = '2024-01-01'").saveAsTable(at.t)
    rows.selectExpr("*", "1 AS extra").write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(
        at.t
    )
    at.tell(spark.table(at.t))
    table = at.DeltaTable.forName(spark, at.t)
    table.optimize().where("day = '2024-01-01'").executeCompaction()
    at.attempt(lambda: table.vacuum(0))
    at.tell(spark.sql(at.named("SELECT day, sum(amount) AS total FROM {t} GROUP BY day")))
