"""Split an inventory by table in one pass, on local disk, so that memory use does not depend on its size.

A row belongs to the table with the longest location that contains its key, so a nested table keeps its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa

from pydelta.storage.uris import bucket_of

__all__ = ["places_of", "prefixes_in", "read_split", "split_by_table", "with_longest_prefix"]

_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("length", pa.int64()),
        ("isDir", pa.bool_()),
        ("modificationTime", pa.int64()),
        ("asOf", pa.int64()),
    ]
)


def split_by_table(frames: Iterable[pl.DataFrame], bucket: str, roots: Sequence[str], folder: Path) -> dict[str, Path]:
    """Write a bucket's rows to one file per table.

    Args:
        frames: Frames with ``bucket key length isDir modificationTime`` and optionally ``asOf``. Rows of other buckets
            are skipped.
        bucket: The bucket of the rows.
        roots: URIs of tables. Those in other buckets are skipped.
        folder: Folder for one file per table.

    Returns:
        Root -> file for ``read_split``, for each root in the bucket, including those without rows.
    """
    own = prefixes_in({root: root for root in roots}, bucket)
    numbers = {prefix: str(number) for number, prefix in enumerate(sorted(own))}
    cuts = {number: len(prefix) for prefix, number in numbers.items()}
    written = len(list(folder.iterdir()))
    found = {own[prefix]: folder / f"{written}-{number}.arrow" for prefix, number in numbers.items()}
    writers = {numbers[prefix]: pa.ipc.new_stream(str(found[own[prefix]]), _SCHEMA) for prefix in own}
    try:
        for frame in frames:
            if "asOf" not in frame.columns:
                frame = frame.with_columns(asOf=pl.lit(None, dtype=pl.Int64))
            rows = with_longest_prefix(
                frame.lazy().filter(pl.col("bucket") == bucket),
                numbers,
                into="number",
            )
            matched = rows.filter(pl.col("number").is_not_null()).collect()
            for (number,), part in matched.partition_by("number", as_dict=True).items():
                named = part.with_columns(path=pl.col("key").str.slice(cuts[str(number)]))
                own_rows = named.filter(pl.col("path") != "").select(_SCHEMA.names)
                writers[str(number)].write_table(own_rows.to_arrow().cast(_SCHEMA))
    finally:
        for writer in writers.values():
            writer.close()
    return found


def read_split(path: Path) -> Iterator[pl.DataFrame]:
    """Read the rows of a table: ``path`` in the table, ``length``, ``isDir``, ``modificationTime``, ``asOf``."""
    with pa.ipc.open_stream(str(path)) as reader:
        for batch in reader:
            yield pl.DataFrame(pl.from_arrow(batch))


def places_of(roots: Sequence[str]) -> dict[str, str]:
    """Map each bucket that holds tables to its URI."""
    return {place.bucket: place.root for place in map(bucket_of, roots)}


def prefixes_in(locations: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Map the locations that lie in a bucket, as prefixes with a slash at the end, to their names.

    The bucket's own root is the empty prefix. Of two names for one location the first in the order of names stays.
    """
    found: dict[str, str] = {}
    for name in sorted(locations):
        place = bucket_of(locations[name])
        if place.bucket == bucket:
            found.setdefault(f"{place.key}/" if place.key else "", name)
    return found


def with_longest_prefix(frame: pl.LazyFrame, prefixes: Mapping[str, str], *, into: str = "table") -> pl.LazyFrame:
    """Add a column with the longest prefix that each key begins with, or null.

    It takes one expression per depth of prefixes, whatever their number.

    Args:
        frame: Rows with the column ``key``.
        prefixes: Prefix ending in a slash (or empty) -> what to write into the column.
        into: The new column's name.
    """
    by_depth: dict[int, dict[str, str]] = {}
    for prefix, value in prefixes.items():
        by_depth.setdefault(prefix.count("/"), {})[prefix] = value
    found: list[pl.Expr] = []
    for depth in sorted(by_depth, reverse=True):
        if depth == 0:
            found.append(pl.lit(by_depth[0][""]))
            continue
        head = pl.col("key").str.extract(rf"^((?:[^/]*/){{{depth}}})")
        found.append(
            head.replace_strict(
                list(by_depth[depth]), list(by_depth[depth].values()), default=None, return_dtype=pl.String
            )
        )
    return frame.with_columns(pl.coalesce(found).alias(into) if found else pl.lit(None, pl.String).alias(into))
