"""Explain what a statement would do to a Delta table, and who would do the work, without running it: EXPLAIN.

::

    EXPLAIN DELETE | UPDATE | MERGE | INSERT …   parsed by Spark --> explain
    EXPLAIN OPTIMIZE …                           parsed by this engine --> own.py, by explained and optimize_way
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pydelta.api.sql.change import read_merge
from pydelta.api.sql.nodes import Nodes, StatementTarget
from pydelta.commands.optimize.plan import BIN
from pydelta.engines.spark.change.merge import foresee_merge
from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import DeltaError, error_context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pydelta.commands.optimize.command import PlannedOptimize
    from pydelta.log import Snapshot

__all__ = ["EXPLAINED", "explain", "explained", "optimize_way"]

_COMMANDS = {
    "DeleteFromTable": ("DELETE", "table"),
    "UpdateTable": ("UPDATE", "table"),
    "MergeIntoTable": ("MERGE", "targetTable"),
    "InsertIntoStatement": ("INSERT", "table"),
}
EXPLAINED = frozenset(_COMMANDS)
"""Node names of the statements that ``explain`` may handle."""


def explain(nodes: Nodes, node: Any) -> DataFrame | None:
    """Explain a statement that changes a Delta table: the command that would run, and the version it would read."""
    statement = node.logicalPlan()
    known = _COMMANDS.get(str(statement.nodeName()))
    if known is None:
        return None
    target = nodes.target(getattr(statement, known[1])(), changes=True)
    if target is None:
        return None
    log = nodes.log(target)
    with error_context(table=log.uri):
        snapshot = log.update()
        way = _way(nodes, statement, target, snapshot)
    return explained(nodes, known[0], target.name, snapshot, way, parsed=str(statement.toString()).rstrip())


def explained(
    nodes: Nodes, command: str, name: str, snapshot: Snapshot, ways: Sequence[str], *, parsed: str | None = None
) -> DataFrame:
    """Return the row of an EXPLAIN.

    Args:
        nodes: The statement's nodes.
        command: The command that would run.
        name: The table's name in the statement.
        snapshot: The version that would be read.
        ways: Who would do the work.
        parsed: The statement as Spark parsed it; None if Spark does not know it.
    """
    lines = [
        "== Physical Plan ==",
        f"Execute Delta {command}",
        f"   +- {name} [{', '.join(snapshot.schema.names)}] {snapshot.table_uri}@v{snapshot.version}, "
        f"{snapshot.num_files} files, {snapshot.size_bytes} bytes",
        *(f"   +- {way}" for way in ways),
        "",
    ]
    if parsed is not None:
        lines += ["== Parsed Logical Plan ==", parsed, ""]
    return nodes.jvm.one_row([F.lit("\n".join(lines)).alias("plan")])


def optimize_way(engine: SparkEngine, planned: PlannedOptimize) -> str:
    """Describe which files an OPTIMIZE would rewrite, who would do it, and why."""
    files = planned.files
    if files.is_empty():
        return "nobody: there is nothing to rewrite"
    size = int(files["size"].sum() or 0)
    groups = int(files[BIN].n_unique())
    to = f"into {groups}" if planned.layout is None else f"in order within {groups} groups"
    return f"{engine.foresee_rearranged(planned)} ({files.height} files, {size} bytes, {to})"


def _way(nodes: Nodes, statement: Any, target: StatementTarget, snapshot: Snapshot) -> Sequence[str]:
    """Describe how a DELETE, UPDATE or MERGE would find its rows; return nothing for one that would fail."""
    kind = str(statement.nodeName())
    if kind not in ("DeleteFromTable", "UpdateTable", "MergeIntoTable") or snapshot.version < 0:
        return ()
    try:
        if kind == "MergeIntoTable":
            source, merge = nodes.query(statement.sourceTable()), read_merge(nodes, statement, target, snapshot)
            return (f"Rows found by: {foresee_merge(nodes.spark, snapshot, source, merge)}",)
        given = statement.condition()
        condition = given if kind == "DeleteFromTable" else nodes.optional(given)
        if condition is None or str(condition.toString()).lower() == "true":
            return ()
        engine = SparkEngine(nodes.spark, alias=target.alias)
        return (f"Rows found by: {engine.foresee(snapshot, nodes.column(condition, target))}",)
    except (DeltaError, PySparkException):
        return ()
