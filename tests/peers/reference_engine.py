"""Runs in an environment of its own, with the reference engine's jars: reads our tables, writes tables of its own.

``reference_engine.py FOLDER "PATH MODE" …``: ``FOLDER/ours/*`` are read, rows and change feed go to
``FOLDER/read.json``; tables are written to ``FOLDER/theirs/*``, with their rows and change feeds in
``FOLDER/written.json``. Copies of the tables ``FOLDER/PATH`` are vacuumed, in that mode; which files are left, and what
the history says, is in ``FOLDER/vacuumed.json``.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from reference_session import rows, scripts_session

FOLDER = Path(sys.argv[1])
spark = scripts_session()


def described(path):
    frame = spark.read.format("delta").load(str(path))
    found = {"rows": rows(frame)}
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    if detail["properties"].get("delta.enableChangeDataFeed") == "true":
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(str(path))
        found["feed"] = rows(feed.drop("_commit_timestamp"))
    return found


def write_theirs(folder):
    def sql(text):
        spark.sql(text)

    def start(name, *, columns="id LONG, v STRING, n INT", clause="", properties=""):
        path = folder / name
        listed = f"TBLPROPERTIES ({properties})" if properties else ""
        sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {clause} {listed}")
        for first in (0, 50):
            source = f"SELECT id, concat('v', id), CAST(id % 7 AS INT) FROM range({first}, {first + 50}, 1, 1)"
            sql(f"INSERT INTO delta.`{path}` {source}")
        return path

    vectors = "'delta.enableDeletionVectors' = 'true'"
    feed = "'delta.enableChangeDataFeed' = 'true'"
    path = start("vectors", properties=vectors)
    sql(f"DELETE FROM delta.`{path}` WHERE id % 10 = 3")
    sql(f"UPDATE delta.`{path}` SET v = 'changed' WHERE id IN (5, 55)")
    sql(f"DELETE FROM delta.`{path}` WHERE id = 70")
    for name, properties in (("feed", feed), ("feed_and_vectors", f"{feed}, {vectors}")):
        path = start(name, properties=properties)
        sql(f"DELETE FROM delta.`{path}` WHERE id < 5")
        sql(f"UPDATE delta.`{path}` SET n = -n WHERE id BETWEEN 40 AND 60")
        sql(
            f"MERGE INTO delta.`{path}` t USING (SELECT id, 'm' AS v, 9 AS n FROM range(90, 110)) s ON t.id = s.id "
            "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    path = start("mapped", properties="'delta.columnMapping.mode' = 'name'")
    sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN v TO `a name`")
    sql(f"ALTER TABLE delta.`{path}` DROP COLUMN n")
    sql(f"INSERT INTO delta.`{path}` VALUES (1000, 'after')")
    path = start("tracked", properties="'delta.enableRowTracking' = 'true'")
    sql(f"UPDATE delta.`{path}` SET v = 'x' WHERE id = 7")
    sql(f"OPTIMIZE delta.`{path}`")
    path = start("clustered", clause="CLUSTER BY (n)")
    sql(f"OPTIMIZE delta.`{path}`")


def vacuumed(path, mode):
    copy = FOLDER / f"vacuumed_{mode}" / path.parent.name / path.name
    shutil.copytree(path, copy)
    spark.sql(f"VACUUM delta.`{copy}` {mode} RETAIN 0 HOURS")
    start = spark.sql(f"DESCRIBE HISTORY delta.`{copy}`").where("operation = 'VACUUM START'").first()
    left = (item.relative_to(copy) for item in copy.rglob("*") if item.is_file())
    return {
        "left": sorted(str(item) for item in left if item.parts[0] != "_delta_log"),
        "parameters": start["operationParameters"],
        "metrics": start["operationMetrics"],
    }


read = {path.name: described(path) for path in sorted((FOLDER / "ours").iterdir())}
(FOLDER / "read.json").write_text(json.dumps(read))
theirs = FOLDER / "theirs"
theirs.mkdir()
write_theirs(theirs)
written = {path.name: described(path) for path in sorted(theirs.iterdir())}
(FOLDER / "written.json").write_text(json.dumps(written))
spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
found = {name: vacuumed(FOLDER / name.partition(" ")[0], name.partition(" ")[2]) for name in sys.argv[2:]}
(FOLDER / "vacuumed.json").write_text(json.dumps(found))
spark.stop()
