"""Refuse a Parquet file that claims much more data than its bytes can hold, before decompressing it.

Each action of a checkpoint names its own file, application or domain, so it takes bytes. Parquet stores a repeated
value once: a file of kilobytes can claim billions of rows, or megabytes of text in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydelta.errors import LogCorruptedError

__all__ = ["inflated", "refuse_inflated", "repeated_texts"]

_FREE_ROWS: Final = 100_000
_VALUES_PER_BYTE: Final = 64
_FREE_BYTES: Final = 256 * 1024 * 1024
_TIMES: Final = 1_000
_PLAIN_BYTES: Final = 16
_RATIO: Final = 100
_BATCH_ROWS: Final = 65_536
_HINT: Final = (
    "No writer of Delta tables makes such a file. Do not use the table before you know who wrote it; delete the file "
    "if the commits before it are there."
)


def refuse_inflated(metadata: Any, path: str, size: int) -> None:
    """Check the counts in a footer against the size of the file.

    Raises:
        LogCorruptedError: The file claims more rows than bytes, or far more values.
    """
    if metadata.num_rows > max(size, _FREE_ROWS):
        raise inflated(path, f"{metadata.num_rows:,} rows", size)
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for leaf in range(rows.num_columns):
            values = rows.column(leaf).num_values
            if values > max(_VALUES_PER_BYTE * size, _FREE_ROWS):
                raise inflated(path, f"{values:,} values of {rows.column(leaf).path_in_schema}", size)


def repeated_texts(chunk: Any, group: int, open_file: Callable[[list[str]], pq.ParquetFile], size: int) -> str | None:
    """Measure the texts of a column chunk that is small only because they repeat, without decompressing them.

    Args:
        chunk: Its metadata in the footer.
        group: Its row group.
        open_file: Opens the file so that the leaves with these names are read as dictionaries.
        size: The file's size in bytes.

    Returns:
        A description of the problem; None if the texts are within the limit.
    """
    total = _text_bytes(chunk, group, open_file)
    if total <= max(_FREE_BYTES, _TIMES * size):
        return None
    return f"{total:,} bytes of text in {chunk.path_in_schema}"


def _text_bytes(chunk: Any, group: int, open_file: Callable[[list[str]], pq.ParquetFile]) -> int:
    """Return the decompressed size of the texts in bytes, or 0 if it cannot be much more than the stored size."""
    if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
        return 0
    stored, values = chunk.total_uncompressed_size, chunk.num_values
    is_plain = stored >= _PLAIN_BYTES * values and stored <= _RATIO * chunk.total_compressed_size
    if stored * values <= _FREE_BYTES or is_plain:
        return 0
    name = chunk.path_in_schema
    total = 0
    for batch in open_file([name]).iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=[name]):
        found = _leaf(batch.column(0))
        if not pa.types.is_dictionary(found.type):
            return 0
        lengths = pc.binary_length(found.dictionary).cast(pa.int64()).take(found.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def _leaf(array: Any) -> Any:
    while True:
        kind = array.type
        if pa.types.is_struct(kind):
            array = array.field(0)
        elif pa.types.is_map(kind):
            array = array.keys if pa.types.is_dictionary(array.keys.type) else array.items
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            array = array.values
        else:
            return array


def inflated(path: str, claims: str, size: int) -> LogCorruptedError:
    """Build the error for a file with impossible claims."""
    return LogCorruptedError(f"{path} claims to hold {claims} in {size:,} bytes.", hint=_HINT)
