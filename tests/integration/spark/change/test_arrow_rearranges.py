"""OPTIMIZE, ZORDER, clustering and REORG by Spark and in this process: the same rows, ids, feeds, statistics, files."""

from __future__ import annotations

import itertools
import json
import os

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from both_ways import ANSI, LIMIT, SHAPES, ZONE, make, session, twice
from generated_changes import tables
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from pydelta.engines.arrow.curves import curve_keys
from pydelta.engines.spark.maintenance.curves import with_curve_key
from pydelta.log import DeltaLog
from pydelta.protocol.paths import decode_log_path
from pydelta.tables import DeltaTable

__all__ = ["session"]

pytestmark = pytest.mark.spark

OPTIMIZE_LIMIT = "spark.pydelta.local.optimizeMaxBytes"
EXAMPLES = int(os.environ.get("PYDELTA_ARROW_EXAMPLES", "0"))
few = settings(
    max_examples=EXAMPLES or 2,
    derandomize=not EXAMPLES,
    phases=(Phase.explicit, Phase.generate),  # a smaller example takes minutes to find
    suppress_health_check=list(HealthCheck),
)
_NAMES = itertools.count()


def files_of(path):
    """What the log says of each live file, apart from its name and time."""
    snapshot = DeltaLog.for_table(path).update()
    found = []
    for add in snapshot.files.adds(snapshot.files.core):
        values = sorted((key, value or "") for key, value in add.partition_values.items())
        found.append((values, json.loads(add.stats), add.size, add.deletion_vector is None))
    return sorted(found, key=str)


def deleted_by_spark(session, path):
    session.conf.set(LIMIT, "0")
    DeltaTable.forPath(session, path).delete("id % 5 = 0")
    session.conf.unset(LIMIT)


def metrics_of(frame):
    metrics = frame.first()["metrics"].asDict(recursive=True)
    return {key: value for key, value in metrics.items() if not key.endswith("TimeMs")}


@pytest.mark.damages_tables
@given(data=st.data(), shape=st.sampled_from(list(SHAPES)))
@few
def test_a_compaction_leaves_the_same_files(session, tmp_path, data, shape):
    path = str(tmp_path / f"t{next(_NAMES)}")
    properties, partition_by = SHAPES[shape]
    make(session, path, data.draw(tables(rows=16)), partition_by=partition_by, **properties)
    deleted_by_spark(session, path)

    def run(copy):
        return metrics_of(DeltaTable.forPath(session, copy).optimize().executeCompaction()), files_of(copy)

    assert twice(session, path, run, shape)[1] in ("arrow", None)  # None: one file, and nothing to do


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_compacted_purged_and_put_in_order_here(session, tmp_path, shape):
    path = str(tmp_path / "t")
    properties, partition_by = SHAPES[shape]
    rows = pa.table({
        "id": range(400),
        "p": [None if n % 7 == 0 else str(n % 3) for n in range(400)],
        "v": [float("nan") if n == 5 else n / 2 for n in range(400)],
    })  # fmt: skip
    make(session, path, rows, partition_by=partition_by, **properties)
    deleted_by_spark(session, path)

    def compacted(copy):
        return metrics_of(DeltaTable.forPath(session, copy).optimize().executeCompaction()), files_of(copy)

    def purged(copy):
        frame = session.sql(f"REORG TABLE delta.`{copy}` APPLY (PURGE)")
        return metrics_of(frame), files_of(copy)

    def in_order(copy):
        DeltaTable.forPath(session, copy).optimize().executeZOrderBy("id", "v")
        return [file[:2] for file in files_of(copy)]

    for number, run in enumerate((compacted, in_order)):
        assert twice(session, path, run, shape) == (None, "arrow"), number
    if "vectors" in shape:
        assert twice(session, path, purged, shape) == (None, "arrow")


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_nothing_is_said_of_rows_that_do_not_change(session, tmp_path, ansi):
    """Settings of the session that change what expressions give have no say in what is only moved."""
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(10), "s": ["é"] * 10}))
    session.conf.set(ANSI, ansi)
    session.conf.set(ZONE, "Asia/Kathmandu")
    DeltaTable.forPath(session, path).optimize().executeCompaction()
    history = DeltaTable.forPath(session, path).history(1).collect()[0]
    assert history["operationMetrics"]["rewrittenBy"] == "arrow"
    assert "scannedBy" not in history["operationMetrics"]


