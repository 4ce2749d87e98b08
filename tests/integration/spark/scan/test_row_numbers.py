"""Row numbers that are counted without Spark's iterator: the same numbers, in files of any shape and in any plan."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from session_settings import with_settings
from test_vector_scan import WITH_VECTORS

from pydelta.engines.spark.compiled import compile_all
from pydelta.engines.spark.jvm import Jvm
from pydelta.protocol.vectors import inline_vector
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

pytestmark = pytest.mark.spark

COUNT = "spark.pydelta.read.countRows"
COUNTED = "row_number_in_file"
_FIRST_ID = 100_000
CONDITIONS = {
    "true": lambda row, number: True,
    "id % 100000 >= 1200": lambda row, number: row["id"] % 100_000 >= 1200,  # not in Parquet's filter
    "id BETWEEN 101500 AND 201600": lambda row, number: 101_500 <= row["id"] <= 201_600,
    "x > 900 AND id > 100000": lambda row, number: row["x"] > 900 and row["id"] > 100_000,
    "name LIKE '%7'": lambda row, number: row["name"].endswith("7"),
    "x IN (5.0, 700.0) OR id < 100100": lambda row, number: row["x"] in (5.0, 700.0) or row["id"] < 100_100,
}


def write(path, columns, chance) -> int:
    """Writes a Parquet file with row groups and pages of random sizes; returns its bytes."""
    pq.write_table(
        pa.table(columns),
        path,
        row_group_size=chance.choice([40, 333, 1024, 100_000]),
        data_page_size=chance.choice([200, 2000, 1_000_000]),
        write_batch_size=chance.choice([16, 64, 1024]),
        write_page_index=chance.random() < 0.8,
        use_dictionary=chance.random() < 0.5,
    )
    return path.stat().st_size


def build(path, chance, *, files=4):
    """A table with and without vectors on its files; returns its live rows with their numbers."""
    columns = {"id": "long", "x": "double", "name": "string"}
    table = TableBuilder(open_store(str(path)), columns=columns, protocol=WITH_VECTORS)
    adds, live = [], []
    for file in range(1, files + 1):
        count = chance.choice([1, 63, 500, 2500, 6000])
        ids = [file * _FIRST_ID + number for number in range(count)]
        xs = [float(chance.randrange(1000)) for _ in ids]
        if chance.random() < 0.5:
            xs.sort()
        data = {"id": pa.array(ids, pa.int64()), "x": xs, "name": [f"n{key}" for key in ids]}
        add = table.file(pa.table(data))
        add = add.replace(size=write(path / add.path, data, chance))
        gone = np.array([], dtype=np.uint64)
        if chance.random() < 0.85:
            share = chance.choice([0.001, 0.05, 0.5, 1.0])
            gone = np.array([n for n in range(count) if chance.random() < share] or [count - 1], dtype=np.uint64)
            add = add.replace(deletion_vector=inline_vector(gone))
        adds.append(add)
        hidden = set(gone.tolist())
        live += [
            ({"id": key, "x": x, "name": f"n{key}"}, number)
            for number, (key, x) in enumerate(zip(ids, xs, strict=True))
            if number not in hidden
        ]
    table.commit(*adds)
    return live


def load(spark, path):
    return spark.read.format("delta").load(str(path))


def plan_of(frame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


@contextmanager
def counting(spark, value):
    spark.conf.set(COUNT, value)
    try:
        yield
    finally:
        spark.conf.unset(COUNT)


SHAPES = [
    {},
    {"parquet_columnarReaderBatchSize": "100"},
    {"files_maxPartitionBytes": "3000", "files_openCostInBytes": "1", "parquet_columnarReaderBatchSize": "50"},
    {"columnVector_offheap_enabled": "true", "adaptive_enabled": "false"},
    {"codegen_wholeStage": "false"},
    {"parquet_enableVectorizedReader": "false"},
    {"optimizer_nestedSchemaPruning_enabled": "false"},
    {"parquet_filterPushdown": "false"},
]


@pytest.mark.parametrize("seed", range(len(SHAPES)))
def test_every_row_and_its_number_are_those_of_a_model(spark, tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "t"
    live = build(path, chance)
    with with_settings(spark, **SHAPES[seed]):
        for condition, holds in CONDITIONS.items():
            expected = sorted((row["id"], number) for row, number in live if holds(row, number))
            frame = load(spark, path).selectExpr("*", "_metadata.row_index")
            found = frame.where(condition).select("id", "row_index").collect()
            assert sorted((row[0], row[1]) for row in found) == expected, condition
            third = frame.where(condition).where("row_index % 3 = 1").select("id").collect()
            assert sorted(row[0] for row in third) == [key for key, number in expected if number % 3 == 1], condition
            ids = [key for key, _ in expected]
            # A text is aggregated by sorting, for which Spark sends the plan to the executors.
            total = load(spark, path).where(condition).selectExpr("sum(id)", "max(name)", "count(*)").first()
            assert tuple(total) == (sum(ids) or None, max((f"n{key}" for key in ids), default=None), len(ids)), (
                condition
            )


@pytest.mark.parametrize("threshold", ["10MB", "-1"])
def test_joins_and_unions_of_two_scans_in_one_stage(spark, tmp_path, threshold):
    chance = random.Random(77)
    path = tmp_path / "t"
    live = build(path, chance, files=5)
    ids = sorted(row["id"] for row, _ in live)
    with with_settings(spark, autoBroadcastJoinThreshold=threshold):
        left, right = load(spark, path).alias("a"), load(spark, path).alias("b")
        joined = left.join(right, F.expr("a.id = b.id AND a.x >= b.x"))
        assert sorted(row[0] for row in joined.select("a.id").collect()) == ids
        both = load(spark, path).union(load(spark, path).where("id % 2 = 0"))
        assert sorted(row[0] for row in both.select("id").collect()) == sorted(
            ids + [key for key in ids if key % 2 == 0]
        )


def test_a_setting_leaves_the_numbers_to_spark(spark, tmp_path):
    live = build(tmp_path / "t", random.Random(3))
    ids = sorted(row["id"] for row, _ in live)
    assert COUNTED in plan_of(load(spark, tmp_path / "t"))
    with counting(spark, "false"):
        frame = load(spark, tmp_path / "t")
        assert COUNTED not in plan_of(frame)
        assert "isSet" in plan_of(frame)
        assert sorted(row[0] for row in frame.select("id").collect()) == ids


def test_a_scan_without_vectors_does_not_count(spark, tmp_path):
    table = TableBuilder(open_store(str(tmp_path / "t")), columns={"id": "long"}, protocol=WITH_VECTORS)
    table.commit(table.file(pa.table({"id": pa.array([1, 2], pa.int64())})))
    assert COUNTED not in plan_of(load(spark, tmp_path / "t"))


class Reader:
    """Spark's reader over a file, with its column of row numbers."""

    def __init__(self, spark, path, *, batch, above=None) -> None:
        jvm = spark._jvm
        parquet = jvm.org.apache.spark.sql.execution.datasources.parquet
        schema = jvm.org.apache.spark.sql.types.StructType().add("x", "double")
        schema = schema.add(parquet.ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), "long")
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        conf.set("org.apache.spark.sql.parquet.row.requested_schema", schema.json())
        conf.set("parquet.read.support.class", "org.apache.spark.sql.execution.datasources.parquet.ParquetReadSupport")
        for name, text in {
            "spark.sql.parquet.binaryAsString": "false",
            "spark.sql.parquet.int96AsTimestamp": "true",
            "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
            "spark.sql.legacy.parquet.nanosAsLong": "false",
            "spark.sql.caseSensitive": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.optimizer.nestedSchemaPruning.enabled": "true",
            "spark.sql.parquet.fieldId.read.enabled": "false",
            "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
        }.items():
            conf.set(name, text)
        if above is not None:
            api = jvm.org.apache.parquet.filter2.predicate.FilterApi
            predicate = api.gt(api.doubleColumn("x"), float(above))
            jvm.org.apache.parquet.hadoop.ParquetInputFormat.setFilterPredicate(conf, predicate)
        hadoop = jvm.org.apache.hadoop.mapreduce
        context = hadoop.task.TaskAttemptContextImpl(conf, hadoop.TaskAttemptID())
        self.reader = parquet.VectorizedParquetRecordReader(None, "CORRECTED", "", "CORRECTED", "", False, batch)
        place = jvm.org.apache.hadoop.fs.Path(str(path))
        hosts = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 0)
        split = jvm.org.apache.hadoop.mapred.FileSplit(place, 0, path.stat().st_size, hosts)
        self.reader.initialize(split, context)
        self.reader.initBatch(
            jvm.org.apache.spark.sql.types.StructType(), jvm.org.apache.spark.sql.catalyst.InternalRow.empty()
        )
        self.reader.enableReturningBatches()
        self._spark = spark

    def batches(self):
        """The numbers of the rows, batch by batch."""
        while self.reader.nextBatch():
            batch = self.reader.resultBatch()
            yield list(batch.column(1).getLongs(0, batch.numRows()))
        self.reader.close()

    def install(self, counter) -> str:
        """Does what generated code does; returns the class that counts afterwards."""
        jvm, gateway = self._spark._jvm, self._spark.sparkContext._gateway
        inputs = gateway.new_array(jvm.scala.collection.Iterator, 1)
        below = jvm.org.apache.spark.sql.execution.datasources.RecordReaderIterator(self.reader)
        inputs[0] = jvm.org.apache.spark.InterruptibleIterator(jvm.org.apache.spark.TaskContext.get(), below)
        given = gateway.new_array(jvm.java.lang.Object, 1)
        given[0] = inputs
        counter.invoke(None, given)
        field = next(
            field for field in self.reader.getClass().getDeclaredFields() if field.getName() == "rowIndexGenerator"
        )
        field.setAccessible(True)
        return str(field.get(self.reader).getClass().getName())


