"""Run in a process of its own: a table's life in a session with the key of the user spark, then with that of vacuum.

Arguments: a folder of jars, the database, the metastore's address. Settings and Spark's key come from the environment,
the secrets of the users sync and vacuum as ``SECRETS``, in JSON. The last line that it prints is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pydelta
from pydelta.api.server.spark.plans import _run
from pydelta.api.sql.dispatch import is_effect
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError
from pydelta.tables import DeltaTable


def refused(work) -> str:
    """What the error of a statement says; empty if there is none."""
    try:
        work()
    except (DeltaError, OSError) as error:
        return str(error)
    return ""


def live(spark, table: str, checkpoint: str) -> None:
    """Write and change a table in every way that stages or deletes something."""
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES (delta.checkpointInterval = 2, delta.enableDeletionVectors = true, "
        "delta.enableChangeDataFeed = true)"
    )
    for start in (0, 100):
        spark.range(start, start + 50).selectExpr("id", "concat('p', id % 2) AS p").write.format("delta").mode(
            "append"
        ).saveAsTable(table)
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    spark.sql(f"UPDATE {table} SET p = 'p9' WHERE id = 10")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id + 40 AS id, 'p1' AS p FROM range(20)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 2")
    spark.range(3).selectExpr("id", "'p0' AS p").write.format("delta").mode("overwrite").option(
        "replaceWhere", "p = 'p0'"
    ).saveAsTable(table)
    query = (
        spark.readStream.table(table)
        .writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .toTable(f"{table}_streamed")
    )
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))


def main() -> None:
    """Live, be refused, and be cleared away."""
    jars, database, metastore = sys.argv[1:]
    secrets = json.loads(os.environ.pop("SECRETS"))
    spark = pydelta.session(
        "rights",
        conf={
            "spark.master": "local[2]",
            "spark.jars": ",".join(sorted(map(str, Path(jars).glob("*.jar")))),
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore,
            "spark.sql.warehouse.dir": "s3a://warehouse/",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        },
    )
    spark.sql(f"CREATE DATABASE {database} LOCATION 's3a://warehouse/{database}'")
    table = f"{database}.orders"
    live(spark, table, f"s3a://work/{database}/checkpoint")
    synced = subprocess.run(
        [sys.executable, "-m", "catalog_sync.cli", "sync", table, "--metastore", metastore],
        env=os.environ | {"AWS_ACCESS_KEY_ID": "sync", "AWS_SECRET_ACCESS_KEY": secrets["sync"]},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        "rows": spark.table(table).count(),
        "synced": synced.returncode,
        "sync_said": synced.stdout + synced.stderr,
        "streamed": spark.table(f"{table}_streamed").count(),
        "vacuum": refused(lambda: spark.sql(f"VACUUM {table} RETAIN 0 HOURS")),
        "drop": refused(lambda: spark.sql(f"DROP TABLE {table}")),
        "drop_database": refused(lambda: spark.sql(f"DROP DATABASE {database} CASCADE")),
        "over_jdbc": refused(lambda: _run(spark, Jvm.of(spark).parse(f"DROP SCHEMA IF EXISTS {database} CASCADE"))),
        "is_effect": [
            is_effect(spark, Jvm.of(spark).parse(f"DROP DATABASE {name}"))
            for name in (f"{database} CASCADE", f"spark_catalog.{database} CASCADE", database, "not_there CASCADE")
        ],
        "rows_then": spark.table(table).count(),
        "history": DeltaTable.forName(spark, table).history().count(),
    }
    jvm = Jvm.of(spark)
    work = jvm.path(f"s3a://work/{database}")
    work.getFileSystem(jvm.hadoop_conf()).delete(work, True)

    other = spark.newSession()
    for name, value in {
        "fs.s3a.access.key": "vacuum",
        "fs.s3a.secret.key": secrets["vacuum"],
        "fs.s3a.impl.disable.cache": "true",
    }.items():
        other.conf.set(name, value)
    other.sql(f"VACUUM {table} RETAIN 0 HOURS")
    found["rows_after_vacuum"] = other.table(table).count()
    other.sql(f"DROP TABLE {table}")
    found["tables"] = [row.tableName for row in other.sql(f"SHOW TABLES IN {database}").collect()]
    other.sql(f"DROP DATABASE {database} CASCADE")
    found["databases"] = [row.namespace for row in other.sql("SHOW DATABASES").collect()]
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
