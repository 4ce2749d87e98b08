"""VACUUM, RESTORE and CLONE with an Iceberg entry: no snapshot outlives its files, and no file its snapshots."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import pydelta
from pydelta.commands.alter.requests import SetProperties
from pydelta.commands.run import run
from pydelta.commands.vacuum.command import Vacuum, VacuumResult
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.errors import DeltaEnvironmentError, UnsafeOperationError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import publish_iceberg, read_entry, unreferenced_files
from pydelta.manifests.iceberg.metadata import metadata_path
from pydelta.testing.commands import alter_table
from tests.iceberg.readers import all_rows, duckdb_rows, of_arrow, pyiceberg_rows

VECTORS = {"delta.enableDeletionVectors": "true"}
DAY = 86_400
ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None], "v": [1.0, 2.0, None, 4.0]})
MODES = ("full", "lite", "inventory")


def published(table: pydelta.LocalTable) -> Any:
    entry = publish_iceberg(table._log).entry
    assert all_rows(entry) == of_arrow(table.scan())
    return entry


def vacuum(table: pydelta.LocalTable, mode: str = "full", *, hours: float = 0, **options: Any) -> VacuumResult:
    more = {"inventory": inventory_of(table)} if mode == "inventory" else {"mode": mode}
    request = Vacuum(retention_hours=hours, enforce_retention=False, **more, **options)  # type: ignore[arg-type]
    return run(request, table._context)


def inventory_of(table: pydelta.LocalTable) -> Inventory:
    root = folder_of(table)
    rows = []
    for path in root.rglob("*"):
        info = path.stat()
        rows.append((str(path.relative_to(root)), info.st_size, path.is_dir(), int(info.st_mtime * 1000)))
    frame = pl.DataFrame(rows, schema=["path", "length", "isDir", "modificationTime"], orient="row")
    return Inventory(description="The list", frames=lambda root: iter([frame]))


def folder_of(table: pydelta.LocalTable) -> Path:
    return Path(table._log.uri.removeprefix("file://"))


def snapshots_of(table: pydelta.LocalTable) -> list[int]:
    """Read every row of every snapshot. Returns their Delta versions."""
    entry = read_entry(table._log)
    assert entry is not None
    iceberg = StaticTable.from_metadata(entry.metadata_location)
    for snapshot in iceberg.metadata.snapshots:
        iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return [int(item.summary["pydelta.version"]) for item in iceberg.metadata.snapshots]  # type: ignore[index]


def changed_table(folder: Path) -> pydelta.LocalTable:
    """Make a table with a snapshot for each of five versions."""
    table = pydelta.LocalTable.create(folder, ROWS, partition_by=["day"], properties=VECTORS)
    published(table)
    table.append(ROWS)
    published(table)
    table.delete("id = 1")
    published(table)
    table.overwrite(ROWS.slice(0, 2))
    published(table)
    table.delete("id = 2")
    published(table)
    return table


def age(table: pydelta.LocalTable, *days: float) -> None:
    """Make commits this old, in order, and all other files as old as the first."""
    folder, now = folder_of(table), time.time()
    for path in folder.rglob("*"):
        os.utime(path, (now - days[0] * DAY,) * 2)
    for version, back in enumerate(days):
        path = folder / "_delta_log" / f"{version:020d}.json"
        os.utime(path, (now - back * DAY,) * 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("behind", [False, True], ids=["current", "behind"])
def test_vacuum_drops_snapshots_with_their_files(tmp_path: Path, mode: str, behind: bool) -> None:
    table = changed_table(tmp_path / "t")
    if behind:
        table.overwrite(ROWS)
    assert snapshots_of(table) == [0, 1, 2, 3, 4]
    dry = vacuum(table, mode, dry_run=True)
    assert (dry.iceberg_snapshots, dry.iceberg_files) == (0, 0)
    assert snapshots_of(table) == [0, 1, 2, 3, 4]
    result = vacuum(table, mode)
    assert result.deleted > 0
    assert result.iceberg_snapshots == (5 if behind else 4)
    assert result.warnings == ()
    left = snapshots_of(table)
    assert len(left) == 1
    assert left[0] >= 4
    assert result.iceberg_files > 0
    assert unreferenced_files(DeltaLog.for_table(table._log.uri), older_than_ms=1 << 60) == []
    assert all_rows(published(table)) == of_arrow(table.scan())
    entry = read_entry(table._log)
    assert entry is not None
    assert pyiceberg_rows(entry.location) == duckdb_rows(entry.location) == of_arrow(table.scan())


@pytest.mark.parametrize("mode", MODES)
def test_snapshots_of_retained_versions_stay(tmp_path: Path, mode: str) -> None:
    table = changed_table(tmp_path / "t")
    age(table, 30, 20, 10, 3, 1)
    result = vacuum(table, mode, hours=24 * 15)
    assert result.iceberg_snapshots == 1, "version 0 was replaced 20 days ago"
    assert snapshots_of(table) == [1, 2, 3, 4]
    result = vacuum(table, mode, hours=24 * 7)
    assert result.iceberg_snapshots == 1, "version 1 was replaced 10 days ago"
    assert snapshots_of(table) == [2, 3, 4]
    again = vacuum(table, mode, hours=24 * 7)
    assert (again.iceberg_snapshots, again.deleted) == (0, 0)
    assert snapshots_of(table) == [2, 3, 4]


def test_files_of_a_stopped_publication_go_when_they_are_old(tmp_path: Path) -> None:
    table = changed_table(tmp_path / "t")
    folder = folder_of(table) / "_pydelta" / "iceberg" / "metadata"
    for name in ("m-left.avro", "snap-left.avro"):
        (folder / name).write_bytes(b"left")
    age(table, 30, 20, 10, 3, 1)
    (folder / "m-young.avro").write_bytes(b"young")
    assert vacuum(table, hours=24 * 100, dry_run=True).iceberg_files == 0
    assert vacuum(table, hours=24 * 25, dry_run=True).iceberg_files == 2
    assert vacuum(table, hours=24 * 25).iceberg_files == 2
    assert (folder / "m-young.avro").exists()
    assert not (folder / "m-left.avro").exists()
    assert snapshots_of(table) == [0, 1, 2, 3, 4]


def test_nothing_is_deleted_if_the_entry_cannot_go_forward(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "tags": [["a"], ["b"]]})
    table = pydelta.LocalTable.create(tmp_path / "t", rows)
    published(table)
    table.overwrite(rows)
    alter_table(table._log, SetProperties(properties={"delta.columnMapping.mode": "name"}))
    with pytest.raises(UnsafeOperationError, match=r"Nothing was deleted: the Iceberg entry .*'tags'"):
        vacuum(table)
    assert snapshots_of(table) == [0]
    alter_table(table._log, SetProperties(properties={"pydelta.iceberg.unsupported": "omit"}))
    assert vacuum(table).deleted > 0
    entry = read_entry(table._log)
    assert entry is not None
    assert all_rows(entry) == [(1,), (2,)]


def test_the_entry_of_another_writer_is_left_alone(tmp_path: Path) -> None:
    table = changed_table(tmp_path / "t")
    entry = read_entry(table._log)
    assert entry is not None
    path = folder_of(table) / metadata_path(entry.number)
    metadata = json.loads(path.read_text())
    del metadata["properties"]["pydelta.version"]
    (folder_of(table) / metadata_path(entry.number + 1)).write_text(json.dumps(metadata))
    result = vacuum(table)
    assert (result.iceberg_snapshots, result.iceberg_files) == (0, 0)
    assert "changed by another writer" in result.warnings[0]


def test_a_table_without_an_entry(tmp_path: Path) -> None:
    table = pydelta.LocalTable.create(tmp_path / "t", ROWS)
    table.overwrite(ROWS)
    result = vacuum(table)
    assert (result.deleted, result.iceberg_snapshots, result.iceberg_files) == (1, 0, 0)
    assert not (folder_of(table) / "_pydelta" / "iceberg").exists()


def test_without_pyiceberg_snapshots_are_not_left_without_files(tmp_path: Path, monkeypatch: Any) -> None:
    table = changed_table(tmp_path / "t")

    def absent(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'pyiceberg'", name="pyiceberg")

    monkeypatch.setattr("pydelta.manifests.iceberg.import_module", absent)
    with pytest.raises(DeltaEnvironmentError, match=r"pydelta-lakehouse\[iceberg\]"):
        vacuum(table)
    assert vacuum(table, hours=24).deleted == 0, "no snapshot has to go"
    monkeypatch.undo()
    assert snapshots_of(table) == [0, 1, 2, 3, 4]


def test_restore_is_a_change_like_any_other(tmp_path: Path) -> None:
    table = changed_table(tmp_path / "t")
    for version in (1, 3, 0):
        table.restore(version=version)
        published(table)
    assert snapshots_of(table) == list(range(8))
    vacuum(table)
    assert len(snapshots_of(table)) == 1
    published(table)


@pytest.mark.parametrize("shallow", [False, True], ids=["deep", "shallow"])
def test_a_clone_begins_without_an_entry(tmp_path: Path, shallow: bool) -> None:
    table = changed_table(tmp_path / "t")
    clone = table.clone(str(tmp_path / "clone é"), shallow=shallow)
    assert read_entry(clone._log) is None
    assert not (tmp_path / "clone é" / "_pydelta" / "iceberg").exists()
    entry = publish_iceberg(clone._log).entry
    assert all_rows(entry) == of_arrow(table.scan())
    source = read_entry(table._log)
    assert source is not None
    assert entry.table_id != source.table_id
    clone.append(ROWS)
    assert all_rows(publish_iceberg(clone._log).entry) == of_arrow(pa.concat_tables([table.scan(), ROWS]))
    assert snapshots_of(table) == [0, 1, 2, 3, 4]


def test_a_replaced_clone_begins_again(tmp_path: Path) -> None:
    table = changed_table(tmp_path / "t")
    other = pydelta.LocalTable.create(tmp_path / "other", pa.table({"x": ["a"]}))
    published(other)
    clone = table.clone(str(tmp_path / "other"), shallow=True, replace=True)
    assert all_rows(publish_iceberg(clone._log).entry) == of_arrow(table.scan())


def test_vacuum_of_a_source_brings_the_entries_of_clones_forward(tmp_path: Path) -> None:
    table = pydelta.LocalTable.create(tmp_path / "t", ROWS)
    clone = table.clone(str(tmp_path / "clone"), shallow=True)
    assert all_rows(publish_iceberg(clone._log).entry) == of_arrow(ROWS)
    clone.overwrite(ROWS.slice(0, 1))
    table.overwrite(ROWS.slice(0, 2))
    result = vacuum(table)
    assert result.deleted == 1
    assert result.iceberg_snapshots == 1
    assert len(snapshots_of(clone)) == 1
    entry = read_entry(clone._log)
    assert entry is not None
    assert all_rows(entry) == of_arrow(clone.scan())
