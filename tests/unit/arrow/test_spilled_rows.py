"""Rows of a MERGE in temporary files: what is read is what was given, and a full disk is said."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pydelta
from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow.merge.spill import GivenRows
from pydelta.engines.arrow.merge.spilled_merge import KeyHashes, hashes_of
from pydelta.errors import InvalidArgumentError, StorageError
from pydelta.settings import Settings

ROWS = pa.table({
    "id": pa.array(range(10), pa.int64()),
    "text": pa.array([None, "", "é", "a" * 100] * 2 + ["x", "y"]),
    "of": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 1, 1, 0, 0, 1, 0], pa.int8()), ["p", "q"]),
    "parts": pa.array([[1, None], None, []] * 3 + [[2]], pa.list_(pa.int32())),
})  # fmt: skip


@pytest.mark.parametrize("most_bytes", [0, 300, 1 << 30])
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 10), max_size=6), block=st.integers(1, 11))
def test_blocks_hold_the_rows_that_were_given_every_time(most_bytes, cuts, block):
    ends = [0, *sorted(cuts), 10]
    batches = [batch for a, b in itertools.pairwise(ends) for batch in ROWS.slice(a, b - a).to_batches()]
    with patch("pydelta.engines.arrow.merge.spill.BLOCK_ROWS", block):
        rows = GivenRows(batches, ROWS.schema, most_bytes=most_bytes)
        for _ in range(2):
            blocks = list(rows.blocks())
            assert all(item.num_rows <= block for item in blocks)
            assert pa.concat_tables([ROWS.schema.empty_table(), *blocks]).to_pylist() == ROWS.to_pylist()
        assert rows.num_rows == 10
        rows.select(["parts", "id"])
        assert rows.table().to_pylist() == ROWS.select(["parts", "id"]).to_pylist()
        rows.close()


def test_a_damaged_batch_is_refused_before_anything_reads_it():
    broken = pa.DictionaryArray.from_arrays(pa.array([5], pa.int8()), ["p"], safe=False)
    batch = pa.RecordBatch.from_arrays([broken], ["of"])
    with pytest.raises(InvalidArgumentError, match="not valid Arrow data"):
        GivenRows([batch], batch.schema, most_bytes=0)


@settings(max_examples=60, deadline=None)
@given(
    ours=st.lists(st.one_of(st.none(), st.integers(-3, 40)), max_size=30),
    theirs=st.lists(st.one_of(st.none(), st.integers(-3, 40)), max_size=60),
    shift=st.sampled_from([0, 40, 61]),
)
def test_candidate_pairs_hold_every_pair_of_equal_keys(ours, theirs, shift):
    def hashed(keys):
        hashes, rows = hashes_of(pl.DataFrame({"k0": pl.Series(keys, dtype=pl.Int64)}))
        return hashes >> np.uint64(shift) << np.uint64(shift), rows

    hashes, rows = hashed(theirs)
    at, found = KeyHashes([hashed(ours)], len(ours)).find(hashes)
    assert list(at) == sorted(at)
    pairs = list(zip(rows[at].tolist(), found.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    equal = {(i, j) for i, a in enumerate(theirs) for j, b in enumerate(ours) if a is not None and a == b}
    assert equal <= set(pairs)
    assert shift or equal == set(pairs)


def _table(folder: Path) -> LocalTable:
    most = Settings.resolve({"spark.pydelta.local.sourceMaxBytes": "0"}, env={})
    LocalTable.create(str(folder / "t"), pa.table({"id": pa.array([1, 2], pa.int64())}))
    return pydelta.open(folder / "t", settings=most)


def test_a_reader_is_merged_and_its_temporary_files_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    table = _table(tmp_path)
    batches = [pa.record_batch({"id": pa.array(ids, pa.int64())}) for ids in ([2, 3], [], [4])]
    given = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    assert table.merge(given, on="id", matched=None).num_inserted_rows == 2
    assert sorted(table.scan().column("id").to_pylist()) == [1, 2, 3, 4]
    assert list((tmp_path / "temporary").iterdir()) == []
    if open_before is not None:
        assert len(os.listdir("/proc/self/fd")) <= open_before


def test_an_error_of_the_reader_is_raised_and_nothing_is_changed(tmp_path):
    def broken():
        yield pa.record_batch({"id": pa.array([3], pa.int64())})
        raise RuntimeError("the connection is lost")

    table = _table(tmp_path)
    given = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), broken())
    with pytest.raises(RuntimeError, match="the connection is lost"):
        table.merge(given, on="id", matched=None)
    assert table.version == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which only Linux has")
def test_a_full_disk_is_said_with_the_folder_and_what_next(tmp_path):
    table = _table(tmp_path)
    before = sorted(path.name for path in (tmp_path / "t").rglob("*"))
    given = pa.table({"id": pa.array([2, 3], pa.int64())})
    with (
        patch("pydelta.engines.arrow.merge.spill.tempfile.TemporaryFile", lambda **_: open("/dev/full", "w+b")),
        pytest.raises(StorageError, match=r"temporary file in .*: No space left on device") as refused,
    ):
        table.merge(given, on="id", matched=None)
    assert "TMPDIR" in str(refused.value)
    assert sorted(path.name for path in (tmp_path / "t").rglob("*")) == before
