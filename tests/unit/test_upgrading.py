"""No version of the engine turns on a table feature by itself: each verb leaves protocol and definition as they are."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import pydelta
from pydelta.api.verbs import VERBS
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.storage import LocalStore
from pydelta.testing.tables import TableBuilder

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", "c"]})
MORE = pl.DataFrame({"id": [3, 4], "s": ["d", "e"]})
PROTOCOLS = {
    "the oldest": (Protocol(min_reader_version=1, min_writer_version=2), {}),
    "the oldest with constraints": (Protocol(min_reader_version=1, min_writer_version=3), {}),
    "the oldest with a change feed": (
        Protocol(min_reader_version=1, min_writer_version=4),
        {"delta.enableChangeDataFeed": "true"},
    ),
    "lists of features": (
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants")),
        {},
    ),
    "deletion vectors": (
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("deletionVectors",),
            writer_features=("deletionVectors",),
        ),
        {"delta.enableDeletionVectors": "true"},
    ),
    "vectors that are known and not used": (
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("deletionVectors",),
            writer_features=("deletionVectors",),
        ),
        {},
    ),
}
CALLS = {
    "append": lambda table: table.append(MORE),
    "overwrite": lambda table: table.overwrite(MORE),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update("id = 2", {"s": "'x'"}),
    "merge": lambda table: table.merge(MORE, "id"),
    "optimize": lambda table: table.optimize(),
    "purge": lambda table: table.purge(),
    "vacuum": lambda table: table.vacuum(),
    "restore": lambda table: table.restore(version=0),
    "generate": lambda table: table.generate(),
    "fsck": lambda table: table.fsck(repair=True),
    "checkpoint": lambda table: table.checkpoint(),
    "cleanup": lambda table: table.cleanup(),
    "index_records": lambda table: table.index_records("id"),
    "drop_record_index": lambda table: (table.index_records("id"), table.drop_record_index()),
    "erase": lambda table: table.erase({"id": ["1"]}, history="drop"),
}
READS_ONLY = {"scan", "version", "schema", "history", "detail"}
MAKES_ANOTHER = {"create", "clone"}


def actions(folder, first=0):
    """The kinds of actions in the commits from a version on, with their contents."""
    found = []
    for path in sorted(Path(folder, "_delta_log").glob("*.json")):
        if path.stem.isdigit() and int(path.stem) >= first:
            found += [next(iter(json.loads(line).items())) for line in path.read_text().splitlines()]
    return found


def definition(folder):
    """The protocol and the definition of the newest version, as a new reader finds them."""
    DeltaLog.clear_cache()
    snapshot = DeltaLog.for_table(str(folder)).update()
    return snapshot.protocol, snapshot.metadata


@pytest.fixture
def table_of(tmp_path):
    def make(name):
        protocol, properties = PROTOCOLS[name]
        folder = tmp_path / "t"
        builder = TableBuilder(
            LocalStore(f"file://{folder}"),
            columns={"id": "long", "s": "string"},
            properties=properties,
            protocol=protocol,
        )
        builder.commit(builder.file(ROWS), builder.file(ROWS.slice(0, 1)))
        return pydelta.open(str(folder)), folder

    return make


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_leaves_protocol_and_definition_as_they_are(table_of, verb, name):
    table, folder = table_of(name)
    before = [item for item in actions(folder) if item[0] in ("protocol", "metaData")]
    assert len(before) == 2
    found = definition(folder)
    CALLS[verb](table)
    CALLS["append"](table)  # whatever the verb left behind
    assert definition(folder) == found
    if verb != "erase":  # The commits that an erasure gives up become markers, which name a feature that nobody has.
        assert [item for item in actions(folder) if item[0] in ("protocol", "metaData")] == before
    assert pydelta.open(str(folder)).version >= 1


def test_each_verb_that_changes_a_table_is_among_them():
    verbs = {name for verb in VERBS if not isinstance(verb.local, str) for name in verb.local}
    assert set(CALLS) == verbs - READS_ONLY - MAKES_ANOTHER


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, (1, 2, None, None)),
        ({"delta.enableChangeDataFeed": "true"}, (1, 4, None, None)),
        ({"delta.columnMapping.mode": "name"}, (2, 5, None, None)),
        ({"delta.enableDeletionVectors": "true"}, (3, 7, ["deletionVectors"], ["deletionVectors"])),
    ],
)
def test_a_new_table_has_only_the_features_that_its_properties_ask_for(tmp_path, properties, expected):
    pydelta.LocalTable.create(str(tmp_path / "t"), {"id": "int"}, properties=properties)
    (protocol,) = [value for kind, value in actions(tmp_path / "t") if kind == "protocol"]
    features = [sorted(protocol[key]) if key in protocol else None for key in ("readerFeatures", "writerFeatures")]
    found = (protocol["minReaderVersion"], protocol["minWriterVersion"], *features)
    lists = [None if names is None else sorted({*names} - {"appendOnly", "invariants"}) for names in found[2:]]
    assert (*found[:2], *lists) == expected


def test_a_clone_has_the_protocol_of_what_it_copies(table_of, tmp_path):
    table, folder = table_of("lists of features")
    table.clone(str(tmp_path / "copy"))
    of_source, of_copy = (dict(actions(place))["protocol"] for place in (folder, tmp_path / "copy"))
    assert of_copy == of_source
