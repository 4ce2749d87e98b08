"""Add identity column values to rows without them, and return the last values used.

::

    partition 0:  next, next + n·step, next + 2n·step …
    partition 1:  next + step, next + (n + 1)·step …          n partitions: no two rows get one value

The number of partitions is known because the rows' plan is prepared before values are added. Values are unique as long
as no other writer uses the same mark: the commit that uses them moves the mark or fails.
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
    """The last identity values used, available once the rows are written.

    Args:
        place: Name of the observation in the job; None if there is none.
    """

    place: str | None = None

    def marks(self, written: RewriteOutput) -> Mapping[str, int]:
        """Return per column the value furthest in the direction of its step. Columns without rows are absent.

        Args:
            written: Output of the job that wrote the rows; if there were several attempts, the successful one.
        """
        found = {} if self.place is None else written.observed.get(self.place, {})
        return {column: value for column, value in found.items() if value is not None}


def with_identities(
    spark: SparkSession, rows: DataFrame, columns: Sequence[Identity], *, prefix: str = ""
) -> tuple[DataFrame, GivenValues]:
    """Add identity columns to rows.

    Args:
        spark: The session.
        rows: Rows without the columns.
        columns: The missing columns.
        prefix: Prefix for the names of the new columns.

    Returns:
        The rows with the columns appended, and an object that returns the marks after the write. A value that does not
        fit in 64 bits fails the job.
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
    """Return the same rows with fixed partitions and the number of these. Shuffles run once, here."""
    execution: Any = rows._jdf.queryExecution()
    if str(execution.analyzed().nodeName()) == "LogicalRDD":
        return rows, int(execution.analyzed().rdd().getNumPartitions())
    # These are the values of an INSERT, which are numbered without gaps.
    if str(execution.optimizedPlan().nodeName()) == "LocalRelation":
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
