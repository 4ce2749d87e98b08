"""Random Arrow tables into random tables: the rows are what the generator made, or a DeltaError and nothing is left."""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_rows import Generator, canonical_rows, shown

from pydelta.api.python.local import LocalTable
from pydelta.errors import DeltaError, InvalidArgumentError, SchemaMismatchError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder

SEEDS = int(os.environ.get("PYDELTA_ARROW_SEEDS", "150"))
KEPT: list[int] = []
"""Seeds that failed once."""
_NAMES = itertools.count()
_FEATURES = ("deletionVectors", "columnMapping", "timestampNtz")
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=_FEATURES,
    writer_features=(*_FEATURES, "changeDataFeed"),
)

SPILLING = Settings.resolve({"spark.pydelta.local.sourceMaxBytes": "0"}, env={})


def opened(generator, schema, *, spilled):
    store = MemoryStore(f"memory://doors{next(_NAMES)}/t")
    choice = generator.random.choice
    properties = choice([{}, {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}])
    built = TableBuilder(store, columns={}, properties=properties, protocol=PROTOCOL)
    built.metadata = built.metadata.replace(schema_string=schema.to_json())
    built.commit()
    return LocalTable(DeltaLog(store, settings=SPILLING if spilled else None)), store


def files_of(store):
    return sorted(
        item.path for item in store.list_all() if item.path.endswith(".parquet") and "_delta_log" not in item.path
    )


@pytest.mark.parametrize("block", range(6))
def test_what_comes_in_is_what_was_given(block):
    for seed in (*KEPT, *range(block, SEEDS, 6)):
        run(seed)


def run(seed):
    generator = Generator(seed)
    schema = generator.schema()
    spilled = seed % 2 == 1  # Every other source is a reader's, and is merged through temporary files.
    table, store = opened(generator, schema, spilled=spilled)
    model: dict[int, str] = {}
    for step, keys in enumerate(([1, 2, 3, 4, 5], [4, 5, 6], [2, 6, 7, 8])):
        merging = step and generator.random.random() < 0.7
        rows = generator.rows(schema, keys if merging or not step else keys[-1:], spoil=generator.random.random() < 0.4)
        names = {name.lower() for name in rows.table.column_names}
        merges = merging and names == {name.lower() for name in schema.names}
        before = (table.version, files_of(store))
        try:
            if merges:
                table.merge(rows.table.to_reader(max_chunksize=2) if spilled else rows.table, on="id")
            else:
                table.append(rows.table)
        except DeltaError as error:
            assert rows.wrong is not None, f"seed {seed}, step {step}: {error}\n{rows.table.schema}\n{schema.tree()}"
            assert isinstance(error, SchemaMismatchError | InvalidArgumentError), (seed, step, error)
            assert (table.version, files_of(store)) == before, (seed, step)
            continue
        assert rows.wrong is None or rows.table.num_rows == 0, f"seed {seed}, step {step}: {rows.wrong} was taken"
        if step and not merges:  # the rows that were appended, and those of their keys
            for row in rows.values:
                table.delete(f"id = {row['id']}")
                model.pop(row["id"], None)
            continue
        model |= {row["id"]: shown(row) for row in rows.values}
    found = canonical_rows(table.scan(), schema)
    assert found == model, f"seed {seed}"
    for path in files_of(store):  # each file opens for a reader of its own
        pq.ParquetFile(pa.BufferReader(store.read(path))).read()
