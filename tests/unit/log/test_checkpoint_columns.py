"""Columns of a checkpoint that are of other types than the protocol says are refused in words."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.errors import LogCorruptedError
from pydelta.log.checkpoint.parquet_rows import ParquetRows
from pydelta.storage import open_store


def rows_of(table: pa.Table) -> ParquetRows:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    store = open_store("memory://columns/t")
    store.put("c.parquet", sink.getvalue())
    return ParquetRows(store, "c.parquet", len(sink.getvalue()))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array(["text"]), "metaData is string, not a struct"),
        (pa.array([1]), "metaData is int64, not a struct"),
        (pa.array([{"configuration": [1, 2]}]), "metaData has a map without keys and values"),
        (pa.array([{"configuration": ["abc"]}]), "metaData has a map without keys and values"),
    ],
    ids=["text", "number", "numbers for a map", "texts for a map"],
)
def test_what_is_no_action_is_named(column, words):
    with pytest.raises(LogCorruptedError, match=words):
        list(rows_of(pa.table({"metaData": column})).objects("metaData"))


def test_pairs_are_a_map():
    kind = pa.struct({"configuration": pa.map_(pa.string(), pa.string())})
    column = pa.array([{"configuration": [("a", "1")]}, None], type=kind)
    assert list(rows_of(pa.table({"metaData": column})).objects("metaData")) == [{"configuration": {"a": "1"}}]
