"""Row tracking turned on late: whose rows get ids, and what happens to a file that does not count its rows."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from pydelta.errors import TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.protocol.features import implied_features
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import enable_row_tracking
from pydelta.testing.operations import add_file, append, create_table
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()


def store():
    return MemoryStore(f"memory://ids{next(_NAMES)}/t")


def ids(log):
    snapshot = DeltaLog(log.store).update()
    return {add.path: add.base_row_id for add in snapshot.files.adds(snapshot.files.core)}


def test_every_file_gets_ids_of_its_own_and_so_do_later_ones():
    log = DeltaLog(store())
    create_table(log, [add_file("1", [1, 2]), add_file("2", [3])])
    assert enable_row_tracking(log) == 1
    assert sorted(ids(log).values()) in ([0, 1], [0, 2])
    assert {"rowTracking", "domainMetadata"} <= implied_features(log.update().protocol)
    append("3", [4]).run(log)
    assert max(ids(log).values()) == 3
    assert enable_row_tracking(log) is None


def test_rows_are_counted_in_the_footer_where_statistics_do_not():
    table = TableBuilder(store(), columns={"x": "long"})
    add = table.file(pa.table({"x": [1, 2, 3]}), {})
    table.commit(add.replace(stats='{"nullCount":{"x":0}}'))
    log = DeltaLog(table.store)
    enable_row_tracking(log)
    [after] = log.update().files.adds(log.update().files.core)
    assert after.stats == '{"nullCount":{"x":0},"numRecords":3}'
    assert '"rowIdHighWaterMark":2' in log.update().domain_metadata["delta.rowTracking"].configuration


def test_there_has_to_be_a_table():
    with pytest.raises(TableNotFoundError):
        enable_row_tracking(DeltaLog(store()))
