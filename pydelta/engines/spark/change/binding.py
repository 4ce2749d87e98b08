"""Resolve and freeze the user's expressions once, for all jobs of a command.

::

    Moment              the instant, time zone, user and catalog of a command
      frozen(plan)      an analysed plan with literals for current_timestamp(), current_user() …
    bind_condition      text or Column, and the rows that it reads -> BoundExpression, resolved once
    SparkColumns        the columns that bound expressions read; ``over(scan)`` gives a later scan the same ids

The result is a Catalyst expression, never text. It keeps the time zone, functions and variables with which it was
resolved, even if the session changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.engines.spark.jvm import Jvm, java_class_name, scala_object
from pydelta.engines.spark.scan.refresh import map_expressions, transform
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.protocol.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.protocol.types import DataType

__all__ = ["BoundExpression", "Moment", "SparkColumns", "bind_condition", "bind_typed_values", "bind_values", "folded"]

_ATTRIBUTE: Final = "_pydelta_binding"
_NANOS_DIGITS: Final = 9
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")
_DAYS: Final = {"now": 0, "today": 0, "yesterday": -1, "tomorrow": 1}
_WORD: Final = re.compile("[a-z]+")


class _Rules:
    """Spark's rules and classes, looked up once per session."""

    def __init__(self, jvm: Jvm) -> None:
        catalyst = jvm.view.org.apache.spark.sql.catalyst
        rules = catalyst.optimizer
        self._jvm = jvm
        patterns = scala_object(catalyst.trees, "TreePattern")
        self._clock, self._cast = patterns.CURRENT_LIKE(), patterns.CAST()
        self._replaceable: Any = scala_object(rules, "ReplaceExpressions")
        self._current_time: Any = scala_object(rules, "ComputeCurrentTime")
        self._current_names: Any = rules.ReplaceCurrentLike
        self._special_texts: Any = scala_object(rules, "SpecialDatetimeValues")
        self._sql_functions: Any = scala_object(rules, "EliminateSQLFunctionNode")
        self._aliases: Any = scala_object(rules, "CollapseProject")
        self._fold: Any = scala_object(rules, "ConstantFolding")
        self._literals: Any = scala_object(catalyst.expressions, "Literal")
        self.instants: Any = jvm.view.java.time.Instant
        self.zones: Any = jvm.view.java.time.ZoneId

    @classmethod
    def of(cls, jvm: Jvm) -> _Rules:
        """Return the rules of a session, looking them up on first use."""
        found: _Rules | None = getattr(jvm, _ATTRIBUTE, None)
        if found is None:
            found = cls(jvm)
            setattr(jvm, _ATTRIBUTE, found)
        return found

    def reads_clock(self, node: Any) -> bool:
        """Return whether a plan or an expression holds something like ``current_timestamp()`` or ``current_user()``."""
        return bool(node.containsPattern(self._clock))

    def casts(self, node: Any) -> bool:
        """Return whether a plan or an expression holds a cast."""
        return bool(node.containsPattern(self._cast))

    def names_times(self, plan: Any) -> bool:
        """Return whether a plan casts a word such as ``'today'`` to a time, by Spark's own rule."""
        if not self.casts(plan):
            return False
        parts = [plan, *self._jvm.to_list(plan.subqueriesAll())]
        return not all(self._special_texts.apply(part).fastEquals(part) for part in parts)

    def is_time(self, cast: Any) -> bool:
        """Return whether a cast of a constant string is a special time such as ``'today'``."""
        one = self._jvm.filter(cast, self._jvm.no_rows())
        return not self._special_texts.apply(one).fastEquals(one)

    def literal(self, value: Any, data_type: Any | None = None) -> Any:
        """Create a literal from a ``java.time`` object or a string."""
        return self._literals.apply(value) if data_type is None else self._literals.create(value, data_type)

    def replaced(self, plan: Any) -> Any:
        """Replace functions such as ``to_date`` by their implementations."""
        with self._jvm.active():
            return self._replaceable.apply(plan)

    def finished(self, plan: Any) -> Any:
        """Apply the rules by which Spark replaces expressions that depend on the session and the clock."""
        with self._jvm.active():  # The rules read the active session, which may be another one.
            if self.reads_clock(plan):
                catalogs = self._jvm.state.catalogManager()
                plan = self._current_names(catalogs).apply(self._current_time.apply(plan))
            return self._sql_functions.apply(self._special_texts.apply(plan))

    def folded(self, plan: Any) -> Any:
        """Compute the constant parts of a plan. Parts that cannot be computed stay."""
        with self._jvm.active():
            return self._fold.apply(plan)

    def without_names(self, expression: Any) -> Any:
        """Strip the alias from an expression."""
        return self._aliases.trimAliases(expression)

    def without_alias(self, expression: Any, project: Any) -> Any:
        """Rewrite an expression over a projection's columns into one over the columns of its child."""
        return self._aliases.replaceAlias(expression, self._aliases.getAliasMap(project))


