"""Answer an aggregate over one Delta table from statistics, where these are exact.

::

    Aggregate [count(1), max(x) + 1]        Project [5 AS …, 9 + 1 AS …]
      +- Project / Filter p = 1 / alias       +- OneRowRelation
           +- scan of a Delta table    -->

This covers only ``count(*)``, ``min`` and ``max`` without grouping, and filters that use only partition columns, which
Spark itself evaluates. Where statistics are not exact (see ``log.exact_statistics``), the scan stays.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, settings_of, user_errors
from pydelta.engines.spark.scan.caches import reads_cache
from pydelta.engines.spark.scan.deleted_rows import is_vector_scan
from pydelta.engines.spark.scan.index import DeltaFileIndex
from pydelta.engines.spark.scan.newest import moved
from pydelta.engines.spark.scan.refresh import ANSWERED, all_scans_in, indexes_in, lowered, transform
from pydelta.engines.spark.session.patches import is_enabled, patch
from pydelta.errors import DeltaError
from pydelta.log.exact_statistics import ExactStatistics, Value
from pydelta.protocol.schema import physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import Snapshot
    from pydelta.protocol.types import StructField

__all__ = ["answer", "answer_all", "answered_frame", "count_rows", "install"]

_TRANSPARENT: Final = ("SubqueryAlias", "View")
_MOST_NODES: Final = 50
_AGGREGATE: Final = re.compile(r"\b(count|min|max)\s*\(", re.IGNORECASE)
_SUFFIXES: Final = {"long": "L", "bigint": "L", "integer": "", "short": "S", "byte": "Y"}


def answer_all(spark: SparkSession, plan: Any) -> Any | None:
    """Answer every aggregate in an analyzed plan that statistics can answer; None when there is none.

    Args:
        spark: The session.
        plan: An analyzed logical plan that is not a command.
    """
    jvm = Jvm.of(spark)
    patterns = jvm.view.org.apache.spark.sql.catalyst.trees.TreePattern
    if not plan.containsPattern(patterns.AGGREGATE()) or not settings_of(spark).metadata_query:
        return None
    answered: list[Any] = []

    def replace(node: Any, _: str) -> Any:
        found = _answer(spark, node)
        if found is not None:
            answered.append(found)
        return found

    result = transform(jvm, plan, replace, ("Aggregate",))
    return result if answered else None


def answer(spark: SparkSession, plan: Any) -> Any | None:
    """Build the one-row plan that answers an aggregate; None if only a scan can.

    Args:
        spark: The session.
        plan: An analyzed logical plan with an ``Aggregate`` at its top.
    """
    if str(plan.nodeName()) != "Aggregate" or not settings_of(spark).metadata_query:
        return None
    return _answer(spark, plan)


def count_rows(spark: SparkSession, plan: Any) -> int | None:
    """Count the rows of an analyzed plan that only shows the rows of a Delta table; None for any other."""
    if not settings_of(spark).metadata_query:
        return None
    relation = _relation(spark, plan)
    return None if relation is None else relation.statistics.num_rows()


# --- routes ------------------------------------------------------------------------------------------------


def install() -> None:
    """Install the routes for aggregates of a frame in enabled sessions; ``patches.restore_all`` removes them."""
    patch(ClassicFrame, "count", _count)
    patch(ClassicFrame, "agg", _agg)
    patch(ClassicFrame, "select", _select)
    patch(ClassicFrame, "selectExpr", _select)


def answered_frame(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Answer the aggregates of a query and return the new frame, or the same one if there are none."""
    plan = answer_all(spark, frame._jdf.queryExecution().analyzed())
    return frame if plan is None else Jvm.of(spark).frame(plan)


def _count(original: Callable[..., int]) -> Callable[..., int]:
    def count(self: DataFrame) -> int:
        spark = self.sparkSession
        if is_enabled(spark) and not reads_cache(self):
            with user_errors():
                counted = count_rows(spark, moved(spark, self._jdf.queryExecution().analyzed()))
            if counted is not None:
                return counted
        return original(self)

    return count


