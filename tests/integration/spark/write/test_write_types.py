"""Every type and every odd value that a table can hold, written and read back, by this engine and by delta-rs."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as RsTable
from pyspark.errors import AnalysisException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

import pydelta
from pydelta.commands.create import TableDefinition
from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog

pytestmark = pytest.mark.spark

FLAT = """
    b byte, s short, i int, l long, f float, d double, bo boolean, st string, bi binary, da date, ts timestamp,
    d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,18)
"""
FLAT_ROWS = [
    (1, 2, 3, 4, 1.5, 2.5, True, "text", bytearray(b"\x00\xff"), dt.date(2024, 2, 29),
     dt.datetime(2024, 2, 29, 12, 30, 15, 123456), decimal.Decimal("1.25"), decimal.Decimal("-3.1415"),
     decimal.Decimal("12345678901234567890.123456789012345678")),
    (-128, -32768, -(2**31), -(2**63), float("-inf"), float("nan"), False, "", bytearray(b""), dt.date(1, 1, 1),
     dt.datetime(1901, 12, 13, 0, 0, 0, 1), decimal.Decimal("-9999999.99"), decimal.Decimal("0"),
     decimal.Decimal("-0.000000000000000001")),
    (127, 32767, 2**31 - 1, 2**63 - 1, 0.1, -0.0, None, "ünï𝄞\n\"quoted\"", None, dt.date(9999, 12, 31),
     dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None, None, None),
    (None,) * 14,
]  # fmt: skip


def rows_of(df):
    return sorted(map(repr, df.collect()))


def only_file(path):
    [file] = [item for item in Path(path).rglob("*.parquet") if "_delta_log" not in item.parts]
    return file


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_every_flat_type_comes_back_as_it_was(spark, tmp_path, kind):
    path = str(tmp_path / "t")
    df = spark.createDataFrame(FLAT_ROWS, FLAT).coalesce(1)
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        df.write.format("delta").save(path)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    back = spark.read.format("delta").load(path)
    assert back.schema.simpleString() == df.schema.simpleString()
    assert rows_of(back) == rows_of(df)
    position = [field.name for field in df.schema].index("ts")
    physical = pq.ParquetFile(only_file(path)).schema.column(position).physical_type
    assert physical == ("INT96" if kind == "INT96" else "INT64")
    theirs = RsTable(path).to_pyarrow_table().sort_by("l")
    assert theirs.num_rows == 4
    assert theirs["d38"].to_pylist() == [row[13] for row in sorted(FLAT_ROWS[:3], key=lambda r: r[3])] + [None]
    assert [t and t.replace(tzinfo=None) for t in theirs["ts"].to_pylist()] == [
        row[10] for row in sorted(FLAT_ROWS[:3], key=lambda r: r[3])
    ] + [None]


def test_times_are_microseconds_where_nobody_set_how_they_are_stored(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql("select timestamp'9999-12-31 00:00:00' t, 1 id").write.format("delta").save(path)
    spark.sql(f"update delta.`{path}` set id = 2")
    pydelta.open(path).append(pa.table({"id": [3]}))
    files = [item for item in Path(path).rglob("*.parquet") if "_delta_log" not in item.parts]
    assert {pq.ParquetFile(file).schema.column(0).physical_type for file in files} == {"INT64"} and len(files) == 3
    years = [t and t.year for t in RsTable(path).to_pyarrow_table()["t"].to_pylist()]
    assert sorted(years, key=str) == [9999, None], "INT96 would be another year to readers that use nanoseconds"


@pytest.mark.parametrize("kind", ["float", "double"])
def test_negative_zero_is_found_where_zero_is_asked_for(spark, tmp_path, kind):
    path = str(tmp_path / "t")
    rows = spark.range(1000).selectExpr("id", f"cast(if(id = 7, '-0.0', '5.0') as {kind}) d")
    rows.coalesce(1).write.format("delta").save(path)
    for condition in ("d = 0", "d >= 0 AND d < 1", "d <= 0", "d IN (0, 9)", "d = -0.0"):
        found = spark.read.format("delta").load(path).where(condition).select("id").collect()
        assert [row[0] for row in found] == [7], condition


def test_milliseconds_are_honoured(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    try:
        spark.sql("select timestamp'2024-01-01 00:00:00.123456' t").write.format("delta").save(path)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    assert spark.read.format("delta").load(path).first()[0] == dt.datetime(2024, 1, 1, 0, 0, 0, 123000)
    assert "MILLIS" in str(pq.ParquetFile(only_file(path)).schema.column(0).logical_type).upper()


def test_a_timestamp_without_a_zone_brings_its_feature_and_is_never_int96(spark, tmp_path):
    path = str(tmp_path / "t")
    df = spark.sql("select timestamp_ntz'2024-03-31 02:30:00.5' n, timestamp'2024-03-31 02:30:00Z' t")
    df.write.format("delta").save(path)
    assert rows_of(spark.read.format("delta").load(path)) == rows_of(df)
    assert "timestampNtz" in (DeltaLog.for_table(path).update().protocol.reader_features or ())
    schema = pq.ParquetFile(only_file(path)).schema
    assert [schema.column(i).physical_type for i in range(2)] == ["INT64", "INT64"]
    assert RsTable(path).to_pyarrow_table()["n"].to_pylist() == [dt.datetime(2024, 3, 31, 2, 30, 0, 500000)]


NESTED = """
    id int, a array<int>, aa array<array<string>>, m map<string, double>, ms map<int, struct<x: int, y: array<string>>>,
    st struct<p: int, q: struct<r: string, t: timestamp>, l: array<struct<u: date, v: decimal(10,2)>>>
