"""Tables that TableBuilder writes are tables: our log and another engine read them."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.storage import open_store
from pydelta.testing import TableBuilder

ODD = "a/b=50% é"


def _build(store) -> TableBuilder:
    table = TableBuilder(
        store,
        columns={"p": "string", "x": "long"},
        partition_columns=["p"],
        properties={"delta.appendOnly": "false"},
    )
    first = table.file(pa.table({"x": [1, 2]}), {"p": ODD})
    table.commit(first)
    table.commit(table.file(pa.table({"x": [3]}), {"p": None}))
    return table.commit(first.remove(deletion_timestamp=table.time_ms(2)), operation="DELETE")


def test_the_log_reads_what_was_built():
    store = open_store(f"memory://{uuid.uuid4()}/t")
    table = _build(store)
    log = DeltaLog.for_table(store.root, store=store)
    assert [log.snapshot(version).num_files for version in range(3)] == [1, 2, 1]
    assert log.snapshot().version == table.version == 2
    assert [record.commit_info.operation for record in log.history()] == ["DELETE", "WRITE", "WRITE"]


def test_another_engine_reads_what_was_built(tmp_path):
    _build(open_store(str(tmp_path)))
    rows = DeltaTable(str(tmp_path), version=1).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda row: row["x"]) == [
        {"x": 1, "p": ODD},
        {"x": 2, "p": ODD},
        {"x": 3, "p": None},
    ]
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() == [{"x": 3, "p": None}]


def test_a_place_that_is_taken_is_refused():
    store = open_store(f"memory://{uuid.uuid4()}/t")
    _build(store)
    with pytest.raises(InvalidArgumentError, match="already exists"):
        _build(store)
