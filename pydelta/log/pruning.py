"""Rows of a file table and conditions in, the rows that may match out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from pydelta.log.columns import PV_PREFIX
from pydelta.predicate.expressions import Expr, columns

if TYPE_CHECKING:
    from pydelta.log.files import FileTable

__all__ = ["prune_by_partition", "prune_by_statistics"]


def prune_by_partition(files: FileTable, frame: pl.DataFrame, expr: Expr, *, time_zone: str) -> pl.DataFrame:
    """Rows whose partition values make ``expr`` true. Each distinct combination is evaluated once.

    A condition that is false or null for the partition drops it; one that cannot be evaluated drops nothing.
    """
    spec = files.spec
    used = {path[0].lower() for path in columns(expr)}
    physical = [
        PV_PREFIX + name
        for name, logical in zip(spec.physical_names, spec.partition_columns, strict=True)
        if logical.lower() in used
    ]
    if frame.is_empty():
        return frame
    distinct = frame.select(PV_PREFIX + name if PV_PREFIX + name in physical else
                            pl.lit(None, dtype=pl.String).alias(PV_PREFIX + name)
                            for name in spec.physical_names).unique()  # fmt: skip
    from pydelta.predicate import NotEvaluable, partition_mask

    try:
        mask = partition_mask(expr, files.partition_frame(distinct, time_zone=time_zone))
    except NotEvaluable:
        return frame
    keep = mask.fill_null(False)
    if bool(keep.all()):
        return frame
    if not bool(keep.any()):
        return frame.clear()
    kept = distinct.filter(keep).select(physical)
    return frame.join(kept, on=physical, how="semi", nulls_equal=True, maintain_order="left")


def prune_by_statistics(
    files: FileTable, frame: pl.DataFrame, conditions: Sequence[Expr], *, time_zone: str
) -> pl.DataFrame:
    """Rows whose statistics do not rule out all the conditions."""
    return frame
