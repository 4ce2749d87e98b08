"""Deletion vectors: bitmaps of every shape there and back, and what is damaged is refused, never guessed."""

from __future__ import annotations

import itertools
import struct
import uuid
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.roaring import ascending, decode_bitmap, encode_bitmap
from pydelta.protocol.vectors import deleted_rows, inline_vector, pack_vectors, stored_range, vector_path

# The rows 0 and 5, and the row 3 with a last group as Rust writes it: both are in tables that another engine wrote.
ZERO_AND_FIVE = "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5"
THREE = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"


def inline(text, size, cardinality):
    return DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=text, size_in_bytes=size, cardinality=cardinality
    )


def in_file(bitmap, cardinality, **how):
    vector = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=1, size_in_bytes=len(bitmap),
        cardinality=cardinality,
    )  # fmt: skip
    size, checksum = how.get("size", len(bitmap)), how.get("checksum", zlib.crc32(bitmap))
    return vector, struct.pack(">i", size) + bitmap + struct.pack(">I", checksum)


SHAPES = {
    "nothing": [],
    "the first row": [0],
    "the largest array": np.arange(0, 2 * 4096, 2),
    "the smallest bitmap": np.arange(0, 2 * 4097, 2),
    "one run, a full container": np.arange(65536),
    "runs over containers": np.concatenate([np.arange(start, start + 300) for start in range(0, 400_000, 1000)]),
    "runs, few containers": [*range(10, 60_000), *range(65_541, 115_000), 140_000],
    "array, bitmap and run": [65_539, *range(131_072, 140_072, 2), 200_000, *range(300_000, 340_000), 400_000],
    "one row": [7],
    "a run as large as its array": [3, 4, 5],
    "a run smaller than its array": [3, 4, 5, 6],
    "two runs, one number smaller than their array": [*range(3), *range(10, 13)],
    "as many runs as are smaller than a bitmap": [row for row in range(4 * 2047) if row % 4 != 3],
    "one run more": [row for row in range(4 * 2048) if row % 4 != 3],
    "three containers, one of runs": [1, *range(65_536, 65_600), 131_072],
    "four containers, one of runs": [1, *range(65_536, 65_600), 131_072, 200_000],
    "eight containers, the last of runs": [*range(0, 7 << 16, 1 << 16), *range(7 << 16, (7 << 16) + 9)],
    "nine containers, the last of runs": [*range(0, 8 << 16, 1 << 16), *range(8 << 16, (8 << 16) + 9)],
    "nine containers, all of runs": [row for start in range(0, 9 << 16, 1 << 16) for row in range(start, start + 9)],
    "far containers": [0, 65_535, 65_536, 2**32 - 65_536, 2**32 - 1],
    "several buckets": [5, 2**32 - 1, 2**32, *range(2**33, 2**33 + 70_000), 2**62, 2**63 - 1],
    "half of a million": np.flatnonzero(np.random.default_rng(1).random(1_000_000) < 0.5),
}


def by_the_specification(rows):
    """The portable format, one container at a time: an array, 65536 bits, or runs where they are smaller."""
    buckets = [list(found) for _, found in itertools.groupby(sorted(set(map(int, rows))), key=lambda row: row >> 32)]
    out = struct.pack("<iq", 1681511377, len(buckets))
    for bucket in buckets:
        parts = [list(found) for _, found in itertools.groupby(bucket, key=lambda row: row >> 16)]
        flags, bodies = 0, []
        for number, part in enumerate(parts):
            lows = [row & 0xFFFF for row in part]
            array = struct.pack(f"<{len(lows)}H", *lows)
            bits = bytearray(8192)
            for low in lows:
                bits[low // 8] |= 1 << low % 8
            plain = bytes(bits) if len(lows) > 4096 else array
            held = set(lows)
            starts = [low for low in lows if low - 1 not in held]
            ends = [low for low in lows if low + 1 not in held]
            pairs = [value for start, end in zip(starts, ends, strict=True) for value in (start, end - start)]
            runs = struct.pack(f"<H{len(pairs)}H", len(starts), *pairs)
            flags |= (len(runs) < len(plain)) << number
            bodies.append(runs if len(runs) < len(plain) else plain)
        if flags:
            start = struct.pack("<I", 12347 + 65536 * (len(parts) - 1)) + flags.to_bytes(
                (len(parts) + 7) // 8, "little"
            )
        else:
            start = struct.pack("<II", 12346, len(parts))
        header = b"".join(struct.pack("<HH", (part[0] >> 16) & 0xFFFF, len(part) - 1) for part in parts)
        places = b""
        if not flags or len(parts) >= 4:
            at = len(start) + len(header) + 4 * len(parts)
            for body in bodies:
                places += struct.pack("<I", at)
                at += len(body)
        out += struct.pack("<I", bucket[0] >> 32) + start + header + places + b"".join(bodies)
    return out


@pytest.mark.parametrize("rows", SHAPES.values(), ids=list(SHAPES))
def test_a_bitmap_of_every_shape_there_and_back(rows):
    expected = np.asarray(rows, dtype=np.uint64)
    encoded = encode_bitmap(expected)
    assert encoded == by_the_specification(rows)
    decoded = decode_bitmap(encoded)
    assert decoded.dtype == np.uint64
    assert np.array_equal(decoded, expected)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 200_000), max_size=50), st.integers(0, 70_000))
