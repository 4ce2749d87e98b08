"""The executor's part of a compaction, without Spark: old files in, one new file a bin out."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydelta.engines.arrow.tasks.compact import Bin, BinDone, HandedBack, OldFile, run_bins
from pydelta.engines.arrow.tasks.old_files import chunks
from pydelta.engines.arrow.tasks.write_files import PartitionColumn, WriteTask
from pydelta.errors import ObjectNotFoundError, SchemaError, StorageError, StorageFullError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.roaring import encode_bitmap
from pydelta.protocol.schema import PrimitiveType
from pydelta.protocol.vectors import inline_vector
from pydelta.storage import open_store

LONG, DOUBLE = PrimitiveType("long"), PrimitiveType("double")
ID = pa.schema([("id", pa.int64())])


def task_for(tmp_path, schema=ID, **changes):
    return WriteTask(table_uri=tmp_path.as_uri(), store_options={}, file_schema=schema, **changes)


def old(tmp_path, name, columns, *, writer=None, **others):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    options = {"store_schema": False, **(writer or {})}
    row_group_size = options.pop("row_group_size", None)
    with pq.ParquetWriter(tmp_path / name, table.schema, **options) as out:
        out.write_table(table, row_group_size=row_group_size)
        out.add_key_value_metadata(table.schema.metadata or {})
    return OldFile(path=name, size=(tmp_path / name).stat().st_size, **others)


def compact(tmp_path, *files, schema=ID, values=(), store=None, **changes):
    item = Bin(number=3, values=values, files=files)
    [outcome] = run_bins([item], task_for(tmp_path, schema, **changes), partition_id=1, store=store)
    assert outcome.number == 3
    return outcome


def rows_of(tmp_path, outcome):
    [record] = outcome.records
    return pq.ParquetFile(tmp_path / record.path).read().to_pylist()


def names_under(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def test_files_become_one_in_their_order_with_statistics_made_anew(tmp_path):
    files = [old(tmp_path, f"{n}.parquet", {"id": [n * 10 + 2, n * 10 + 1]}) for n in range(40)]
    outcome = compact(tmp_path, *files, indexed=((("id",), LONG),))
    assert isinstance(outcome, BinDone)
    assert [row["id"] for row in rows_of(tmp_path, outcome)] == [n * 10 + k for n in range(40) for k in (2, 1)]
    stats = json.loads(outcome.records[0].stats)
    assert stats == {"numRecords": 80, "minValues": {"id": 1}, "maxValues": {"id": 392}, "nullCount": {"id": 0}}


def test_the_new_file_lies_in_its_partition_under_the_value_the_log_spells(tmp_path):
    files = [old(tmp_path, f"{n}.parquet", {"id": [n]}) for n in range(2)]
    parts = (PartitionColumn(name="p", data_type=PrimitiveType("string")),)
    outcome = compact(tmp_path, *files, values=("a b",), partition_columns=parts)
    [record] = outcome.records
    assert record.partition_values == {"p": "a b"}
    assert record.path.startswith("p=a b/part-00001-")


class FarStore:
    """A store of which a part of an object is asked for."""

    def __init__(self, inner):
        self._inner, self.ranges, self.wholes = inner, [], []
        self.open_writer = inner.open_writer

    def read_range(self, path, start, length):
        self.ranges.append(path)
        return self._inner.read_range(path, start, length)

    def read(self, path):
        self.wholes.append(path)
        return self._inner.read(path)


@pytest.mark.parametrize("far", [False, True])
def test_a_large_file_is_streamed_and_its_bin_is_one_file_whatever_the_target(tmp_path, monkeypatch, far):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.old_files.WHOLE_BYTES", 1000)
    values = list(range(300_000))
    files = [old(tmp_path, "a.parquet", {"id": values}, writer={"row_group_size": 1000}),
             old(tmp_path, "b.parquet", {"id": [-1]})]  # fmt: skip
    store = open_store(tmp_path.as_uri())
    store = FarStore(store) if far else store
    outcome = compact(tmp_path, *files, target_file_size_bytes=1 << 60, row_group_bytes=100_000, store=store)
    assert [row["id"] for row in rows_of(tmp_path, outcome)] == [*values, -1]
    if far:
        assert (set(store.ranges), store.wholes) == ({"a.parquet"}, ["b.parquet"])


def test_nan_late_in_a_bin_splits_no_file(tmp_path):
    schema = pa.schema([("v", pa.float64()), ("w", pa.float64())])
    count = 200_000
    first = old(tmp_path, "a.parquet", {"v": [1.0] * count, "w": [2.0] * count})
    last = old(tmp_path, "b.parquet", {"v": [math.nan], "w": [3.0]})
    indexed = ((("v",), DOUBLE), (("w",), DOUBLE))
    outcome = compact(tmp_path, first, last, schema=schema, indexed=indexed, row_group_bytes=1000)
    [record] = outcome.records
    assert record.num_rows == count + 1
    stats = json.loads(record.stats)
    assert "v" not in stats["maxValues"]
    assert stats["maxValues"]["w"] == 3.0
    assert names_under(tmp_path) == sorted(["a.parquet", "b.parquet", record.path])


def vector(*positions):
    return inline_vector(np.array(positions, dtype=np.uint64))


def test_deleted_rows_do_not_come_along(tmp_path):
    files = [old(tmp_path, "a.parquet", {"id": [0, 1, 2, 3]}, vector=vector(0, 2)),
             old(tmp_path, "b.parquet", {"id": [4, 5]})]  # fmt: skip
    assert [row["id"] for row in rows_of(tmp_path, compact(tmp_path, *files))] == [1, 3, 4, 5]


def test_deleted_rows_are_found_beyond_the_first_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.old_files.BATCH_ROWS", 10)
    gone = [0, 9, 10, 55, 99]
    outcome = compact(tmp_path, old(tmp_path, "a.parquet", {"id": list(range(100))}, vector=vector(*gone)))
    assert [row["id"] for row in rows_of(tmp_path, outcome)] == [n for n in range(100) if n not in gone]


def test_a_bin_of_deleted_rows_alone_becomes_no_file(tmp_path):
    outcome = compact(tmp_path, old(tmp_path, "a.parquet", {"id": [1, 2]}, vector=vector(0, 1)))
    assert outcome == BinDone(number=3, records=())
    assert names_under(tmp_path) == ["a.parquet"]


def test_rows_keep_their_ids_and_versions(tmp_path, monkeypatch):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.old_files.BATCH_ROWS", 2)
    schema = pa.schema([("id", pa.int64()), ("_row", pa.int64()), ("_version", pa.int64())])
    plain = old(tmp_path, "a.parquet", {"id": [1, 2, 3]}, base_row_id=100, row_version=5, vector=vector(1))
    carried = old(
        tmp_path, "b.parquet", {"id": [4, 5], "_row": [7, None], "_version": pa.array([None, 2], pa.int64())},
        base_row_id=200, row_version=6,
    )  # fmt: skip
    outcome = compact(tmp_path, plain, carried, schema=schema, hidden_columns=2)
    assert [tuple(row.values()) for row in rows_of(tmp_path, outcome)] == [
        (1, 100, 5), (3, 102, 5), (4, 7, 6), (5, 201, 2)
    ]  # fmt: skip


TIME = pa.timestamp("us", "UTC")
MOMENT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
NESTED = pa.struct([("a", pa.int64()), ("t", TIME)])
NESTED_VALUE = {"a": 1, "t": MOMENT}


@pytest.mark.parametrize(
    ("target", "given", "writer", "expected"),
    [
        (pa.int64(), pa.array([1, None], pa.int64()), {}, [1, None]),
        (pa.string(), pa.array(["a"], pa.large_string()), {}, ["a"]),
        (pa.string(), pa.array(["a", None], pa.string_view()), {}, ["a", None]),  # as delta-rs rewrites files
        (pa.binary(), pa.array([b"a", None], pa.binary_view()), {}, [b"a", None]),
        (TIME, pa.array([MOMENT], TIME), {}, [MOMENT]),
        (TIME, pa.array([MOMENT], TIME), {"use_deprecated_int96_timestamps": True}, [MOMENT]),
        (TIME, pa.array([MOMENT], pa.timestamp("ms", "UTC")), {}, [MOMENT]),
        (pa.timestamp("us"), pa.array([MOMENT.replace(tzinfo=None)]), {}, [MOMENT.replace(tzinfo=None)]),
        (pa.decimal128(9, 2), pa.array([None], pa.decimal128(9, 2)), {}, [None]),
        (NESTED, pa.array([NESTED_VALUE, None], NESTED), {}, [NESTED_VALUE, None]),
        (pa.list_(NESTED), pa.array([[NESTED_VALUE], []], pa.list_(NESTED)), {}, [[NESTED_VALUE], []]),
        (pa.map_(pa.string(), NESTED), pa.array([[("k", NESTED_VALUE)]], pa.map_(pa.string(), NESTED)), {},
         [[("k", NESTED_VALUE)]]),
    ],
)  # fmt: skip
def test_values_come_through(tmp_path, target, given, writer, expected):
    schema = pa.schema([("c", target)])
    files = [old(tmp_path, f"{n}.parquet", {"c": given}, writer=writer) for n in range(2)]
    outcome = compact(tmp_path, *files, schema=schema)
    assert [row["c"] for row in rows_of(tmp_path, outcome)] == expected * 2
    assert pq.ParquetFile(tmp_path / outcome.records[0].path).schema_arrow.field("c").type.equals(target)


THREE = pa.schema([("t", TIME), ("s", pa.string()), ("n", pa.int64())])
PLAIN = {"t": pa.array([MOMENT], TIME), "s": pa.array(["a"]), "n": pa.array([1])}
LOCAL = pa.array([MOMENT.replace(tzinfo=None)])
ACCEPTED = {
    "plain": (PLAIN, {}),
    "int96": ({**PLAIN, "t": LOCAL}, {"use_deprecated_int96_timestamps": True}),
    "other order": (dict(reversed(PLAIN.items())), {}),
    "one more": ({"x": pa.array([5]), **PLAIN}, {}),
    "milliseconds": ({**PLAIN, "t": pa.array([MOMENT], pa.timestamp("ms", "UTC"))}, {}),
    "view": ({**PLAIN, "s": pa.array(["a"], pa.string_view())}, {"store_schema": True}),
    "not null": (pa.table(PLAIN).cast(pa.schema([field.with_nullable(False) for field in THREE])), {}),
    "field ids": (pa.table(PLAIN).cast(pa.schema([f.with_metadata({"PARQUET:field_id": "7"}) for f in THREE])), {}),
    "without s": ({"t": PLAIN["t"], "n": PLAIN["n"]}, {}),
}
REFUSED = {
    "no time zone": ({**PLAIN, "t": LOCAL}, {}),
    "a number": ({**PLAIN, "s": pa.array([1])}, {}),
    "a duration": ({**PLAIN, "n": pa.array([1], pa.duration("us"))}, {"store_schema": True}),
    "two of a name": ({**PLAIN, "S": pa.array(["b"])}, {}),
}
SCHEMAS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def files_of(tmp_path, monkeypatch, kinds, size):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.compact._CHUNK_BYTES", size)
    monkeypatch.setattr("pydelta.engines.arrow.tasks.compact._AHEAD", 2)
    return [old(tmp_path, f"{n}.parquet", columns, writer=writer) for n, (columns, writer) in enumerate(kinds)]


@SCHEMAS
@given(
    names=st.lists(st.sampled_from(list(ACCEPTED)), min_size=2, max_size=30), size=st.sampled_from([1, 3000, 1 << 20])
)
def test_each_file_is_read_by_its_own_schema(tmp_path, monkeypatch, names, size):
    files = files_of(tmp_path, monkeypatch, [ACCEPTED[name] for name in names], size)
    expected = [{"t": MOMENT, "s": None if name == "without s" else "a", "n": 1} for name in names]
    assert rows_of(tmp_path, compact(tmp_path, *files, schema=THREE)) == expected


@SCHEMAS
@given(before=st.sampled_from(list(ACCEPTED)), wrong=st.sampled_from(list(REFUSED)), size=st.sampled_from([1, 1 << 20]))
def test_a_file_is_refused_after_one_that_looks_like_it(tmp_path, monkeypatch, before, wrong, size):
    kinds = [ACCEPTED[before], REFUSED[wrong], *[ACCEPTED[before]] * 4]
    outcome = compact(tmp_path, *files_of(tmp_path, monkeypatch, kinds, size), schema=THREE)
    assert isinstance(outcome, HandedBack)
    assert outcome.reason.startswith("1.parquet: ")


def test_no_file_is_written_without_a_column(tmp_path):
    files = [old(tmp_path, f"{number}.parquet", {"gone": list(range(number))}) for number in (2, 3, 4)]
    with pytest.raises(SchemaError, match="at least one non-partitioned column") as refused:
        compact(tmp_path, *files, schema=pa.schema([]))
    assert refused.value.getCondition() == "DELTA_NON_PARTITION_COLUMN_ABSENT"
    assert names_under(tmp_path) == ["2.parquet", "3.parquet", "4.parquet"]


def test_rows_of_small_files_are_joined_unless_they_are_large(tmp_path, monkeypatch):
    monkeypatch.setattr("pydelta.engines.arrow.tasks.compact._JOINED_BYTES", 1000)
    schema = pa.schema([("l", pa.list_(pa.string()))])
    values = [[["a", None], [], None], [["b" * 2000]], [], [["c"]] * 3] * 10
    files = [old(tmp_path, f"{n}.parquet", {"l": pa.array(v, schema.field(0).type)}) for n, v in enumerate(values)]
    outcome = compact(tmp_path, *files, schema=schema)
    assert [row["l"] for row in rows_of(tmp_path, outcome)] == list(itertools.chain(*values))


@given(sizes=st.lists(st.integers(0, 20), max_size=30), most=st.integers(1, 30))
def test_files_are_joined_in_their_order_within_the_limit_or_alone(sizes, most):
    parts = chunks(sizes, most)
    assert [number for part in parts for number in part] == list(range(len(sizes)))
    assert all(part and (len(part) == 1 or sum(sizes[number] for number in part) <= most) for part in parts)
    for part, after in itertools.pairwise(parts):
        assert sum(sizes[number] for number in part) + sizes[after[0]] > most


def test_times_before_1678_and_after_2262_survive_int96(tmp_path):
    far = [dt.datetime(1600, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC)]
    schema = pa.schema([("c", TIME)])
    task = task_for(tmp_path, schema, int96=True)
    from pydelta.engines.arrow.tasks.write_files import run_task

    [record] = run_task([pa.record_batch({"c": pa.array(far, TIME)})], task, partition_id=0)
    again = OldFile(path=record.path, size=record.size)
    assert [row["c"] for row in rows_of(tmp_path, compact(tmp_path, again, schema=schema))] == far


def test_a_column_that_a_file_lacks_is_null(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("extra", pa.list_(pa.int64()))])
    files = [old(tmp_path, "a.parquet", {"id": [1]}), old(tmp_path, "b.parquet", {"gone": [2, 3]})]
    expected = [{"id": 1, "extra": None}, {"id": None, "extra": None}, {"id": None, "extra": None}]
    assert rows_of(tmp_path, compact(tmp_path, *files, schema=schema)) == expected


def with_metadata(columns, **texts):
    table = pa.table(columns)
    return table.replace_schema_metadata({name.replace("_", "."): text for name, text in texts.items()})


DATED = pa.schema([("s", pa.struct([("days", pa.list_(pa.date32()))]))])
DAY = {"s": pa.array([{"days": [dt.date(1500, 1, 1)]}], DATED.field("s").type)}


def test_a_calendar_matters_to_dates_and_times_alone(tmp_path):
    files = [
        old(tmp_path, f"{version}.parquet", with_metadata({"id": [1]}, org_apache_spark_version=version))
        for version in ("2.4.8", "odd")
    ]
    assert rows_of(tmp_path, compact(tmp_path, *files)) == [{"id": 1}, {"id": 1}]


def by_parquet_mr(tmp_path, name, columns, **options):
    """Write a file that names the Java library as its writer, as files of Hive, Flink and Delta Kernel do."""
    file = old(tmp_path, name, columns, **options)
    content = (tmp_path / name).read_bytes()
    writer = pq.ParquetFile(tmp_path / name).metadata.created_by.encode()
    assert content.count(writer) == 1
    (tmp_path / name).write_bytes(content.replace(writer, b"parquet-mr version 1.16.0".ljust(len(writer))))
    return file


SINCE_1900 = {
    "day": pa.array([dt.date(1900, 1, 1), None], pa.date32()),
    "time": pa.array([dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)], TIME),
    "days": pa.array([[dt.date(2024, 2, 29)], []], pa.list_(pa.date32())),
    "none": pa.nulls(2, pa.date32()),
}


def test_dates_and_times_since_1900_are_the_same_in_both_calendars(tmp_path):
    content = pa.table(SINCE_1900)
    versioned = with_metadata(content, org_apache_spark_version="2.4.8")
    files = [by_parquet_mr(tmp_path, "a.parquet", content), old(tmp_path, "b.parquet", versioned)]
    files.append(by_parquet_mr(tmp_path, "c.parquet", content.slice(0, 0)))
    outcome = compact(tmp_path, *files, schema=content.schema)
    assert not isinstance(outcome, HandedBack), outcome.reason
    found = rows_of(tmp_path, outcome)
    assert found == [*content.to_pylist(), *content.to_pylist()]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"day": pa.array([dt.date(2024, 1, 1), dt.date(1899, 12, 31)])}, {}),
        ({"day": pa.array([dt.date(2024, 1, 1), dt.date(1899, 12, 31)])}, {"row_group_size": 1}),
        ({"days": pa.array([[dt.date(2024, 1, 1), dt.date(1899, 12, 31)]])}, {}),
        ({"time": pa.array([dt.datetime(1899, 12, 31, 23, 59, 59, 999_999, dt.UTC)], TIME)}, {}),
        ({"day": pa.array([dt.date(2024, 1, 1)])}, {"write_statistics": False}),
        ({"day": pa.nulls(1, pa.date32())}, {"write_statistics": False}),
        ({"time": pa.array([MOMENT], TIME)}, {"use_deprecated_int96_timestamps": True}),
    ],
)
def test_a_file_that_may_have_an_earlier_date_in_an_old_calendar_is_handed_back(tmp_path, columns, options):
    table = pa.table(columns)
    outcome = compact(tmp_path, by_parquet_mr(tmp_path, "a.parquet", table, writer=options), schema=table.schema)
    assert isinstance(outcome, HandedBack)
    assert outcome.reason.startswith("a.parquet: written by parquet-mr version 1.16.0")
    assert outcome.reason.endswith("which may use an old calendar")


@pytest.mark.parametrize(
    ("schema", "content", "said"),
    [
        (ID, {"id": pa.array([1], pa.int32())}, "is int32, not int64"),
        (ID, {"ID": [1]}, "stand for"),
        (ID, {"id": pa.array([1.0])}, "is double"),
        (pa.schema([("c", pa.string())]), {"c": [b"x"]}, "is binary"),
        (pa.schema([("c", TIME)]), {"c": [dt.datetime(2024, 1, 1)]}, "not timestamp[us, tz=UTC]"),
        (pa.schema([("c", pa.timestamp("us"))]), {"c": pa.array([MOMENT], TIME)}, "not timestamp[us]"),
        (pa.schema([("c", NESTED)]), {"c": [{"a": 1}]}, "is struct<a: int64>"),
        (pa.schema([("c", pa.decimal128(9, 2))]), {"c": pa.array([None], pa.decimal128(9, 3))}, "decimal128(9, 3)"),
        (DATED, with_metadata(DAY, org_apache_spark_legacyDateTime=""), "old calendar"),
        (DATED, with_metadata(DAY, org_apache_spark_version="2.4.8"), "written by Spark 2.4.8"),
        (DATED, with_metadata(DAY, org_apache_spark_version="odd"), "written by Spark odd"),
    ],
)
def test_what_only_spark_reads_surely_is_handed_back(tmp_path, schema, content, said):
    fine = old(tmp_path, "a.parquet", pa.table({f.name: pa.nulls(1, f.type) for f in schema}))
    outcome = compact(tmp_path, fine, old(tmp_path, "b.parquet", content), schema=schema)
    assert isinstance(outcome, HandedBack)
    assert said in outcome.reason
    assert "b.parquet" in outcome.reason
    assert names_under(tmp_path) == ["a.parquet", "b.parquet"]


def test_a_damaged_file_is_named_and_nothing_stays(tmp_path):
    good = old(tmp_path, "a.parquet", {"id": [1]})
    (tmp_path / "b.parquet").write_bytes(b"PAR1 this is no parquet PAR1")
    with pytest.raises(StorageError, match=r"b\.parquet"):
        compact(tmp_path, good, OldFile(path="b.parquet", size=28))
    with pytest.raises(ObjectNotFoundError):
        compact(tmp_path, good, OldFile(path="c.parquet", size=28))
    assert names_under(tmp_path) == ["a.parquet", "b.parquet"]


class FullStore:
    """Another store, where the second new file does not fit any more."""

    def __init__(self, inner):
        self._inner, self._left = inner, 1

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def open_writer(self, path):
        self._left -= 1
        if self._left < 0:
            raise StorageFullError("no space left")
        return self._inner.open_writer(path)


def test_a_full_disk_in_the_middle_is_told_with_what_was_staged(tmp_path):
    bins = [Bin(number=n, values=(), files=(old(tmp_path, f"{n}.parquet", {"id": [n]}),)) for n in range(2)]
    staged = []
    store = FullStore(open_store(tmp_path.as_uri()))
    with pytest.raises(StorageFullError):
        list(run_bins(bins, task_for(tmp_path), partition_id=0, store=store, staged=staged.extend))
    assert len(staged) == 1


def test_the_descriptor_of_the_tests_is_what_the_protocol_says():
    descriptor = vector(1, 5)
    assert isinstance(descriptor, DeletionVectorDescriptor)
    assert descriptor.size_in_bytes == len(encode_bitmap(np.array([1, 5], dtype=np.uint64)))
