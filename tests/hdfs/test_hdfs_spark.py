"""Spark's executors write and read tables on HDFS, with names that need escaping."""

from __future__ import annotations

import pytest

from pydelta.log import DeltaLog
from pydelta.protocol.paths import LOG_DIR
from pydelta.storage import open_store

pytestmark = pytest.mark.spark

VALUES = ["a b", "x=y", "50%", "%41", "é中", "12:30", "a/b", None]


def vacuum_by_an_image(spark, root, store):
    """As docs/guides/inventory.md says it: what ``hdfs oiv -p Delimited`` writes of an fsimage."""
    folder = "/" + root.split("/", 3)[3]
    columns = "Path Replication ModificationTime AccessTime PreferredBlockSize BlocksCount FileSize NSQUOTA DSQUOTA"
    rest = "2026-11-21 15:36\t134217728\t1\t{size}\t0\t0\t{mode}\troot\tsupergroup"
    lines = ["\t".join([*columns.split(), "Permission", "UserName", "GroupName"])]
    lines += [f"{folder}\t0\t2024-05-31 12:00\t" + rest.format(size=0, mode="drwxr-xr-x")]
    lines += [
        f"{folder}/{info.path}\t1\t2024-05-31 12:00\t" + rest.format(size=info.size, mode="-rw-r--r--")
        for info in store.list_all()
    ]
    open_store(root.rpartition("/")[0]).put("image.tsv", "\n".join(lines).encode())
    reader = spark.read.option("sep", "\t").option("header", True)
    reader.csv(root.rpartition("/")[0] + "/image.tsv").createOrReplaceTempView("image")
    before = {info.path for info in store.list_all() if not info.path.startswith(LOG_DIR)}
    spark.sql(f"""VACUUM delta.`{root}` USING INVENTORY (
      SELECT Path AS path, CAST(FileSize AS BIGINT) AS length, Permission LIKE 'd%' AS isDir,
        unix_millis(to_timestamp(ModificationTime, 'yyyy-MM-dd HH:mm')) + 60000 AS modificationTime
      FROM image)""")
    after = {info.path for info in store.list_all() if not info.path.startswith(LOG_DIR)}
    assert before - after == {"p=a b/stray"}  # what versions of today read stays
    spark.catalog.dropTempView("image")


def test_a_table_on_hdfs_through_spark(spark, root):
    frame = spark.createDataFrame([(number, value) for number, value in enumerate(VALUES)], "x long, p string")
    frame.write.format("delta").partitionBy("p").save(root)
    frame.where("x < 2").write.format("delta").mode("append").save(root)
    read = spark.read.format("delta").load(root)
    assert sorted(row[0] for row in read.collect()) == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7]
    for number, value in enumerate(VALUES[2:], start=2):
        condition = "p IS NULL" if value is None else f"p = '{value}'"
        assert [row.x for row in read.where(condition).collect()] == [number]
    spark.sql(f"DELETE FROM delta.`{root}` WHERE x = 0")
    spark.sql(f"UPDATE delta.`{root}` SET x = x + 100 WHERE p = '50%'")
    spark.sql(f"OPTIMIZE delta.`{root}`")
    now = spark.read.format("delta").load(root)
    assert sorted(row[0] for row in now.collect()) == [1, 1, 3, 4, 5, 6, 7, 102]
    assert spark.read.format("delta").option("versionAsOf", 0).load(root).count() == len(VALUES)

    store = open_store(root)
    store.put("p=a b/stray", b"1")
    vacuum_by_an_image(spark, root, store)
    store.put("p=a b/stray", b"1")
    listed = {info.path for info in store.list_all() if not info.path.startswith(LOG_DIR)}
    live = DeltaLog.for_table(root).update().num_files
    assert live < len(listed)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{root}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    left = {info.path for info in store.list_all() if not info.path.startswith(LOG_DIR)}
    assert len(left) == live
    assert sorted(row[0] for row in spark.read.format("delta").load(root).collect()) == [1, 1, 3, 4, 5, 6, 7, 102]