def test_any_rows_in_any_order_there_and_back(rows, run):
    many = np.arange(100_000, 100_000 + run, dtype=np.uint64)
    given_rows = np.concatenate([np.array(rows, dtype=np.uint64), many])
    decoded = decode_bitmap(encode_bitmap(given_rows))
    assert np.array_equal(decoded, np.unique(given_rows))


@pytest.mark.parametrize("rows", [[-1], [5, -1], np.array([2**63], np.uint64), np.array([0, 2**63], np.uint64)])
def test_what_is_no_row_is_not_encoded(rows):
    with pytest.raises(ValueError, match="positions"):
        encode_bitmap(rows)


@pytest.mark.parametrize("name", ["array, bitmap and run", "the smallest bitmap", "runs, few containers"])
def test_a_bitmap_cut_anywhere_or_longer_is_damaged(name):
    whole = encode_bitmap(SHAPES[name])
    for end in [*range(40), *range(40, len(whole), 997), len(whole) - 1]:
        with pytest.raises(LogCorruptedError, match="damaged"):
            decode_bitmap(whole[:end])
    with pytest.raises(LogCorruptedError, match="follow its end"):
        decode_bitmap(whole + b"\0")


def _bitmap(*buckets):
    return struct.pack("<iq", 1681511377, len(buckets)) + b"".join(buckets)


def _array(key, *lows, size=None, low_key=0):
    lows_bytes = struct.pack(f"<{len(lows)}H", *lows)
    return struct.pack("<IIIHHI", key, 12346, 1, low_key, (size or len(lows)) - 1, 16) + lows_bytes


def _runs(*pairs, size):
    flat = [number for pair in pairs for number in pair]
    return struct.pack(f"<IIBHHH{len(flat)}H", 0, 12347, 1, 0, size - 1, len(pairs), *flat)


def _single_rows(*keys):
    """Containers of one row each."""
    headers = [number for key in keys for number in (key, 0)]
    start = struct.pack(f"<III{len(headers)}H", 0, 12346, len(keys), *headers)
    return start + bytes(4 * len(keys)) + bytes(2 * len(keys))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends"),
        (struct.pack("<iq", 1681511376, 0), "begins with 1681511376"),
        (struct.pack("<iq", 1681511377, -1), "claims -1"),
        (struct.pack("<iq", 1681511377, 2**62), "claims 4611686018427387904 buckets in 0 bytes"),
        (struct.pack("<iq", 1681511377, 1), "claims 1 buckets in 0 bytes"),
        (struct.pack("<iqB", 1681511377, 1, 0), "ends at byte 13, but 4 bytes are expected from byte 12 on"),
        (_bitmap(_array(1, 5), _array(1, 6)), "bucket 1 follows bucket 1"),
        (_bitmap(_array(2, 5), _array(1, 6)), "bucket 1 follows bucket 2"),
        (_bitmap(_array(1, 5), _array(3, 5), _array(2, 6)), "bucket 2 follows bucket 3"),
        (_bitmap(_array(2**31, 5)), "bucket 2147483648 follows bucket none"),
        (_bitmap(_single_rows(1, 1)), "containers are out of order"),
        (_bitmap(_single_rows(1, 2, 3, 2)), "containers are out of order"),
        (_bitmap(_array(0, 5, 6, 7, 6)), "positions of a container are out of order"),
        (_bitmap(_runs((0, 9), (5, 3), (40, 1), size=16)), "overlap"),
        (_bitmap(_array(0, 6, 5)), "out of order"),
        (_bitmap(_array(0, 5, 5)), "out of order"),
        (_bitmap(struct.pack("<II", 0, 4711)), "4711"),
        (_bitmap(struct.pack("<III", 0, 12346, 2**31)), "claims 2147483648 containers in 0 bytes"),
        (_bitmap(struct.pack("<IIH", 0, 12345, 1)), "12345 is not the start of a bitmap"),
        (_bitmap(struct.pack("<II", 0, 12346 + 65_536)), "77882 is not the start of a bitmap"),
        (_bitmap(_runs((0, 9), (5, 3), size=14)), "overlap"),
        (_bitmap(_runs((0, 1), (10, 9), (15, 1), size=14)), "overlap"),
        (_bitmap(_runs((65_535, 1), size=2)), "overlap"),
        (_bitmap(_runs((0, 1), (65_535, 1), size=4)), "overlap"),
        (_bitmap(_runs((0, 9), size=11)), "holds 10 positions and claims 11"),
        (_bitmap(struct.pack("<IIIHHI", 0, 12346, 1, 0, 4999, 16) + bytes(8192)), "holds 0 positions"),
    ],
)
def test_a_damaged_bitmap_is_refused_with_the_reason(data, why):
    with pytest.raises(LogCorruptedError, match=why):
        decode_bitmap(data)


