"""Choose the error condition for a name that is not a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydelta.engines.spark.catalog.lookup import ViewEntry, look_up
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["absent_name"]


def absent_name(spark: SparkSession, parts: tuple[str, ...], operation: str) -> Condition:
    """Choose the condition for a name that belongs to a view, to another table, or to nothing.

    Args:
        spark: The session.
        parts: The name.
        operation: The statement that needs a Delta table.
    """
    name = ".".join(parts)
    if isinstance(look_up(spark, parts), ViewEntry):
        if operation == "RESTORE":
            return Condition.of("DELTA_ONLY_OPERATION", operation=operation)
        if operation == "CLONE":
            return Condition.of("DELTA_CLONE_UNSUPPORTED_SOURCE", name=name, format="View")
        return Condition.of("EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", viewName=name, operation=operation)
    if Jvm.of(spark).session.catalog().tableExists(quoted(*parts)):
        return Condition.of("DELTA_ONLY_OPERATION", operation=operation)
    return Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=name)
