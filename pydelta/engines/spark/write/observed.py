"""Count rows on their way into a Python worker, by Spark itself: one node in the plan, no second job.

The count is an accumulator of the very job that runs the rows. Spark adds to it once a partition, when the first
successful attempt of its task ends: attempts that fail, or that speculation starts beside another, count nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pydelta.engines.spark.jvm import Jvm

__all__ = ["ObservedCounts", "counting", "counts_of", "observed_in", "observing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCounts:
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
    marked = F.lit(None).cast("string") if mark is None else mark
    return observing(rows, {"rows": F.count(F.lit(1)), "marked": F.count(marked)})


def observing(rows: DataFrame, aggregates: Mapping[str, Column]) -> tuple[DataFrame, str]:
    """Let Spark aggregate rows to whole numbers where they pass this place of the plan. See ``counting``.

    Returns:
        The rows, and the name under which ``observed_in`` has the aggregates.
    """
    place = f"pydelta-{uuid.uuid4()}"
    return rows.observe(place, *[value.alias(name) for name, value in aggregates.items()]), place


def counts_of(executed: DataFrame, name: str) -> ObservedCounts:
    """Read what was counted in the job that a DataFrame ran last; nothing counted is no row.

    Args:
        executed: The DataFrame whose action has ended.
        name: As ``counting`` gave it.
    """
    found = observed_in(executed).get(name, {})
    return ObservedCounts(rows=found.get("rows") or 0, marked=found.get("marked") or 0)


def observed_in(executed: DataFrame) -> Mapping[str, Mapping[str, int | None]]:
    """Read everything that was aggregated in the job that a DataFrame ran last, by place and name."""
    jvm = Jvm.of(executed.sparkSession)
    metrics = jvm.python_utils_map(executed._jdf.queryExecution().observedMetrics())
    # Python's loop over a Java map ends with an exception of the JVM, which takes some fifty calls to tell apart.
    return {str(place): json.loads(str(metrics.get(place).json())) for place in metrics.keySet().toArray()}
