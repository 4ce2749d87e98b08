"""Answer DESCRIBE and SHOW as Spark parsed them: DataFrames with Spark's own columns, from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydelta.api.sql import describe as describe_sql
from pydelta.api.sql.nodes import Nodes, StatementTarget, text_of
from pydelta.engines.spark.scan.caches import refresh_caches
from pydelta.errors import UnsupportedFeatureError, error_context
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["describe", "nothing_to_do", "show"]


def _target(nodes: Nodes, node: Any) -> StatementTarget | None:
    target = nodes.target(node)
    return None if target is None or target.entry.twin else target


def describe(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``DESCRIBE [EXTENDED] table [column]``."""
    kind = str(node.nodeName())
    target = _target(nodes, node.table() if kind == "DescribeTablePartition" else node.relation())
    if target is None:
        return None
    if kind == "DescribeTablePartition":
        raise UnsupportedFeatureError(
            f"{target.name} is a Delta table: its partitions have no separate descriptions.",
            features=("DESCRIBE … PARTITION",),
            hint="SHOW PARTITIONS lists them.",
            condition=Condition.of("INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED", name=target.name),
        )
    column = nodes.names(node.column().nameParts()) if kind == "DescribeColumn" else None
    log = nodes.log(target)
    with error_context(table=log.uri):
        return describe_sql.describe_table(
            nodes.spark, target.entry, log.update(), extended=bool(node.isExtended()), column=column
        )


def show(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``SHOW COLUMNS | PARTITIONS | TBLPROPERTIES | CREATE TABLE``."""
    kind = str(node.nodeName())
    target = _target(nodes, node.table() if kind in ("ShowPartitions", "ShowTableProperties") else node.child())
    if target is None:
        return None
    log = nodes.log(target)
    with error_context(table=log.uri):
        snapshot = log.update()
        if kind == "ShowColumns":
            return describe_sql.show_columns(nodes.spark, target.entry, snapshot)
        if kind == "ShowPartitions":
            pattern = nodes.optional(node.pattern())
            spec = None if pattern is None else nodes.mapping(pattern.spec())
            return describe_sql.show_partitions(nodes.spark, target.entry, snapshot, spec)
        if kind == "ShowTableProperties":
            key = text_of(nodes.optional(node.propertyKey()))
            return describe_sql.show_tblproperties(nodes.spark, target.entry, snapshot, key)
        return describe_sql.show_create_table(nodes.spark, target.entry, snapshot)


def nothing_to_do(nodes: Nodes, node: Any) -> DataFrame | None:
    """Answer ``REFRESH TABLE`` and ``ANALYZE TABLE``: the log already has versions and statistics.

    REFRESH still refreshes cached data, which otherwise follows only this session's commits.
    """
    target = _target(nodes, node.child())
    if target is None:
        return None
    if str(node.nodeName()) == "RefreshTable":
        refresh_caches(nodes.spark, nodes.log(target).uri)
    return nodes.jvm.nothing()