def test_the_bitmaps_made_by_hand_are_right_where_nothing_is_wrong():
    assert decode_bitmap(_bitmap(_array(0, 5, 6), _array(1, 7, low_key=2))).tolist() == [5, 6, 2**32 + 2 * 65_536 + 7]
    assert decode_bitmap(_bitmap(_runs((0, 2), (10, 0), size=4))).tolist() == [0, 1, 2, 10]
    assert decode_bitmap(_bitmap(_runs((0, 2), (3, 0), size=4))).tolist() == [0, 1, 2, 3]  # runs that touch
    assert decode_bitmap(_bitmap(_single_rows(1, 2, 4))).tolist() == [65_536, 2 * 65_536, 4 * 65_536]


@pytest.mark.parametrize(
    ("given", "once"),
    [
        ([], []),
        ([3], [3]),
        ([1, 2, 5], [1, 2, 5]),
        ([5, 1, 2, 1], [1, 2, 5]),
        ([1, 1, 2, 2], [1, 2]),
        ([1, 5, 3], [1, 3, 5]),
    ],
)
def test_positions_in_any_order_are_put_in_order_and_each_kept_once(given, once):
    found = ascending(np.array(given, dtype=np.int64))
    assert (found.tolist(), found.dtype) == (once, np.uint64)
    assert encode_bitmap(given) == by_the_specification(once)


def test_positions_that_are_in_order_are_not_copied():
    rows = np.array([1, 2, 5], dtype=np.uint64)
    assert ascending(rows) is rows


def test_a_vector_in_the_log_is_decoded_with_either_filling():
    assert deleted_rows(inline(ZERO_AND_FIVE, 36, 2)).tolist() == [0, 5]
    assert deleted_rows(inline(THREE, 34, 1)).tolist() == [3]
    assert stored_range(inline(THREE, 34, 1)) is None


@pytest.mark.parametrize(
    ("text", "size", "cardinality", "why"),
    [
        (ZERO_AND_FIVE, 36, 3, "holds 2 rows, but the log says 3"),
        (ZERO_AND_FIVE, 32, 2, "36 bytes, but the log says 32"),
        (ZERO_AND_FIVE, 37, 2, "36 bytes, but the log says 37"),
        (ZERO_AND_FIVE[:-1], 36, 2, "Z85"),
        (ZERO_AND_FIVE[:-1] + "~", 36, 2, "Z85"),
        ("#####", 4, 1, "Z85"),
        ("", 36, 2, "0 bytes"),
    ],
)
def test_a_damaged_vector_in_the_log_is_refused_with_the_reason(text, size, cardinality, why):
    with pytest.raises(LogCorruptedError, match=why):
        deleted_rows(inline(text, size, cardinality))


