"""Two inventories of one bucket, from the listing to the vacuumed tables: neither starves a table of the other."""

from __future__ import annotations

import time

import pytest

from jobs import inventory, load_inventory, vacuum
from pydelta.log import DeltaLog
from pydelta.storage.local import LocalStore
from pydelta.testing.garbage import Yard

TABLES = ("a", "b")


@pytest.fixture
def lake(tmp_path):
    """A table below each of two folders, with a file that nothing needs."""
    now_ms = time.time_ns() // 1_000_000
    yards = {}
    for name in TABLES:
        yard = Yard(LocalStore(str(tmp_path / "lake" / name / "t")), partition_columns=("p",), now_ms=now_ms)
        yard.commit(yard.add("p=1/live", age=900), age=900)
        yard.put("p=1/garbage", age=900)
        yards[name] = yard
    yield tmp_path, yards
    DeltaLog.clear_cache()


def listed(tmp_path, *names):
    for name in names:
        source = ["--source", str(tmp_path / "lake" / name), "--destination", str(tmp_path / "deliveries")]
        assert "error" not in inventory.run({}, [*source, "--id", f"part-{name}"])[0]


def load(tmp_path, *more):
    arguments = ["--source", str(tmp_path / "deliveries"), "--location", str(tmp_path / "report"), *more]
    return load_inventory.run({}, arguments)


def vacuumed(tmp_path, yards):
    locations = [yards[name].store.root for name in TABLES]
    rows = vacuum.run({}, [*locations, "--inventory", str(tmp_path / "report")])
    return [(row.get("deleted"), row.get("error"), row.get("exit_code", 0)) for row in rows]


def test_the_newest_of_any_would_starve_the_other_and_says_so(lake):
    tmp_path, yards = lake
    listed(tmp_path, *TABLES)
    assert load(tmp_path)["problems"][0]["error"] == "DELTA_INVENTORY_UNUSABLE"
    assert load(tmp_path, "--id", "part-b")["problems"] == []
    assert vacuumed(tmp_path, yards) == [(None, "DELTA_INVENTORY_UNUSABLE", 1), (1, None, 0)]
    assert "p=1/garbage" in yards["a"].files()


def test_both_together_cover_both_tables_and_each_row_has_the_date_of_its_list(lake):
    tmp_path, yards = lake
    listed(tmp_path, "a")
    written_since = yards["a"].put("p=1/written since", age=0)
    listed(tmp_path, "b")
    assert load(tmp_path, "--id", "part-a", "--id", "part-b")["problems"] == []
    assert vacuumed(tmp_path, yards) == [(1, None, 0), (1, None, 0)]
    assert yards["a"].files() == {"p=1/live", written_since}


def test_a_table_that_is_younger_than_the_list_waits_for_the_next_one(lake):
    tmp_path, _ = lake
    listed(tmp_path, "a")
    assert load(tmp_path)["problems"] == []
    young = Yard(LocalStore(str(tmp_path / "lake" / "a" / "young")))
    metadata = young.builder.metadata.replace(created_time=time.time_ns() // 1_000_000 + 60_000)
    young.builder.metadata = metadata
    young.commit(young.add("x", age=900), age=900)
    (row,) = vacuum.run({}, [young.store.root, "--inventory", str(tmp_path / "report")])
    assert (row.get("error"), row["deleted"]) == (None, 0)
    assert "made before this table" in row["warnings"][0]