def _agg(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def agg(self: DataFrame, *exprs: Any) -> DataFrame:
        frame = original(self, *exprs)
        spark = self.sparkSession
        if not is_enabled(spark) or reads_cache(self):
            return frame
        with user_errors():
            plan = answer(spark, moved(spark, frame._jdf.queryExecution().analyzed()))
        return frame if plan is None else Jvm.of(spark).frame(plan)

    return agg


def _select(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Route ``select(count("*"))`` and ``selectExpr("count(*)")``."""
    aggregating = _agg(original)

    def select(self: DataFrame, *columns: Any) -> DataFrame:
        return (aggregating if columns and _names_aggregate(columns[0]) else original)(self, *columns)

    return select


def _names_aggregate(column: Any) -> bool:
    """Return whether the first selected column may be an aggregate, judged by its text because most are not."""
    if isinstance(column, list | tuple):
        return bool(column) and _names_aggregate(column[0])
    return _AGGREGATE.search(str(column)) is not None


# --- the relation below ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Relation:
    """The table that an aggregate reads.

    Args:
        index: The files of the scan.
        snapshot: The version.
        frame: The files that satisfy the partition filters.
        fields: Columns by the id of their attribute.
    """

    index: DeltaFileIndex
    snapshot: Snapshot
    frame: pl.DataFrame
    fields: dict[int, StructField] = field(default_factory=dict)
    _statistics: ExactStatistics | None = None

    @property
    def statistics(self) -> ExactStatistics:
        if self._statistics is None:
            self._statistics = ExactStatistics(self.snapshot.files, self.frame)
        return self._statistics


def _relation(spark: SparkSession, plan: Any) -> _Relation | None:
    """Return the scan under projections, aliases and partition filters; None for anything else."""
    jvm = Jvm.of(spark)
    plan = lowered(jvm, plan, all_scans_in(jvm, plan))
    projects: list[Any] = []
    filters: list[Any] = []
    for _ in range(_MOST_NODES):
        name = str(plan.nodeName())
        if name in _TRANSPARENT:
            plan = plan.child()
        elif name == "Filter":
            filters.append(plan.condition())
            plan = plan.child()
        elif name == "Project" and not is_vector_scan(jvm, plan):
            projects.append(plan)
            plan = plan.child()
        else:
            break
    marked = str(plan.nodeName()) == "Project"
    if not marked and plan.children().size() > 0:
        return None
    indexes = indexes_in(jvm, plan)
    if not indexes or not all(index.files.shared for index in indexes) or (len(indexes) > 1 and not marked):
        return None
    index = indexes[0]
    snapshot = _snapshot(spark, index)
    if snapshot is None:
        return None
    names = {_stored_name(snapshot, item).lower(): item for item in snapshot.schema.fields}
    fields = {}
    for attribute in jvm.to_list(plan.output()):
        found = names.get(str(attribute.name()).lower())
        if found is not None:
            fields[int(attribute.exprId().id())] = found
    frame = _filtered(jvm, indexes, filters, fields, snapshot) if filters else snapshot.files.core
    if frame is None:
        return None
    for project in reversed(projects):
        for item in jvm.to_list(project.projectList()):
            if str(item.nodeName()) == "Alias" and str(item.child().nodeName()) == "AttributeReference":
                source = fields.get(int(item.child().exprId().id()))
                if source is not None:
                    fields[int(item.exprId().id())] = source
    return _Relation(index=index, snapshot=snapshot, frame=frame, fields=fields)


def _stored_name(snapshot: Snapshot, item: StructField) -> str:
    return item.name if snapshot.column_mapping_mode == "none" else physical_name(item)


def _snapshot(spark: SparkSession, index: DeltaFileIndex) -> Snapshot | None:
    """Return the version that a scan reads, if it can still be loaded."""
    identity = index.files.identity
    log = log_for_path(spark, identity.location, index.files.storage)
    try:
        newest = log.update()
        found = newest if newest.version == identity.version else log.snapshot(identity.version)
    except DeltaError:
        return None
    same = found.metadata is not None and found.metadata.id == identity.table_id
    return found if same else None


def _filtered(
    jvm: Jvm, indexes: Sequence[DeltaFileIndex], filters: list[Any], fields: dict[int, StructField], snapshot: Snapshot
) -> pl.DataFrame | None:
    """Return the files that satisfy the filters, if these use only partition columns of the scan."""
    patterns = jvm.view.org.apache.spark.sql.catalyst.trees.TreePattern
    partitions = {name.lower() for name in snapshot.partition_columns}
    for condition in filters:
        if not condition.deterministic() or condition.containsPattern(patterns.OUTER_REFERENCE()):
            return None
        if condition.containsPattern(patterns.PLAN_EXPRESSION()):
            return None
        references = jvm.to_list(condition.references().toSeq())
        used = [fields.get(int(item.exprId().id())) for item in references]
        if not used or any(item is None or item.name.lower() not in partitions for item in used):
            return None
    keys = ["path", "dv_id"]
    kept = pl.concat([index.partition_matches(filters).select(keys) for index in indexes])
    # Match by path: a snapshot that was read again has its rows in another order.
    return snapshot.files.narrowed(
        lambda files: files.join(kept, on=keys, how="semi", nulls_equal=True, maintain_order="left")
    )


# --- the aggregate -----------------------------------------------------------------------------------------


def _answer(spark: SparkSession, aggregate: Any) -> Any | None:
    jvm = Jvm.of(spark)
    if aggregate.groupingExpressions().size() > 0:
        return None
    items = jvm.to_list(aggregate.aggregateExpressions())
    if not any(_may_answer(jvm, item) for item in items):
        return None
    relation = _relation(spark, aggregate.child())
    if relation is None:
        return None
    unanswered: list[Any] = []

    def replace(node: Any, _: str) -> Any:
        found = _value_of(jvm, relation, node)
        if found is None:
            unanswered.append(node)
        return found

    answered = []
    for item in items:
        answered.append(transform(jvm, item, replace, ("AggregateExpression",)))
        if unanswered:
            return None
    one_row = jvm.view.org.apache.spark.sql.catalyst.plans.logical.OneRowRelation()
    project = jvm.project(jvm.seq(answered), one_row)
    project.setTagValue(jvm.tag(ANSWERED), aggregate)  # A view of it must follow later versions.
    return project


def _may_answer(jvm: Jvm, item: Any) -> bool:
    """Return whether an expression contains an aggregate function, a cheap check before reading anything."""
    patterns = jvm.view.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(item.containsPattern(patterns.AGGREGATE_EXPRESSION()))


def _value_of(jvm: Jvm, relation: _Relation, expression: Any) -> Any | None:
    """Return the value of one aggregate function as a literal; None where statistics are not exact."""
    if expression.isDistinct() or expression.filter().isDefined():
        return None
    function = expression.aggregateFunction()
    kind = str(function.getClass().getSimpleName())
    arguments = jvm.to_list(function.children())
    if kind == "Count":
        if not all(_is_not_null_literal(item) for item in arguments):
            return None
        counted = relation.statistics.num_rows()
        return None if counted is None else _literal(jvm, counted, function.dataType())
    if kind not in ("Min", "Max") or str(arguments[0].nodeName()) != "AttributeReference":
        return None
    column = relation.fields.get(int(arguments[0].exprId().id()))
    if column is None:
        return None
    bound = relation.statistics.bound(column, "min" if kind == "Min" else "max")
    if bound is None:
        return None
    # The aggregate's column is nullable, so the answer's must be, but a literal's is not.
    known = jvm.view.org.apache.spark.sql.catalyst.expressions.KnownNullable
    return known(_literal(jvm, bound.value, function.dataType()))


def _is_not_null_literal(item: Any) -> bool:
    return str(item.nodeName()) == "Literal" and not item.nullable()


def _literal(jvm: Jvm, value: Value | None, data_type: Any) -> Any:
    expressions = jvm.view.org.apache.spark.sql.catalyst.expressions
    module = getattr(getattr(expressions, "Literal$"), "MODULE$")
    if value is None:
        return module.create(None, data_type)
    if isinstance(value, dt.date):
        return module.create(jvm.view.java.time.LocalDate.parse(value.isoformat()), data_type)
    if isinstance(value, str | bool):
        return module.create(value, data_type)
    return jvm.state.sqlParser().parseExpression(f"{value}{_SUFFIXES[str(data_type.typeName())]}")
