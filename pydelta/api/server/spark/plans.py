"""Turn the text of a client's statement into a plan for Spark to run.

::

    only ours, or its top node is a command on a Delta table --> procedures.py: runs when Spark analyzes it
    BEGIN … END                                              --> scripts.py: statement by statement
    a query over Delta tables                                --> scans in their place, one version of each
    anything else                                            --> the plan of Spark's parser, unchanged

Planning has no effect on tables, because clients' libraries parse a text as often as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException

from pydelta.api.routing.aggregates import answer_all
from pydelta.api.sql.dispatch import is_effect, run_node, script_plan
from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.api.sql.late_relations import with_late_relations
from pydelta.api.sql.nodes import Nodes
from pydelta.api.sql.own import run_own
from pydelta.api.sql.procedures import Procedure, call_of
from pydelta.api.sql.relations import RelationResolver, named_tables
from pydelta.engines.spark.jvm import Jvm
from pydelta.errors import DeltaError, InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plan_of", "statement_plan", "view_plan"]

_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"


def plan_of(
    spark: SparkSession,
    text: str,
    parse: Callable[[], Any],
    *,
    has_values: Callable[[], bool] = lambda: False,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Any:
    """Return the plan of a statement.

    Args:
        spark: The client's session.
        text: The statement.
        parse: Runs Spark's parser on this text, with its parameters inserted.
        has_values: Returns whether the client gave values for parameters.
        around: Entered while a statement with an effect runs.

    Returns:
        The plan. For an invalid statement, it raises the error when Spark analyzes it.

    Raises:
        ParseException: Neither Spark's parser nor ours knows the statement.
    """
    try:
        return _plan_of(spark, text, parse, has_values, around)
    except ParseException as error:
        if not isinstance(error, DeltaError):
            raise
        return _failing(spark, error)
    except (DeltaError, AnalysisException) as error:
        return _failing(spark, error)


def _failing(spark: SparkSession, error: Exception) -> Any:
    def fail() -> DataFrame:
        raise error

    return statement_plan(Jvm.of(spark), fail, nullcontext)


def _plan_of(
    spark: SparkSession,
    text: str,
    parse: Callable[[], Any],
    has_values: Callable[[], bool],
    around: Callable[[], AbstractContextManager[None]],
) -> Any:
    own = _own(spark, text, has_values)
    if own is None:
        try:
            node = parse()
        except ParseException:
            own = _own(spark, text, has_values, spark_refuses=True)
            if own is None:
                raise
    jvm = Jvm.of(spark)
    if own is not None:
        return statement_plan(jvm, own, around)
    if str(node.nodeName()) == "CompoundBody":
        return script_plan(spark, node, around)
    _refuse_hidden_effect(spark, node)
    if is_effect(spark, node):
        return statement_plan(jvm, lambda: _run(spark, node), around)
    plan = RelationResolver(spark).statement(named_tables(jvm, node))
    return node if plan is None else _answered(spark, plan)


def statement_plan(jvm: Jvm, run: Callable[[], DataFrame], around: Callable[[], AbstractContextManager[None]]) -> Any:
    """Return the plan of a statement that runs once, when Spark analyzes it.

    Args:
        jvm: The client's session.
        run: Runs it, and returns its result.
        around: Entered while it runs.
    """

    def run_now() -> DataFrame:
        with around():
            return run()

    return call_of(jvm, Procedure(jvm, run_now, once=True))


def _answered(spark: SparkSession, plan: Any) -> Any:
    """Answer the query's aggregates from statistics where possible; a command stays unchanged."""
    jvm = Jvm.of(spark)
    if jvm.view.java.lang.Class.forName(_COMMAND).isInstance(plan):
        return plan
    try:
        analyzed = jvm.frame(plan)._jdf.queryExecution().analyzed()
    except AnalysisException:
        return plan  # Spark raises it again for the client.
    found = answer_all(spark, analyzed)
    return analyzed if found is None else found


def _refuse_hidden_effect(spark: SparkSession, node: Any) -> None:
    """Refuse an EXPLAIN that would make Spark run a statement with an effect."""
    if str(node.nodeName()) != "ExplainCommand":
        return
    inner = node.logicalPlan()
    if str(inner.nodeName()) != "UnresolvedExecuteImmediate":
        return
    nodes = Nodes(spark)
    text = nodes.evaluate(inner.sqlStmtStr())
    if not isinstance(text, str):
        return
    effect = is_ours(text)
    try:
        effect = effect or is_effect(spark, nodes.jvm.parse(text))
    except ParseException:
        effect = is_ours(text, spark_refuses=True)
    if effect:
        raise UnsupportedFeatureError(
            "EXPLAIN EXECUTE IMMEDIATE would have to run the statement, which changes a table.",
            features=("EXPLAIN EXECUTE IMMEDIATE",),
            hint="Write EXPLAIN before the statement itself.",
        )


def view_plan(spark: SparkSession, parse: Callable[[], Any]) -> Any:
    """Return the plan of a view's text, which Spark parses on each read of the view."""
    return with_late_relations(Nodes(spark), parse())


def _own(
    spark: SparkSession, text: str, has_values: Callable[[], bool], *, spark_refuses: bool = False
) -> Callable[[], DataFrame] | None:
    """Return a function that runs a statement only this engine knows; such statements take no parameters."""
    if not is_ours(text, spark_refuses=spark_refuses):
        return None
    if has_values():
        raise InvalidArgumentError(
            "Statements that Spark's parser does not know cannot have parameters.",
            hint="Format the values into the text.",
        )
    statement = parse_statement(text)
    return lambda: run_own(Nodes(spark), statement)


def _run(spark: SparkSession, node: Any) -> DataFrame:
    jvm = Jvm.of(spark)
    node = named_tables(jvm, node)
    frame = run_node(spark, node)
    if frame is None:
        plan = RelationResolver(spark).statement(node)
        frame = jvm.frame(node if plan is None else plan)
    return frame
