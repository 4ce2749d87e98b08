"""Make a table in the stack with its three entries, native, symlink twin and Iceberg, and time Trino's scans of them.

``TRINO`` (127.0.0.1:8080) names Trino, ``METASTORE`` (thrift://127.0.0.1:9083) and ``S3_ENDPOINT`` (http://127.0.0.1:9000)
the rest, and ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY`` are the root key of the stack's ``.env``.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks._timing import interleave
from catalog_sync.entries import sync_entries
from catalog_sync.inputs import SyncOptions
from catalog_sync.targets import TableChoice, find_targets
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from jobs.verify.trino import Trino
from pydelta import LocalTable
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.storage import open_store

# Trino keeps for a while what it knows of a table that was at the same place.
DATABASE, NAME = "bench_entries", f"scan_{uuid.uuid4().hex[:8]}"
DAYS, TURNS, ROWS_PER_FILE, ROUNDS = 25, 4, 40_000, 9
ENTRIES = {
    "native": f"delta.{DATABASE}.{NAME}",
    "twin": f"hive.{DATABASE}_symlink.{NAME}",
    "Iceberg": f"iceberg.{DATABASE}_iceberg.{NAME}",
}
_SHOWN = "count(*), sum(amount), min(id), max(customer), max(minute(at))"
_ONE_FILE = 57 * ROWS_PER_FILE
CONDITIONS = {
    "all rows": "true",
    "one of 25 partitions": "day = DATE '2024-01-10'",
    "one of 100 files by its bounds": f"id BETWEEN {_ONE_FILE + 10} AND {_ONE_FILE + 20_000}",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table in the stack's store and metastore.

    Args:
        metastore: The stack's.
        uri: Of the table.
        options: Of its store.
    """

    metastore: Metastore
    uri: str
    options: dict[str, str] = field(repr=False)

    def sync(self, *, with_twin: bool) -> None:
        """Bring the entries to the newest version. A twin cannot show a table with hidden rows."""
        choice = TableChoice(tables=[self.uri], name=f"{DATABASE}.{NAME}")
        (target,) = find_targets(self.metastore, choice, rule=Settings.resolve().sync_name, options=self.options)
        synced = sync_entries(self.metastore, target, SyncOptions(), iceberg=True)
        assert synced.iceberg_error is None, synced.iceberg_error
        assert (synced.twin_error is None) == with_twin, synced.twin_error

    def clear(self) -> None:
        """Delete the table's entries and files."""
        for suffix in ("", "_symlink", "_iceberg"):
            if self.metastore.database_exists(f"{DATABASE}{suffix}"):
                self.metastore.drop(f"{DATABASE}{suffix}", NAME)
        store = open_store(self.uri, self.options)
        store.delete_many([info.path for info in store.list_all()])


@contextmanager
def place_in_stack() -> Iterator[Place]:
    """Make the database, and clear the place of the table before and afterwards."""
    options = {
        "fs.s3a.endpoint": os.environ.get("S3_ENDPOINT", "http://127.0.0.1:9000"),
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    address = MetastoreAddress.parse(os.environ.get("METASTORE", "thrift://127.0.0.1:9083"))
    with Metastore(address) as metastore:
        place = Place(metastore, f"s3a://warehouse/{DATABASE}/{NAME}", options)
        if not metastore.database_exists(DATABASE):
            metastore.create_database(DATABASE, place.uri.rpartition("/")[0])
        place.clear()
        try:
            yield place
        finally:
            place.clear()


def scans() -> dict[str, Any]:
    """Median seconds of each query through each entry, then those that show hidden rows once a hundredth is hidden."""
    trino = Trino(os.environ["TRINO"], "bench")
    with place_in_stack() as place:
        table = _table(place.uri, place.options)
        place.sync(with_twin=True)
        found = {"no hidden rows": _timed(trino, ENTRIES)}
        table.delete("customer = 'c 7'")
        place.sync(with_twin=False)
        hiding = {name: entry for name, entry in ENTRIES.items() if name != "twin"}
        found["a hundredth of the rows hidden"] = _timed(trino, hiding)
    return found


def _timed(trino: Trino, entries: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Median seconds by query and entry, in turns, of queries that give the same answer."""
    found = {}
    for name, condition in CONDITIONS.items():
        statements = {key: f"SELECT {_SHOWN} FROM {entry} WHERE {condition}" for key, entry in entries.items()}
        answers = {key: trino.rows(statement) for key, statement in statements.items()}
        first = next(iter(answers.values()))
        assert first[0][0] > 0, statements
        assert all(answer == first for answer in answers.values()), answers
        contestants = {key: functools.partial(trino.rows, statement) for key, statement in statements.items()}
        medians = interleave(contestants, rounds=ROUNDS)
        found[name] = {key: round(seconds, 3) for key, seconds in medians.items()}
        print(name, found[name], flush=True)
    return found


def _table(place: str, options: dict[str, str]) -> LocalTable:
    """Make a table of a hundred files: in each of four commits one file for each of 25 days, ids in their order."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("customer", pa.string()),
            ("amount", pa.decimal128(12, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
        ]
    )
    properties = {"delta.enableDeletionVectors": "true"}
    table = LocalTable.create(place, schema, partition_by=["day"], properties=properties, options=options)
    for turn in range(TURNS):
        parts = [_rows(day, day * TURNS + turn, schema) for day in range(DAYS)]
        table.append(pa.concat_tables(parts))
    files = DeltaLog.for_table(place, options=options).update().num_files
    assert files == DAYS * TURNS, f"{files} files"
    return table


def _rows(day: int, number: int, schema: pa.Schema) -> pa.Table:
    ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
    when = dt.date(2024, 1, 1) + dt.timedelta(days=day)
    columns = [
        pa.array(ids),
        pa.array([f"c {one % 100}" for one in ids.tolist()]),
        pc.cast(pc.cast(pa.array(ids % 10_000), pa.decimal128(21, 2)), pa.decimal128(12, 2)),
        pa.array(ids * 1_000_003, pa.timestamp("us", "UTC")),
        pa.array([when] * len(ids), pa.date32()),
    ]
    return pa.table(columns, schema=schema)
