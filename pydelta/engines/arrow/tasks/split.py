"""Split a batch into pieces of equal partition values. Runs on executors, without pyspark.

::

    each column -> codes of its distinct values -> a run begins where any code differs from the row before
                   a combination comes back after another one -> rows are sorted by their codes first

Codes of several columns are compared, never combined into one number, because their combinations may exceed 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pydelta.errors import RowsDoNotAddUpError, SchemaError
from pydelta.protocol.partitions import serialize_partition_value
from pydelta.protocol.types import DataType

__all__ = ["PartitionColumn", "check_runs", "split_by_partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn:
    """A partition column: its key in ``partitionValues`` (the physical name) and its type."""

    name: str
    data_type: DataType


def split_by_partition(
    keys: Sequence[pa.Array], columns: Sequence[PartitionColumn], data: pa.RecordBatch
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Split rows into pieces of equal partition values. Python runs once per distinct value and once per piece.

    Args:
        keys: The rows' values of each partition column.
        columns: The partition columns, at least one.
        data: The rows' other columns.

    Returns:
        The values as the log's strings, and the rows that have them, in the given order.

    Raises:
        SchemaError: A value has no text in the log.
        RowsDoNotAddUpError: A row would be written under wrong values.
    """
    if not data.num_rows:
        return
    encoded = [_in_utc(key).dictionary_encode(null_encoding="encode") for key in keys]
    texts = [_texts(part.dictionary, column) for part, column in zip(encoded, columns, strict=True)]
    codes = [part.indices.to_numpy(zero_copy_only=False) for part in encoded]
    starts = _starts(codes)
    runs, _ = _sorted([part[starts] for part in codes])
    if len(starts) > len(_starts(runs)):
        codes, order = _sorted(codes)
        data, starts = data.take(pa.array(order)), _starts(codes)
    check_runs(starts, codes, data.num_rows)
    ends = [*starts[1:].tolist(), data.num_rows]
    firsts = zip(*[part[starts].tolist() for part in codes], strict=True)
    for start, end, first in zip(starts.tolist(), ends, firsts, strict=True):
        values = tuple(text[code] for text, code in zip(texts, first, strict=True))
        yield values, data.slice(start, end - start)


def _starts(codes: Sequence[Any]) -> Any:
    """Find the positions of the rows that differ from the row before them, including the first row."""
    differs = np.zeros(len(codes[0]), dtype=bool)
    differs[0] = True
    for part in codes:
        differs[1:] |= part[1:] != part[:-1]
    return np.flatnonzero(differs)


def _sorted(codes: Sequence[Any]) -> tuple[list[Any], Any]:
    """Sort rows by their codes, stably. Returns the sorted codes and the old position of each row."""
    order = np.lexsort(codes[::-1])
    return [part[order] for part in codes], order


def check_runs(starts: Any, codes: Sequence[Any], rows: int) -> None:
    """Check that the runs hold every row, and each under its own values.

    Args:
        starts: Position of the first row of each run, ascending.
        codes: For each partition column the codes of all rows.
        rows: Number of rows.

    Raises:
        RowsDoNotAddUpError: A row is in no run, or in a run of other values.
    """
    own = np.ones(rows - starts[0] if len(starts) else 0, dtype=bool)
    lengths = np.diff(np.append(starts, rows))
    for part in codes if len(starts) else ():
        own &= part[starts[0] :] == np.repeat(part[starts], lengths)
    placed = int(np.count_nonzero(own))
    if placed != rows:
        raise RowsDoNotAddUpError(
            f"Only {placed} of {rows} rows of a batch were to be written under their own partition values.",
            hint="This is a defect of the engine; report it with the partition columns and their types.",
        )


def _in_utc(key: pa.Array) -> pa.Array:
    """Convert times with a zone to UTC, whatever the session's zone. Other values are unchanged."""
    aware = pa.types.is_timestamp(key.type) and key.type.tz is not None
    return key.cast(pa.timestamp("us", "UTC")) if aware else key


def _texts(distinct: pa.Array, column: PartitionColumn) -> list[str | None]:
    """Return the log's text of each distinct value."""
    try:
        return [serialize_partition_value(value, column.data_type) for value in distinct.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise SchemaError(
            f"A value of partition column {column.name!r} cannot be written as text: {error}",
            hint="Partition by a column of another type, or leave such rows out: dates and times reach from the year 1 "
            "to 9999, and bytes have to be UTF-8.",
        ) from error
