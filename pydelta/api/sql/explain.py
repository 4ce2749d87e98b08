"""Tell what a statement that changes a Delta table would do, and who would do the work: EXPLAIN. Nothing is run.

::

    EXPLAIN DELETE | UPDATE | MERGE | INSERT …   as Spark parsed it --> explain
    EXPLAIN OPTIMIZE …                           as this engine did --> own.py, by explained and optimize_way
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
"""Names of the statements that ``explain`` may know."""


def explain(nodes: Nodes, node: Any) -> DataFrame | None:
    """Explain a statement that changes a Delta table: which command would run, on which version."""
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
        nodes: Of the statement.
        command: What would run.
        name: The table as it is called.
        snapshot: What would be read.
        ways: Who would do the work.
        parsed: The statement as Spark parsed it; None for one that Spark does not know.
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
    """Say who would rewrite the files of an OPTIMIZE, which, and why."""
    files = planned.files
    if files.is_empty():
        return "nobody: there is nothing to rewrite"
    size = int(files["size"].sum() or 0)
    groups = int(files[BIN].n_unique())
    to = f"into {groups}" if planned.layout is None else f"in order within {groups} groups"
    return f"{engine.foresee_rearranged(planned)} ({files.height} files, {size} bytes, {to})"


def _way(nodes: Nodes, statement: Any, target: StatementTarget, snapshot: Snapshot) -> Sequence[str]:
    """Say where the rows of a DELETE, UPDATE or MERGE would be found; nothing of one that fails when it runs."""
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
