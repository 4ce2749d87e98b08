"""INT96 times that a file's nanoseconds cannot hold, as the data source of last resort reads them."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydelta.api.routing.datasource_read import read_file
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.storage import open_store
from pydelta.testing.tables import TableBuilder

TIMES = [dt.datetime(year, 6, 1, 12, 30, tzinfo=dt.UTC) for year in (1, 1500, 1677, 1969, 2024, 2263, 9999)]


@pytest.mark.parametrize("int96", [True, False])
def test_times_come_back_as_they_were_written(tmp_path, int96):
    store = open_store(tmp_path.as_uri())
    table = TableBuilder(store, columns={"at": "timestamp"})
    name = f"{uuid.uuid4()}.parquet"
    rows = pa.table({"at": pa.array(TIMES, pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / name, use_deprecated_int96_timestamps=int96)
    table.commit(
        AddFile(path=name, partition_values={}, size=(tmp_path / name).stat().st_size, modification_time=0,
                data_change=True)
    )  # fmt: skip
    [batch] = read_file(DeltaLog.for_table(tmp_path.as_uri()).update(), name, {}, {})
    assert batch.column(0).to_pylist() == TIMES
