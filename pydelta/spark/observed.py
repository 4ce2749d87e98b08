"""Rows on their way into a Python worker in, how many Spark itself counted out: one node in the plan, no second job.

The count is an accumulator of the very job that runs the rows. Spark adds to it once a partition, when the first
successful attempt of its task ends: attempts that fail, or that speculation starts beside another, count nothing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pydelta.spark.jvm import Jvm

__all__ = ["RowCounts", "counting", "counts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows Spark handed on: all of them, and those that carry a mark."""

    rows: int
    marked: int


def counting(rows: DataFrame, mark: Column | None = None) -> tuple[DataFrame, str]:
    """Let Spark count rows where they pass this place of the plan.

    Args:
        rows: The rows; what is put on top of them must keep every row, so that Spark cannot move the node.
        mark: A column; rows where it is not null are counted apart.

    Returns:
        The rows, and the name by which ``counts_of`` finds the counts.
    """
    name = f"pydelta-{uuid.uuid4()}"
    marked = F.lit(None).cast("string") if mark is None else mark
    return rows.observe(name, F.count(F.lit(1)).alias("rows"), F.count(marked).alias("marked")), name


def counts_of(executed: DataFrame, name: str) -> RowCounts:
    """Read what was counted in the job that a DataFrame ran last; nothing counted is no row.

    Args:
        executed: The DataFrame whose action has ended.
        name: As ``counting`` gave it.
    """
    found = executed._jdf.queryExecution().observedMetrics()
    row = Jvm.of(executed.sparkSession).python_utils_map(found).get(name)
    if row is None:
        return RowCounts(rows=0, marked=0)
    return RowCounts(rows=int(row.getLong(0)), marked=int(row.getLong(1)))