# https://rfc.zeromq.org/spec/32
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def in_z85(number, digits):
    return "".join(Z85[number // 85**power % 85] for power in range(digits - 1, -1, -1))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_last_group_holds_as_many_bytes_as_are_not_filled_up(width):
    filler = "#" * (4 - width)
    greatest = filler + in_z85(256**width - 1, width + 1)
    for text, size in ((greatest, width), ("00000" + greatest, 4 + width)):
        with pytest.raises(LogCorruptedError, match=r"ends at byte|begins with"):  # the bytes are read, and no bitmap
            deleted_rows(inline(text, size, 1))
        with pytest.raises(LogCorruptedError, match=f"decodes to {size} bytes"):
            deleted_rows(inline(text, size + 1, 1))
    for text in (filler + in_z85(256**width, width + 1), greatest + "00000" if filler else "%nSc1"):
        with pytest.raises(LogCorruptedError, match="is not Z85 text"):
            deleted_rows(inline(text, width, 1))


@pytest.mark.parametrize("text", ["####0", "#####", "0000", "000000", "00 00", "0000~"])
def test_what_is_no_group_of_five_digits_is_refused(text):
    with pytest.raises(LogCorruptedError, match="is not Z85 text"):
        deleted_rows(inline(text, 4, 1))


@pytest.mark.parametrize("starts", [[0], [0, 65_536], [0, 65_536, 131_072], range(0, 4 << 16, 1 << 16)])
def test_a_vector_for_the_log_of_any_length_is_filled_up_to_whole_groups(starts):
    rows = np.array([start + low for start in starts for low in range(9)], dtype=np.uint64)
    bitmap = by_the_specification(rows)
    vector = inline_vector(rows)
    assert (vector.size_in_bytes, vector.cardinality) == (len(bitmap), len(rows))
    padded = bitmap + bytes(-len(bitmap) % 4)
    groups = [int.from_bytes(padded[at : at + 4], "big") for at in range(0, len(padded), 4)]
    assert vector.path_or_inline_dv == "".join(in_z85(group, 5) for group in groups)
    assert deleted_rows(vector).tolist() == rows.tolist()
    with pytest.raises(LogCorruptedError, match=f"decodes to {len(padded)} bytes"):
        deleted_rows(vector.replace(size_in_bytes=len(padded) - 4))


def test_the_lengths_tried_leave_every_rest_by_four():
    rests = {
        len(by_the_specification([s + low for s in range(0, n << 16, 1 << 16) for low in range(9)])) % 4 for n in (1, 2)
    }
    arrays = {len(by_the_specification(range(0, 2 * n, 2))) % 4 for n in (1, 2)}
    assert rests | arrays == {0, 1, 2, 3}


def test_a_vector_in_a_file_is_checked_against_log_and_checksum():
    bitmap = encode_bitmap([1, 2, 70_000])
    vector, stored = in_file(bitmap, 3)
    assert stored_range(vector) == (1, len(bitmap) + 8)
    assert stored_range(vector.replace(offset=None)) == (0, len(bitmap) + 8)
    assert deleted_rows(vector, stored).tolist() == [1, 2, 70_000]
    for (damaged, data), why in [
        (in_file(bitmap, 2), "holds 3 rows"),
        (in_file(bitmap, 3, checksum=1), "checksum"),
        (in_file(bitmap, 3, size=len(bitmap) + 1), "its file says"),
        ((vector, stored[:-1]), "its file gives"),
        ((vector, stored[:5] + bytes([stored[5] ^ 1]) + stored[6:]), "checksum"),
    ]:
        with pytest.raises(LogCorruptedError, match=why):
            deleted_rows(damaged, data)


def test_bytes_are_asked_for_where_there_are_some_and_only_there():
    vector, stored = in_file(encode_bitmap([1]), 1)
    with pytest.raises(ValueError, match="stored_range"):
        deleted_rows(vector)
    with pytest.raises(ValueError, match="stored_range"):
        deleted_rows(inline(THREE, 34, 1), stored)


def test_a_vector_file_is_named_by_its_uuid_under_its_prefix():
    vector, _ = in_file(b"", 0)
    assert vector_path(vector) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    text = vector.path_or_inline_dv
    assert vector_path(vector.replace(path_or_inline_dv=text[2:])) == (
        "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert vector_path(vector.replace(path_or_inline_dv="a b%" + text[2:])) == (
        "a%20b%25/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert vector_path(vector.replace(storage_type="p", path_or_inline_dv="s3://b/x%20y")) == "s3://b/x%20y"
    assert vector_path(inline(THREE, 34, 1)) is None
    for wrong in (
        vector.replace(path_or_inline_dv="#" + "0" * 19),
        vector.replace(path_or_inline_dv=text[3:]),
        vector.replace(storage_type="x"),
    ):
        with pytest.raises(LogCorruptedError, match="does not name a file"):
            vector_path(wrong)


def test_a_vector_for_the_log_is_the_text_that_another_engine_writes():
    assert inline_vector(np.array([5, 0], dtype=np.uint64)) == inline(ZERO_AND_FIVE, 36, 2)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.integers(0, 100_000), min_size=1, max_size=60), min_size=1, max_size=6), st.uuids())
