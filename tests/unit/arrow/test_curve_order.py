"""The order of rows along a curve in this process: types, nulls, ties, and what both curves share."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pydelta.engines.arrow.curves import curve_keys, row_order
from pydelta.protocol.types import parse_type

COLUMNS = {
    "long": [3, None, -5, 2**62],
    "byte": [3, None, -5, 127],
    "double": [1.5, None, -math.inf, math.nan],
    "decimal(38,2)": [Decimal("1.50"), None, Decimal("-7.00"), Decimal("12345678901234567890.00")],
    "date": [dt.date(2024, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp_ntz": [dt.datetime(2024, 1, 1), None, dt.datetime(1850, 1, 1), dt.datetime(2100, 1, 1)],
    "string": ["b", None, "a", "é"],
    "binary": [b"b", None, b"\x00", b"\xff"],
}
ARROW = {
    "long": pa.int64(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "decimal(38,2)": pa.decimal128(38, 2),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_is_ordered_by_its_values_nulls_first_and_nan_last(name):
    values = pa.array(COLUMNS[name], ARROW[name])
    assert row_order([(values, parse_type(name))], curve="zorder").tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_takes_part_in_a_curve(name):
    """Beside a column that is the same everywhere, the key grows with the value, and null comes first."""
    values = pa.array(COLUMNS[name], ARROW[name])
    same = pa.array([7] * 4, pa.int64())
    for curve in ("zorder", "hilbert"):
        order = row_order([(values, parse_type(name)), (same, parse_type("long"))], curve=curve)
        assert sorted(order.tolist()) == [0, 1, 2, 3]
    order = row_order([(values, parse_type(name)), (same, parse_type("long"))], curve="zorder").tolist()
    assert order[0] == 1
    assert order.index(2) < order.index(3)


def test_booleans_are_ordered_false_before_true():
    values = pa.array([True, None, False])
    assert row_order([(values, parse_type("boolean"))], curve="zorder").tolist() == [1, 2, 0]


def test_rows_of_the_same_key_stay_as_they_were():
    same = pa.array([1] * 1000, pa.int64())
    for columns in (1, 2, 7):
        order = row_order([(same, parse_type("long"))] * columns, curve="hilbert")
        assert order.tolist() == list(range(1000))


@pytest.mark.parametrize("curve", ["hilbert", "zorder"])
def test_neighbours_on_the_curve_are_near_in_the_plane(curve):
    """A square of 32 by 32: row by row, half of the steps of one column would be long."""
    pairs = list(itertools.product(range(32), range(32)))
    keys = curve_keys([pl.Series([pair[side] for pair in pairs]) for side in (0, 1)], curve=curve)
    assert len(set(keys.tolist())) == len(pairs)
    ordered = [pairs[at] for at in np.argsort(keys)]
    for side in (0, 1):
        steps = [abs(a[side] - b[side]) for a, b in itertools.pairwise(ordered)]
        assert sum(steps) / len(steps) < 1.5


def test_no_rows_have_no_order():
    nothing = pa.array([], pa.int64())
    assert row_order([(nothing, parse_type("long"))] * 2, curve="zorder").tolist() == []


@pytest.mark.parametrize("curve", ["hilbert", "zorder"])
@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 50])
def test_keys_are_the_same_whether_they_are_computed_at_once_or_in_parts(monkeypatch, curve, rows):
    random = np.random.default_rng(rows)
    numbers = pa.array(random.integers(0, 9, rows), mask=random.random(rows) < 0.2)
    texts = pa.array([None if draw < 2 else f"t{draw}" for draw in random.integers(0, 30, rows)], pa.string())
    columns = [(numbers, parse_type("long")), (texts, parse_type("string"))]
    series = [pl.Series(pl.from_arrow(values)) for values, _ in columns]
    order, keys = row_order(columns, curve=curve), curve_keys(series, curve=curve)
    monkeypatch.setattr("pydelta.engines.arrow.curves._SLICE_ROWS", 7)
    assert row_order(columns, curve=curve).tolist() == order.tolist()
    assert curve_keys(series, curve=curve).tolist() == keys.tolist()
    assert order.tolist() == sorted(range(rows), key=lambda row: keys[row])


def test_a_sample_of_many_rows_is_the_same_each_time_and_divides_them_evenly(monkeypatch):
    monkeypatch.setattr("pydelta.engines.arrow.curves._SAMPLE_ROWS", 500)
    values = pa.array(np.random.default_rng(3).permutation(20_000))
    columns = [(values, parse_type("long"))] * 2
    first = row_order(columns, curve="hilbert")
    assert first.tolist() == row_order(columns, curve="hilbert").tolist()
    steps = np.abs(np.diff(values.to_numpy()[first]))
    assert steps.mean() < 500  # at random a third of 20,000
