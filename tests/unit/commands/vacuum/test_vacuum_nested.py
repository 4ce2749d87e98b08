"""A Delta table below the one that is vacuumed: whatever the list, the log or the walk says, its files are its own."""

from __future__ import annotations

import itertools

import polars as pl
import pytest

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.errors import StorageError
from pydelta.log import DeltaLog
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing import CountingStore, Fault, FaultKind, FaultyStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import Yard

_NAMES = itertools.count()
INNER = ("sub/t", "p=1", "p=2/q", "a b/%41", "line\nbreak")


def place(kind, tmp_path):
    return LocalStore(str(tmp_path / "t")) if kind == "local" else MemoryStore(f"memory://nested{next(_NAMES)}/t")


def opened(store, folder):
    if isinstance(store, LocalStore):
        from urllib.parse import unquote

        return LocalStore(unquote(store.root.removeprefix("file://")) + "/" + folder)
    return MemoryStore(f"{store.root}/{folder}")


def grown(store, folder):
    """A table with another one inside whose live file is old, and garbage of its own beside it."""
    yard = Yard(store, partition_columns=("p",))
    yard.commit(yard.add("p=0/live", age=900), age=900)
    inner = Yard(opened(store, folder))
    inner.commit(inner.add("x", age=900), age=900)
    yard.put("p=0/garbage", age=900)
    return yard, inner


def listed(yard, **columns):
    """The table's files as an inventory has them, without any log."""
    found = [(info.path, info.size, False, info.modification_time_ms) for info in yard.store.list_all()]
    kinds = {"path": pl.String, "length": pl.Int64, "isDir": pl.Boolean, "modificationTime": pl.Int64}
    frame = pl.DataFrame(found, schema=kinds, orient="row")
    return frame.filter(~pl.col("path").str.contains("_delta_log", literal=True))


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("folder", INNER)
@pytest.mark.parametrize("mode", ["full", "inventory"])
def test_files_of_a_table_inside_stay_though_the_list_lacks_its_log(tmp_path, mode, folder, kind):
    yard, inner = grown(place(kind, tmp_path), folder)
    inventory = from_frame(listed(yard), encoded=False) if mode == "inventory" else None
    planned = vacuum(yard.log, Vacuum(inventory=inventory, dry_run=True), now_ms=yard.now_ms)
    result = vacuum(yard.log, Vacuum(inventory=inventory), now_ms=yard.now_ms)
    assert result.files["path"].to_list() == planned.files["path"].to_list() == ["p=0/garbage"]
    assert inner.files() == {"x"}


def test_rows_of_its_log_count_though_they_are_newer_than_the_list_or_say_no_time():
    for at in (None, 0, 10**13 - 1):
        yard, inner = grown(MemoryStore(f"memory://nested{next(_NAMES)}/t"), "sub/t")
        row = (
            listed(yard)
            .head(1)
            .with_columns(
                path=pl.lit("sub/t/_delta_log/00000000000000000000.json"), modificationTime=pl.lit(at, dtype=pl.Int64)
            )
        )
        store = CountingStore(yard.store)
        inventory = from_frame(pl.concat([listed(yard), row]), as_of_ms=yard.now_ms)
        assert vacuum(DeltaLog(store), Vacuum(inventory=inventory), now_ms=yard.now_ms).deleted == 1
        assert inner.files() == {"x"}


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_what_the_log_removed_is_left_to_the_table_that_was_made_of_its_folder(tmp_path, kind):
    """CONVERT of a partition's folder: both tables name the same file."""
    store = place(kind, tmp_path)
    yard = Yard(store, partition_columns=("p",))
    shared, own = yard.add("p=1/x", age=900), yard.add("p=2/x", age=900)
    yard.commit(shared, own, age=900)
    inner = Yard(opened(store, "p=1"))
    inner.commit(inner.named("x"), age=850)
    yard.commit(yard.remove(shared, age=800), yard.remove(own, age=800), age=800)
    result = vacuum(yard.log, Vacuum(mode="lite"), now_ms=yard.now_ms)
    assert result.files["path"].to_list() == ["p=2/x"]
    assert inner.files() == {"x"}


def test_a_log_that_is_a_link_is_a_log(tmp_path):
    yard, inner = grown(LocalStore(str(tmp_path / "t")), "sub/t")
    (tmp_path / "t/sub/t/_delta_log").rename(tmp_path / "moved")
    (tmp_path / "t/sub/t/_delta_log").symlink_to(tmp_path / "moved")
    assert vacuum(yard.log, now_ms=yard.now_ms).files["path"].to_list() == ["p=0/garbage"]
    assert inner.files() == {"x"}


def test_where_nobody_can_look_for_tables_inside_nothing_is_deleted():
    yard, _ = grown(MemoryStore(f"memory://nested{next(_NAMES)}/t"), "sub/t")
    broken = Fault(kind=FaultKind.FAIL, call=0, verb="list_from", path_contains="sub/t/_delta_log")
    before = yard.files()
    with pytest.raises(StorageError):
        vacuum(
            DeltaLog(FaultyStore(yard.store, broken)),
            Vacuum(inventory=from_frame(listed(yard))),
            now_ms=yard.now_ms,
        )
    assert yard.files() == before


def test_looking_for_tables_inside_never_costs_more_than_a_listing():
    store = MemoryStore(f"memory://nested{next(_NAMES)}/t")
    yard, inner = grown(store, "sub/t")
    for number in range(300):
        yard.put(f"p={number}/garbage", age=900)
    counting = CountingStore(store)
    result = vacuum(DeltaLog(counting), Vacuum(inventory=from_frame(listed(yard))), now_ms=yard.now_ms)
    asked = [path for path in counting.paths("list_from") if path.endswith("/_delta_log")]
    assert (result.deleted, inner.files()) == (300, {"x"})
    assert result.list_requests == len(asked) + len(counting.paths("list_page")) <= 64
