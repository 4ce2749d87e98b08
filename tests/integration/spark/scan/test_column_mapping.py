"""Tables with column mapping: made, upgraded, columns renamed and dropped without a rewrite, evolved, changed."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import pydelta
from pydelta.commands.alter.requests import AddColumns, DropColumns, NewColumn, RenameColumn, SetProperties
from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import SchemaError
from pydelta.log import DeltaLog
from pydelta.protocol.schema_edits import all_paths
from pydelta.protocol.types import PrimitiveType
from pydelta.tables import DeltaTable
from pydelta.testing.commands import alter_table

pytestmark = pytest.mark.spark

ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
ROWS = (
    "id",
    "cast(id % 3 as int) as `the part`",
    "named_struct('x', cast(id as int), 'y z', 'v' || id) as at",
    "array(named_struct('n', id), named_struct('n', -id)) as list",
    "map('k', named_struct('m', id)) as map",
)


def _rows(frame):
    texts = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: json.dumps(row, sort_keys=True))


def _read(spark, path):
    return spark.read.format("delta").load(path)


def _marks(path):
    return {
        field: (item.metadata[ID], item.metadata[NAME])
        for field, item in all_paths(DeltaLog.for_table(path).update().schema)
    }


def _alter(spark, path, change):
    return alter_table(DeltaLog.for_table(path), change, engine=SparkEngine(spark)).snapshot


@pytest.fixture
def mapped(spark, tmp_path, request):
    """Ten rows in a table that was made with column mapping, by name unless the test says otherwise."""
    path = str(tmp_path / "t")
    writer = spark.range(10).selectExpr(*ROWS).coalesce(1).write.format("delta").partitionBy("the part")
    writer.option("delta.columnMapping.mode", getattr(request, "param", "name")).save(path)
    return path


@pytest.mark.parametrize("mapped", ["name", "id"], indirect=True)
def test_files_have_physical_names_and_ids_at_every_depth(spark, mapped):
    snapshot = DeltaLog.for_table(mapped).update()
    marks = _marks(mapped)
    assert sorted(number for number, _ in marks.values()) == list(range(1, 10))
    assert all(name.startswith("col-") for _, name in marks.values())
    assert len({name for _, name in marks.values()}) == len(marks)
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "9"
    add = snapshot.files.adds(snapshot.files.core)[0]
    assert set(add.partition_values) == {marks["the part",][1]}
    assert set(json.loads(add.stats)["minValues"]) == {marks["id",][1], marks["at",][1]}
    schema = pq.read_schema(f"{mapped}/{add.path}")
    found = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
    assert found == {marks[top,][1]: marks[top,][0] for top in ("id", "at", "list", "map")}
    inner = schema.field(marks["at",][1]).type
    assert int(inner.field(marks["at", "y z"][1]).metadata[b"PARQUET:field_id"]) == marks["at", "y z"][0]
    assert _rows(_read(spark, mapped)) == _rows(spark.range(10).selectExpr(*ROWS))
    assert _read(spark, mapped).filter("`the part` = 1 and at.x > 4").count() == 1


@pytest.mark.parametrize("mapped", ["id"], indirect=True)
def test_renamed_dropped_and_added_again_without_a_rewrite(spark, mapped):
    before = DeltaLog.for_table(mapped).update().files.core["path"].to_list()
    _alter(spark, mapped, RenameColumn(path=("at", "y z"), name="label"))
    _alter(spark, mapped, RenameColumn(path=("the part",), name="part"))
    _alter(spark, mapped, RenameColumn(path=("list", "element", "n"), name="number"))
    _alter(spark, mapped, DropColumns(paths=(("map",),)))
    snapshot = _alter(spark, mapped, AddColumns(columns=(NewColumn(path=("map",), data_type=PrimitiveType("long")),)))
    assert snapshot.files.core["path"].to_list() == before
    frame = _read(spark, mapped)
    assert frame.columns == ["id", "part", "at", "list", "map"]
    assert frame.filter("map is not null").count() == 0
    row = frame.filter("id = 4").first()
    assert (row["part"], row["at"]["label"], row["list"][1]["number"]) == (1, "v4", -4)
    spark.range(20, 22).selectExpr("id", "9 as part", "id * 2 as map").write.format("delta").mode("append").save(mapped)
    assert {row["map"] for row in _read(spark, mapped).filter("part = 9").collect()} == {40, 42}
    assert _read(spark, mapped).count() == 12
    assert spark.read.format("delta").option("versionAsOf", 0).load(mapped).columns[1] == "the part"


@pytest.mark.parametrize(
    "write",
    [
        lambda spark, table, path: spark.sql("SELECT 1 AS `the part`").write.format("delta").mode("append").save(path),
        lambda spark, table, path: table.update("`the part` = 1", {"`the part`": "5"}),
        lambda spark, table, path: table.optimize().executeCompaction(),
        lambda spark, table, path: pydelta.open(path).append(pa.table({"the part": pa.array([1], pa.int32())})),
    ],
    ids=["append", "update", "optimize", "without a JVM"],
)
def test_with_partition_columns_alone_rows_are_read_and_deleted_but_not_written(spark, mapped, write):
    spark.range(5).selectExpr(*ROWS).write.format("delta").mode("append").save(mapped)
    _alter(spark, mapped, DropColumns(paths=(("id",), ("at",), ("list",), ("map",))))
    table = DeltaTable.forPath(spark, mapped)
    with pytest.raises(SchemaError, match="at least one non-partitioned column") as refused:
        write(spark, table, mapped)
    assert refused.value.getCondition() == "DELTA_NON_PARTITION_COLUMN_ABSENT"
    table.delete("`the part` = 2")
    parts = _read(spark, mapped).groupBy("the part").count().orderBy("the part")
    assert [tuple(row) for row in parts.collect()] == [(0, 6), (1, 5)]
    _alter(spark, mapped, AddColumns(columns=(NewColumn(path=("id",), data_type=PrimitiveType("long")),)))
    write(spark, table, mapped)


def test_rows_are_changed_merged_and_rearranged(spark, mapped):
    table = DeltaTable.forPath(spark, mapped)
    table.update("id = 3", {"`at`.`y z`": "'changed'"})
    table.delete("id in (0, 1)")
    source = spark.range(8, 12).selectExpr(*ROWS, "'new' as `a new one`")
    merged = table.alias("t").merge(source.alias("s"), "t.id = s.id").withSchemaEvolution()
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    before = _marks(mapped)
    table.optimize().executeCompaction()
    assert _marks(mapped) == before
    number, name = before["a new one",]
    assert number == 10
    assert name.startswith("col-")
    frame = _read(spark, mapped)
    assert sorted(row["id"] for row in frame.collect()) == list(range(2, 12))
    assert frame.filter("`a new one` = 'new'").count() == 4
    assert frame.filter("id = 3").first()["at"]["y z"] == "changed"


def test_an_evolving_schema_keeps_what_it_has(spark, mapped):
    before = _marks(mapped)
    more = spark.range(10, 12).selectExpr(
        "id", "7 as `the part`", "named_struct('x', 1, 'w', true) as at", "'text' as extra"
    )
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(mapped)
    marks = _marks(mapped)
    assert {field: marks[field] for field in before} == before
    assert {marks["at", "w"][0], marks["extra",][0]} == {10, 11}
    assert _read(spark, mapped).filter("at.w").count() == 2
    other = spark.range(3).selectExpr(
        "cast(id as string) as id", "5 as `the part`", "named_struct('x', 1) as at", "1.5 as d"
    )
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(mapped)
    after = _marks(mapped)
    assert after["the part",] == marks["the part",]
    assert after["at", "x"] == marks["at", "x"]
    assert after["id",][0] > 11
    assert after["d",][0] > 11
    assert _read(spark, mapped).columns == ["id", "the part", "at", "d"]
    assert _read(spark, mapped).count() == 3


def test_a_table_that_has_rows_is_upgraded(spark, tmp_path):
    path = str(tmp_path / "old")
    columns = ("id", "cast(id % 2 as int) as p", "named_struct('x', id) as at", "'v' || id as v")
    spark.range(6).selectExpr(*columns).write.format("delta").partitionBy("p").save(path)
    with pytest.raises(SchemaError):
        spark.range(1).selectExpr("id as `a b`").write.format("delta").mode("append").option(
            "mergeSchema", "true"
        ).save(path)
    snapshot = _alter(spark, path, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (2, 5)
    assert _marks(path)["at", "x"][1] == "x"
    _alter(spark, path, RenameColumn(path=("v",), name="a b"))
    _alter(spark, path, RenameColumn(path=("p",), name="q"))
    new = spark.range(6, 8).selectExpr(
        "id", "cast(id % 2 as int) as q", "named_struct('x', id) as at", "'w' as `a b`", "1 as z"
    )
    new.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    frame = _read(spark, path)
    assert frame.filter("q = 0 and `a b` like 'v%'").count() == 3
    assert frame.filter("z = 1 and at.x > 5").count() == 2
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert frame.count() == _read(spark, path).count() == 8
