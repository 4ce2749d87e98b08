"""Hashes of keys: equal for equal keys, computed as written down, and the same for ever."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.engines.arrow.merge.key_hashes import HASH_NAME, hash_keys, kind_of
from pydelta.protocol.types import ArrayType, DecimalType, PrimitiveType, StructType

MASK = (1 << 64) - 1
P1, P2, P3, P4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63


def words_of(value):
    """The words of a value, one by one, as the module's docstring has them."""
    if isinstance(value, bytes):
        cut = value[:1024]
        padded = cut + b"\0" * (-len(cut) % 8)
        return [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)] + [len(value)]
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(2)) & ((1 << 128) - 1)
        return [unscaled & MASK, unscaled >> 64]
    return [int(value) & MASK]


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def reference(*values):
    state = 0x27D4EB2F165667C5
    for word in itertools.chain.from_iterable(map(words_of, values)):
        state ^= rotated(word * P2 & MASK, 31) * P1 & MASK
        state = (rotated(state, 27) * P1 + P4) & MASK
    state = (state ^ state >> 33) * P2 & MASK
    state = (state ^ state >> 29) * P3 & MASK
    return state ^ state >> 32


DECIMALS = st.integers(-(10**37), 10**37).map(lambda number: Decimal(number).scaleb(-2))
COLUMNS = {
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "integer": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=40)),
    "binary": (pa.binary(), st.binary(max_size=40)),
    "decimal": (pa.decimal128(38, 2), DECIMALS),
}


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_vectorised_hash_is_the_one_written_down(name, data):
    kind, values = COLUMNS[name]
    rows = data.draw(st.lists(st.tuples(st.one_of(st.none(), values), st.one_of(st.none(), st.text(max_size=20)))))
    cut = data.draw(st.integers(0, 3))
    columns = [pa.array([row[place] for row in rows], of)[cut:] for place, of in ((0, kind), (1, pa.string()))]
    expected = [
        reference(row[0] if not isinstance(row[0], str) else row[0].encode(), row[1].encode())
        for row in rows[cut:]
        if None not in row
    ]
    assert hash_keys(columns).tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1016, 1023, 1024, 1025, 5000])
def test_long_texts_are_hashed_by_their_beginning_and_length(size):
    texts = [bytes(range(1, 256)) * 20, b"", b"a"]
    values = [text[:size] for text in texts]
    assert hash_keys([pa.array(values, pa.binary())]).tolist() == [reference(value) for value in values]


def test_an_offset_and_chunks_with_gaps_do_not_matter():
    array = pa.array(["x", None, "much longer than a word", "", "x"])
    assert hash_keys([array[2:]]).tolist() == [reference(text) for text in (b"much longer than a word", b"", b"x")]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([7], pa.int8()), pa.array([7], pa.int64())),
        (pa.array([-7], pa.int16()), pa.array([-7], pa.int32())),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), pa.array([Decimal("1.5")], pa.decimal128(38, 2))),
        (pa.array(["a"]), pa.array([b"a"])),
        (pa.array([dt.date(1970, 1, 2)]), pa.array([1], pa.date32())),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_equal_keys_have_equal_hashes_whatever_their_width(left, right):
    assert hash_keys([left]).tolist() == hash_keys([right]).tolist()


def test_the_columns_order_and_borders_matter():
    assert hash_keys([pa.array(["ab"]), pa.array(["c"])]) != hash_keys([pa.array(["a"]), pa.array(["bc"])])
    assert hash_keys([pa.array([1]), pa.array([2])]) != hash_keys([pa.array([2]), pa.array([1])])


def test_these_hashes_are_in_tables_and_can_only_change_with_the_name():
    found = {
        "1": hash_keys([pa.array([1], pa.int64())]),
        "-1": hash_keys([pa.array([-1], pa.int32())]),
        "key": hash_keys([pa.array(["customer-12345"])]),
        "two": hash_keys([pa.array(["é"]), pa.array([Decimal("-1.00")], pa.decimal128(9, 2))]),
    }
    assert HASH_NAME == "pydelta-words-1"
    assert {name: f"{int(value[0]):016x}" for name, value in found.items()} == KEPT


KEPT = {
    "1": "9dcdad2e8e050331",
    "-1": "d860c446bb00e8bd",
    "key": "6505a55b732a91cb",
    "two": "2858bc4ec7a92cb2",
}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((PrimitiveType(name), "integer") for name in ("byte", "short", "integer", "long")),
        *((PrimitiveType(name), name) for name in ("boolean", "string", "binary", "date", "timestamp")),
        (PrimitiveType("timestamp_ntz"), "timestamp_ntz"),
        (DecimalType(10, 2), "decimal(2)"),
        (DecimalType(38, 2), "decimal(2)"),
        *((PrimitiveType(name), None) for name in ("float", "double", "variant", "void", "string collate UNICODE")),
        (ArrayType(PrimitiveType("long"), contains_null=True), None),
        (StructType(()), None),
    ],
    ids=str,
)
def test_only_types_with_exact_hashes_have_a_kind(kind, expected):
    assert kind_of(kind) == expected