def test_many_vectors_in_one_file_there_and_back(sets, file_id):
    vectors = [np.array(sorted(rows), dtype=np.uint64) for rows in sets]
    data, described = pack_vectors(vectors, file_id=file_id, folder="ab")
    assert data[0] == 1
    bitmaps = [by_the_specification(rows) for rows in vectors]
    framed = [struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap)) for bitmap in bitmaps]
    assert data[1:] == b"".join(framed)
    for rows, vector in zip(vectors, described, strict=True):
        assert (vector.storage_type, vector.cardinality) == ("u", len(rows))
        start, length = stored_range(vector)
        assert deleted_rows(vector, data[start : start + length]).tolist() == rows.tolist()
        assert vector_path(vector) == f"ab/deletion_vector_{file_id}.bin"
    assert len({vector.unique_id for vector in described}) == len(vectors)
    assert stored_range(described[-1])[0] + stored_range(described[-1])[1] == len(data)


def test_rows_of_a_packed_vector_may_come_in_any_order_and_twice():
    data, (vector,) = pack_vectors([np.array([5, 1, 5])], file_id=uuid.UUID(int=7))
    assert (vector.cardinality, vector.path_or_inline_dv) == (2, "0" * 19 + "7")
    assert deleted_rows(vector, data[1:]).tolist() == [1, 5]
    assert inline_vector(np.array([5, 1, 5])).cardinality == 2


def test_each_vector_of_a_file_begins_behind_the_one_before():
    data, described = pack_vectors([np.array([7]), np.arange(3, 90), np.array([0])], file_id=uuid.UUID(int=7))
    sizes = [len(by_the_specification(rows)) for rows in ([7], range(3, 90), [0])]
    assert [vector.storage_type for vector in described] == ["u"] * 3
    assert [vector.offset for vector in described] == [1, 9 + sizes[0], 17 + sizes[0] + sizes[1]]
    assert len(data) == 1 + 3 * 8 + sum(sizes)


def test_the_example_of_the_protocol_names_its_file():
    _, (vector,) = pack_vectors([np.array([1])], file_id=uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61"), folder="ab")
    assert vector.path_or_inline_dv == "ab^-aqEH.-t@S}K{vb[*k^"


@pytest.mark.parametrize(
    "rows",
    [
        [7],
        list(range(5000)),
        [1, 1 << 16, 1 << 17, 1 << 32, (1 << 33) + 5],
        [*range(70_000), *range(1 << 33, (1 << 33) + 9)],
    ],
    ids=["one", "a run", "far apart", "two buckets"],
)
def test_a_bitmap_of_more_rows_than_allowed_is_refused(rows):
    encoded = encode_bitmap(np.array(rows, dtype=np.uint64))
    assert decode_bitmap(encoded, most=len(rows)).tolist() == rows
    for most in (len(rows) - 1, len(rows) // 2, 0):
        with pytest.raises(LogCorruptedError, match="more rows than the log says"):
            decode_bitmap(encoded, most=most)


@pytest.mark.parametrize("most", [1 << 27, 1 << 40])
def test_a_few_bytes_that_claim_more_rows_than_a_file_can_have_are_refused_before_they_are_decoded(most):
    count = 2049  # containers of 65,536 rows each, one more than fit into 2**27
    cookie = struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * ((count + 7) // 8)
    header = b"".join(struct.pack("<HH", key, 65_535) for key in range(count))
    data = struct.pack("<iqI", 1681511377, 1, 0) + cookie + header
    with pytest.raises(LogCorruptedError, match="than a file can have \\(134,217,728\\)"):
        decode_bitmap(data, most=most)