"""


def nested_rows():
    stamp = dt.datetime(2020, 1, 1, 1, 1, 1)
    return [
        (1, [1, None, 3], [["a", None], [], None], {"k": 1.0, "n": None}, {1: Row(x=1, y=["z"]), 2: None},
         Row(p=1, q=Row(r="r", t=stamp), l=[Row(u=dt.date(2020, 1, 1), v=decimal.Decimal("1.10")), None])),
        (2, [], [], {}, {}, Row(p=None, q=Row(r=None, t=None), l=[])),
        (3, None, None, None, None, None),
        (4, [None], [None], {"": 0.0}, {0: Row(x=None, y=None)}, Row(p=2, q=None, l=None)),
    ]  # fmt: skip


def test_nested_types_come_back_with_their_nulls(spark, tmp_path):
    path = str(tmp_path / "t")
    df = spark.createDataFrame(nested_rows(), NESTED).coalesce(1)
    df.write.format("delta").save(path)
    back = spark.read.format("delta").load(path)
    assert rows_of(back) == rows_of(df)
    assert back.where("st.q.r = 'r'").count() == 1
    assert RsTable(path).to_pyarrow_table().num_rows == 4
    [add] = DeltaLog.for_table(path).update().files.adds(DeltaLog.for_table(path).update().files.core)
    stats = json.loads(add.stats)
    assert stats["minValues"]["st"]["q"]["r"] == "r"
    assert stats["nullCount"]["st"]["q"] == {"r": 3, "t": 3}
    assert stats["nullCount"]["a"] == 1


def test_required_fields_inside_structs_arrays_and_maps_are_written(spark, tmp_path):
    path = str(tmp_path / "t")
    inner = T.StructType([T.StructField("x", T.IntegerType(), False)])
    schema = T.StructType(
        [
            T.StructField("s", inner, False),
            T.StructField("a", T.ArrayType(inner, False), False),
            T.StructField("m", T.MapType(T.StringType(), inner, False), False),
        ]
    )
    df = spark.createDataFrame([((1,), [(2,)], {"k": (3,)})], schema)
    df.write.format("delta").save(path)
    df.write.format("delta").mode("append").save(path)
    assert rows_of(spark.read.format("delta").load(path)) == rows_of(df) * 2


def test_void_columns_stay_out_of_the_files(spark, tmp_path):
    path = str(tmp_path / "t")
    df = spark.sql("select 1 id, null v, named_struct('a', 2, 'w', null) s")
    df.write.format("delta").save(path)
    assert pq.ParquetFile(only_file(path)).schema_arrow.names == ["id", "s"]
    assert pq.ParquetFile(only_file(path)).schema_arrow.field("s").type.num_fields == 1
    assert json.loads(DeltaLog.for_table(path).update().metadata.schema_string)["fields"][1]["type"] == "void"
    spark.sql("select 2 id, 'now text' v").write.format("delta").mode("append").option("mergeSchema", True).save(path)
    back = spark.read.format("delta").load(path).select("id", "v").orderBy("id").collect()
    assert [tuple(row) for row in back] == [(1, None), (2, "now text")]


@pytest.mark.parametrize(
    ("query", "cause"),
    [("select array(null) a", "a"), ("select null n", "void"), ("select map(1, null) m", "m")],
    ids=["array", "all", "map"],
)
def test_void_where_no_file_can_hold_it_is_refused(spark, tmp_path, query, cause):
    with pytest.raises(SchemaError, match=cause):
        spark.sql(query).write.format("delta").save(str(tmp_path / "t"))
    assert not (tmp_path / "t" / "_delta_log").exists()


@pytest.mark.parametrize(
    ("sql", "named"),
    [("interval '1' day", "interval"), ("interval '1' year", "interval"), ("array(interval '1' day)", "interval"),
     ("time'12:00:00'", "time")],
)  # fmt: skip
def test_a_type_without_a_place_in_the_format_is_refused_by_name(spark, tmp_path, sql, named):
    with pytest.raises(UnsupportedFeatureError, match=named) as caught:
        spark.sql(f"select 1 id, {sql} odd").write.format("delta").save(str(tmp_path / "t"))
    assert "'odd'" in str(caught.value)
    assert isinstance(caught.value, AnalysisException)
    assert not (tmp_path / "t").exists()


def test_varchar_and_char_keep_their_lengths(spark, tmp_path):
    from pydelta.commands.create import CreateMode
    from pydelta.protocol.schema import PrimitiveType, StructField, StructType
    from pydelta.settings import Settings
    from pydelta.testing.commands import create_table

    path = str(tmp_path / "t")
    string = PrimitiveType("string")
    schema = StructType(
        (
            StructField("v", string, True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
            StructField("c", string, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}),
        )
    )
    create_table(DeltaLog.for_table(path), TableDefinition(schema=schema), mode=CreateMode.CREATE, settings=Settings())
    good = spark.createDataFrame([("abc", "xy"), ("ab   ", "xyzw  "), (None, None)], "v string, c string")
    good.write.format("delta").mode("append").save(path)
    rows = {tuple(row) for row in spark.read.format("delta").load(path).collect()}
    assert rows == {("abc", "xy  "), ("ab ", "xyzw"), (None, None)}
    for bad in (("abcd", "x"), ("a", "xyzwv")):
        with pytest.raises(SchemaError, match="longer"):
            spark.createDataFrame([bad], "v string, c string").write.format("delta").mode("append").save(path)


SPECIAL = ["plain", "with space", "50%", "a=b", "a/b", "ünïcödé 漢", "", None, "a:b", "x\ny", "'q\"", "#?&+", "..", "~",
           "%20", "{}[]|\\^`", "__HIVE_DEFAULT_PARTITION__ "]  # fmt: skip


def test_special_characters_in_partition_values_come_back(spark, tmp_path):
    path = str(tmp_path / "t")
    df = spark.createDataFrame([(i, value) for i, value in enumerate(SPECIAL)], "id int, p string")
    df.write.format("delta").partitionBy("p").save(path)
    expected = {i: (value or None) for i, value in enumerate(SPECIAL)}
    assert {r["id"]: r["p"] for r in spark.read.format("delta").load(path).collect()} == expected
    theirs = RsTable(path).to_pyarrow_table()
    assert dict(zip(theirs["id"].to_pylist(), theirs["p"].to_pylist(), strict=True)) == expected
    found = spark.read.format("delta").load(path).where(F.col("p") == "a=b").collect()
    assert [row["id"] for row in found] == [3]


def test_partitions_of_every_type_come_back(spark, tmp_path):
    path = str(tmp_path / "t")
    names = ["b", "s", "i", "l", "f", "d", "bo", "st", "da", "ts", "d9", "d38"]
    df = (
        spark.createDataFrame(FLAT_ROWS, FLAT)
        .where("not isnan(d) or d is null")
        .select(F.monotonically_increasing_id().alias("id"), *names)
    )
    df = spark.createDataFrame(df.collect(), df.schema)  # fixed ids
    df.write.format("delta").partitionBy(*names).save(path)
    expected = sorted(repr(Row(**{**r.asDict(), "st": r["st"] or None})) for r in df.collect())
    assert rows_of(spark.read.format("delta").load(path)) == expected
    assert RsTable(path).to_pyarrow_table(columns=["id", "l", "ts"]).num_rows == df.count()


def test_variant_comes_back(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql("""select parse_json('{"a": [1, 2]}') v, 1 id""").write.format("delta").save(path)
    back = spark.read.format("delta").load(path)
    assert back.selectExpr("to_json(v)").first()[0] == '{"a":[1,2]}'
    assert "variantType" in (DeltaLog.for_table(path).update().protocol.reader_features or ())


@pytest.mark.parametrize(
    "case",
    [
        "dat__v0.0.3__out__reader_tests__generated__column_mapping",
        "golden__kernel-defaults__data-reader-partition-values-column-mapping-name",
        "golden__golden-tables__data-skipping-basic-stats-all-types-columnmapping-id",
    ],
)
def test_tables_with_column_mapping_are_written_by_physical_names_and_ids(spark, tmp_path, case):
    root = Path(__file__).resolve().parents[4]
    tables = Path(os.environ.get("PYDELTA_CONFORMANCE", root.parent / "shared" / "conformance")) / "tables"
    path = tmp_path / "t"
    shutil.copytree(tables / case, path, copy_function=shutil.copyfile)
    for folder in [path, *(item for item in path.rglob("*") if item.is_dir())]:
        folder.chmod(0o755)
    before = spark.read.format("delta").load(str(path)).collect()
    rows = spark.createDataFrame(before, spark.read.format("delta").load(str(path)).schema)
    rows.write.format("delta").mode("append").save(str(path))
    assert rows_of(spark.read.format("delta").load(str(path))) == sorted(map(repr, before * 2))
    snapshot = DeltaLog.for_table(str(path)).update()
    new = max(snapshot.files.adds(snapshot.files.core), key=lambda add: add.modification_time)
    schema = pq.ParquetFile(path / new.path).schema_arrow
    mapped = {field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema.fields}
    assert set(schema.names) | set(new.partition_values) == mapped
    assert all(b"PARQUET:field_id" in (field.metadata or {}) for field in schema)


def test_column_names_with_dots_and_backticks(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.createDataFrame([(1, 2)], ["a.b", "c`d"]).write.format("delta").save(path)
    assert spark.read.format("delta").load(path).columns == ["a.b", "c`d"]
    assert [tuple(r) for r in spark.read.format("delta").load(path).collect()] == [(1, 2)]
    [add] = DeltaLog.for_table(path).update().files.adds(DeltaLog.for_table(path).update().files.core)
    assert json.loads(add.stats)["minValues"] == {"a.b": 1, "c`d": 2}


def test_arrow_reads_what_was_written(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(5).coalesce(1).write.format("delta").option("compression", "zstd").save(path)
    assert only_file(path).name.endswith(".zstd.parquet")
    assert pq.read_table(only_file(path)).column("id").to_pylist() == [0, 1, 2, 3, 4]
    assert pq.read_schema(only_file(path)).field("id").type == pa.int64()
