"""Collect valid inputs to begin with: tables made here, and those of other engines where they are at hand."""

from __future__ import annotations

import io
import itertools
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol, SetTransaction
from pydelta.protocol.vectors import inline_vector, pack_vectors
from pydelta.storage import MemoryStore
from pydelta.testing.tables import TableBuilder
from tests.fuzz.contract import PROJECT

__all__ = ["checkpoints", "commits", "others", "table_objects"]

CONFORMANCE: Final = Path(os.environ.get("PYDELTA_CONFORMANCE", PROJECT.parent / "shared" / "conformance"))
_LARGEST: Final = 40_000
_NUMBERS: Final = itertools.count()
_COLUMNS: Final = {"p": "string", "x": "long", "d": "date", "t": "timestamp", "n": "decimal(10,2)", "b": "boolean"}


@lru_cache(maxsize=1)
def table_objects() -> dict[str, bytes]:
    """A table of three versions with real files, one with a deletion vector, and a checkpoint of each version.

    Returns:
        Objects by path. The checkpoints are those of version 2.
    """
    store = MemoryStore(f"memory://fuzz-seed{next(_NUMBERS)}/t")
    table = TableBuilder(
        store,
        columns=_COLUMNS,
        partition_columns=["p"],
        properties={"delta.enableDeletionVectors": "true"},
        protocol=Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("deletionVectors",),
            writer_features=("deletionVectors",),
        ),
    )
    one, two = (table.file(_rows(start), {"p": part}) for start, part in ((0, "a"), (10, "b c")))
    data, (vector,) = pack_vectors([np.array([1, 3], dtype=np.uint64)], file_id=_uuid())
    from pydelta.protocol.vectors import vector_path

    path = vector_path(vector)
    assert path is not None
    store.put(path, data)
    table.commit(one, two)
    hidden = two.replace(deletion_vector=vector)
    table.commit(two.remove(deletion_timestamp=1_700_000_000_000), hidden, operation="DELETE")
    held = one.replace(deletion_vector=inline_vector(np.array([0], dtype=np.uint64)))
    table.commit(
        one.remove(deletion_timestamp=1_700_000_000_000),
        held,
        SetTransaction(app_id="a", version=7, last_updated=1),
        operation="DELETE",
    )
    log = DeltaLog(store)
    log.write_checksum(log.update())
    log.checkpoint()
    return {info.path: store.read(info.path) for info in store.list_all()}


def _uuid() -> Any:
    import uuid

    return uuid.UUID("12345678-1234-5678-1234-567812345678")


def _rows(start: int) -> pa.Table:
    import datetime as dt
    from decimal import Decimal

    day = dt.date(2024, 1, 1)
    return pa.table(
        {
            "x": pa.array(range(start, start + 5), pa.int64()),
            "d": pa.array([day] * 5),
            "t": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 5, pa.timestamp("us", "UTC")),
            "n": pa.array([Decimal("1.50")] * 5, pa.decimal128(10, 2)),
            "b": pa.array([True, False, None, True, False]),
        }
    )


@lru_cache(maxsize=8)
def others(pattern: str) -> list[bytes]:
    """Small files of the tables that other engines wrote; none where they are not at hand."""
    if not CONFORMANCE.is_dir():
        return []
    found: dict[int, bytes] = {}
    for path in sorted((CONFORMANCE / "tables").glob(f"**/_delta_log/{pattern}")):
        if path.is_file() and 0 < path.stat().st_size <= _LARGEST:
            data = path.read_bytes()
            found.setdefault(hash(data), data)
    return list(found.values())


def commits() -> list[bytes]:
    """Commits, of ours first."""
    own = [data for path, data in table_objects().items() if path.endswith(".json")]
    return [*own, *others("*.json")[:150]]


def checkpoints() -> list[bytes]:
    """Checkpoints in Parquet, of ours first."""
    own = [data for path, data in table_objects().items() if path.endswith(".checkpoint.parquet")]
    return [*own, _plain_checkpoint(), *others("*.parquet")[:60]]


def _plain_checkpoint() -> bytes:
    """As writers without maps and types of their own might spell it."""
    rows = []
    for path in ("_delta_log/00000000000000000000.json",):
        rows = [json.loads(line) for line in table_objects()[path].splitlines() if b"commitInfo" not in line]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()
