"""Build a ``DeltaTable.optimize()``: choose partitions, then compact them or sort their rows.

The names and signatures are those that Delta users know.

::

    table.optimize() --where("day < '2024-01-01'")--> executeCompaction()          small files merged
                                                  `--> executeZOrderBy("a", "b")    rows sorted along a Z-order curve
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from pydelta.api.python.arguments import check_columns, checked, of_type
from pydelta.api.python.remote import Remote, further, rows, sent
from pydelta.commands.optimize.command import Optimize
from pydelta.engines.spark.frames import optimize_frame
from pydelta.engines.spark.logs import user_errors
from pydelta.engines.spark.running import run_in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.api.python.wire import Call
    from pydelta.log import DeltaLog

__all__ = ["DeltaOptimizeBuilder", "RemoteOptimizeBuilder", "optimizing"]


class DeltaOptimizeBuilder:
    """An OPTIMIZE under construction; an ``execute…`` method runs it. Made by ``DeltaTable.optimize()``."""

    def __init__(self, spark: SparkSession, log: DeltaLog, *, alias: str | None = None) -> None:
        self._spark = spark
        self._log = log
        self._alias = alias
        self._condition: str | None = None

    @checked(partitionFilter=of_type(str))
    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Limit OPTIMIZE to the partitions for which a condition is true.

        Args:
            partitionFilter: SQL text over partition columns.
        """
        self._condition = partitionFilter
        return self

    @checked(full=of_type(bool))
    def executeCompaction(self, *, full: bool = False) -> DataFrame:
        """Merge small files, in one commit or none; in a clustered table, sort new rows.

        Args:
            full: For a clustered table, sort all files again, as ``OPTIMIZE … FULL`` does.

        Returns:
            One row: ``path`` and ``metrics`` (files added and removed, their sizes, partitions, bins …).

        Raises:
            InvalidArgumentError: The condition names a column that is not a partition column, or the table is
                clustered, so it takes no condition.
            ConcurrentDeleteReadException: Another writer deleted or rewrote a file. Nothing was changed; run it again.

        Protocol: "Add File and Remove File", "Clustered Table".
        """
        return self._run(full=full)

    @checked(cols=check_columns("Z-order column"))
    def executeZOrderBy(self, *cols: str | Iterable[str]) -> DataFrame:
        """Sort the rows of the chosen partitions along a Z-order curve, in one commit.

        Args:
            cols: Names, dotted for nested fields, also as one list. Without names, it is ``executeCompaction``.

        Returns:
            See ``executeCompaction``.

        Raises:
            BindError: The table has no such column.
            InvalidArgumentError: A column is a partition column, or has no statistics.
            ConcurrentDeleteReadException: See ``executeCompaction``.
        """
        return self._run(cast("tuple[str, ...]", cols))

    def _run(self, zorder_by: tuple[str, ...] = (), *, full: bool = False) -> DataFrame:
        with user_errors(self._log):
            command = Optimize(condition=self._condition, zorder_by=zorder_by, full=full)
            result = run_in_session(self._spark, command, self._log, alias=self._alias)
            return optimize_frame(self._spark, self._log, result)


class RemoteOptimizeBuilder(Remote):
    """An OPTIMIZE of a remote table under construction; see ``DeltaOptimizeBuilder``."""

    where = sent(DeltaOptimizeBuilder.where, further)
    executeCompaction = sent(DeltaOptimizeBuilder.executeCompaction, rows)
    executeZOrderBy = sent(DeltaOptimizeBuilder.executeZOrderBy, rows)


def optimizing(table: Any, call: Call) -> RemoteOptimizeBuilder:
    """Start the OPTIMIZE of a remote table; see ``sent``."""
    return RemoteOptimizeBuilder(table.chain.then(call))
