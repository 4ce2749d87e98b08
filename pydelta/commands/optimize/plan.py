"""Group files into bins that become new files. Pure, and in columns: no loop over a million files.

::

    files of a table --candidates--> worth rewriting: small, or with many hidden rows
                     --pack--------> bins: same partition, at most the target size, smallest files first
                     --plan--------> bins of two files or more (or of one file with many hidden rows)
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
"""Column of a plan: the files of one bin become one new file (compaction), or are laid out together (clustering)."""


_FEWEST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """Size limits for new files and for the choice of old ones. Sizes are in bytes.

    Args:
        target_bytes: Maximum of bytes of old files per new file.
        min_bytes: Files smaller than this are candidates.
        max_deleted_ratio: Files with a larger share of hidden rows are candidates, whatever their size.
        max_files_per_partition: Maximum of files per partition in one run, the smallest first; None for all.
        min_files: Minimum of candidates in a partition for it to be rewritten.
    """

    target_bytes: int
    min_bytes: int
    max_deleted_ratio: float = 0.05
    max_files_per_partition: int | None = None
    min_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The order in which rows are written.

    Args:
        columns: Logical paths, all equally important.
        curve: ``zorder`` or ``hilbert``; irrelevant with one column.
    """

    columns: tuple[tuple[str, ...], ...]
    curve: str


def pack(files: pl.DataFrame, *, partition_by: Sequence[str], target_bytes: int) -> pl.DataFrame:
    """Pack files into bins: next fit, smallest first, partitions apart.

    Args:
        files: Columns ``path``, ``size`` and those of ``partition_by``.
        partition_by: Columns whose values are equal within a bin.
        target_bytes: Maximum of bytes per bin; a larger file gets a bin for itself.

    Returns:
        The files sorted by partition, size and path, with ``bin`` (UInt32) from 0 upwards. The bins do not depend on
        the order of the files.
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
    """Return where the runs of equal keys end, ascending."""
    if not keys:
        return np.array([ordered.height])
    lengths = ordered.select(pl.struct(keys).rle_id().alias("run")).group_by("run", maintain_order=True).len()["len"]
    return np.cumsum(lengths.to_numpy())


def plan_compaction(files: pl.DataFrame, *, partition_by: Sequence[str], limits: SizeLimits) -> pl.DataFrame:
    """Choose the files that a compaction rewrites, and group them.

    Args:
        files: Rows of a file table: ``path``, ``size``, the partition columns, and ``deleted_ratio`` (the share of
            hidden rows, 0 to 1).
        partition_by: The partition columns of the frame.
        limits: Sizes.

    Returns:
        The files to rewrite with ``bin``, numbered from 0 without gaps. There is a bin of one file only if many of its
        rows are hidden.
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
            file in exactly this order, null for an unordered file; ``foreign`` (bool): whether another engine ordered
            the file.
        partition_by: The partition columns of the frame.
        small_bytes: An ordered file that is smaller is worth merging with others.
        incremental: Leave alone the files that another engine ordered, and ordered files except small ones next to
            new files or of several runs.

    Returns:
        The files to rewrite, with ``bin``: one bin per partition.
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