@pytest.fixture(scope="module")
def counter(spark):
    """The method that generated code calls."""
    made = compile_all(Jvm.of(spark).gateway)["RowNumbers"].getDeclaringClass()
    return next(method for method in made.getMethods() if method.getName() == "install")


@pytest.mark.parametrize("seed", range(12))
def test_the_numbers_are_those_of_sparks_reader_whenever_the_counter_is_installed(spark, tmp_path, counter, seed):
    """In files with small and large row groups and pages, with conditions that leave some of them out."""
    chance = random.Random(seed)
    count = chance.choice([50, 900, 3000])
    xs = sorted(float(chance.randrange(500)) for _ in range(count))
    write(tmp_path / "f.parquet", {"x": xs}, chance)
    above = chance.choice([None, 100.0, 400.0])
    batch = chance.choice([16, 100, 4096])
    expected = list(itertools.chain(*Reader(spark, tmp_path / "f.parquet", batch=batch, above=above).batches()))
    assert expected == sorted(set(expected)) and len(expected) <= count
    after = chance.randrange(0, 4)
    reader, found = Reader(spark, tmp_path / "f.parquet", batch=batch, above=above), []
    for place, numbers in enumerate(reader.batches()):
        if place == after:
            assert reader.install(counter) == "RowNumbers"
            assert reader.install(counter) == "RowNumbers", "it stays"
        found += numbers
    assert found == expected


def test_what_is_not_a_reader_is_left_alone(spark, tmp_path, counter):
    write(tmp_path / "f.parquet", {"x": [1.0, 2.0]}, random.Random(1))
    reader = Reader(spark, tmp_path / "f.parquet", batch=16)
    gateway, jvm = spark.sparkContext._gateway, spark._jvm
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = gateway.new_array(jvm.scala.collection.Iterator, 2)
    given[0][0] = jvm.scala.collection.Iterator.empty()
    counter.invoke(None, given)  # the second one is null
    assert list(itertools.chain(*reader.batches())) == [0, 1]
