"""Constraints on rows that are there, defaults, generated partitions, wider types, types of their own kind."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from pydelta.commands.alter.requests import (
    AddColumns,
    AddConstraint,
    ChangeColumn,
    DropColumns,
    DropConstraint,
    NewColumn,
    RenameColumn,
    SetProperties,
)
from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import (
    BindError,
    ConstraintViolatedError,
    InvalidArgumentError,
    ParseError,
    SchemaMismatchError,
    UnsafeOperationError,
)
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, Literal, TextTest
from pydelta.protocol.types import DecimalType, PrimitiveType
from pydelta.tables import DeltaTable
from pydelta.testing.commands import alter_table

pytestmark = pytest.mark.spark


def _alter(spark, path, change):
    return alter_table(DeltaLog.for_table(path), change, engine=SparkEngine(spark))


def _append(frame, path, **options):
    frame.write.format("delta").mode("append").options(**options).save(path)


def _rows(frame):
    return sorted(json.loads(row[0]) for row in frame.select(F.to_json(F.array(*map(_text, frame.columns)))).collect())


def _text(column):
    return F.col(f"`{column}`").cast("string")


def test_constraints_not_null_and_defaults_against_rows_that_are_there(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(6).selectExpr("id", "if(id < 2, null, 'v' || id) as v").write.format("delta").save(path)
    with pytest.raises(ConstraintViolatedError, match=r'2 rows .*\(id > 1\); one of them is \{"id":[01],"v":null\}'):
        _alter(spark, path, AddConstraint(name="big", expression="id > 1"))
    with pytest.raises(ConstraintViolatedError, match="2 rows"):  # null is not true
        _alter(spark, path, AddConstraint(name="v", expression="v like 'v%'"))
    with pytest.raises(ConstraintViolatedError, match="NOT NULL of v"):
        _alter(spark, path, ChangeColumn(path=("v",), nullable=False))
    for expression, error in (
        ("idd > 1", BindError),
        ("id >", ParseError),
        ("rand() > id", InvalidArgumentError),
        ("id in (select 1)", InvalidArgumentError),
        ("id + 1", BindError),
    ):
        with pytest.raises(error):
            _alter(spark, path, AddConstraint(name="c", expression=expression))
    assert DeltaLog.for_table(path).update().version == 0
    DeltaTable.forPath(spark, path).delete("v is null")
    _alter(spark, path, AddConstraint(name="big", expression="id > 1"))
    _alter(spark, path, ChangeColumn(path=("v",), nullable=False))
    with pytest.raises(ConstraintViolatedError, match="big"):
        _append(spark.range(1).selectExpr("id", "'x' as v"), path)
    _alter(spark, path, DropConstraint(name="big"))
    for default, error in (("id + 1", BindError), ("'abc'", InvalidArgumentError), ("1 +", ParseError)):
        with pytest.raises(error):
            _alter(spark, path, ChangeColumn(path=("id",), default=default))
    _alter(spark, path, ChangeColumn(path=("v",), default="upper('new')"))
    _append(spark.range(1), path)
    assert _rows(spark.read.format("delta").load(path))[0] == ["0", "NEW"]


def test_expressions_of_a_new_table_have_to_resolve(spark, tmp_path):
    def create(text, **properties):
        builder = DeltaTable.create(spark).location(str(tmp_path / "never")).addColumn("ts", "timestamp")
        builder = builder.addColumn("day", "date", generatedAlwaysAs="CAST(ts AS DATE)")
        for key, value in properties.items():
            builder = builder.property(key.replace("_", "."), value)
        builder.addColumn("other", "string", generatedAlwaysAs=text).execute()

    for text, error in (
        ("upper(nme)", BindError),
        ("cast(day as string)", BindError),  # generated itself
        ("cast(rand() as string)", InvalidArgumentError),
        ("cast((select 1) as string)", InvalidArgumentError),
        ("upper(", ParseError),
        ("year(ts)", InvalidArgumentError),  # of another type
    ):
        with pytest.raises(error, match="other"):
            create(text)
    with pytest.raises(BindError, match="CHECK constraint 'c'"):
        create("'x'", delta_constraints_c="tss is not null")
    assert not (tmp_path / "never").exists()


def test_filters_prune_generated_partitions_without_statistics(spark, tmp_path):
    path = str(tmp_path / "events")
    builder = DeltaTable.create(spark).location(path).property("delta.dataSkippingNumIndexedCols", "0")
    builder = builder.addColumn("at", "timestamp").addColumn("name", "string")
    builder = builder.addColumn("day", "date", generatedAlwaysAs="CAST(at AS DATE)")
    builder.addColumn("first", "string", generatedAlwaysAs="substring(name, 1, 1)").partitionedBy(
        "day", "first"
    ).execute()
    hours = "timestamp '2024-03-01 12:00:00' + make_interval(0, 0, 0, int(id), 0, 0, 0)"
    _append(spark.range(20).selectExpr(f"{hours} as at", "if(id % 2 = 0, 'anna', 'bert') as name"), path)
    frame = spark.read.format("delta").load(path)

    def planned(condition):
        found = frame.filter(condition)
        files = len(set(found.select("_metadata.file_path").toArrow().column(0).to_pylist()))
        scan = found._jdf.queryExecution().executedPlan().toString()
        assert "PartitionFilters" in scan
        return found.count(), files

    snapshot = DeltaLog.for_table(path).update()
    bound = spark.sql("select unix_micros(timestamp '2024-03-15 00:00:00') as t").first()["t"] / 1e6
    late = Compare(">", Column(("at",)), Literal(datetime.fromtimestamp(bound, tz=UTC), "timestamp"))
    assert snapshot.num_files == 20
    assert 5 <= snapshot.files.select(data_filters=[late]).height <= 8
    assert snapshot.files.select(data_filters=[TextTest("starts", Column(("name",)), "ann")]).height == 10
    assert planned("at > timestamp '2024-03-15 00:00:00' and name = 'anna'") == (3, 3)
    assert planned("at between timestamp '2024-03-03' and timestamp '2024-03-05'")[0] == 2


def test_types_become_wider_by_alter_and_by_the_data(spark, tmp_path):
    path = str(tmp_path / "wide")
    columns = (
        "cast(id as int) as n",
        "cast(id as float) as f",
        "array(cast(id as short)) as a",
        "cast(id as decimal(4,1)) as d",
    )
    spark.range(3).selectExpr(*columns).write.format("delta").option("delta.enableTypeWidening", "true").save(path)
    _alter(spark, path, ChangeColumn(path=("a", "element"), data_type=PrimitiveType("integer")))
    _alter(spark, path, ChangeColumn(path=("d",), data_type=DecimalType(12, 3)))
    wider = spark.range(1).selectExpr(
        "10000000000L as n", "1.5d as f", "array(100000) as a", "cast(12345.678 as decimal(12,3)) as d"
    )
    _append(wider, path, mergeSchema="true")
    frame = spark.read.format("delta").load(path)
    assert [kind for _, kind in frame.dtypes] == ["bigint", "double", "array<int>", "decimal(12,3)"]
    assert _rows(frame)[-1] == ["2", "2.0", "[2]", "2.000"]
    assert frame.filter("n > 5000000000 and d > 12345").count() == 1
    metadata = {
        field.name: field.metadata.get("delta.typeChanges") for field in DeltaLog.for_table(path).update().schema
    }
    assert metadata["a"] == [{"toType": "integer", "fromType": "short", "fieldPath": "element"}]
    assert metadata["n"] == [{"toType": "long", "fromType": "integer"}]
    DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert _rows(spark.read.format("delta").load(path)) == _rows(frame)
    assert _rows(spark.read.format("delta").option("versionAsOf", 0).load(path))[0] == ["0", "0.0", "[0]", "0.0"]


def test_texts_of_limited_length_times_without_zone_and_variants(spark, tmp_path):
    path = str(tmp_path / "kinds")
    builder = DeltaTable.create(spark).location(path)
    builder = builder.addColumn("c", "char(4)").addColumn("v", "varchar(3)").addColumn("s", "struct<v:varchar(2)>")
    builder.addColumn("l", "array<char(2)>").addColumn("t", "timestamp_ntz").addColumn("x", "variant").execute()
    protocol = DeltaLog.for_table(path).update().protocol
    assert {"timestampNtz", "variantType"} <= set(protocol.reader_features)
    row = ["'ab' as c", "'abc  ' as v", "named_struct('v', 'ab') as s", "array('a', null) as l"]
    row += ["timestamp_ntz '2024-01-01 12:00:00' as t", "parse_json('[1]') as x"]
    _append(spark.range(1).selectExpr(*row), path)
    shown = ("c", "v", "s.v as s", "l[0] as l", "cast(t as string) as t", "to_json(x) as x")
    found = spark.read.format("delta").load(path).selectExpr(*shown).first()
    assert tuple(found) == ("ab  ", "abc", "ab", "a ", "2024-01-01 12:00:00", "[1]")
    for bad in ("'abcde' as c", "'abcd' as v", "named_struct('v', 'abc') as s", "array('abc') as l"):
        with pytest.raises(ConstraintViolatedError, match="longer"):
            _append(spark.range(1).selectExpr(bad), path)


def test_frames_and_views_after_the_schema_changed(spark, tmp_path):
    path = str(tmp_path / "views")
    spark.range(3).selectExpr("id", "'v' || id as v").write.format("delta").save(path)
    table = DeltaTable.forPath(spark, path)
    before = table.toDF()
    before.createOrReplaceTempView("kept_view")
    _alter(spark, path, AddColumns(columns=(NewColumn(path=("extra",), data_type=PrimitiveType("long")),)))
    _append(spark.range(3, 4).selectExpr("id", "'v' as v", "7L as extra"), path)
    assert before.columns == ["id", "v"]
    assert table.toDF().columns == ["id", "v", "extra"]
    assert before.count() == 4
    assert spark.table("kept_view").columns == ["id", "v"]
    assert spark.table("kept_view").count() == 4  # newest rows, by the columns that it was made of
    assert table.toDF().filter("extra = 7").count() == 1
    _alter(spark, path, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    middle = table.toDF()
    _alter(spark, path, RenameColumn(path=("v",), name="w"))
    _alter(spark, path, DropColumns(paths=(("extra",),)))
    assert table.toDF().columns == ["id", "w"]
    assert table.toDF().filter("w = 'v1'").count() == 1
    for read in (middle.filter("v = 'v1'").count, lambda: spark.table("kept_view").filter("v = 'v1'").count()):
        with pytest.raises(SchemaMismatchError) as raised:
            read()
        assert raised.value.getCondition() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    with pytest.raises(UnsafeOperationError):
        _alter(spark, path, AddConstraint(name="c", expression="w <> ''"))
        _alter(spark, path, RenameColumn(path=("w",), name="z"))
