"""Rows without values in identity columns in, the same rows with values out; and how far that went.

::

    partition 0:  next, next + n·step, next + 2n·step …
    partition 1:  next + step, next + (n + 1)·step …          n partitions: no two rows get one value

The number of partitions is known because the rows' own plan is set up before values are added to it. Values are
unique as long as nobody else gives out any from the same mark: the commit that uses them moves it, or fails.
Protocol: "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pydelta.protocol.identity import Identity
from pydelta.spark.write_columns import name, raised

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["GivenValues", "with_identities"]

_PARTITION_BITS: Final = 33
_NUMBER: Final = "__pydelta_identity"


class GivenValues:
    """How far the values went, once the rows were written."""

    def __init__(self, observation: Observation | None) -> None:
        self._observation = observation

    def marks(self) -> Mapping[str, int]:
        """By column, the value furthest in the direction of its step; columns without a row are absent.

        Call it when the job that wrote the rows has ended well, and not before.
        """
        if self._observation is None:
            return {}
        found: Mapping[str, int | None] = self._observation.get
        return {column: value for column, value in found.items() if value is not None}


def with_identities(
    spark: SparkSession, rows: DataFrame, columns: Sequence[Identity], *, prefix: str = ""
) -> tuple[DataFrame, GivenValues]:
    """Add identity columns to rows.

    Args:
        spark: The session.
        rows: Rows that lack the columns.
        columns: What they lack.
        prefix: In front of the new columns' names.

    Returns:
        The rows with the columns behind the others, and what tells the marks after the rows were written. A value
        that no longer fits 64 bits fails the job.
    """
    if not columns:
        return rows, GivenValues(None)
    fixed, partitions = _fixed(spark, rows)
    numbered = fixed.withColumn(_NUMBER, F.monotonically_increasing_id())
    within = name(_NUMBER).bitwiseAND(F.lit((1 << _PARTITION_BITS) - 1))
    place = within * F.lit(max(partitions, 1)).cast("long") + F.shiftrightunsigned(name(_NUMBER), _PARTITION_BITS)
    numbered = numbered.withColumn(_NUMBER, place)
    new = {prefix + identity.column: _value(identity, name(_NUMBER)) for identity in columns}
    with_values = numbered.withColumns(new)
    observation = Observation()
    furthest = [
        (F.max if identity.step > 0 else F.min)(name(prefix + identity.column)).alias(identity.column)
        for identity in columns
    ]
    return with_values.drop(_NUMBER).observe(observation, *furthest), GivenValues(observation)


def _fixed(spark: SparkSession, rows: DataFrame) -> tuple[DataFrame, int]:
    """The same rows over the partitions that their plan comes to, and how many these are; shuffles run once, here."""
    execution: Any = rows._jdf.queryExecution()
    if str(execution.analyzed().nodeName()) == "LogicalRDD":
        return rows, int(execution.analyzed().rdd().getNumPartitions())
    if str(execution.optimizedPlan().nodeName()) == "LocalRelation":  # values of an INSERT: numbered without gaps
        rows = rows.coalesce(1)
        execution = rows._jdf.queryExecution()
    rdd = execution.toRdd()
    session: Any = spark._jsparkSession
    fixed = session.internalCreateDataFrame(rdd, rows._jdf.schema(), False)
    return DataFrame(fixed, spark), int(rdd.getNumPartitions())


def _value(identity: Identity, place: Column) -> Column:
    first, step = F.lit(identity.next).cast("long"), F.lit(identity.step).cast("long")
    value = F.try_add(first, F.try_multiply(step, place))
    message = f"The values of the identity column {identity.column!r} are used up: the next one does not fit bigint."
    return F.coalesce(value, raised(F.lit(message)).cast("long"))
