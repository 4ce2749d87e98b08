"""Compute the new partition values of rows whose partition columns are set.

::

    new values of partition columns --> computed for the rows that change -+
    the other partition columns     --> the file's own values -------------+--> columns after those of the files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pydelta.engines.arrow.columns import partition_scalar
from pydelta.engines.arrow.conform import without_empty
from pydelta.engines.arrow.evaluate import Columns, evaluate
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.log import Snapshot
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import physical_name

__all__ = ["PartitionsOfRows", "with_partitions"]


class PartitionsOfRows:
    """Computes new partition values of rows. It is true if one of the values belongs to a partition column.

    Args:
        snapshot: The table.
        values: New values by the table's names of columns.

    Raises:
        NotHere: A partition column is set, and only Spark reads the type of another partition column.
    """

    def __init__(self, snapshot: Snapshot, values: Mapping[str, Exact]) -> None:
        given = {name.lower(): value for name, value in values.items()}
        mapped = snapshot.column_mapping_mode != "none"
        fields = [snapshot.schema.field(name) for name in snapshot.partition_columns]
        self._columns = [
            (physical_name(field) if mapped else field.name, field, given.get(field.name.lower()))
            for field in fields
            if field is not None
        ]
        for _, field, value in self._columns if self else ():
            if value is None:
                partition_scalar(None, field.data_type)

    def __bool__(self) -> bool:
        return any(value is not None for _, _, value in self._columns)

    def of(self, add: AddFile, column: Columns, size: int) -> list[pa.Array]:
        """Compute them for rows of a file, in the order of the table's partition columns.

        Args:
            add: The file.
            column: Function that gives the columns that the values read.
            size: Number of rows.

        Raises:
            NotHere: Only Spark can interpret a value, or its text in the log, or a value is null in a NOT NULL column.
        """
        found = []
        for key, field, value in self._columns:
            if value is None:
                scalar = partition_scalar(add.partition_values.get(key), field.data_type)
                found.append(pa.repeat(scalar, size))
                continue
            array = without_empty(evaluate(value, column, size))
            if not field.nullable and array.null_count:
                raise NotHere("a null in a column that is NOT NULL")
            found.append(array)
        return found


def with_partitions(rows: pa.RecordBatch, partitions: Sequence[pa.Array]) -> pa.RecordBatch:
    """Append partition values to the columns of rows."""
    names = [*rows.schema.names, *(f"p{number}" for number in range(len(partitions)))]
    return pa.RecordBatch.from_arrays([*rows.columns, *partitions], names=names)
