"""The executor's part of a write, without Spark: batches in, files and records out."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from leaks import secret

from pydelta.engines.arrow.tasks import write_files as write_task
from pydelta.engines.arrow.tasks.write_files import (
    RECORD_SCHEMA,
    FileRecord,
    PartitionColumn,
    WriteTask,
    record_batch,
    run_task,
)
from pydelta.errors import RowsDoNotAddUpError, SchemaError, StorageFullError
from pydelta.protocol.schema import DecimalType, PrimitiveType
from pydelta.storage import open_store

STRING, LONG, DOUBLE = PrimitiveType("string"), PrimitiveType("long"), PrimitiveType("double")
ID = pa.schema([("id", pa.int64())])


def task_for(tmp_path, schema=ID, **changes):
    return WriteTask(table_uri=tmp_path.as_uri(), store_options={}, file_schema=schema, **changes)


def batches(*columns, names, size=None):
    table = pa.table(dict(zip(names, columns, strict=True)))
    return table.combine_chunks().to_batches(max_chunksize=size)


def read(tmp_path, record):
    return pq.ParquetFile(tmp_path / record.path).read()


def files_under(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def test_rows_come_back_from_one_file_with_a_final_name(tmp_path):
    task = task_for(tmp_path, indexed=((("id",), LONG),))
    [record] = run_task(batches(pa.array([3, 1, None]), names=["id"]), task, partition_id=7)
    assert re.fullmatch(r"part-00007-[0-9a-f-]{36}\.c000\.snappy\.parquet", record.path)
    assert read(tmp_path, record).column("id").to_pylist() == [3, 1, None]
    assert record.size == (tmp_path / record.path).stat().st_size
    assert record.num_rows == 3
    assert json.loads(record.stats) == {
        "numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 3}, "nullCount": {"id": 1}
    }  # fmt: skip
    assert files_under(tmp_path) == [record.path]


@pytest.mark.parametrize("rows", [[], [[]]], ids=["no batch", "an empty batch"])
def test_a_task_without_rows_writes_nothing(tmp_path, rows):
    given = [pa.record_batch({"id": pa.array(values, pa.int64())}) for values in rows]
    assert run_task(given, task_for(tmp_path), partition_id=0) == []
    assert files_under(tmp_path) == []


def test_two_attempts_of_a_task_never_share_a_name(tmp_path):
    first = run_task(batches(pa.array([1]), names=["id"]), task_for(tmp_path), partition_id=0)
    second = run_task(batches(pa.array([1]), names=["id"]), task_for(tmp_path), partition_id=0)
    assert first[0].path != second[0].path


@pytest.mark.parametrize(
    ("precision", "stored"), [(1, "INT32"), (9, "INT32"), (10, "INT64"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")]
)
def test_short_decimals_are_whole_numbers_in_files_with_exact_bounds(tmp_path, precision, stored):
    most = decimal.Decimal((0, (9,) * precision, -1))
    values = pa.array([most, -most, None], pa.decimal128(precision, 1))
    task = task_for(
        tmp_path,
        pa.schema([("d", values.type), ("s", pa.struct([("d", values.type)]))]),
        indexed=((("d",), DecimalType(precision, 1)), (("s", "d"), DecimalType(precision, 1))),
    )
    nested = pa.array([{"d": most}, None, {"d": -most}], task.file_schema.field("s").type)
    [record] = run_task(batches(values, nested, names=["d", "s"]), task, partition_id=0)
    columns = pq.ParquetFile(tmp_path / record.path).schema
    assert [columns.column(at).physical_type for at in range(2)] == [stored, stored]
    assert read(tmp_path, record).column("d").to_pylist() == [most, -most, None]
    stats = json.loads(record.stats, parse_float=decimal.Decimal)
    assert stats["minValues"] == {"d": -most, "s": {"d": -most}}
    assert stats["maxValues"] == {"d": most, "s": {"d": most}}


def test_a_file_is_rolled_at_the_target_size(tmp_path):
    values = pa.array(range(200_000), pa.int64())
    task = task_for(tmp_path, target_file_size_bytes=200_000, codec="uncompressed")
    records = run_task(batches(values, names=["id"], size=10_000), task, partition_id=0)
    assert sum(record.num_rows for record in records) == 200_000
    assert len(records) > 3
    assert all(200_000 <= record.size < 600_000 for record in records[:-1])


def test_max_records_per_file_is_exact(tmp_path):
    task = task_for(tmp_path, max_records_per_file=7)
    records = run_task(batches(pa.array(range(20)), names=["id"], size=5), task, partition_id=0)
    assert [record.num_rows for record in records] == [7, 7, 6]
    assert [v for record in records for v in read(tmp_path, record).column("id").to_pylist()] == list(range(20))


PARTITION_VALUES = ["plain", "with space", "50%", "a=b", "a/b", "ünïcödé", "", None, "a:b", "x\ny", "'quoted\"", "#?"]


def test_special_characters_in_partition_values_name_directories_and_come_back_as_text(tmp_path):
    task = task_for(tmp_path, partition_columns=(PartitionColumn(name="p", data_type=STRING),))
    given = batches(pa.array(range(12)), pa.array(PARTITION_VALUES), names=["id", "p"])
    records = run_task(given, task, partition_id=0)
    found = {}
    for record in records:
        for value in read(tmp_path, record).column("id").to_pylist():
            found[value] = record.partition_values["p"]
    assert found == {i: (value or None) for i, value in enumerate(PARTITION_VALUES)}
    assert sorted(read(tmp_path, records[0]).column_names) == ["id"]
    folders = {record.path.split("/")[0] for record in records}
    assert "p=__HIVE_DEFAULT_PARTITION__" in folders
    assert "p=50%25" in folders
    assert "p=a%2Fb" in folders
    assert len(folders) == 11


def test_partition_values_are_text_by_type(tmp_path):
    instant = dt.datetime(2024, 2, 29, 12, 30, 0, 500000, tzinfo=dt.UTC)
    columns = {
        "d": (pa.array([dt.date(2024, 2, 29)]), PrimitiveType("date"), "2024-02-29"),
        "t": (pa.array([instant], pa.timestamp("us", "Asia/Tokyo")), PrimitiveType("timestamp"),
              "2024-02-29T12:30:00.500000Z"),
        "b": (pa.array([True]), PrimitiveType("boolean"), "true"),
        "m": (pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)), DecimalType(5, 2), "1.50"),
        "f": (pa.array([1.5]), DOUBLE, "1.5"),
        "n": (pa.array([None], pa.int32()), PrimitiveType("integer"), None),
    }  # fmt: skip
    task = task_for(
        tmp_path, partition_columns=tuple(PartitionColumn(name=k, data_type=v[1]) for k, v in columns.items())
    )
    given = batches(pa.array([1]), *[v[0] for v in columns.values()], names=["id", *columns])
    [record] = run_task(given, task, partition_id=0)
    assert dict(record.partition_values) == {key: value[2] for key, value in columns.items()}


def test_unsorted_rows_of_few_partitions_make_one_file_each(tmp_path):
    task = task_for(tmp_path, partition_columns=(PartitionColumn(name="p", data_type=LONG),))
    given = batches(pa.array(range(10_000)), pa.array([i % 5 for i in range(10_000)]), names=["id", "p"], size=100)
    records = run_task(given, task, partition_id=0)
    assert len(records) == 5
    for record in records:
        own = int(record.partition_values["p"])
        assert read(tmp_path, record).column("id").to_pylist() == list(range(own, 10_000, 5))


def test_many_partitions_stay_within_the_bounds_on_open_files_and_buffers(tmp_path):
    opened = CountingStore(open_store(tmp_path.as_uri()))
    task = task_for(
        tmp_path,
        partition_columns=(PartitionColumn(name="p", data_type=LONG),),
        max_open_files=4,
        buffer_bytes=20_000,
    )
    given = batches(pa.array(range(20_000)), pa.array([i % 50 for i in range(20_000)]), names=["id", "p"], size=500)
    records = run_task(given, task, partition_id=0, store=opened)
    assert opened.most_open <= 4
    seen = sorted(v for record in records for v in read(tmp_path, record).column("id").to_pylist())
    assert seen == list(range(20_000))


def test_rows_sorted_by_partition_need_one_open_file_at_a_time(tmp_path):
    opened = CountingStore(open_store(tmp_path.as_uri()))
    task = task_for(tmp_path, partition_columns=(PartitionColumn(name="p", data_type=LONG),), row_group_bytes=1_600)
    given = batches(pa.array(range(20_000)), pa.array([i // 400 for i in range(20_000)]), names=["id", "p"], size=300)
    records = run_task(given, task, partition_id=0, store=opened)
    assert len(records) == 50
    assert opened.most_open == 1


class CountingStore:
    """Counts files open at once; can fail after a number of bytes."""

    def __init__(self, inner, fail_after=None):
        self.inner, self.fail_after = inner, fail_after
        self.open, self.most_open, self.written = 0, 0, 0

    def open_writer(self, path):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return _Counted(self, self.inner.open_writer(path))

    def delete_many(self, paths):
        return self.inner.delete_many(paths)


class _Counted:
    def __init__(self, store, inner):
        self.store, self.inner = store, inner
        self.closed = False

    def write(self, data):
        self.store.written += len(data)
        if self.store.fail_after is not None and self.store.written > self.store.fail_after:
            raise StorageFullError("no space left", hint="Free some.")
        return self.inner.write(data)

    def tell(self):
        return self.inner.tell()

    def flush(self):
        self.inner.flush()

    def writable(self):
        return True

    def close(self):
        if not self.closed:
            self.closed = True
            self.store.open -= 1
            self.inner.close()

    def abort(self):
        self.closed = True
        self.inner.abort()


def test_a_full_disk_leaves_no_file_of_the_attempt(tmp_path):
    store = CountingStore(open_store(tmp_path.as_uri()), fail_after=60_000)
    task = task_for(tmp_path, max_records_per_file=1_000, codec="uncompressed")
    with pytest.raises(StorageFullError):
        run_task(batches(pa.array(range(50_000)), names=["id"], size=500), task, partition_id=0, store=store)
    assert store.written > 60_000
    assert files_under(tmp_path) == []


def test_rows_that_stop_coming_leave_no_file_of_the_attempt(tmp_path):
    def failing():
        yield from batches(pa.array(range(5_000)), names=["id"], size=500)
        raise RuntimeError("the rows themselves fail")

    with pytest.raises(RuntimeError, match="rows themselves"):
        run_task(failing(), task_for(tmp_path, max_records_per_file=1_000), partition_id=0)
    assert files_under(tmp_path) == []


def test_a_column_with_nan_gets_no_bounds_in_footer_or_log(tmp_path):
    schema = pa.schema([("x", pa.float64()), ("y", pa.float64()), ("s", pa.struct([("z", pa.float32())]))])
    task = task_for(
        tmp_path,
        schema,
        indexed=((("x",), DOUBLE), (("y",), DOUBLE), (("s", "z"), PrimitiveType("float"))),
        row_group_bytes=1,
    )
    rows = pa.table({"x": [1.0, 2.0, float("nan")], "y": [5.0, 6.0, 7.0], "s": [{"z": 1.0}, {"z": None}, None]})
    records = run_task(rows.cast(schema).to_batches(max_chunksize=1), task, partition_id=0)
    [with_nan] = [record for record in records if float("nan") in read(tmp_path, record)["x"].to_pylist() or any(
        v != v for v in read(tmp_path, record)["x"].to_pylist())]  # fmt: skip
    stats = json.loads(with_nan.stats)
    assert "x" not in stats["maxValues"]
    assert stats["maxValues"]["y"] == 7.0
    footer = pq.ParquetFile(tmp_path / with_nan.path).metadata
    assert footer.row_group(0).column(0).statistics is None
    assert footer.row_group(0).column(1).statistics.max == 7.0
    assert sum(record.num_rows for record in records) == 3


def test_statistics_cover_nested_fields_truncate_text_and_keep_decimals_exact(tmp_path):
    schema = pa.schema(
        [
            ("s", pa.string()),
            ("d", pa.decimal128(38, 18)),
            ("t", pa.timestamp("us", "UTC")),
            ("st", pa.struct([("in", pa.int32()), ("list", pa.list_(pa.int32()))])),
            ("l", pa.list_(pa.int64())),
            ("b", pa.binary()),
            ("bo", pa.bool_()),
        ]
    )
    instant = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "s": ["a" * 40, "é" * 40, None],
            "d": [decimal.Decimal("1.000000000000000001"), decimal.Decimal("-2"), None],
            "t": [instant, None, instant],
            "st": [{"in": 5, "list": [1]}, None, {"in": None, "list": None}],
            "l": [[1, None], None, []],
            "b": [b"x", None, b"y"],
            "bo": [True, None, False],
        },
        schema=schema,
    )
    indexed = (
        (("s",), STRING), (("d",), DecimalType(38, 18)), (("t",), PrimitiveType("timestamp")),
        (("st", "in"), PrimitiveType("integer")), (("st", "list"), STRING), (("l",), STRING),
        (("b",), PrimitiveType("binary")), (("bo",), PrimitiveType("boolean")),
    )  # fmt: skip
    for int96 in (False, True):
        [record] = run_task(rows.to_batches(), task_for(tmp_path, schema, indexed=indexed, int96=int96), partition_id=0)
        stats = json.loads(record.stats, parse_float=decimal.Decimal)
        assert stats["nullCount"] == {
            "s": 1, "d": 1, "t": 1, "st": {"in": 2, "list": 2}, "l": 1, "b": 1, "bo": 1
        }  # fmt: skip
        assert stats["minValues"]["s"] == "a" * 32
        assert stats["maxValues"]["s"] == "é" * 31 + "ê"
        assert stats["maxValues"]["d"] == decimal.Decimal("1.000000000000000001")
        assert stats["minValues"]["t"] == "1969-12-31T23:59:59.999Z"
        assert stats["maxValues"]["t"] == "1970-01-01T00:00:00.000Z"
        assert stats["minValues"]["st"] == {"in": 5}
        assert not {"b", "bo", "l"} & stats["minValues"].keys()
        physical = pq.ParquetFile(tmp_path / record.path).schema.column(2).physical_type
        assert physical == ("INT96" if int96 else "INT64")


def test_structs_take_physical_names_and_lose_void_fields(tmp_path):
    source = pa.table(
        {
            "a": pa.array(
                [{"x": 1, "v": None, "m": [("k", {"y": "q"})]}, None],
                pa.struct(
                    [
                        ("x", pa.int32()),
                        ("v", pa.null()),
                        ("m", pa.map_(pa.string(), pa.struct([pa.field("y", pa.string(), nullable=False)]))),
                    ]
                ),
            )
        }
    )
    inner = pa.map_(pa.string(), pa.struct([("col-3", pa.string())]))
    target = pa.schema([("col-1", pa.struct([("col-2", pa.int32()), ("m", inner)]))])
    [record] = run_task(source.to_batches(), task_for(tmp_path, target), partition_id=0)
    first = {"col-2": 1, "m": [("k", {"col-3": "q"})]}
    assert read(tmp_path, record).to_pylist() == [{"col-1": first}, {"col-1": None}]


def test_milliseconds_are_cut_towards_the_past(tmp_path):
    schema = pa.schema([("t", pa.timestamp("ms", "UTC"))])
    rows = pa.table({"t": pa.array([-1, 1_999], pa.timestamp("us", "UTC"))})
    [record] = run_task(rows.to_batches(), task_for(tmp_path, schema), partition_id=0)
    assert read(tmp_path, record)["t"].cast(pa.int64()).to_pylist() == [-1, 1]


def test_a_value_that_the_column_cannot_hold_is_an_error_that_names_it(tmp_path):
    rows = pa.table({"t": ["x"]})
    with pytest.raises(SchemaError, match="'id'"):
        run_task(rows.to_batches(), task_for(tmp_path), partition_id=0)


def test_secrets_do_not_show_in_the_tasks_repr_and_it_can_be_sent():
    task = WriteTask(table_uri="s3a://b/t", store_options={"fs.s3a.secret.key": secret("task")}, file_schema=ID)
    assert secret("task") not in repr(task)
    assert pickle.loads(pickle.dumps(task)) == task


def test_records_become_one_batch_for_the_driver():
    record = FileRecord(
        path="p=1/x", partition_values={"p": None}, size=1, modification_time_ms=2, num_rows=3, stats="{}"
    )
    batch = record_batch([record])
    assert batch.schema == RECORD_SCHEMA
    assert batch.to_pylist() == [
        {"path": "p=1/x", "partition_values": '{"p": null}', "size": 1, "modification_time_ms": 2, "num_rows": 3,
         "stats": "{}", "change": False}
    ]  # fmt: skip


def test_rows_with_a_kind_of_change_go_to_the_feed_alone(tmp_path):
    """Data columns, materialised ids, partition, kind: the feed has no ids, and the kind behind its columns."""
    schema = pa.schema([("id", pa.int64()), ("_row-id", pa.int64())])
    task = task_for(
        tmp_path,
        schema,
        change_data=True,
        hidden_columns=1,
        indexed=((("id",), LONG),),
        partition_columns=(PartitionColumn(name="p", data_type=STRING),),
    )
    kinds = pa.array([None, "delete", None, "update_preimage"])
    given = batches(
        pa.array([1, 2, 3, 4]), pa.array([10, 20, None, 40]), pa.array(["a", "a", "b", "a"]), kinds, names="abcd"
    )
    records = run_task(given, task, partition_id=3)
    rows = {(record.change, record.partition_values["p"]): read(tmp_path, record).to_pydict() for record in records}
    assert rows == {
        (False, "a"): {"id": [1], "_row-id": [10]},
        (False, "b"): {"id": [3], "_row-id": [None]},
        (True, "a"): {"id": [2, 4], "_change_type": ["delete", "update_preimage"]},
    }
    [feed] = [record for record in records if record.change]
    assert re.fullmatch(r"_change_data/p=a/cdc-00003-[0-9a-f-]{36}\.c000\.snappy\.parquet", feed.path)
    assert json.loads(next(r for r in records if not r.change).stats)["numRecords"] == 1


@pytest.mark.parametrize(("kinds", "expected"), [([None, None], [False]), (["insert", "insert"], [True])])
def test_a_task_of_one_kind_writes_files_of_one_kind(tmp_path, kinds, expected):
    given = batches(pa.array([1, 2]), pa.array(kinds, pa.string()), names="ab")
    records = run_task(given, task_for(tmp_path, change_data=True), partition_id=0)
    assert [record.change for record in records] == expected
    assert len(files_under(tmp_path)) == 1


def test_an_attempt_that_fails_removes_the_files_of_the_feed_too(tmp_path):
    def failing():
        yield from batches(pa.array([1, 2]), pa.array([None, "delete"], pa.string()), names="ab")
        raise RuntimeError("the source went away")

    with pytest.raises(RuntimeError):
        run_task(failing(), task_for(tmp_path, change_data=True, max_records_per_file=1), partition_id=0)
    assert files_under(tmp_path) == []


@pytest.mark.parametrize(("kept", "message"), [(slice(1, None), "99"), (slice(0, 0), "0")])
def test_a_task_that_loses_rows_fails_and_leaves_no_file(tmp_path, monkeypatch, kept, message):
    original = write_task.TaskWriter.add

    def add(self, batch):
        original(self, batch.slice(kept.start, len(range(batch.num_rows)[kept])))

    monkeypatch.setattr(write_task.TaskWriter, "add", add)
    with pytest.raises(
        RowsDoNotAddUpError, match=f"100 rows reached a task of the write, but its files hold {message}"
    ):
        run_task(batches(pa.array(range(100)), names=["id"]), task_for(tmp_path), partition_id=0)
    assert files_under(tmp_path) == []
