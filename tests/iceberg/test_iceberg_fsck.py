"""FSCK names what is missing or damaged of an Iceberg entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pydelta
from pydelta.commands.fsck import FsckReport
from pydelta.manifests.iceberg import publish_iceberg, read_entry
from pydelta.manifests.iceberg.metadata import HINT_PATH, metadata_path
from tests.iceberg.readers import all_rows, of_arrow

VECTORS = {"delta.enableDeletionVectors": "true"}
ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None]})


@pytest.fixture
def table(tmp_path: Path) -> pydelta.LocalTable:
    table = pydelta.LocalTable.create(tmp_path / "t é", ROWS, partition_by=["day"], properties=VECTORS)
    publish_iceberg(table._log)
    table.delete("id = 1")
    publish_iceberg(table._log)
    return table


def check(table: pydelta.LocalTable, *, repair: bool = False) -> FsckReport:
    return table.fsck(repair=repair)


def files(table: pydelta.LocalTable, pattern: str) -> list[Path]:
    root = Path(str(table._log.store.root).removeprefix("file://").replace("%20", " ").replace("%C3%A9", "é"))
    return sorted((root / "_pydelta" / "iceberg").glob(pattern))


def test_a_sound_entry(table: pydelta.LocalTable) -> None:
    report = check(table)
    assert report.ok
    assert report.damaged_entry == ()
    assert report.stray_files.height == 0


@pytest.mark.parametrize("pattern", ["metadata/snap-*.avro", "metadata/*-m.avro", "deletes/*.parquet"])
@pytest.mark.parametrize("harm", ["missing", "cut", "longer"])
def test_every_file_is_looked_for(table: pydelta.LocalTable, pattern: str, harm: str) -> None:
    found = files(table, pattern)
    assert found
    for path in found:
        data = path.read_bytes()
        if harm == "missing":
            path.unlink()
        else:
            path.write_bytes(data[:-5] if harm == "cut" else data + b"more")
        report = check(table)
        name = f"_pydelta/iceberg/{path.parent.name}/{path.name}"
        if harm == "longer" and path.name.startswith("snap-"):
            assert report.damaged_entry == () or name in dict(report.damaged_entry)
        else:
            assert name in dict(report.damaged_entry), report.damaged_entry
            assert not report.ok
            assert not check(table, repair=True).ok
        path.write_bytes(data)
    assert check(table).ok


def test_metadata_that_is_damaged(table: pydelta.LocalTable) -> None:
    entry = read_entry(table._log)
    assert entry is not None
    store = table._log.store
    path = metadata_path(entry.number)
    data = store.read(path)
    store.put(path, data[:100])
    ((place, why),) = check(table).damaged_entry
    assert place == "_pydelta/iceberg"
    assert f"{path} is not Iceberg metadata" in why
    store.put(path, data)
    store.delete_many([HINT_PATH])
    assert dict(check(table).damaged_entry) == {HINT_PATH: "it is missing or is not a number"}
    store.put(HINT_PATH, b"77")
    assert "v77.metadata.json, but it is missing" in dict(check(table).damaged_entry)[HINT_PATH]


def test_the_cure(table: pydelta.LocalTable) -> None:
    for path in files(table, "deletes/*"):
        path.unlink()
    assert not check(table).ok
    table._log.store.delete_many([info.path for info in table._log.store.list_all("_pydelta/iceberg")])
    assert all_rows(publish_iceberg(table._log).entry) == of_arrow(table.scan())
    assert check(table).ok


def test_without_pyiceberg_it_is_not_checked(table: pydelta.LocalTable, monkeypatch: Any, caplog: Any) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'pyiceberg'", name="pyiceberg")

    monkeypatch.setattr("pydelta.manifests.iceberg.import_module", absent)
    assert check(table).ok
    assert "The Iceberg entry is not checked" in caplog.text