class Moment:
    """The instant, time zone and user of a command, the same for all of its jobs.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = Jvm.of(spark)
        self._rules = _Rules.of(self._jvm)
        self._instant: Any = self._rules.instants.now()
        self._zone = self._jvm.time_zone()

    def frozen(self, plan: Any) -> Any:
        """Replace expressions of an analysed plan that depend on the moment by literals, in subqueries too."""
        if self._rules.reads_clock(plan):
            plan = self._with(plan, self._rules.reads_clock, self._of_clock)
        plan = self._rules.replaced(plan)
        if self._rules.names_times(plan):
            plan = self._with(plan, self._rules.casts, self._of_word)
        return self._rules.finished(plan)

    def frame(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame over the frozen plan of another. Its columns keep their ids."""
        plan = df._jdf.queryExecution().analyzed()
        frozen = self.frozen(plan)
        return df if frozen.fastEquals(plan) else self._jvm.frame(frozen)

    def source(self, df: DataFrame) -> DataFrame:
        """Freeze a user's DataFrame if it reads the clock. Cached parts keep their values."""
        plan = df._jdf.queryExecution().withCachedData()
        told = self._rules.reads_clock(plan) or self._rules.names_times(plan)
        return self._jvm.frame(self.frozen(plan)) if told else df

    def _with(self, plan: Any, concerns: Callable[[Any], bool], literal: Callable[[Any], Any | None]) -> Any:
        """Replace expressions of a plan by literals, in subqueries too, skipping parts that ``concerns`` rejects."""

        def replaced(expression: Any, _: str = "") -> Any:
            if not concerns(expression):
                return expression
            found = literal(expression)
            if found is not None:
                return found
            children = [replaced(child) for child in self._jvm.to_list(expression.children())]
            return expression.withNewChildren(self._jvm.indexed_seq(children)) if children else expression

        return transform(self._jvm, plan, lambda node, _: map_expressions(self._jvm, node, replaced))

    def _of_clock(self, node: Any) -> Any | None:
        """Return a node's value as a literal, by the JVM's calendar, or None if Spark's rules replace it."""
        name, rules = java_class_name(node).rsplit(".", 1)[-1], self._rules
        if name in ("CurrentTimestamp", "Now"):
            return rules.literal(self._instant)
        if name == "CurrentDate":
            return rules.literal(self._instant.atZone(node.zoneId()).toLocalDate())
        if name == "LocalTimestamp":
            return rules.literal(self._instant.atZone(node.zoneId()).toLocalDateTime())
        if name == "CurrentTimeZone":
            return rules.literal(self._zone)
        if name == "CurrentTime":
            time = self._instant.atZone(rules.zones.of(self._zone)).toLocalTime()
            step = 10 ** (_NANOS_DIGITS - int(node.precision()))
            return rules.literal(time.withNano(int(time.getNano()) // step * step), node.dataType())
        return None

    def _of_word(self, node: Any) -> Any | None:
        """Return the value of a cast such as ``CAST('today' AS DATE)``, or None for any other node."""
        kind = str(node.dataType().typeName())
        if kind not in _TIMES or not java_class_name(node).endswith(".Cast") or not node.child().foldable():
            return None
        if not self._rules.is_time(node):
            return None
        found = _WORD.match(str(node.child().eval(None)).strip().lower())
        word, zone = found.group() if found else "", node.zoneId()
        at = self._instant.atZone(zone)
        if word == "now" and kind != "date":
            return self._rules.literal(self._instant if kind == "timestamp" else at.toLocalDateTime())
        if word not in _DAYS:
            return None  # 'epoch' is constant.
        day = at.toLocalDate().plusDays(_DAYS[word])
        if kind == "date":
            return self._rules.literal(day)
        return self._rules.literal(day.atStartOfDay(zone).toInstant() if kind == "timestamp" else day.atStartOfDay())


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundExpression:
    """An expression that was resolved once.

    Args:
        expression: The Catalyst expression, resolved and frozen.
        column: The same, for any frame whose columns have the ids of those that it was resolved against.
        sql: Its text before freezing, for the history and for messages. It must never be parsed.
    """

    expression: Any
    column: Column
    sql: str


def bind_condition(moment: Moment, rows: DataFrame, condition: Column) -> BoundExpression:
    """Resolve a condition against rows, and freeze it.

    Args:
        moment: Clock, zone and user of the command.
        rows: The rows that the condition reads.
        condition: The condition as the user wrote it.

    Raises:
        AnalysisException, ParseException: Spark reports that it does not fit the rows or is not an expression.
        InvalidArgumentError: It reads a column that the rows do not have.
    """
    analyzed = rows.filter(condition)._jdf.queryExecution().analyzed()
    while str(analyzed.nodeName()) != "Filter":  # A function written in SQL puts projections around the filter.
        analyzed = analyzed.child()
    sql = str(analyzed.condition().sql())
    frozen = moment.frozen(analyzed)
    return _bound(rows, frozen.condition(), frozen.child(), sql)


def bind_values(moment: Moment, rows: DataFrame, values: Sequence[Column]) -> list[BoundExpression]:
    """Resolve values against rows, and freeze them. See ``bind_condition``.

    Raises:
        InvalidArgumentError: A value is an aggregate, generates several rows, or reads other rows.
    """
    return _bind_values(moment, rows, values)[0]


def bind_typed_values(
    moment: Moment, rows: DataFrame, values: Sequence[Column]
) -> tuple[list[BoundExpression], tuple[DataType, ...]]:
    """Resolve values against rows, freeze them, and return them with their types. See ``bind_values``.

    Raises:
        SchemaError: The format does not have a type.
    """
    bound, analyzed = _bind_values(moment, rows, values)
    # The projection's schema is needed: it holds the collation of a string in the field's metadata.
    schema = parse_schema(str(analyzed.schema().json()))
    return bound, tuple(field.data_type for field in schema.fields)


def _bind_values(moment: Moment, rows: DataFrame, values: Sequence[Column]) -> tuple[list[BoundExpression], Any]:
    jvm = Jvm.of(rows.sparkSession)
    named = jvm.seq([jvm.expression(value.alias(f"v{place}")) for place, value in enumerate(values)])
    # ``rows.select`` would answer an aggregate of a whole table from its statistics.
    analyzed = jvm.frame(jvm.project(named, rows._jdf.queryExecution().analyzed()))._jdf.queryExecution().analyzed()
    if str(analyzed.nodeName()) != "Project":
        raise _of_several_rows(str(analyzed.nodeName()))
    frozen = moment.frozen(analyzed)
    before = [_Rules.of(jvm).without_names(item).sql() for item in jvm.to_list(analyzed.projectList())]
    after = jvm.to_list(frozen.projectList())
    bound = [_bound(rows, item, frozen.child(), str(sql)) for item, sql in zip(after, before, strict=True)]
    return bound, analyzed


def _bound(rows: DataFrame, expression: Any, below: Any, sql: str) -> BoundExpression:
    jvm = Jvm.of(rows.sparkSession)
    rules, own = _Rules.of(jvm), rows._jdf.queryExecution().analyzed().outputSet()
    expression = rules.without_names(expression)
    while not expression.references().subsetOf(own):
        if str(below.nodeName()) != "Project":
            raise _of_several_rows(str(below.nodeName()))
        expression, below = rules.without_alias(expression, below), below.child()
    column: Column = ClassicColumn(jvm.column_of(expression))
    return BoundExpression(expression=expression, column=column, sql=sql)


def folded(spark: SparkSession, bound: BoundExpression) -> Any:
    """Compute the constant parts of a bound condition. If one fails, the condition is returned unchanged."""
    jvm = Jvm.of(spark)
    try:
        return _Rules.of(jvm).folded(jvm.filter(bound.expression, jvm.no_rows())).condition()
    except (PySparkException, Py4JError):  # The query will fail on it, where the error can be explained.
        return bound.expression


def _of_several_rows(found: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"An expression is to be computed from one row alone, and this one needs Spark's {found}: it holds an "
        "aggregate, window or generator function, or a hidden column.",
        hint="Compute such a value first, into a source that MERGE joins with the table.",
        condition=Condition.of("UNSUPPORTED_GENERATOR.OUTSIDE_SELECT")
        if found == "Generate"
        else Condition.of("UNSUPPORTED_EXPR_FOR_OPERATOR"),
    )


class SparkColumns:
    """The columns of a table that bound expressions read.

    Args:
        rows: The frame that the expressions are resolved against, or a part of it.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._jvm = Jvm.of(rows.sparkSession)
        self._own = rows._jdf.queryExecution().analyzed().outputSet()
        self._ids: dict[str, Any] = {}

    def used_in(self, *bound: BoundExpression) -> None:
        """Remember which columns the expressions read."""
        for item in bound:
            for column in self._jvm.to_list(item.expression.references().toSeq()):
                if self._own.contains(column):
                    self._ids[str(column.name()).lower()] = column.exprId()  # The attribute has the user's spelling.

    @property
    def ids(self) -> frozenset[int]:
        """Ids of the columns that are read."""
        return frozenset(int(id_.id()) for id_ in self._ids.values())

    def over(self, scan: DataFrame) -> DataFrame:
        """Give the columns of a later scan of the same table the ids that the expressions read.

        Args:
            scan: Any frame that has them under the same names, ignoring case.
        """
        if not self._ids:
            return scan
        plan = scan._jdf.queryExecution().analyzed()
        columns, places = plan.output(), {column.lower(): place for place, column in enumerate(scan.columns)}
        for column, id_ in self._ids.items():
            place = places[column]
            columns = columns.updated(place, self._jvm.alias(columns.apply(place), id_))
        return self._jvm.frame(self._jvm.project(columns, plan))
