"""Scan a table into an Arrow table: read the files that may match, then drop hidden rows and rows that do not match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from pydelta.engines.arrow.columns import ArrowColumns, partition_scalar, refuse_table
from pydelta.engines.arrow.evaluate import true_rows
from pydelta.engines.arrow.expressions import Exact
from pydelta.engines.arrow.tasks.arrow import file_array, optional
from pydelta.engines.arrow.tasks.old_files import OldFile, hidden_rows, old_file, read_batches, rows_among
from pydelta.engines.arrow.threads import read_files
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import logical_to_physical, physical_name, to_arrow
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.storage import Store

__all__ = ["Scan", "logical_schema"]

_VOID: Final = PrimitiveType("void")


def logical_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table's columns, all of which may be null."""
    return optional(to_arrow(schema))


class Scan:
    """A scan of one version.

    Args:
        log: The table.
        snapshot: The version.
        names: Columns of the result, in order.
        condition: Only rows for which it is true; None for all.

    Raises:
        NotHere: The table has columns that only Spark reads.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, names: Sequence[str], condition: Exact | None) -> None:
        refuse_table(snapshot)
        self._log, self._snapshot, self._condition = log, snapshot, condition
        self._names = names
        self._mode = snapshot.column_mapping_mode
        self._partitions = {name.lower() for name in snapshot.partition_columns}
        fields = [] if condition is None else list(fields_of(condition))
        self._columns = ArrowColumns(snapshot, fields)
        wanted = {*names, *(item.path[0] for item in fields)}
        stored = [field for field in snapshot.schema.fields if field.name in wanted and self._is_stored(field)]
        self._schema = optional(to_arrow(logical_to_physical(StructType(tuple(stored)), self._mode)))
        logical = logical_schema(snapshot.schema)
        self._out = pa.schema([logical.field(name) for name in names])

    def _is_stored(self, field: StructField) -> bool:
        return field.name.lower() not in self._partitions and field.data_type != _VOID

    def run(self, files: pl.DataFrame) -> pa.Table:
        """Read the rows of files, which are rows of the snapshot's file table.

        Raises:
            NotHere, NeedsSpark: Only Spark reads a value or a file.
            StorageError: A file is missing or damaged.
        """
        adds = self._snapshot.files.adds(files)
        old = [old_file(add) for add in adds]
        root, options = self._log.uri, self._log.options
        hidden = hidden_rows(old, store=self._log.store, root=root, options=options)

        def read(number: int) -> list[pa.RecordBatch]:
            return list(self._file(adds[number], old[number], hidden.get(number)))

        batches = [batch for part in read_files(read, len(adds), self._log.store) for batch in part]
        return pa.Table.from_batches(batches, schema=self._out)

    def first(self, files: pl.DataFrame, rows: int, store: Store) -> Iterator[pa.RecordBatch]:
        """Read the first rows of files, one file after the other, and no more of a file than these need.

        Args:
            files: A few rows of the snapshot's file table.
            rows: The number of rows, at most.
            store: Store to read from, which may limit what is read.

        Raises:
            NotHere, NeedsSpark: Only Spark reads a value or a file.
            StorageError: A file is missing or damaged, or the store refuses to read more.
        """
        root, options = self._log.uri, self._log.options
        left = rows
        for add in self._snapshot.files.adds(files):
            if left <= 0:
                return
            file = old_file(add)
            hidden = hidden_rows([file], store=store, root=root, options=options).get(0)
            for batch in self._batches(add, hidden, read_batches(file, self._schema, store, rows=left)):
                left -= batch.num_rows
                yield batch.slice(0, batch.num_rows + min(left, 0))
                if left <= 0:
                    return

    def _file(self, add: AddFile, file: OldFile, hidden: Any) -> Iterator[pa.RecordBatch]:
        return self._batches(add, hidden, read_batches(file, self._schema, self._log.store))

    def _batches(
        self, add: AddFile, hidden: Any, raw: Iterator[tuple[int, pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        for start, batch in raw:
            keep = np.ones(batch.num_rows, dtype=np.bool_)
            if hidden is not None:
                keep &= ~rows_among(hidden, start, batch.num_rows)
            if self._condition is not None:
                column = self._columns.of(add.partition_values, batch)
                keep &= true_rows(self._condition, column, batch.num_rows)
            arrays = [self._array(name, add, batch) for name in self._names]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._out) if arrays else batch.select([])
            yield rows.filter(pa.array(keep))

    def _array(self, name: str, add: AddFile, batch: pa.RecordBatch) -> Any:
        field = self._snapshot.schema.field(name)
        assert field is not None, "the names were resolved"
        target = self._out.field(name).type
        if field.data_type == _VOID:
            return pa.nulls(batch.num_rows)
        key = field.name if self._mode == "none" else physical_name(field)
        if field.name.lower() in self._partitions:
            return pa.repeat(partition_scalar(add.partition_values.get(key), field.data_type), batch.num_rows)
        return file_array(batch.column(batch.schema.get_field_index(key)), target)
