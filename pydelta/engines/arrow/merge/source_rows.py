"""Give the rows of a merge's source in a table's types, all at once or in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pydelta.engines.arrow.merge.spill import GivenRows, empty_rows
from pydelta.engines.arrow.sources import ArrowRows
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.types import StructType

__all__ = ["SourceRows"]


class SourceRows:
    """Rows that a caller gave, as rows of a table.

    Args:
        log: The table.
        snapshot: The version whose columns the rows have.
        given: The rows; columns are matched by name, ignoring case.

    Raises:
        SchemaMismatchError: The table lacks a column of the rows, or the rows have one twice.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, given: GivenRows) -> None:
        self._log, self._snapshot, self._given = log, snapshot, given
        self.schema: StructType = self._of(empty_rows(given.schema)).schema
        self.num_rows, self.nbytes = given.num_rows, given.nbytes

    @property
    def fit_memory(self) -> bool:
        """Whether they are few enough to be held; else they are read in blocks."""
        return self.nbytes <= self._log.settings.local_source_max_bytes

    def blocks(self) -> Iterator[pa.Table]:
        """Yield the rows in order, some at a time.

        Raises:
            SchemaMismatchError, ConstraintViolatedError: A value does not fit its column.
        """
        for block in self._given.blocks():
            yield self._converted(block)

    def table(self) -> pa.Table:
        """Return all rows. Raises as ``blocks``."""
        return self._converted(self._given.table())

    def empty(self) -> pa.Table:
        """Return the columns without rows."""
        return self._converted(empty_rows(self._given.schema))

    def _converted(self, rows: pa.Table) -> pa.Table:
        return self._of(rows).as_table(self._snapshot.schema)

    def _of(self, rows: pa.Table) -> ArrowRows:
        return ArrowRows(self._log, self._snapshot, rows)
