"""Read keys for a record index, and ask it which files a merge can leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pydelta.commands.records.index import MOST_HASHES, Lookup
from pydelta.commands.records.segments import Hashes, IndexedColumn
from pydelta.engines.arrow.changes import FilePlace
from pydelta.engines.arrow.columns import ArrowColumns, refuse_table
from pydelta.engines.arrow.evaluate import evaluate
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.arrow.merge.key_hashes import HASH_NAME, INTEGERS, hash_keys, kind_of
from pydelta.engines.arrow.merge.merge_rule import MergeRule, both_sides
from pydelta.engines.arrow.tasks.old_files import NeedsSpark, old_file, read_batches
from pydelta.engines.arrow.threads import read_files
from pydelta.log import Snapshot
from pydelta.predicate.expressions import Cast, Column
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import physical_name
from pydelta.protocol.types import PrimitiveType, StructField

__all__ = ["ArrowKeys", "WantedKeys"]


class ArrowKeys:
    """Reads the keys of data files. See ``KeyReader``.

    Args:
        snapshot: The table.
        fields: Columns of the key, at least one, not partition columns.
        place: Store of the files.

    Raises:
        NotHere: Only Spark can read the table's rows, or a column has a type without exact hashes.
    """

    hash_name = HASH_NAME

    def __init__(self, snapshot: Snapshot, fields: Sequence[StructField], place: FilePlace) -> None:
        refuse_table(snapshot)
        self._store = place.store
        key = []
        for field in fields:
            kind = kind_of(field.data_type)
            if kind is None:
                raise NotHere(f"a record index on {field.name!r}, which is {field.data_type}")
            key.append(IndexedColumn(name=_name(snapshot, field), kind=kind))
        self.key = tuple(key)
        self._schema = ArrowColumns(snapshot, [Column((field.name,), field.data_type) for field in fields]).schema

    def read(self, files: Sequence[AddFile]) -> list[Hashes | None]:
        """See ``KeyReader.read``. Rows that deletion vectors hide are read too: a vector may be taken back."""
        return read_files(lambda number: self._read(files[number]), len(files), self._store)

    def _read(self, add: AddFile) -> Hashes | None:
        parts = [np.empty(0, np.uint64)]
        try:
            for _, batch in read_batches(old_file(add), self._schema, self._store):
                columns = [batch.column(batch.schema.get_field_index(column.name)) for column in self.key]
                parts.append(hash_keys(columns))
        except NeedsSpark:
            return None
        return np.unique(np.concatenate(parts))


class WantedKeys:
    """The keys of a merge's source, to be looked up.

    Args:
        snapshot: The table.
        rule: The merge.
        source: Rows of the source, with columns named by their positions.
    """

    def __init__(self, snapshot: Snapshot, rule: MergeRule, source: pa.Table) -> None:
        self._snapshot, self._rows = snapshot, source.num_rows
        self._values: dict[IndexedColumn, tuple[Exact, pa.Table]] = {}
        partitions = {name.lower() for name in snapshot.partition_columns}
        for mine, theirs in rule.keys:
            field = _plain_column(snapshot, mine)
            kind = None if field is None else kind_of(field.data_type)
            if field is not None and kind is not None and field.name.lower() not in partitions:
                self._values[IndexedColumn(name=_name(snapshot, field), kind=kind)] = theirs, source

    def left(self, files: pl.DataFrame, place: FilePlace) -> pl.DataFrame:
        """Leave out the files that a record index proves to hold none of the keys. See ``Lookup.narrow``."""
        if not self._values or self._rows > MOST_HASHES:
            return files
        assert self._snapshot.metadata is not None
        table_id = self._snapshot.metadata.id
        lookup = Lookup(store=place.store, table_id=table_id, hash_name=HASH_NAME, hashes_of=self._of)
        return lookup.narrow(files)

    def _of(self, key: Sequence[IndexedColumn]) -> Hashes | None:
        """Return the hashes of the wanted keys over some columns; None if the merge does not compare all of them."""
        found: list[Any] = []
        for column in key:
            if column not in self._values:
                return None
            theirs, source = self._values[column]
            found.append(evaluate(theirs, both_sides(None, source), source.num_rows))
        return np.unique(hash_keys(found)) if found else None


def _plain_column(snapshot: Snapshot, mine: Exact) -> StructField | None:
    """Return the column that a key of the table is, possibly widened; None for any other expression."""
    column = mine
    if isinstance(mine, Cast):
        column = mine.child
        names = [item.name if isinstance(item, PrimitiveType) else "" for item in (column.type, mine.type)]
        if not all(name in INTEGERS for name in names) or INTEGERS.index(names[0]) > INTEGERS.index(names[1]):
            return None
    if not isinstance(column, Column) or len(column.path) != 1:
        return None
    return snapshot.schema.field(column.path[0])


def _name(snapshot: Snapshot, field: StructField) -> str:
    return field.name if snapshot.column_mapping_mode == "none" else physical_name(field)
