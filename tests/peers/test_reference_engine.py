"""Both directions with the reference engine: what we write it reads, what it writes we read, change feeds included."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql import functions as F

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def rows(frame):
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: json.dumps(row, sort_keys=True))


def described(spark, path):
    from pydelta.log import DeltaLog

    found = {"rows": rows(spark.read.format("delta").load(str(path)))}
    if DeltaLog.for_table(str(path)).update().properties.enable_change_data_feed:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(str(path))
        found["feed"] = rows(feed.drop("_commit_timestamp"))
    return found


def write_ours(spark, folder):
    """Tables with everything that changes rows."""
    from pydelta.tables import DeltaTable

    def start(name, partition=None, cluster=None, **properties):
        path = str(folder / name)
        builder = DeltaTable.create(spark).location(path)
        for column, kind in (("id", "long"), ("v", "string"), ("n", "int")):
            builder = builder.addColumn(column, kind)
        for key, value in properties.items():
            builder = builder.property(f"delta.{key}", value)
        builder = builder.partitionedBy(partition) if partition else builder
        builder = builder.clusterBy(cluster) if cluster else builder
        builder.execute()
        for first in (0, 50):
            frame = spark.range(first, first + 50, 1, 1).selectExpr(
                "id", "concat('v', id) AS v", "CAST(id % 7 AS int) AS n"
            )
            frame.write.format("delta").mode("append").save(path)
        return DeltaTable.forPath(spark, path)

    source = spark.range(90, 110).selectExpr("id", "'m' AS v", "9 AS n").alias("s")
    for name, properties in (
        ("copied", {}),
        ("vectors", {"enableDeletionVectors": "true"}),
        ("feed", {"enableChangeDataFeed": "true"}),
        ("feed_and_vectors", {"enableChangeDataFeed": "true", "enableDeletionVectors": "true"}),
        ("tracked", {"enableRowTracking": "true"}),
        ("tracked_vectors", {"enableRowTracking": "true", "enableDeletionVectors": "true"}),
    ):
        table = start(name, **properties)
        table.delete("id % 10 = 3")
        table.update("id BETWEEN 40 AND 60", {"n": "-n", "v": "upper(v)"})
        (
            table.alias("t")
            .merge(source, "t.id = s.id")
            .whenMatchedDelete("s.id % 2 = 0")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceUpdate("t.id = 1", {"v": "'alone'"})
            .execute()
        )
        table.delete("id = 70")
    purged = start("purged", enableDeletionVectors="true")
    purged.delete("id < 30")
    purged.purge()
    ordered = start("ordered", partition="n")
    ordered.optimize().executeZOrderBy("id")
    clustered = start("clustered", cluster="n")
    clustered.optimize().executeCompaction()


@pytest.fixture(scope="module")
def exchange(spark, run_reference, tmp_path_factory):
    """Runs the reference engine once, over our tables and its own."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "ours").mkdir()
    write_ours(spark, folder / "ours")
    run_reference("reference_engine.py", folder, *VACUUMED)
    return folder


VACUUMED = [
    *(f"ours/{name} FULL" for name in ("feed_and_vectors", "ordered", "purged")),
    *(f"theirs/{name} FULL" for name in ("feed_and_vectors", "mapped")),
    "ours/feed_and_vectors LITE",
    "theirs/feed_and_vectors LITE",
]
OURS = ["clustered", "copied", "feed", "feed_and_vectors", "ordered", "purged", "tracked", "tracked_vectors", "vectors"]
THEIRS = ["clustered", "feed", "feed_and_vectors", "mapped", "tracked", "vectors"]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", OURS)
def test_it_reads_what_we_write(spark, exchange, name):
    theirs = json.loads((exchange / "read.json").read_text())
    assert sorted(theirs) == OURS
    assert theirs[name] == described(spark, exchange / "ours" / name)
    assert len(theirs[name]["rows"]) > 50


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", THEIRS)
def test_we_read_what_it_writes(spark, exchange, name):
    theirs = json.loads((exchange / "written.json").read_text())
    assert sorted(theirs) == THEIRS
    assert described(spark, exchange / "theirs" / name) == theirs[name]
    assert len(theirs[name]["rows"]) > 50


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("which", VACUUMED)
def test_a_vacuum_leaves_the_files_that_its_vacuum_leaves(exchange, tmp_path, which):
    """Of tables of either engine, checksums beside the files included; and the history says the same of it."""
    from pydelta.commands.vacuum.command import Vacuum
    from pydelta.log import DeltaLog
    from pydelta.testing.commands import vacuum

    theirs = json.loads((exchange / "vacuumed.json").read_text())[which]
    name, _, mode = which.lower().partition(" ")
    shutil.copytree(exchange / name, tmp_path / "t")
    log = DeltaLog.for_table(str(tmp_path / "t"))
    result = vacuum(log, Vacuum(retention_hours=0, enforce_retention=False, mode=mode))
    left = (item.relative_to(tmp_path / "t") for item in (tmp_path / "t").rglob("*") if item.is_file())
    assert sorted(str(item) for item in left if item.parts[0] != "_delta_log") == theirs["left"]
    start = next(item for item in log.history() if item.version == result.start_version).commit_info
    assert start.get("operationParameters") == theirs["parameters"]
    same = ["numFilesToDelete", *(["sizeOfDataToDelete"] if mode == "full" else [])]  # of vectors the log tells little
    assert [start.get("operationMetrics")[key] for key in same] == [theirs["metrics"][key] for key in same]
    assert start.get("operationMetrics").keys() == theirs["metrics"].keys()


@pytest.mark.timeout(1500)
def test_changes_go_on_in_its_tables(spark, exchange):
    """A table of the reference engine is changed here, vectors, feed and row ids included."""
    from pydelta.tables import DeltaTable

    for name in ("feed_and_vectors", "vectors", "tracked"):
        path = str(exchange / "theirs" / name)
        before = spark.read.format("delta").load(path).where("id <> 20 AND id <> 21").count()
        table = DeltaTable.forPath(spark, path)
        table.delete("id = 20")
        table.update("id = 21", {"v": "'ours'"})
        after = spark.read.format("delta").load(path)
        assert after.count() == before + 1
        assert after.where("v = 'ours'").count() == 1
