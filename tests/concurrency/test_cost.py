"""What a commit costs does not grow with the table or its history: calls, listed names and bytes are counted."""

from __future__ import annotations

from statistics import median

import pyarrow as pa
import pytest

from pydelta.api.python.local import LocalTable
from pydelta.commands.create import CreateMode, TableDefinition
from pydelta.log import DeltaLog
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore
from pydelta.testing.commands import create_table as define
from pydelta.testing.operations import append, create_table
from pydelta.txn.commit import SILENT


class ListingCounter(CountingStore):
    """Counts the names that were taken from listings, too."""

    listed = 0

    def list_from(self, start, *, prefix):
        self.calls.append(("list_from", prefix))
        for info in self._inner.list_from(start, prefix=prefix):
            self.listed += 1
            yield info


@pytest.mark.ci
def test_the_thousandth_append_costs_what_the_hundredth_did():
    store = ListingCounter(MemoryStore("memory://cost/t"))
    log = DeltaLog(store)
    create_table(log)
    costs = []
    for number in range(1, 1001):
        store.reset()
        store.listed = 0
        done = append("1", [number]).run(log, SILENT)
        assert done.version == number
        assert done.hook_failures == ()
        costs.append((len(store.calls), store.listed, store.bytes_read))
    early, late = costs[100:200], costs[900:1000]
    for kind in (0, 1):
        assert sum(cost[kind] for cost in early) == sum(cost[kind] for cost in late)
    assert [cost[0] for cost in early] == [cost[0] for cost in late]
    assert median(cost[2] for cost in late) == 0
    plain = [cost for number, cost in enumerate(costs, start=1) if number % 10]
    assert median(cost[0] for cost in plain) <= 4
    assert median(cost[1] for cost in plain) <= 3
    # Only the versions at a checkpoint read (it is read back), and one more in fifty starts from it again.
    assert sum(1 for cost in late if cost[2]) <= 12


def test_an_append_without_spark_lists_the_log_once():
    store = CountingStore(MemoryStore("memory://cost/local"))
    log = DeltaLog(store)
    fields = (StructField("id", PrimitiveType("long")),)
    define(log, TableDefinition(schema=StructType(fields)), mode=CreateMode.CREATE, settings=Settings())
    table = LocalTable(log)
    for number in range(1, 5):
        store.reset()
        table.append(pa.table({"id": pa.array([number], pa.int64())}))
        assert store.paths("list_from") == ["_delta_log"]
    assert table.scan()["id"].to_pylist() == [1, 2, 3, 4]
