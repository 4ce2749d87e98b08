"""Run DELETE, UPDATE, MERGE and TRUNCATE as Spark parsed them, and return one row of counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pydelta.api.sql.nodes import Named, Nodes, StatementTarget, is_default
from pydelta.commands.change.delete import Delete
from pydelta.commands.change.merge import ClauseAction, ClauseOn, Merge, MergeClause, Merging
from pydelta.commands.change.update import Update
from pydelta.commands.run import existing_table
from pydelta.engines.spark.change.merge import MergeStatement, SparkMerge
from pydelta.engines.spark.frames import counts_frame
from pydelta.engines.spark.logs import absent_path, settings_of
from pydelta.engines.spark.running import run_in_session
from pydelta.engines.spark.write.columns import default_of
from pydelta.errors import BindError, InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError, error_context
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pydelta.commands.engine import Assignments
    from pydelta.log import DeltaLog, Snapshot
    from pydelta.protocol.schema import StructType

__all__ = ["delete", "merge", "truncate", "update"]

_Sides: TypeAlias = tuple[StatementTarget | Named, ...]
_CLAUSES = (
    (ClauseOn.MATCHED, "matchedActions"),
    (ClauseOn.NOT_MATCHED, "notMatchedActions"),
    (ClauseOn.NOT_MATCHED_BY_SOURCE, "notMatchedBySourceActions"),
)


def delete(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``DELETE FROM table [WHERE …]``."""
    target = nodes.target(node.table(), changes=True)
    if target is None:
        return None
    condition = None if _is_true(node.condition()) else nodes.column(node.condition(), target)
    return _delete(nodes, target, condition)


