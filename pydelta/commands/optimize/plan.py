"""Group files into bins that become new files. Pure, and in columns: no loop over a million files.

::

    files of a table --candidates--> worth rewriting: small, or with many rows deleted
                     --pack--------> bins: same partition, at most the target size, smallest files first
                     --plan--------> bins of two files or more (or of one file whose deleted rows should go)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["BIN", "Layout", "SizeLimits", "pack", "plan_compaction", "plan_layout", "size_summary"]

BIN: Final = "bin"
"""Column of a plan: which files become one new file (compaction), or are laid out together (clustering)."""


_FEWEST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """What a new file may hold, and which files are left alone. Sizes in bytes.

    Args:
        target_bytes: Most bytes of old files that go into one new file.
        min_bytes: Files smaller than this are candidates.
        max_deleted_ratio: Files of which more than this part is deleted are candidates, whatever their size.
        max_files_per_partition: Most files of a partition taken in one run, the smallest first; None for all.
        min_files: Fewest candidates of a partition for anything to be done in it.
    """

    target_bytes: int
    min_bytes: int
    max_deleted_ratio: float = 0.05
    max_files_per_partition: int | None = None
    min_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows are put in order before they are written.

    Args:
        columns: Logical paths, the first no more important than the last.
        curve: ``zorder`` or ``hilbert``; of no account with one column.
    """

    columns: tuple[tuple[str, ...], ...]
    curve: str


def pack(files: pl.DataFrame, *, partition_by: Sequence[str], target_bytes: int) -> pl.DataFrame:
    """Put files into bins: next fit, smallest first, partitions apart.

    Args:
        files: Columns ``path``, ``size`` and those of ``partition_by``.
        partition_by: Columns that the files of a bin agree in.
        target_bytes: Most bytes a bin holds; a larger file has one of its own.

    Returns:
        The files sorted by partition, size and path, with ``bin`` (UInt32) from 0 upwards. The same files in any
        order give the same bins.
    """
    keys = list(partition_by)
    ordered = files.sort([*keys, "size", "path"], nulls_last=True)
    if ordered.is_empty():
        return ordered.with_columns(pl.lit(0, dtype=pl.UInt32).alias(BIN))
    total = np.cumsum(ordered["size"].to_numpy())
    ends = _run_ends(ordered, keys)
    starts: list[int] = []
    position, count = 0, ordered.height
    while position < count:
        starts.append(position)
        before = int(total[position - 1]) if position else 0
        fitting = int(np.searchsorted(total, before + target_bytes, side="right"))
        end_of_partition = int(ends[np.searchsorted(ends, position, side="right")])
        position = min(max(fitting, position + 1), end_of_partition)
    marks = np.zeros(count, dtype=np.uint32)
    marks[np.array(starts[1:], dtype=np.int64)] = 1
    return ordered.with_columns(pl.Series(BIN, np.cumsum(marks, dtype=np.uint32)))


def _run_ends(ordered: pl.DataFrame, keys: list[str]) -> npt.NDArray[Any]:
    """Where the runs of equal keys end, ascending."""
    if not keys:
        return np.array([ordered.height])
    lengths = ordered.select(pl.struct(keys).rle_id().alias("run")).group_by("run", maintain_order=True).len()["len"]
    return np.cumsum(lengths.to_numpy())


def plan_compaction(files: pl.DataFrame, *, partition_by: Sequence[str], limits: SizeLimits) -> pl.DataFrame:
    """Choose the files that a compaction rewrites, and which of them together.

    Args:
        files: Rows of a file table: ``path``, ``size``, the partition columns, and ``deleted_ratio`` (part of the
            rows that a deletion vector hides, 0 to 1).
        partition_by: The partition columns of the frame.
        limits: Sizes.

    Returns:
        The files to rewrite with ``bin``, numbered from 0 without gaps. A bin of one file is there only if many of
        the file's rows are deleted.
    """
    many_deleted = pl.col("deleted_ratio") > limits.max_deleted_ratio
    candidates = files.filter((pl.col("size") < limits.min_bytes) | many_deleted)
    keys: list[Any] = [*partition_by] or [pl.lit(0)]
    if limits.min_files > _FEWEST:
        candidates = candidates.filter(pl.len().over(keys) >= limits.min_files)
    if limits.max_files_per_partition is not None:
        candidates = candidates.sort(["size", "path"]).filter(
            pl.int_range(pl.len()).over(keys) < limits.max_files_per_partition
        )
    packed = pack(candidates, partition_by=partition_by, target_bytes=limits.target_bytes)
    useful = packed.filter((pl.len().over(BIN) >= _FEWEST) | many_deleted.any().over(BIN))
    return useful.with_columns(pl.col(BIN).rle_id().alias(BIN))


def plan_layout(
    files: pl.DataFrame, *, partition_by: Sequence[str], small_bytes: int, incremental: bool
) -> pl.DataFrame:
    """Choose the files to put in order, partition by partition.

    Args:
        files: Rows of a file table: ``path``, ``size``, the partition columns; ``group`` (text): the run that put the
            file in this very order, null for a file in no such order; ``foreign`` (bool): in an order that another
            engine answers for.
        partition_by: The partition columns of the frame.
        small_bytes: A file in order that is smaller is worth merging with others.
        incremental: Leave alone the files that are in order already, apart from small ones beside new files or of
            several runs, and those that another engine ordered.

    Returns:
        The files to rewrite, with ``bin``: one bin a partition.
    """
    keys = list(partition_by)
    if incremental:
        files = files.filter(~pl.col("foreign") & (pl.col("group").is_null() | (pl.col("size") < small_bytes)))
        fresh = pl.col("group").is_null().any()
        several = pl.col("group").n_unique() > 1
        over: list[Any] = list(keys) or [pl.lit(0)]
        files = files.filter((fresh | several).over(over)) if files.height else files
    ordered = files.sort([*keys, "size", "path"], nulls_last=True)
    number = pl.struct(keys).rle_id() if keys else pl.lit(0, dtype=pl.UInt32)
    return ordered.with_columns(number.cast(pl.UInt32).alias(BIN))


def size_summary(sizes: Sequence[int]) -> dict[str, int | float | None]:
    """Compute ``min``, ``max``, ``avg``, ``totalFiles`` and ``totalSize`` of files, as OPTIMIZE reports them; bytes."""
    total = sum(sizes)
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": total / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": total,
    }
