"""Which columns of a file get a dictionary."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.engines.arrow.tasks.compact import Bin, OldFile, run_bins
from pydelta.engines.arrow.tasks.dictionaries import estimated, negative_zeros, pays, with_dictionary
from pydelta.engines.arrow.tasks.split import PartitionColumn
from pydelta.engines.arrow.tasks.write_files import WriteTask, run_task
from pydelta.protocol.types import PrimitiveType

ROWS = 200_000
_IDS = np.random.default_rng(1).permutation(ROWS)


def column(values):
    return with_dictionary(pa.table({"a": values, "b": pa.repeat(1, len(values))}))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(_IDS), pa.array(np.sort(_IDS)), pa.array(_IDS * 0.1), pa.array([f"name {n}" for n in _IDS]),
        pa.array(_IDS, pa.timestamp("us", "UTC")), pa.array([b"%d" % n for n in _IDS]), pa.array(_IDS.astype(np.int32)),
        pa.array(_IDS.astype(np.float32)), pa.array(_IDS).cast(pa.decimal128(19)).cast(pa.decimal128(9)),
        pa.array(_IDS).cast(pa.decimal128(19)).cast(pa.decimal128(17, 2)), pa.array(_IDS, mask=_IDS % 2 == 0),
        pa.array((_IDS % 150_000).astype(np.int32)), pa.array(_IDS % 150_000),
        pa.array(_IDS, pa.int32()).cast(pa.date32()),
    ],
)  # fmt: skip
def test_a_column_of_different_values_gets_none(values):
    assert column(values) == ["b"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(_IDS % 60_000), pa.array(np.arange(ROWS) % 60_000), pa.array(np.arange(ROWS) // 4),
        pa.array(_IDS % 60_000, mask=_IDS % 2 == 0), pa.nulls(ROWS, pa.int64()), pa.array(_IDS % 2 == 0),
        pa.array([f"name {n % 5000}" for n in _IDS]),
        pa.array((_IDS % 40_000).astype(np.int32)), pa.array(_IDS % 20_000).cast(pa.decimal128(19)),
        pa.array(_IDS % 20_000).cast(pa.decimal128(19)).cast(pa.decimal128(9)), pa.array(_IDS.astype(np.int16)),
    ],
)  # fmt: skip
def test_one_whose_values_repeat_or_are_of_two_bytes_gets_one(values):
    assert column(values) is True


def test_few_rows_say_nothing():
    assert column(pa.array(_IDS[: (1 << 14) - 1])) is True
    assert column(pa.array(_IDS[: 1 << 14])) == ["b"]


def _with_dictionary(path):
    columns = [pq.ParquetFile(path).metadata.row_group(0).column(index) for index in range(3)]
    return [column.path_in_schema for column in columns if "RLE_DICTIONARY" in column.encodings]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_column_that_holds_negative_zero_gets_none_whenever_it_comes(tmp_path, kind):
    zeros = pa.array([1.0, -0.0, None], kind)
    rows = pa.table(
        {"a": zeros, "b": pa.array([0.0, -1.0, None], kind), "s": [{"z": value} for value in (0.0, 1.0, -0.0)]}
    )
    rows = rows.set_column(2, "s", rows["s"].cast(pa.struct([("z", kind)])))
    assert with_dictionary(rows) is True
    assert negative_zeros(rows) == {"a", "s.z"} and negative_zeros(rows.slice(2)) == {"s.z"}
    task = WriteTask(table_uri=tmp_path.as_uri(), store_options={}, file_schema=rows.schema, row_group_bytes=1)
    [record] = run_task(rows.to_batches(), task, partition_id=0)
    assert _with_dictionary(tmp_path / record.path) == ["b"]
    records = run_task([*rows.slice(0, 1).to_batches(), *rows.slice(1).to_batches()], task, partition_id=0)
    assert [_with_dictionary(tmp_path / record.path) for record in records] == [["a", "b", "s.z"], ["b"]]
    [bin_] = [
        outcome.records
        for outcome in run_bins(
            [Bin(number=0, values=(), files=tuple(OldFile(path=item.path, size=item.size) for item in records))],
            task,
            partition_id=0,
        )
    ]
    [record] = bin_
    assert record.num_rows == 3 and _with_dictionary(tmp_path / record.path) == ["b"]


@pytest.mark.parametrize(
    ("rows", "different", "width", "it_pays"),
    [
        (100_000, 100_000, 4, False), (100_000, 28_124, 4, True), (100_000, 28_125, 4, False),
        (100_000, 50_000, 8, False), (100_000, 49_999, 8, True), (10_000_000, 127_999, 8, True),
        (10_000_000, 128_000, 8, False), (1_000_000, 1, 4, True), (1000, 5, 300.0, True),
    ],
)  # fmt: skip
def test_a_dictionary_pays_where_it_and_its_numbers_are_a_good_deal_smaller(rows, different, width, it_pays):
    assert pays(rows=rows, different=different, width=width) is it_pays
    assert pays(rows=rows, different=different, width=width, limit=int(different * width)) is False


@pytest.mark.parametrize("different", [50, 5_000, 50_000, 100_000, 200_000, 400_000])
def test_a_sample_says_how_many_values_differ(different):
    rows, drawn = 400_000, 8_192
    values = np.random.default_rng(3).permutation(rows) % different
    seen = len(np.unique(np.random.default_rng(5).choice(values, drawn, replace=False)))
    assert estimated(seen, drawn, rows) == pytest.approx(different, rel=0.25)


def test_the_file_has_the_dictionaries_that_were_chosen_at_any_depth(tmp_path):
    """Of the columns that differ none, of all others one, those in lists, maps and behind a partition's too."""
    few, offsets = pa.array(_IDS % 5), pa.array(np.arange(ROWS + 1, dtype=np.int32))
    listed = pa.ListArray.from_arrays(offsets, few)
    data = pa.table(
        {
            "id": _IDS,
            "few": few,
            "s": pa.StructArray.from_arrays([pa.array(_IDS + 7), few, listed], names=["id", "few", "l"]),
            "l": listed,
            "m": pa.MapArray.from_arrays(offsets, few, few),
            "with.dot": pa.array(_IDS),
        }
    )
    task = WriteTask(
        table_uri=tmp_path.as_uri(), store_options={}, file_schema=data.schema,
        partition_columns=(PartitionColumn(name="p", data_type=PrimitiveType("long")),),
        constants=pa.schema([("p", pa.int64())]),
    )  # fmt: skip
    given = data.append_column("p", pa.repeat(pa.scalar(3, pa.int64()), ROWS)).combine_chunks().to_batches()
    [record] = run_task(given, task, partition_id=0, store=None)
    group = pq.read_metadata(tmp_path / record.path).row_group(0)
    found = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    plain = {name for name, encodings in found.items() if "RLE_DICTIONARY" not in encodings}
    assert plain == {"id", "s.id", "with.dot"}
    assert set(found) - plain == {
        "few", "s.few", "s.l.list.element", "l.list.element", "m.key_value.key", "m.key_value.value", "p",
    }  # fmt: skip
    assert json.loads(record.stats)["numRecords"] == ROWS
    read = pq.ParquetFile(tmp_path / record.path).read()
    assert read.select(data.column_names).cast(data.schema).equals(data)
