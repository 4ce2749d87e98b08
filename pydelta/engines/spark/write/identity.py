"""Add values of identity columns to rows that have none, and tell how far they went.

::

    partition 0:  next, next + n·step, next + 2n·step …
    partition 1:  next + step, next + (n + 1)·step …          n partitions: no two rows get one value

The number of partitions is known because the rows' own plan is set up before values are added to it. Values are
unique as long as nobody else gives out any from the same mark: the commit that uses them moves it, or fails.
Protocol: "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pydelta.commands.engine import RewriteOutput
from pydelta.engines.spark.write.columns import name, raised
from pydelta.engines.spark.write.observed import observing
from pydelta.protocol.identity import Identity

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["GivenValues", "with_identities"]

_PARTITION_BITS: Final = 33
_NUMBER: Final = "__pydelta_identity"


@dataclass(frozen=True, slots=True)
class GivenValues:
    """How far the values went, once the rows were written.

    Args:
        place: Where the job looked at them; None where there are none.
    """

    place: str | None = None

    def marks(self, written: RewriteOutput) -> Mapping[str, int]:
        """Return per column the value furthest in the direction of its step; columns without a row are absent.

        Args:
            written: By the job that wrote the rows: of several attempts, the one that ended well.
        """
        found = {} if self.place is None else written.observed.get(self.place, {})
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
        return rows, GivenValues()
    fixed, partitions = _fixed(spark, rows)
    numbered = fixed.withColumn(_NUMBER, F.monotonically_increasing_id())
    within = name(_NUMBER).bitwiseAND(F.lit((1 << _PARTITION_BITS) - 1))
    place = within * F.lit(max(partitions, 1)).cast("long") + F.shiftrightunsigned(name(_NUMBER), _PARTITION_BITS)
    numbered = numbered.withColumn(_NUMBER, place)
    new = {prefix + identity.column: _value(identity, name(_NUMBER)) for identity in columns}
    with_values = numbered.withColumns(new)
    furthest = {
        identity.column: (F.max if identity.step > 0 else F.min)(name(prefix + identity.column)) for identity in columns
    }
    observed, seen_at = observing(with_values.drop(_NUMBER), furthest)
    return observed, GivenValues(seen_at)


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
    message = (
        f"The values of the identity column {identity.column!r} are used up: the next one does not fit into bigint."
    )
    return F.coalesce(value, raised(F.lit(message)).cast("long"))
