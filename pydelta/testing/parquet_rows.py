"""Read the rows of a small table from its log and files with Arrow alone, without the engine's own readers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.log import Snapshot
from pydelta.log.vector_files import read_deleted_rows
from pydelta.protocol.paths import decode_log_path
from pydelta.storage.interface import Store

__all__ = ["parquet_rows"]


def parquet_rows(snapshot: Snapshot, store: Store) -> Counter[tuple[Any, ...]]:
    """Count the live rows. Values are in the order of the schema, and partition values are strings.

    Args:
        snapshot: A version of a table without column mapping.
        store: Store of the table.
    """
    found: Counter[tuple[Any, ...]] = Counter()
    for add in snapshot.files.adds(snapshot.files.core):
        rows = pq.read_table(pa.BufferReader(store.read(decode_log_path(add.path).text))).to_pylist()
        deleted: set[int] = set()
        if add.deletion_vector is not None:
            (hidden,) = read_deleted_rows([add.deletion_vector], store=store, root=snapshot.table_uri, options=None)
            deleted = set(hidden.tolist())
        for position, row in enumerate(rows):
            if position not in deleted:
                values = {**row, **{name: add.partition_values[name] for name in snapshot.partition_columns}}
                found[tuple(values.get(field.name) for field in snapshot.schema.fields)] += 1
    return found
