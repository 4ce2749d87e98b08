"""Planning cost: the number of calls into the JVM does not depend on how many files or partitions there are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from leaks import secret

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.scan.scan import scan_dataframe
from pydelta.errors import LogGapError
from pydelta.log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]

FEW = 150


@contextlib.contextmanager
def counted_calls(spark) -> Iterator[list[int]]:
    client = spark.sparkContext._gateway._gateway_client
    original, calls = client.send_command, [0]

    def counting(command, *args, **kwargs):
        # neither the garbage collector's nor those of the look after ended threads, which come when they come
        if not command.startswith("m\n") and threading.current_thread().name != "pydelta-callers":
            calls[0] += 1
        return original(command, *args, **kwargs)

    client.send_command = counting
    try:
        yield calls
    finally:
        del client.send_command


def _repeated(path, count: int, partitions: int):
    """A snapshot whose one data file stands for ``count`` files in ``partitions`` partitions, and their frame."""
    write_deltalake(str(path), pa.table({"v": [1], "p": pa.array([0], pa.int32())}), partition_by=["p"])
    snapshot = DeltaLog.for_table(str(path)).update()
    one = snapshot.files.core
    frame = one.sample(count, with_replacement=True).with_columns(
        pl.Series("pv:p", [str(i % partitions) for i in range(count)], dtype=pl.String)
    )
    return snapshot, frame


def _list_files(spark, frame, condition=None):
    """Plan a scan and ask it for its files, without running it."""
    scan = frame.where(condition) if condition else frame
    plan = scan._jdf.queryExecution().sparkPlan()
    leaves = plan.collectLeaves()
    return leaves.apply(0).selectedPartitions()


def test_ten_thousand_partitions_cost_a_few_calls(spark, tmp_path):
    snapshot, files = _repeated(tmp_path / "t", 20_000, 10_000)
    frame = scan_dataframe(spark, snapshot, pinned=True, files=files)
    Jvm.of(spark)
    with counted_calls(spark) as calls:
        listed = _list_files(spark, frame)
    assert int(listed.totalNumberOfFiles()) == 20_000
    assert int(listed.partitionCount()) == 10_000
    assert calls[0] < FEW
    with counted_calls(spark) as calls:
        listed = _list_files(spark, frame, "p IN (7, 9999) OR p % 5000 = 1")
    assert int(listed.totalNumberOfFiles()) == 8
    assert calls[0] < FEW


def test_many_files_cost_no_more_calls_than_few(spark, tmp_path):
    snapshot, files = _repeated(tmp_path / "t", 200_000, 3)
    found = []
    for frame in (files.head(10), files):
        scan = scan_dataframe(spark, snapshot, pinned=True, files=frame)
        with counted_calls(spark) as calls:
            listed = _list_files(spark, scan)
        assert int(listed.totalNumberOfFiles()) == frame.height
        found.append(calls[0])
    assert found[1] <= found[0] + 5
    assert found[1] < FEW


def test_a_query_over_many_small_partitions_gives_every_row_its_value(spark, tmp_path):
    snapshot, files = _repeated(tmp_path / "t", 600, 300)
    rows = scan_dataframe(spark, snapshot, pinned=True, files=files).groupBy("p").count().collect()
    assert {(row.p, row["count"]) for row in rows} == {(p, 2) for p in range(300)}


def test_no_setting_of_the_session_enters_the_plan(spark, tmp_path):
    write_deltalake(str(tmp_path / "t"), pa.table({"v": [1]}))
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.s3a.secret.key", secret("bulk"))
    try:
        frame = spark.read.format("delta").load(str(tmp_path / "t"))
        execution = frame._jdf.queryExecution()
        texts = [execution.toString(), execution.analyzed().toJSON(), str(execution.analyzed().relation().options())]
        assert secret("bulk") not in "".join(map(str, texts))
        assert Jvm.of(spark).hadoop_options()["fs.s3a.secret.key"] == secret("bulk")
    finally:
        conf.unset("fs.s3a.secret.key")


def test_a_log_with_a_hole_fails_while_the_frame_is_made(spark, tmp_path):
    path = tmp_path / "t"
    for value in range(3):
        write_deltalake(str(path), pa.table({"v": [value]}), mode="append")
    (path / "_delta_log" / "00000000000000000001.json").unlink()
    DeltaLog.clear_cache()
    with pytest.raises(LogGapError) as caught:
        spark.read.format("delta").load(str(path))
    assert caught.value.missing_versions == (1,)
