"""An entry of format version 3 hides rows by deletion vectors in Puffin files, and gives each row an id."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import StaticTable
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

import pydelta
from pydelta.commands.alter.requests import SetProperties, UnsetProperties
from pydelta.errors import InvalidArgumentError, StorageError, UnknownSettingError, UnsupportedFeatureError
from pydelta.log.vector_files import place_of
from pydelta.manifests.iceberg import IcebergOptions, damaged_files, deletes, publish_iceberg, read_entry
from pydelta.manifests.iceberg.entry import find_newest
from pydelta.manifests.iceberg.puffin import encode_puffin, vector_rows
from pydelta.protocol.vectors import stored_range, vector_path
from pydelta.testing.commands import alter_table, vacuum
from tests.iceberg.lineage import RowIds, entries_of
from tests.iceberg.readers import all_rows, of_arrow

FORMAT = "pydelta.iceberg.formatVersion"
VECTORS = {"delta.enableDeletionVectors": "true"}
THREE = VECTORS | {FORMAT: "3"}


def made(path, properties=THREE, files=2, **options):
    """A table of files with ten rows each."""
    rows = pa.table({"id": list(range(10)), "day": ["a", "b"] * 5})
    table = pydelta.LocalTable.create(str(path), rows, properties=properties, **options)
    for number in range(1, files):
        table.append(pa.table({"id": list(range(10 * number, 10 * number + 10)), "day": ["a", "b"] * 5}))
    return table


def published(table, **options):
    result = publish_iceberg(table._log, IcebergOptions(**options))
    assert all_rows(result.entry) == of_arrow(table.scan())
    return result


def entries(table):
    return entries_of(table._log, find_newest(table._log.store))


def vectors(table):
    return {entry.blob.location: entry for entry in entries(table) if entry.blob is not None}


def delete_files(table):
    return {entry.path for entry in entries(table) if entry.content and entry.blob is None}


def set_format(table, version):
    alter_table(table._log, SetProperties(properties={FORMAT: version}))


POSITIONS = st.lists(st.integers(0, 200_000), min_size=1, max_size=50, unique=True).map(sorted)


@given(st.dictionaries(st.text(min_size=1, max_size=20), POSITIONS, min_size=1, max_size=4))
def test_pyiceberg_reads_a_puffin_file(files):
    given_files = [(location, np.array(positions)) for location, positions in files.items()]
    data, places = encode_puffin(given_files)
    found = deletion_vectors_from_puffin_file(PuffinFile(data))
    assert {item.referenced_data_file: item.to_vector().to_pylist() for item in found} == files
    for place, (location, positions) in zip(places, given_files, strict=True):
        assert place.location == location
        assert vector_rows(data, place, cardinality=len(positions)).tolist() == positions.tolist()
        other = data[: place.offset + 9] + b"\xff" + data[place.offset + 10 :]
        with pytest.raises(ValueError, match="checksum does not match"):
            vector_rows(other, place, cardinality=len(positions))
    footer = json.loads(data[data.rindex(b'{"blobs"') : -12])
    assert [(blob["snapshot-id"], blob["sequence-number"]) for blob in footer["blobs"]] == [(-1, -1)] * len(files)


def test_a_vector_has_the_bytes_of_the_delta_table(tmp_path):
    table = made(tmp_path / "t", files=1)
    table.delete("id < 3 OR id = 7")
    published(table)
    (entry,) = vectors(table).values()
    (add,) = table._log.update().files.adds(table._log.update().files.core)
    offset, size = stored_range(add.deletion_vector)
    store, path = place_of(vector_path(add.deletion_vector), store=table._log.store, root=table._log.uri)
    puffin = (tmp_path / "t" / entry.path.partition("/t/")[2]).read_bytes()
    assert puffin[entry.blob.offset :][: entry.blob.size] == store.read(path)[offset:][:size]
    assert entry.rows == 4


def test_the_default_is_version_2(tmp_path):
    table = made(tmp_path / "t", VECTORS)
    table.delete("id = 1")
    published(table)
    assert len(delete_files(table)) == 1
    assert not vectors(table)


@pytest.mark.parametrize("keys", [(), ("day",)], ids=["none", "day"])
def test_a_vector_that_moves_takes_those_beside_it_along(tmp_path, keys):
    table = made(tmp_path / "t", files=3, partition_by=keys)
    table.delete("id IN (1, 11, 21)")
    published(table)
    first = vectors(table)
    assert len({entry.path for entry in first.values()}) == 1
    table.delete("id = 13")
    published(table)
    second = vectors(table)
    assert first.keys() == second.keys()
    assert {entry.path for entry in first.values()}.isdisjoint({entry.path for entry in second.values()})
    assert sorted(entry.rows for entry in second.values()) == [1, 1, 2]
    version = table._log.update().version
    table.delete("id = 23")
    table.restore(version=version - 1)  # Vectors become smaller again.
    published(table)
    assert sorted(entry.rows for entry in vectors(table).values()) == [1, 1, 1]
    table.optimize()
    table.purge()
    published(table)
    assert not vectors(table)


def test_a_puffin_file_has_a_limited_number_of_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr(deletes, "_MOST_VECTORS", 2)
    table = made(tmp_path / "t", files=5)
    table.delete("id IN (4, 14, 24, 34, 44)")
    published(table)
    assert len(vectors(table)) == 5
    assert len({entry.path for entry in vectors(table).values()}) == 3


def test_a_table_goes_over_to_version_3(tmp_path):
    table = made(tmp_path / "t", VECTORS, files=3)
    table.delete("id IN (1, 11)")
    published(table)
    (kept,) = delete_files(table)
    metadata = tmp_path / "t/_pydelta/iceberg/metadata"
    before = set(metadata.glob("*-m.avro"))
    set_format(table, "3")
    ids = RowIds()
    result = published(table)
    assert not result.full
    ids.check(table._log)
    assert delete_files(table) == {kept}, "position delete files stay valid"
    assert set(metadata.glob("*-m.avro")) == before, "manifests are named again"
    table.delete("id = 2")
    published(table)
    ids.check(table._log)
    assert not delete_files(table)
    assert sorted(entry.rows for entry in vectors(table).values()) == [1, 2]
    table.append(pa.table({"id": [99], "day": ["c"]}))
    table.update("id = 99", {"day": "'d'"})
    published(table, full=True)
    ids.check(table._log)
    shown = StaticTable.from_metadata(result.entry.metadata_location).metadata
    assert shown.format_version == 3
    assert [item.first_row_id for item in shown.snapshots] == [None, 0]


def test_the_property_takes_effect_without_another_change(tmp_path):
    table = made(tmp_path / "t", VECTORS)
    table.delete("id = 1")
    published(table)
    assert published(table, format_version=3).entry.version == table._log.update().version
    metadata = json.loads(table._log.store.read("_pydelta/iceberg/metadata/v2.metadata.json"))
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 20)
    assert published(table).entry.number == 2


def test_rows_get_ids_in_the_order_of_their_snapshots(tmp_path):
    table = made(tmp_path / "t", files=2)
    published(table)
    table.append(pa.table({"id": [50, 51], "day": ["a", "b"]}))
    published(table)
    found = sorted((entry.first_row_id, entry.rows) for entry in entries(table))
    assert found == [(0, 10), (10, 10), (20, 2)]
    metadata = find_newest(table._log.store).metadata
    assert [(item["first-row-id"], item["added-rows"]) for item in metadata["snapshots"]] == [(0, 20), (20, 2)]
    assert metadata["next-row-id"] == 22


def test_an_entry_never_goes_back(tmp_path):
    table = made(tmp_path / "t")
    table.delete("id = 1")
    entry = published(table).entry
    set_format(table, "2")
    with pytest.raises(UnsupportedFeatureError, match="of format version 2, but its entry is of version 3"):
        publish_iceberg(table._log)
    assert read_entry(table._log) == entry
    alter_table(table._log, UnsetProperties(names=(FORMAT,)))
    table.delete("id = 2")
    published(table)
    assert len(vectors(table)) == 1
    with pytest.raises(UnsupportedFeatureError, match="delete the folder _pydelta/iceberg"):
        publish_iceberg(table._log, IcebergOptions(format_version=2))
    for path in sorted((tmp_path / "t/_pydelta/iceberg").rglob("*.*")):
        path.unlink()
    published(table, format_version=2)
    assert not vectors(table)


def test_values_of_the_property_are_checked(tmp_path):
    table = made(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="formatVersion is '4'"):
        set_format(table, "4")
    with pytest.raises(UnknownSettingError, match="formatversions"):
        alter_table(table._log, SetProperties(properties={"pydelta.iceberg.formatversions": "3"}))
    with pytest.raises(InvalidArgumentError, match="unsupported is 'drop'"):
        alter_table(table._log, SetProperties(properties={"pydelta.iceberg.unsupported": "drop"}))


def test_a_damaged_puffin_file_is_noticed(tmp_path):
    table = made(tmp_path / "t", files=2)
    table.delete("id IN (1, 11)")
    published(table)
    (path,) = (tmp_path / "t/_pydelta/iceberg/deletes").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:8] + bytes(byte ^ 1 for byte in data[8:50]) + data[50:])
    table.delete("id = 12")
    with pytest.raises(StorageError, match="damaged or was read only in part"):
        publish_iceberg(table._log)
    path.unlink()
    assert damaged_files(table._log) == [
        (f"_pydelta/iceberg/deletes/{path.name}", "it is missing: hidden rows would be shown")
    ]
    path.write_bytes(data)
    published(table)


def test_vacuum_deletes_puffin_files_that_no_snapshot_needs(tmp_path):
    table = made(tmp_path / "t", files=2)
    for number in (1, 2, 3):
        table.delete(f"id = {number}")
        published(table)
    assert len(list((tmp_path / "t/_pydelta/iceberg/deletes").iterdir())) == 3
    vacuum(table._log, now_ms=1 << 45)
    assert len(list((tmp_path / "t/_pydelta/iceberg/deletes").iterdir())) == 1
    published(table)
