"""Columns that threads encode side by side make the very file that Arrow writes."""

from __future__ import annotations

import io
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.engines.arrow.tasks.side_by_side import SideBySideWriter, shares
from pydelta.engines.arrow.tasks.thrift import read_struct, write_struct
from pydelta.engines.arrow.tasks.write_files import WriteTask, run_task

SIMPLE = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(9, 2), pa.decimal128(38, 10),
]  # fmt: skip
NAMES = ["a", "a.b", "é", "two words", "A", "_x", "col-1", "list", "key_value"]


def value_of(rng, kind):
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(rng, field.type) for field in kind}
    if pa.types.is_list(kind):
        return [value_of(rng, kind.value_type) for _ in range(rng.randrange(4))]
    if pa.types.is_map(kind):
        return [(f"k{number}", value_of(rng, kind.item_type)) for number in range(rng.randrange(3))]
    if pa.types.is_integer(kind):
        return rng.randrange(-128, 128)
    if pa.types.is_floating(kind):
        return rng.choice([0.0, -1.5, 3.25, 1e30, float("inf")])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_string(kind):
        return rng.choice(["", "é", "x" * rng.randrange(300)])
    if pa.types.is_binary(kind):
        return bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
    if pa.types.is_decimal(kind):
        return Decimal(rng.randrange(-99999, 99999)) / 100
    return rng.randrange(0, 20_000)


def type_of(rng, depth=0):
    roll = rng.random()
    if depth < 2 and roll < 0.15:
        names = rng.sample(["a", "b", "a.b"], rng.randrange(1, 3))
        return pa.struct([pa.field(name, type_of(rng, depth + 1)) for name in names])
    if depth < 2 and roll < 0.25:
        return pa.list_(type_of(rng, depth + 1))
    if depth < 2 and roll < 0.3:
        return pa.map_(pa.string(), type_of(rng, depth + 1))
    return rng.choice(SIMPLE)


def table_of(rng):
    fields = [pa.field(name, type_of(rng)) for name in rng.sample(NAMES, rng.randrange(2, 7))]
    rows = rng.choice([1, 2, 100, 3000])
    columns = [pa.array([value_of(rng, field.type) for _ in range(rows)], field.type) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def leaves_of(schema):
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    return [column.path for column in pq.ParquetFile(sink).schema]


def file_of(make, schema, tables, options):
    sink = pa.BufferOutputStream()
    writer = make(sink, schema, **options)
    for table in tables:
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    writer.add_key_value_metadata({"engine": "this one", "b": ""})
    writer.close()
    return sink.getvalue().to_pybytes(), writer


@pytest.mark.parametrize("seed", range(60))
def test_the_file_is_arrow_s_own_byte_for_byte(seed):
    rng = random.Random(seed)
    table = table_of(rng)
    names = leaves_of(table.schema)
    some = [name for name in names if rng.random() < 0.5]
    options = {
        "compression": rng.choice(["none", "snappy", "zstd"]),
        "use_deprecated_int96_timestamps": rng.random() < 0.3,
        "store_decimal_as_integer": True,
        "write_statistics": rng.choice([True, some]),
        "write_page_index": rng.random() < 0.8,
        "use_dictionary": rng.choice([True, False, some]),
        "data_page_size": rng.choice([None, 500]),
        "store_schema": False,
    }
    tables = [table, *(table.slice(rng.randrange(table.num_rows)) for _ in range(rng.randrange(3)))]
    expected, theirs = file_of(pq.ParquetWriter, table.schema, tables, options)
    threads = rng.randrange(2, 5)
    found, ours = file_of(
        lambda sink, schema, **more: SideBySideWriter(sink, schema, threads=threads, **more),
        table.schema,
        tables,
        options,
    )
    assert found == expected
    assert ours.metadata == theirs.writer.metadata


@pytest.mark.parametrize("seed", range(30))
def test_a_footer_is_written_as_it_was_read(seed):
    rng = random.Random(1000 + seed)
    table = table_of(rng)
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rng.choice([1, 50, 5000]), write_page_index=True)
    data = sink.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    struct, end = read_struct(memoryview(footer))
    assert end == len(footer)
    assert write_struct(struct) == footer
    assert len(struct[4][1][1]) == pq.ParquetFile(sink).num_row_groups


def test_what_is_no_structure_of_parquet_s_is_refused():
    with pytest.raises(ValueError, match="no field of type 13"):
        read_struct(memoryview(b"\x1d\x00"))
    with pytest.raises(IndexError):
        read_struct(memoryview(b"\x15"))


def test_columns_are_shared_out_by_size():
    assert shares([10, 1, 1, 8], 2) == [[0], [1, 2, 3]]
    assert shares([5], 4) == [[0]]
    assert shares([0, 0, 0], 2) == [[0, 2], [1]]
    assert shares([], 2) == []
    rng = random.Random(7)
    for _ in range(200):
        sizes = [rng.randrange(100) for _ in range(rng.randrange(1, 12))]
        count = rng.randrange(1, 6)
        found = shares(sizes, count)
        assert sorted(position for share in found for position in share) == list(range(len(sizes)))
        assert len(found) == min(count, len(sizes))
        heaviest = max(sum(sizes[position] for position in share) for share in found)
        assert heaviest <= sum(sizes) / len(found) + max(sizes)


def test_a_task_with_several_encoders_writes_the_same_files(tmp_path):
    rng = random.Random(3)
    rows = 120_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(rows)),
            pa.array([rng.random() for _ in range(rows)]),
            pa.array([f"name {number % 1000}" for number in range(rows)]),
            pa.array([float("nan") if number == rows - 1 else 0.0 for number in range(rows)]),
        ],
        names=["c0", "c1", "c2", "c3"],
    )
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("n", pa.float64())])
    files = []
    for encoders in (1, 3):
        root = tmp_path / str(encoders)
        root.mkdir()
        task = WriteTask(
            table_uri=f"file:{root}", store_options={}, file_schema=schema, encoders=encoders, footer={"a": "b"}
        )
        (record,) = run_task([batch], task, partition_id=0)
        files.append(((root / record.path).read_bytes(), record.stats, record.size, record.num_rows))
    assert files[0] == files[1]


def test_a_failure_in_one_thread_fails_the_write_and_leaves_nothing(tmp_path, monkeypatch):
    rows = 600_000
    batch = pa.RecordBatch.from_arrays([pa.array(range(rows)), pa.array(range(rows))], names=["c0", "c1"])
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    task = WriteTask(table_uri=f"file:{tmp_path}", store_options={}, file_schema=schema, encoders=2)
    real = SideBySideWriter._encode

    def failing(writer, table):
        if table.column_names == ["b"]:
            raise OSError("no memory")
        return real(writer, table)

    monkeypatch.setattr(SideBySideWriter, "_encode", failing)
    with pytest.raises(OSError, match="no memory"):
        run_task([batch], task, partition_id=0)
    assert list(tmp_path.rglob("*")) == []
