"""Run a statement of ``spark.sql`` if it concerns a Delta table; None leaves it to Spark.

::

    text --a statement of ours--> grammar.parse_statement --> own
         --Spark's parser-------> node: INSERT, DELETE … on a Delta table --> sql_insert, sql_change, sql_create,
                                                                              sql_alter, sql_show
                                  everything else: relations.py replaces Delta tables by scans, Spark does the rest

Statements run when ``spark.sql`` is called, as Spark's own commands do; the DataFrame returned holds their result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from pydelta.api.sql import alter as sql_alter
from pydelta.api.sql import change as sql_change
from pydelta.api.sql import create as sql_create
from pydelta.api.sql import explain as sql_explain
from pydelta.api.sql import insert as sql_insert
from pydelta.api.sql import show as sql_show
from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.api.sql.immediate import execute_immediate
from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.own import run_own
from pydelta.api.sql.relations import RelationResolver
from pydelta.api.sql.scripts import late_plan, late_script
from pydelta.engines.spark.catalog.objects import copy_of
from pydelta.errors import UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.txn.commit import telling_what_landed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["is_effect", "run_node", "run_text", "script_plan"]

_Handler = Callable[[Nodes, Any], "DataFrame | None"]

_HANDLERS: Final[Mapping[str, _Handler]] = {
    **dict.fromkeys(sql_insert.INSERTS, sql_insert.insert),
    "OverwriteByExpression": sql_insert.replace_where,
    sql_insert.TO_FOLDER: sql_insert.insert_directory,
    "Union": sql_insert.insert_all,
    "DeleteFromTable": sql_change.delete,
    "UpdateTable": sql_change.update,
    "MergeIntoTable": sql_change.merge,
    "TruncateTable": sql_change.truncate,
    "TruncatePartition": sql_change.truncate,
    "CreateTable": sql_create.create,
    "ReplaceTable": sql_create.create,
    "CreateTableAsSelect": sql_create.create_as_select,
    "ReplaceTableAsSelect": sql_create.create_as_select,
    "CreateTableLike": sql_create.create_like,
    "CreateTableLikeCommand": sql_create.create_like,
    "CacheTableAsSelect": sql_create.cache_as_select,
    "CreateTempViewUsing": sql_create.create_view_using,
    **dict.fromkeys(("CreateUserDefinedFunction", "CreateSQLFunctionCommand"), sql_create.create_function),
    "DropTable": sql_alter.drop,
    "DropNamespace": sql_alter.drop_database,
    "RenameTable": sql_alter.rename,
    **dict.fromkeys(
        (
            "AddColumns", "ReplaceColumns", "DropColumns", "RenameColumn", "AlterColumn", "AlterColumns",
            "SetTableProperties", "UnsetTableProperties", "SetTableLocation", "CommentOnTable", "AddCheckConstraint",
            "AddConstraint", "DropConstraint", "AlterTableClusterBy",
        ),
        sql_alter.alter,
    ),
    **dict.fromkeys(
        (
            "AddPartitions", "DropPartitions", "RenamePartitions", "RecoverPartitions", "RepairTable", "LoadData",
            "SetTableSerDeProperties",
        ),
        sql_alter.no_partitions,
    ),
    **dict.fromkeys(("DescribeRelation", "DescribeColumn", "DescribeTablePartition"), sql_show.describe),
    **dict.fromkeys(("ShowColumns", "ShowPartitions", "ShowTableProperties", "ShowCreateTable"), sql_show.show),
    **dict.fromkeys(("RefreshTable", "AnalyzeTable", "AnalyzeColumn"), sql_show.nothing_to_do),
    "ExplainCommand": sql_explain.explain,
}  # fmt: skip

_TABLES: Final = ("UnresolvedTable", "UnresolvedTableOrView")
_DESCRIBE: Final = ("Describe", "Show", "Cache", "Uncache", "Refresh")
_READS: Final = frozenset({"Union", "ExplainCommand"})
_ALWAYS: Final = frozenset({*sql_insert.INSERTS, "OverwriteByExpression", sql_insert.TO_FOLDER})
"""Statements that are always checked: they may write into the folder of a Delta table, whatever their target."""
_MAKES: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(
        ("CreateTable", "ReplaceTable", "CreateTableAsSelect", "ReplaceTableAsSelect"),
        lambda node: node.tableSpec().provider(),
    ),
    "CreateTableLike": lambda node: node.provider(),
    "CreateTableLikeCommand": lambda node: node.provider(),
    "CreateTempViewUsing": lambda node: node.provider(),
}


def run_text(spark: SparkSession, text: str, *, spark_refuses: bool = False) -> DataFrame | None:
    """Run a statement that only this engine knows.

    Args:
        spark: A classic session.
        text: The statement.
        spark_refuses: Spark's parser has already failed on it.

    Returns:
        None when the text does not begin like such a statement.

    Raises:
        ParseError: The text begins like such a statement, but is not well formed.
    """
    if not is_ours(text, spark_refuses=spark_refuses):
        return None
    with telling_what_landed():
        return run_own(Nodes(spark), parse_statement(text))


def run_node(spark: SparkSession, node: Any) -> DataFrame | None:
    """Run a statement that Spark parsed, if its target is a Delta table.

    Returns:
        None when Spark should run it.

    Raises:
        DeltaError: See the commands.
    """
    nodes = Nodes(spark)
    if str(node.nodeName()) == "CompoundBody":
        return late_script(nodes, node, lambda plan: run_node(spark, plan), is_command=_is_command)
    if str(node.nodeName()) == "UnresolvedExecuteImmediate":
        return execute_immediate(nodes, node, lambda plan: run_node(spark, plan))
    if str(node.nodeName()) == "UnresolvedWith":
        node = _with_its_query(nodes, node)
    handler = _HANDLERS.get(str(node.nodeName()))
    if handler is None:
        refuse_unknown(nodes, node)
        return None
    with telling_what_landed():
        return handler(nodes, node)


def refuse_unknown(nodes: Nodes, node: Any) -> None:
    """Refuse a parsed statement without a handler that Spark would run on a Delta table's catalog entry alone.

    Raises:
        UnsupportedFeatureError: It names a Delta table, whose log would not change with the entry.
    """
    if _changes_unknown(node):
        for table in nodes.items(node.children()):
            target = nodes.target(table) if str(table.nodeName()) in _TABLES else None
            if target is not None:
                raise UnsupportedFeatureError(
                    f"{target.name} is a Delta table, and this engine does not know the statement {node.nodeName()}. "
                    "Nothing was done.",
                    features=(str(node.nodeName()),),
                    hint="docs/guides/sql.md lists the statements that change a Delta table.",
                    condition=Condition.of("UNSUPPORTED_FEATURE.TABLE_OPERATION", operation=str(node.nodeName())),
                )


def _changes_unknown(node: Any) -> bool:
    """Return whether a statement without a handler names a table and may do more than describe it."""
    name = str(node.nodeName())
    if name in _HANDLERS or name.startswith(_DESCRIBE):
        return False
    children = node.children()
    return any(str(children.apply(place).nodeName()) in _TABLES for place in range(children.size()))


def script_plan(spark: SparkSession, script: Any, around: Callable[[], AbstractContextManager[None]]) -> Any:
    """Return a parsed script as a plan for Spark that runs statements about Delta tables with this engine.

    Args:
        spark: A classic session.
        script: As Spark parsed it.
        around: Entered for each statement that this engine runs.
    """

    def run(plan: Any) -> DataFrame | None:
        with around():
            return run_node(spark, plan)

    return late_plan(Nodes(spark), script, run, is_command=_is_command)


def is_effect(spark: SparkSession, node: Any) -> bool:
    """Return whether ``run_node`` may handle a statement that must run exactly once, not each time it is parsed.

    It looks up names and does nothing else.
    """
    kind = _statement_kind(node)
    if kind == "ExplainCommand":
        return str(node.logicalPlan().nodeName()) in sql_explain.EXPLAINED
    if kind == "Union":
        return _has_inserts(node)
    if kind in _ALWAYS:
        return True
    if kind in _MAKES:
        provider = _MAKES[kind](_statement(node))
        if not isinstance(provider, str):
            provider = Nodes(spark).optional(provider)
        return provider is None or str(provider).lower() == "delta"
    if kind == "DropNamespace":
        return sql_alter.drops_tables(Nodes(spark), node)
    return (kind in _HANDLERS or _changes_unknown(node)) and RelationResolver(spark).concerns(node)


def _has_inserts(union: Any) -> bool:
    """Return whether what Spark parsed as a UNION is ``FROM source INSERT … INSERT …``."""
    parts = _statement(union).children()
    kinds = {str(parts.apply(place).nodeName()) for place in range(parts.size())}
    return not kinds.isdisjoint((*sql_insert.INSERTS, sql_insert.TO_FOLDER))


def _statement(node: Any) -> Any:
    """Return the statement under a WITH."""
    return node.child() if str(node.nodeName()) == "UnresolvedWith" else node


def _statement_kind(node: Any) -> str:
    return str(_statement(node).nodeName())


def _is_command(node: Any) -> bool:
    name = _statement_kind(node)
    if name == "UnresolvedExecuteImmediate" or (name in _HANDLERS and name not in _READS):
        return True
    if name == "Union":
        return _has_inserts(node)
    return _changes_unknown(node)


def _with_its_query(nodes: Nodes, node: Any) -> Any:
    """Move the relations of ``WITH … INSERT`` and ``WITH … MERGE`` into the statement's query."""
    statement = node.child()
    kind = str(statement.nodeName())
    if kind in sql_insert.INSERTS:
        return copy_of(statement, query=_under(nodes, node, statement.query()))
    if kind == "Union" and _has_inserts(node):
        parts = nodes.items(statement.children())
        return nodes.jvm.union([_with_its_query(nodes, copy_of(node, child=part)) for part in parts])
    if kind == "MergeIntoTable":
        return copy_of(statement, sourceTable=_under(nodes, node, statement.sourceTable()))
    return statement if kind in ("DeleteFromTable", "UpdateTable", sql_insert.TO_FOLDER) else node


def _under(nodes: Nodes, node: Any, query: Any) -> Any:
    if str(query.nodeName()) == "SubqueryAlias":  # Expressions use the alias, so it stays outermost.
        return query.withNewChildren(nodes.jvm.indexed_seq([_under(nodes, node, query.child())]))
    inner = copy_of(node, child=query)
    parts = nodes.parts(query)
    return inner if parts is None else nodes.jvm.subquery_alias.apply(parts[-1], inner)
