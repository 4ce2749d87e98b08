"""The files that a column of vectors' ids names: those that their descriptors name, one by one."""

from __future__ import annotations

import re
import uuid
from urllib.parse import unquote

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.vectors import (
    DIGITS,
    pack_vectors,
    rows_of_stored,
    stored_vector,
    vector_files,
    vector_path,
)

NAMED = "ab^-aqEH.-t@S}K{vb[*k^"
FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def paths_of(dv_id: str, *, offsets: bool = True) -> set[str]:
    """Read one id as each of its descriptors would be read."""
    kind, body = dv_id[:1], dv_id[1:]
    paths = set()
    for text in {body, re.sub(r"@\d+\Z", "", body)} if offsets else {body}:
        try:
            vector = DeletionVectorDescriptor(
                storage_type=kind, path_or_inline_dv=text, size_in_bytes=1, cardinality=1, offset=1
            )
            path = vector_path(vector)
        except LogCorruptedError:
            continue
        if path is not None:
            paths.add(unquote(path) if kind == "u" else path)
    return paths


def found(ids: list[str | None], **how: bool) -> list[tuple[str, str]]:
    return sorted(vector_files(pl.Series("ids", ids, dtype=pl.String), **how).select("id", "path").rows())


def in_file(file_id: uuid.UUID, folder: str, offset: int | None) -> str:
    _, (vector,) = pack_vectors([[1]], file_id=file_id, folder=folder)
    return f"u{vector.path_or_inline_dv}" + ("" if offset is None else f"@{offset}")


TEXTS = st.text(alphabet=DIGITS + "é\U0001f600/%~ \n", max_size=48)
IDS = st.one_of(
    st.builds(in_file, st.uuids(), st.one_of(st.just(""), TEXTS), st.one_of(st.none(), st.integers(0, 1 << 40))),
    st.builds(str.__add__, st.sampled_from("upix"), TEXTS),
    st.builds(lambda text, offset: f"p{text}@{offset}", TEXTS, st.integers(0, 99)),
)


@given(st.lists(st.one_of(st.none(), IDS), max_size=8), st.booleans())
@example([None, f"u{NAMED}@1", f"u{NAMED}@7", "ps3://b/v.bin", "ps3://b/v.bin@4", "i^Bg9^0rr91", "x0", "u", "p"], True)
@example(["u" + "0" * 20, "u" + "#" * 20, "u" + "0" * 19, "u" + "0" * 19 + "~", "u" + "é" * 10], True)
@example(["u%nSc0" + "0" * 15, "u%nSc1" + "0" * 15, "u" + "0" * 15 + "%nSc1"], True)  # 2**32 - 1, and one more
@example(["u" + "#" * 20], False)  # the only one, and none
@example(["u" + "0" * (19 - place) + "é" + "0" * place for place in range(20)], True)  # 20 characters, 21 bytes
@example([f"u{'0' * 18}@1"], True)  # its end is an offset by chance: what is before it is too short for a name
@settings(deadline=None)
def test_a_column_of_ids_names_the_files_that_their_descriptors_name(ids, offsets):
    expected = {(dv_id, path) for dv_id in ids if dv_id for path in paths_of(dv_id, offsets=offsets)}
    assert found(ids, offsets=offsets) == sorted(expected)


def test_two_offsets_of_one_file_are_two_ids_and_one_path():
    of_file = [row for row in found([f"u{NAMED}@1", f"u{NAMED}@90", f"u{NAMED}@1", None]) if row[1] == FILE]
    assert of_file == [(f"u{NAMED}@1", FILE), (f"u{NAMED}@90", FILE)]
    assert found([f"u{NAMED}"], offsets=False) == [(f"u{NAMED}", FILE)]


def test_an_absolute_path_that_ends_like_an_offset_is_read_in_both_ways():
    assert found(["p/v@4"]) == [("p/v@4", "/v"), ("p/v@4", "/v@4")]
    assert found(["p/v@4"], offsets=False) == [("p/v@4", "/v@4")]


@pytest.mark.parametrize("ids", [[], [None], [None, None], ["i^Bg9^0rr91"], ["x" + "0" * 20]])
def test_where_no_file_is_named_the_frame_has_its_columns_and_no_rows(ids):
    frame = vector_files(pl.Series("ids", ids, dtype=pl.String))
    assert (frame.columns, frame.dtypes, len(frame)) == (["id", "path"], [pl.String, pl.String], 0)


@pytest.mark.parametrize("rows", [[0], [7, 9, 1 << 33], list(range(100_001))])
def test_the_rows_of_a_stored_vector_are_those_that_were_stored(rows):
    stored = stored_vector(rows)
    assert rows_of_stored(stored, cardinality=len(rows)).tolist() == rows
    with pytest.raises(
        LogCorruptedError, match=f"vector 'p@0' is damaged: it holds {len(rows)} rows, but the log says {len(rows) + 1}"
    ):
        rows_of_stored(stored, cardinality=len(rows) + 1)


def test_up_to_a_hundred_thousand_rows_an_error_gives_the_real_number():
    for count, why in [(100_000, "it holds 100000 rows, but the log says 1"), (100_001, "more rows than the log says")]:
        with pytest.raises(LogCorruptedError, match=why):
            rows_of_stored(stored_vector(range(count)), cardinality=1)


@pytest.mark.parametrize("cut", [1, 4, 8, 9])
def test_a_stored_vector_that_is_cut_is_refused(cut):
    stored = stored_vector([3, 5])
    with pytest.raises(LogCorruptedError, match=r"its file says|checksum"):
        rows_of_stored(stored[:-cut], cardinality=2)
