"""A disk listed as S3 Inventory lists buckets, and tables on it vacuumed straight from the loaded list."""

from __future__ import annotations

import time

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import inventory_from_delta
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.storage import MemoryStore, open_store
from pydelta.storage.local import LocalStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard
from pydelta.tools.inventory import buckets_with_deliveries, find_deliveries, load_deliveries, write_delivery
from pydelta.tools.inventory.delivery import Delivery


def test_a_table_on_disk_is_vacuumed_by_a_list_of_the_disk(tmp_path):
    yards = []
    for name in ("a table", "other"):
        yard = Yard(LocalStore(str(tmp_path / name)), partition_columns=("p",), now_ms=int(time.time() * 1000))
        yard.put(f"p=1/stray of {name} %41", age=500)
        yard.commit(yard.add("p=1/live é %41", age=500), age=400)
        yards.append(yard)
    lists, store = str(tmp_path / "lists"), open_store(str(tmp_path / "lists"))
    write_delivery(str(tmp_path), lists)
    log = DeltaLog(open_store(str(tmp_path / "report")), settings=Settings())
    load_deliveries(log, store, find_deliveries(store, "file"))
    done = vacuum(yards[0].log, Vacuum(inventory=inventory_from_delta(log)))
    assert list(done.files["path"]) == ["p=1/stray of a table %41"]
    assert yards[0].files() == {"p=1/live é %41"}
    assert yards[1].files() == {"p=1/live é %41", "p=1/stray of other %41"}


def test_the_port_of_a_name_node_is_no_part_of_a_path():
    store = MemoryStore("memory://deliveries/of a name node")
    delivery = Delivery(bucket="nn:8020", id="daily", stamp="2026-11-21T01-00Z", complete=True)
    for name in ("manifest.json", "manifest.checksum"):
        store.put(f"{delivery.folder}/{name}", b"")
    assert ":" not in delivery.folder
    assert buckets_with_deliveries(store) == ["nn:8020"]
    assert find_deliveries(store, "nn:8020") == [delivery]
