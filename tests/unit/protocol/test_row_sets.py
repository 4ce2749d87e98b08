"""Rows of a file as words of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from pydelta.protocol.row_sets import RowSet


def of(*rows):
    return RowSet.of(np.array(rows, dtype=np.uint64))


@pytest.mark.parametrize(
    "rows", [(), (0,), (63,), (64,), (0, 63, 64, 127, 128), (5, 2**33), tuple(range(1000)), (2**40, 2**40 + 1)]
)
def test_positions_come_back(rows):
    found = of(*rows)
    assert found.positions().tolist() == list(rows)
    assert found.positions().dtype == np.uint64
    assert len(found) == len(rows)


@pytest.mark.parametrize("rows", [(), (0,), (70, 75, 200), (64, 640)])
def test_the_dense_form_has_one_bit_a_row(rows):
    found = of(*rows)
    bits = np.unpackbits(np.frombuffer(found.dense(), dtype=np.uint8), bitorder="little")
    assert [found.start + int(at) for at in np.flatnonzero(bits)] == list(rows)
    if rows:
        assert len(bits) == found.end - found.start
        assert found.start % 64 == found.end % 64 == 0


def test_a_million_neighbours_cost_a_quarter_of_a_byte_each():
    found = RowSet.of(np.arange(1_000_000, dtype=np.uint64))
    assert found.words.nbytes + found.bits.nbytes == 250_000
    assert len(found) == 1_000_000


def test_equality_is_that_of_the_rows():
    assert of(1, 2) == of(1, 2)
    assert of(1, 2) != of(1, 3)
    assert of(1) != "1"
