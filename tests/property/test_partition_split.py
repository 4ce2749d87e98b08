"""Rows of a batch by their partition values, against a plain loop over the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.engines.arrow.tasks.split import PartitionColumn, check_runs, split_by_partition
from pydelta.engines.arrow.tasks.write_files import WriteTask, run_task
from pydelta.errors import RowsDoNotAddUpError, SchemaError
from pydelta.protocol.schema import PrimitiveType

KINDS = {
    "long": (pa.int64(), st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)]))),
    "string": (pa.string(), st.one_of(st.none(), st.text(max_size=2))),
    "boolean": (pa.bool_(), st.one_of(st.none(), st.booleans())),
}


def text_of(value):
    if value is None or value == "":
        return None
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def columns_of(kinds):
    return tuple(PartitionColumn(name=f"p{i}", data_type=PrimitiveType(kind)) for i, kind in enumerate(kinds))


def keys_of(rows, kinds):
    return [pa.array([row[i] for row in rows], KINDS[kind][0]) for i, kind in enumerate(kinds)]


def pieces(rows, kinds):
    data = pa.record_batch({"row": pa.array(range(len(rows)), pa.int64())})
    return [
        (values, piece.column(0).to_pylist())
        for values, piece in split_by_partition(keys_of(rows, kinds), columns_of(kinds), data)
    ]


def model(rows):
    """Each combination of texts -> the numbers of its rows, ascending."""
    found = {}
    for number, row in enumerate(rows):
        found.setdefault(tuple(map(text_of, row)), []).append(number)
    return found


def united(split):
    found = {}
    for values, numbers in split:
        found.setdefault(values, []).extend(numbers)
    return found


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    row = st.tuples(*[KINDS[kind][1] for kind in kinds])
    few = draw(st.lists(row, min_size=1, max_size=4))
    return kinds, draw(st.lists(st.one_of(st.sampled_from(few), row), min_size=1, max_size=40))


@settings(max_examples=300, deadline=None)
@given(tables())
def test_each_row_comes_once_and_under_its_own_values_in_the_order_given(table):
    kinds, rows = table
    found = united(pieces(rows, kinds))
    assert {values: sorted(numbers) for values, numbers in found.items()} == model(rows)
    if "string" not in kinds:  # null and the empty string are one partition, and two values
        assert found == model(rows)


@settings(max_examples=100, deadline=None)
@given(tables())
def test_values_that_lie_apart_make_one_piece_each(table):
    kinds, rows = table
    assert len(pieces(rows, kinds)) == len(set(rows))


@pytest.mark.parametrize(("columns", "distinct"), [(7, 620), (13, 40), (41, 3), (5, 10_000)])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_more_combinations_than_64_bits_can_count(columns, distinct, order):
    """All values of a batch in all columns: their number multiplies beyond 2**63."""
    assert distinct**columns > 2**63
    numbers = list(range(distinct)) if order == "sorted" else [(n * 7919) % distinct for n in range(distinct)] * 2
    rows = [tuple((number + column) % distinct or None for column in range(columns)) for number in numbers]
    assert united(pieces(rows, ["long"] * columns)) == model(rows)


def test_the_files_of_a_task_have_the_values_of_their_rows(tmp_path):
    rows = [tuple((number + column * 3) % 620 or None for column in range(7)) for number in range(620)]
    kinds = ["long"] * 7
    data = pa.array(range(620), pa.int64())
    batch = pa.RecordBatch.from_arrays([data, *keys_of(rows, kinds)], names=["row", *(f"p{i}" for i in range(7))])
    task = WriteTask(
        table_uri=tmp_path.as_uri(),
        store_options={},
        file_schema=pa.schema([("row", pa.int64())]),
        partition_columns=columns_of(kinds),
    )
    found = {}
    for record in run_task([batch], task, partition_id=0):
        numbers = pq.ParquetFile(tmp_path / record.path).read().column("row").to_pylist()
        found[tuple(record.partition_values[f"p{i}"] for i in range(7))] = numbers
    assert found == model(rows)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0, 2], "3 of 5 rows"),
        ([0], "2 of 5 rows"),
        ([1, 3], "3 of 5 rows"),
        ([], "0 of 5 rows"),
    ],
)
def test_rows_among_those_of_another_partition_fail_the_task(starts, message):
    codes = [np.array([0, 0, 0, 1, 1]), np.array([5, 5, 6, 6, 6])]
    check_runs(np.array([0, 2, 3]), codes, 5)
    with pytest.raises(RowsDoNotAddUpError, match=message):
        check_runs(np.array(starts, dtype=np.intp), codes, 5)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("date", pa.array([4_000_000], pa.date32())),
        ("timestamp", pa.array([2**60], pa.timestamp("us", "UTC"))),
        ("timestamp_ntz", pa.array([-(2**60)], pa.timestamp("us"))),
        ("binary", pa.array([b"\xff"])),
    ],
)
def test_a_value_without_a_text_in_the_log_is_refused_with_its_column(kind, key):
    column = PartitionColumn(name="day", data_type=PrimitiveType(kind))
    with pytest.raises(SchemaError, match="'day'"):
        list(split_by_partition([key], [column], pa.record_batch({"row": [1]})))
