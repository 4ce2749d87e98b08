"""Space-filling curves as tables and bounds, without Spark."""

from __future__ import annotations

import itertools
import math

import polars as pl
import pytest

from pydelta.engines.arrow.curves import bits_of, boundaries, hilbert_tables


def walk(count, bits):
    """The points of the cube in the order of the curve."""
    turns, places = hilbert_tables(count)
    at = {}
    for point in itertools.product(range(1 << bits), repeat=count):
        state, key = 0, 0
        for bit in range(bits - 1, -1, -1):
            corner = 0
            for value in point:
                corner = corner << 1 | (value >> bit & 1)
            key = key << count | places[state << count | corner]
            state = turns[state << count | corner]
        at[key] = point
    return [at[key] for key in range(1 << bits * count)]


@pytest.mark.parametrize(("count", "bits"), [(2, 1), (2, 2), (2, 5), (3, 1), (3, 3), (4, 2), (5, 2)])
def test_the_hilbert_curve_visits_each_point_once_and_its_neighbour_next(count, bits):
    points = walk(count, bits)
    assert len(set(points)) == 1 << bits * count
    for one, two in itertools.pairwise(points):
        assert sum(abs(a - b) for a, b in zip(one, two, strict=True)) == 1


def test_the_tables_stay_small():
    assert len(hilbert_tables(4)[0]) <= 32 * 16 * 2
    assert all(len(set(hilbert_tables(3)[1][start : start + 8])) == 8 for start in range(0, 24, 8))


@pytest.mark.parametrize(
    ("values", "ranges", "bounds", "parts"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 4, [3, 5, 7], [0, 1, 2, 3]),
        ([5, 5, 5, 5], 4, [5], [0, 1]),
        ([1, 1, 9, 9], 8, [1, 9], [0, 1, 4]),
        ([None, 3, None, 1], 2, [3], [0, 1]),
        ([], 8, [], [0]),
        ([None, None], 8, [], [0]),
        ([1.0, math.nan, math.inf, 2.0], 2, [2.0], [0, 1]),
        (["b", "a", "d", "c"], 2, ["c"], [0, 1]),
    ],
)
def test_boundaries_divide_a_sample(values, ranges, bounds, parts):
    series = pl.Series(values, dtype=None if values and any(values) else pl.Int64)
    assert boundaries(series, ranges) == (bounds, parts)


@pytest.mark.parametrize(("columns", "bits"), [(2, 10), (6, 10), (7, 8), (62, 1), (100, 1)])
def test_the_key_of_all_columns_fits_into_a_long(columns, bits):
    assert bits_of(columns) == bits
