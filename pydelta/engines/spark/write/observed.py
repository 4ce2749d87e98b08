"""Count rows on their way into a Python worker within the plan, without a second job.

The count is an accumulator of the job that runs the rows. Spark adds to it once per partition, when the first
successful attempt of its task ends. Failed or speculative attempts do not count.
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
    """The number of rows that Spark passed on: all of them, and those with a mark."""

    rows: int
    marked: int


def counting(rows: DataFrame, mark: Column | None = None) -> tuple[DataFrame, str]:
    """Count rows at this point of the plan.

    Args:
        rows: The rows. Operations on top must keep every row, so that Spark cannot move the node.
        mark: A column. Rows where it is not null are counted separately.

    Returns:
        The rows, and the name under which ``counts_of`` finds the counts.
    """
    marked = F.lit(None).cast("string") if mark is None else mark
    return observing(rows, {"rows": F.count(F.lit(1)), "marked": F.count(marked)})


def observing(rows: DataFrame, aggregates: Mapping[str, Column]) -> tuple[DataFrame, str]:
    """Aggregate rows to integers at this point of the plan. See ``counting``.

    Returns:
        The rows, and the name under which ``observed_in`` has the aggregates.
    """
    place = f"pydelta-{uuid.uuid4()}"
    return rows.observe(place, *[value.alias(name) for name, value in aggregates.items()]), place


def counts_of(executed: DataFrame, name: str) -> ObservedCounts:
    """Read the counts of the last job that a DataFrame ran. No count means no rows.

    Args:
        executed: The DataFrame, after its action has ended.
        name: The name that ``counting`` returned.
    """
    found = observed_in(executed).get(name, {})
    return ObservedCounts(rows=found.get("rows") or 0, marked=found.get("marked") or 0)


def observed_in(executed: DataFrame) -> Mapping[str, Mapping[str, int | None]]:
    """Read all aggregates of the last job that a DataFrame ran, by position and name."""
    jvm = Jvm.of(executed.sparkSession)
    metrics = jvm.python_utils_map(executed._jdf.queryExecution().observedMetrics())
    # A Python loop over a Java map ends with a JVM exception, and examining it costs about fifty calls.
    return {str(place): json.loads(str(metrics.get(place).json())) for place in metrics.keySet().toArray()}