def test_a_clustered_table_is_put_in_order_here_and_its_files_say_so(session, tmp_path):
    path = str(tmp_path / "t")
    session.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, v DOUBLE) USING delta CLUSTER BY (id, v)")
    rows = session.range(1000, numPartitions=4).selectExpr("id", "cast(id % 17 as double) v")
    rows.write.format("delta").mode("append").save(path)

    def run(copy):
        frame = DeltaTable.forPath(session, copy).optimize().executeCompaction()
        snapshot = DeltaLog.for_table(copy).update()
        adds = snapshot.files.adds(snapshot.files.core)
        again = DeltaTable.forPath(session, copy).optimize().executeCompaction()
        tagged = [(add.clustering_provider, sorted(add.tags)) for add in adds]
        return metrics_of(frame)["clusteringStats"], tagged, metrics_of(again)["numFilesAdded"]

    assert twice(session, path, run, "clustered") == (None, "arrow")


def test_the_keys_of_both_curves_are_those_that_spark_computes(session):
    rows = session.range(0, 5000, 1, 1).selectExpr(
        "if(id % 11 = 0, null, id * 7919 % 5003) a",
        "if(id % 13 = 0, double('NaN'), if(id % 17 = 0, double('-Infinity'), id / 7 % 90)) b",
        "if(id % 19 = 0, null, concat('é', id % 30)) c",
    )
    found = pl.DataFrame(pl.from_arrow(rows.toArrow()))
    for curve in ("zorder", "hilbert"):
        for names in (["a", "b"], ["c", "a", "b"]):
            sample = rows.select(*names)
            keyed = with_curve_key(session, rows, "key", [F.col(name) for name in names], sample=sample, curve=curve)
            expected = keyed.select("key").toArrow().column("key").to_pylist()
            assert curve_keys([found[name] for name in names], curve=curve).tolist() == expected, (curve, names)


def test_a_table_becomes_as_many_files_in_order_as_its_bytes_ask_for(session, tmp_path):
    path = str(tmp_path / "t")
    session.range(20_000, numPartitions=4).selectExpr("id * 7919 % 20011 AS id", "uuid() AS u").write.format(
        "delta"
    ).save(path)
    DeltaTable.forPath(session, path)  # the table is there
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", "200k")
    try:
        DeltaTable.forPath(session, path).optimize().executeZOrderBy("id")
    finally:
        session.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    snapshot = DeltaLog.for_table(path).update()
    bounds = []
    for add in snapshot.files.adds(snapshot.files.core):
        stats = json.loads(add.stats)
        bounds.append((stats["minValues"]["id"], stats["maxValues"]["id"]))
        ids = pq.read_table(os.path.join(path, decode_log_path(add.path).text), columns=["id"])["id"].to_pylist()
        assert ids == sorted(ids)
    bounds.sort()
    assert len(bounds) > 2
    assert all(low[1] < high[0] for low, high in itertools.pairwise(bounds))
    assert DeltaTable.forPath(session, path).history(1).collect()[0]["operationMetrics"]["rewrittenBy"] == "arrow"


def test_files_beyond_the_limit_are_rewritten_by_a_job_that_says_why(session, tmp_path):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(100)}))
    session.conf.set(OPTIMIZE_LIMIT, "70000")  # two files, each counted with 64 KiB
    try:
        DeltaTable.forPath(session, path).optimize().executeCompaction()
    finally:
        session.conf.unset(OPTIMIZE_LIMIT)
    metrics = DeltaTable.forPath(session, path).history(1).collect()[0]["operationMetrics"]
    assert metrics["rewrittenBy"].startswith("spark: 2 files of ")
    assert OPTIMIZE_LIMIT in metrics["rewrittenBy"]


@pytest.mark.parametrize("limit", ["0", "64m"])
@pytest.mark.damages_tables
def test_a_missing_file_fails_both_ways_and_leaves_no_file(session, tmp_path, limit):
    path = str(tmp_path / "t")
    make(session, path, pa.table({"id": range(10)}))
    snapshot = DeltaLog.for_table(path).update()
    gone, *_ = [decode_log_path(add.path).text for add in snapshot.files.adds(snapshot.files.core)]
    os.remove(os.path.join(path, gone))
    before = sorted(os.listdir(path))
    session.conf.set(LIMIT, limit)
    with pytest.raises(Exception, match=gone):
        DeltaTable.forPath(session, path).optimize().executeCompaction()
    assert sorted(os.listdir(path)) == before
    assert DeltaLog.for_table(path).update().version == 0
