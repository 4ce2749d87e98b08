"""Live deletion vectors in the native scan: rows, plans, what is read of the store, and what is damaged."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from session_settings import with_settings

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.caches import refresh_caches
from pydelta.engines.spark.scan.deleted_rows import make_bitmap
from pydelta.engines.spark.scan.scan import FILE_ROW_COLUMN, ROW_INDEX_COLUMN, Extra, scan_dataframe
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.row_sets import RowSet
from pydelta.protocol.vectors import inline_vector, pack_vectors, vector_path
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]

WITH_VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
_NAMES = itertools.count()


def build(path, *, files=4, rows=1000, partitioned=False) -> tuple[TableBuilder, list]:
    """ids 0.. in files of ``rows`` rows each; ``p`` is the file's number."""
    store = open_store(str(path))
    columns = {"id": "long", "name": "string", "p": "integer"}
    table = TableBuilder(store, columns=columns, partition_columns=["p"] if partitioned else [], protocol=WITH_VECTORS)
    adds = []
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        data = {"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]}
        if partitioned:
            adds.append(table.file(pa.table(data), {"p": str(number)}))
        else:
            adds.append(table.file(pa.table({**data, "p": pa.array([number] * rows, pa.int32())})))
    table.commit(*adds)
    return table, adds


def mark(table: TableBuilder, adds, deleted, *, inline=False, folder="") -> None:
    """A commit that puts vectors on files; ``deleted`` is positions by the number of the file."""
    numbers = list(deleted)
    vectors = [np.array(deleted[number], dtype=np.uint64) for number in numbers]
    if inline:
        described = [inline_vector(rows) for rows in vectors]
    else:
        data, described = pack_vectors(vectors, file_id=uuid.uuid4(), folder=folder)
        table.store.put(vector_path(described[0]), data)
    actions = []
    for number, vector in zip(numbers, described, strict=True):
        actions.append(adds[number].remove(deletion_timestamp=1))
        adds[number] = adds[number].replace(deletion_vector=vector)
        actions.append(adds[number])
    table.commit(*actions, operation="DELETE")


def _plan(frame) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain()
    return out.getvalue()


def _load(spark, path):
    return spark.read.format("delta").load(str(path))


def _ids(frame) -> set[int]:
    return {row[0] for row in frame.select("id").collect()}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("inline", [False, True])
def test_deleted_rows_are_gone_and_the_others_are_there(spark, tmp_path, partitioned, inline):
    table, adds = build(tmp_path / "t", partitioned=partitioned)
    mark(table, adds, {1: [0, 5, 999], 3: [*range(100, 300), 500]}, inline=inline)
    gone = {1000, 1005, 1999, *range(3100, 3300), 3500}
    frame = _load(spark, tmp_path / "t")
    assert frame.columns == ["id", "name", "p"]
    assert _ids(frame) == set(range(4000)) - gone
    assert frame.count() == 4000 - len(gone)
    assert _ids(frame.where("p = 3 AND id < 3200")) == set(range(3000, 3100))
    assert frame.where("id = 1005").count() == 0
    assert frame.where("name = 'n1006'").first().id == 1006
    assert frame.groupBy("p").count().where("p = 1").first()["count"] == 997


def test_every_file_with_a_vector_and_then_a_second_vector(spark, tmp_path):
    table, adds = build(tmp_path / "t", files=2)
    mark(table, adds, {0: [0], 1: [1]})
    assert _ids(_load(spark, tmp_path / "t")) == set(range(2000)) - {0, 1001}
    mark(table, adds, {0: [0, 1, 2]}, folder="ab")
    assert _ids(_load(spark, tmp_path / "t")) == set(range(2000)) - {0, 1, 2, 1001}
    old = spark.read.format("delta").option("versionAsOf", 1).load(str(tmp_path / "t"))
    assert _ids(old) == set(range(2000)) - {0, 1001}


def test_the_plan_is_sparks_own_with_pruning_and_push_down(spark, tmp_path):
    table, adds = build(tmp_path / "t", partitioned=True)
    mark(table, adds, {1: [7]})
    plan = _plan(_load(spark, tmp_path / "t").where("id > 50 AND p < 3").select("id"))
    scans = re.findall(r"FileScan parquet.*", plan)
    assert len(scans) == 2
    assert "Python" not in plan and "MapInArrow" not in plan and "BatchScan" not in plan
    for scan in scans:
        assert "PushedFilters: [IsNotNull(id), GreaterThan(id,50)]" in scan
        assert "PartitionFilters: [isnotnull(p" in scan
        assert "name" not in re.search(r"ReadSchema: (.*)", scan).group(1)
    plain = next(scan for scan in scans if "vector" not in scan.split("Location")[0])
    assert "row_index" not in plain, "files without a vector are scanned as if there were none"
    assert "ReadSchema: struct<id:bigint>" in plain
    assert "static_invoke(BitSetMethods.isSet" in plan
    assert plan.count("*(") >= plan.count("FileScan"), "generated code"


def test_a_row_is_looked_up_in_its_vector_after_the_conditions_of_the_query(spark, tmp_path):
    table, adds = build(tmp_path / "t")
    mark(table, adds, {0: [7], 1: [7], 2: [7], 3: [7]})
    with with_settings(spark, adaptive_enabled="false"):  # its plans have no code before they run
        plan = _load(spark, tmp_path / "t").where("p < 77")._jdf.queryExecution().executedPlan()
        debug = spark._jvm.org.apache.spark.sql.execution.debug
        code = str(getattr(getattr(debug, "package$"), "MODULE$").codegenString(plan))
    assert "PushedFilters: [IsNotNull(p), LessThan(p,77)]" in str(plan.toString())
    assert 0 < code.index("< 77") < code.index("BitSetMethods.isSet(", code.index("/* 001 */"))


@pytest.mark.parametrize("mode", ["FALLBACK", "NO_CODEGEN"])
def test_rows_at_the_ends_of_words_files_and_vectors(spark, tmp_path, mode):
    """Against a model: with generated code and without, with conditions that are null and that fail for some rows."""
    deleted = [[0], [63, 64], [64], [127, 128, 191], [192, 999], [*range(64, 128)], [999], [*range(999)], [998]]
    table, adds = build(tmp_path / "t", files=len(deleted) + 1)
    mark(table, adds, dict(enumerate(deleted)))
    gone = {number * 1000 + row for number, rows in enumerate(deleted) for row in rows}
    left = [i for i in range((len(deleted) + 1) * 1000) if i not in gone]
    conditions = {
        "true": lambda i: True,
        "id % 64 = 0": lambda i: i % 64 == 0,
        "id % 1000 >= 960": lambda i: i % 1000 >= 960,
        "name LIKE '%9'": lambda i: i % 10 == 9,
        "nullif(id % 2, 0) = 1": lambda i: i % 2 == 1,
        "id IN (64, 128, 999, 2063, 2064, 2065)": lambda i: i in (64, 128, 999, 2063, 2064, 2065),
        "p = 3 OR id < 70": lambda i: 3000 <= i < 4000 or i < 70,
        "_metadata.row_index IN (0, 999)": lambda i: i % 1000 in (0, 999),
    }
    with with_settings(spark, codegen_factoryMode=mode, codegen_wholeStage=str(mode == "FALLBACK").lower()):
        for condition, holds in conditions.items():
            frame = _load(spark, tmp_path / "t").where(condition)
            expected = [i for i in left if holds(i)]
            assert sorted(row.id for row in frame.collect()) == expected, condition
            assert frame.selectExpr("sum(id)").first()[0] == sum(expected), condition


def test_what_is_kept_of_a_query_serves_the_same_files_alone(spark, tmp_path):
    table, adds = build(tmp_path / "t", partitioned=True)
    mark(table, adds, {1: [7], 2: [8]})
    jvm = Jvm.of(spark)
    made = []
    original = jvm.rows_of
    jvm.rows_of = lambda *given: made.append(1) or original(*given)
    try:
        ids = set(range(4000)) - {1007, 2008}
        assert _ids(_load(spark, tmp_path / "t")) == ids
        first = len(made)
        assert _ids(_load(spark, tmp_path / "t")) == ids
        assert len(made) == first, "a second query makes no rows of its vectors"
        assert _ids(_load(spark, tmp_path / "t").where("p = 2")) == set(range(2000, 3000)) - {2008}
        assert len(made) > first, "other files"
        mark(table, adds, {1: [7, 9]}, folder="b")
        assert _ids(_load(spark, tmp_path / "t")) == ids - {1009}
    finally:
        del jvm.rows_of


def test_a_table_without_live_vectors_keeps_the_plain_scan(spark, tmp_path):
    build(tmp_path / "t")
    plan = _plan(_load(spark, tmp_path / "t").where("id > 50"))
    assert "vector" not in plan and "Union" not in plan and "row_index" not in plan


def test_only_vectors_of_the_files_that_a_query_is_left_with_are_read(spark, tmp_path):
    table, adds = build(tmp_path / "t", partitioned=True)
    mark(table, adds, {0: [1], 1: [1]}, folder="a")
    mark(table, adds, {2: [1]}, folder="b")
    next((tmp_path / "t" / "a").glob("*.bin")).unlink()
    frame = _load(spark, tmp_path / "t")
    assert frame.where("p = 2").count() == 999
    assert frame.where("p = 3").count() == 1000
    with pytest.raises(Exception, match="is missing; without it, deleted rows would come back"):
        frame.where("id >= 0").count()


def test_metadata_can_be_selected(spark, tmp_path):
    table, adds = build(tmp_path / "t")
    mark(table, adds, {1: [0]})
    frame = _load(spark, tmp_path / "t")
    found = frame.select("id", "_metadata.row_index", "_metadata.file_name").where("id IN (5, 1001, 1002)")
    assert {(row.id, row.row_index) for row in found.collect()} == {(5, 5), (1001, 1), (1002, 2)}
    assert frame.where("_metadata.row_index = 0").count() == 3
    assert frame.select("_metadata.file_path").distinct().count() == 4
    assert frame.columns == ["id", "name", "p"]


def test_joins_views_and_sql(spark, tmp_path):
    table, adds = build(tmp_path / "t")
    mark(table, adds, {1: [0], 2: [*range(1000)]})
    frame = _load(spark, tmp_path / "t")
    assert frame.alias("a").join(frame.alias("b"), F.expr("a.id = b.id")).count() == 2999
    assert spark.sql(f"SELECT count(*) FROM delta.`{tmp_path / 't'}` WHERE p IN (1, 2)").first()[0] == 999
    assert frame.union(frame).distinct().count() == 2999
    assert frame.join(spark.range(1000, 1002), "id").count() == 1
    assert frame.limit(10).count() == 10


def test_views_and_caches_follow_a_table_that_gets_vectors_and_loses_them(spark, tmp_path):
    path = str(tmp_path / "t")
    table, adds = build(path)
    plain = list(adds)
    view = f"vector_view_{next(_NAMES)}"
    _load(spark, path).where("p = 1").createOrReplaceTempView(view)
    cached = _load(spark, path).cache()
    try:
        assert (spark.table(view).count(), cached.count()) == (1000, 4000)
        for deleted, left in (({1: [0, 1]}, 998), ({1: [0, 1, 2], 2: [0]}, 997)):
            mark(table, adds, deleted)
            snapshot = log_for_path(spark, path).update()
            assert refresh_caches(spark, snapshot.table_uri) == 1
            assert spark.table(view).count() == left
            assert "InMemory" in _plan(_load(spark, path)), "the entry was rebuilt"
            assert _load(spark, path).where("p = 1").count() == left
        table.commit(*(add.remove(deletion_timestamp=1) for add in (adds[1], adds[2])), plain[1], plain[2])
        snapshot = log_for_path(spark, path).update()
        assert refresh_caches(spark, snapshot.table_uri) == 1
        assert spark.table(view).count() == 1000
        assert "InMemory" in _plan(_load(spark, path))
        assert _load(spark, path).count() == 4000
    finally:
        cached.unpersist()
        spark.catalog.clearCache()
        spark.catalog.dropTempView(view)


def test_rows_of_commands_carry_file_and_position(spark, tmp_path):
    table, adds = build(tmp_path / "t", files=3, rows=10)
    mark(table, adds, {1: [0, 4]})
    snapshot = DeltaLog.for_table(str(tmp_path / "t")).update()
    files = snapshot.files.core.sort("path")
    frame = scan_dataframe(spark, snapshot, pinned=True, files=files, extra=Extra.PLACE)
    assert frame.columns == ["id", "name", "p", FILE_ROW_COLUMN, ROW_INDEX_COLUMN]
    paths = files["path"].to_list()
    numbers = [add.path for add in adds]
    rows = frame.collect()
    assert len(rows) == 28
    for row in rows:
        assert paths[row[FILE_ROW_COLUMN]] == numbers[row.id // 10]
        assert row[ROW_INDEX_COLUMN] == row.id % 10


def test_a_damaged_vector_is_named_and_no_row_comes_back(spark, tmp_path):
    table, adds = build(tmp_path / "t", files=2, rows=10)
    mark(table, adds, {0: [1]}, folder="v")
    file = next((tmp_path / "t" / "v").glob("*.bin"))
    data = bytearray(file.read_bytes())
    data[-6] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(Exception, match="is damaged: its checksum does not match"):
        _load(spark, tmp_path / "t").collect()
    file.write_bytes(b"\2" + bytes(data[1:]))
    with pytest.raises(Exception, match="is of format 2"):
        _load(spark, tmp_path / "t").collect()


def test_the_data_source_of_last_resort_leaves_deleted_rows_out(spark, tmp_path):
    from pydelta.api.routing.datasource import DeltaDataSource

    table, adds = build(tmp_path / "t", files=2, rows=25_000)
    mark(table, adds, {0: [0, 9_999, 10_000, 24_999]})
    mark(table, adds, {1: [3]}, inline=True)
    reader = DeltaDataSource({"path": str(tmp_path / "t")}).reader(None)
    ids = {i for part in reader.partitions() for batch in reader.read(part) for i in batch.column("id").to_pylist()}
    assert ids == set(range(50_000)) - {0, 9_999, 10_000, 24_999, 25_003}


@pytest.mark.parametrize("rows", [[0], [63], [64], [5, 1_000_000], [4096, 4097], list(range(64, 256))])
def test_a_bitmap_covers_what_lies_between_the_first_and_the_last_deleted_row(rows):
    bitmap = make_bitmap(RowSet.of(np.array(rows, dtype=np.uint64)))
    assert bitmap.start % 64 == 0 and bitmap.start <= rows[0] < bitmap.start + 64
    assert len(bitmap.bits) * 8 == bitmap.end - bitmap.start
    bits = np.unpackbits(np.frombuffer(bitmap.bits, dtype=np.uint8), bitorder="little")
    assert (np.flatnonzero(bits) + bitmap.start).tolist() == rows