def truncate(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``TRUNCATE TABLE table``, which deletes every row and keeps the history."""
    target = nodes.target(node.table())
    if target is None:
        return None
    if str(node.nodeName()) == "TruncatePartition":
        raise UnsupportedFeatureError(
            f"{target.name} is a Delta table: TRUNCATE cannot name a partition.",
            features=("TRUNCATE … PARTITION",),
            hint=f"Write DELETE FROM {target.name} WHERE …, which reads no data file either.",
            condition=Condition.of("DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED"),
        )
    _delete(nodes, target, None, truncates=True)
    return nodes.jvm.nothing()


def _delete(nodes: Nodes, target: StatementTarget, condition: Column | None, *, truncates: bool = False) -> DataFrame:
    log = nodes.log(target)
    with _changing(target, log):
        command = Delete(condition=condition, always=("true",), truncates=truncates)
        result = run_in_session(nodes.spark, command, log, alias=target.alias)
    return _counts(
        nodes, result.skipped, num_affected_rows=-1 if result.num_deleted_rows is None else result.num_deleted_rows
    )


def update(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``UPDATE table SET … [WHERE …]``."""
    target = nodes.target(node.table(), changes=True)
    if target is None:
        return None
    log = nodes.log(target)
    with _changing(target, log):
        schema = existing_table(log.update()).schema
        assignments = _assignments(nodes, node.assignments(), (target,), schema)
        where = nodes.optional(node.condition())
        condition = None if where is None else nodes.column(where, target)
        command = Update(assignments=assignments, condition=condition)
        result = run_in_session(nodes.spark, command, log, alias=target.alias)
    return _counts(nodes, result.skipped, num_affected_rows=result.num_updated_rows)


def merge(nodes: Nodes, node: Any) -> DataFrame | None:
    """Run ``MERGE [WITH SCHEMA EVOLUTION] INTO table USING source ON … WHEN …``."""
    target = nodes.target(node.targetTable(), changes=True)
    if target is None:
        return None
    log = nodes.log(target)
    source = nodes.query(node.sourceTable())
    with _changing(target, log):
        statement = read_merge(nodes, node, target, existing_table(log.update()))

        def begin(snapshot: Snapshot) -> Merging:
            return SparkMerge(nodes.spark, snapshot, source, statement)

        result = run_in_session(nodes.spark, Merge(begin, statement.clauses), log, alias=target.alias)
    counts = (result.num_updated_rows, result.num_deleted_rows, result.num_inserted_rows)
    return _counts(
        nodes,
        result.skipped,
        num_affected_rows=sum(counts),
        num_updated_rows=counts[0],
        num_deleted_rows=counts[1],
        num_inserted_rows=counts[2],
    )


def read_merge(nodes: Nodes, node: Any, target: StatementTarget, snapshot: Snapshot) -> MergeStatement:
    """Read a MERGE as Spark parsed it, for a version of its table."""
    relation = nodes.named(node.sourceTable())
    sides = (target,) if relation is None else (target, relation)
    clauses = [
        _clause(nodes, on, action, sides, snapshot.schema)
        for on, field in _CLAUSES
        for action in nodes.items(getattr(node, field)())
    ]
    evolve = bool(node.withSchemaEvolution()) or settings_of(nodes.spark).schema_auto_merge
    condition = nodes.column(node.mergeCondition(), *sides)
    return MergeStatement(condition=condition, clauses=clauses, alias=target.alias, evolve=evolve)


def _clause(nodes: Nodes, on: ClauseOn, action: Any, sides: _Sides, schema: StructType) -> MergeClause:
    kind = str(action.nodeName())
    where = nodes.optional(action.condition())
    condition = None if where is None else nodes.column(where, *sides)
    if kind == "DeleteAction":
        return MergeClause(on=on, action=ClauseAction.DELETE, condition=condition)
    kind_of_change = ClauseAction.INSERT if kind.startswith("Insert") else ClauseAction.UPDATE
    if kind in ("UpdateStarAction", "InsertStarAction"):
        return MergeClause(on=on, action=kind_of_change, condition=condition)
    values = _assignments(nodes, action.assignments(), sides, schema)
    return MergeClause(on=on, action=kind_of_change, condition=condition, assignments=values)


def _assignments(nodes: Nodes, items: Any, sides: _Sides, schema: StructType) -> Assignments:
    """Return the assigned columns with their values; the first side is the table."""
    found: list[tuple[str, Any]] = []
    for item in nodes.items(items):
        names = _unqualified(nodes.names(item.key().nameParts()), sides[0], schema)
        value = item.value()
        text = ".".join(f"`{name.replace('`', '``')}`" for name in names)
        found.append((text, _default(schema, names) if is_default(value) else nodes.column(value, *sides)))
    return found


def _unqualified(names: Sequence[str], target: StatementTarget | Named, schema: StructType) -> Sequence[str]:
    """Return a column's name without its table qualifier; a column that has the table's name takes precedence."""
    lower = tuple(name.lower() for name in names)
    for qualifier in target.qualifiers:
        size = len(qualifier)
        if size < len(names) and lower[:size] == qualifier and schema.field(names[0]) is None:
            return names[size:]
    return names


def _default(schema: StructType, names: Sequence[str]) -> Column:
    field = schema.field(names[0])
    if field is None or len(names) > 1:
        raise BindError(
            f"DEFAULT stands for {'.'.join(names)}, which is not a column of the table.",
            hint=f"The table's columns are: {', '.join(schema.names)}.",
            condition=Condition.of(
                "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=".".join(names), proposal=schema.names
            ),
        )
    if "delta.identity.step" in field.metadata:
        raise InvalidArgumentError(
            f"DEFAULT stands for {field.name!r}, an identity column: its values are computed if it is left out.",
            hint="Leave the column out.",
        )
    return default_of(field)


@contextmanager
def _changing(target: StatementTarget, log: DeltaLog) -> Iterator[None]:
    """Add the table to errors; a table that is missing at a path gets Spark's error condition for that."""
    with error_context(table=log.uri):
        try:
            yield
        except TableNotFoundError as error:
            if target.entry.by_path and error.code == TableNotFoundError.code:
                error.called(absent_path(log))
            raise


def _is_true(expression: Any) -> bool:
    return str(expression.nodeName()) == "Literal" and str(expression.toString()).lower() == "true"


def _counts(nodes: Nodes, skipped: bool, **counts: int) -> DataFrame:
    """Return one row of counts, or no row if the session's ``txnVersion`` has already committed the command."""
    row = counts_frame(nodes.spark, counts)
    return row.limit(0) if skipped else row
