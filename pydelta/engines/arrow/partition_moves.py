"""Give rows whose partition columns are set the partition values that they go to.

::

    new values of partition columns --> computed for the rows that change -+
    the other partition columns     --> the file's own values -------------+--> columns behind those of the files
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
    """The partition values that rows get; true where one of the values is a partition column's.

    Args:
        snapshot: The table.
        values: By the table's names of columns, what they become.

    Raises:
        NotHere: One of them is a partition column's, and another partition column is of a type that only Spark reads.
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
            column: Gives what the values read.
            size: How many rows there are.

        Raises:
            NotHere: Only Spark knows what a value, or its text in the log, means; or one is null that must not be.
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
    """Put partition values behind the columns of rows."""
    names = [*rows.schema.names, *(f"p{number}" for number in range(len(partitions)))]
    return pa.RecordBatch.from_arrays([*rows.columns, *partitions], names=names)
