"""Resolve the condition and clauses of a merge once, before any row is read.

::

    table's rows x source's rows     the condition, WHEN MATCHED
    source's rows                    WHEN NOT MATCHED
    table's rows                     WHEN NOT MATCHED BY SOURCE

The result refers to columns by their ids. The source's columns keep theirs, and ``SparkColumns`` gives the table's ids
to each later scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.change.merge import ClauseAction, ClauseOn, MergeClause
from pydelta.commands.engine import Assignments
from pydelta.engines.spark.change.assignments import BoundAssignments, SetClause, bind_assignments, to_column
from pydelta.engines.spark.change.binding import BoundExpression, Moment, SparkColumns, bind_condition
from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.types import from_spark
from pydelta.errors import BindError, InvalidArgumentError, ParseError, first_line
from pydelta.errors.conditions import Condition
from pydelta.protocol.identity import refuse_numbered
from pydelta.protocol.names import quoted
from pydelta.protocol.types import DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BoundClause", "BoundMerge", "Sides", "bind_merge", "bind_pairing", "qualified"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundClause:
    """A clause with resolved expressions.

    Args:
        clause: The clause as the user wrote it.
        condition: Its condition, or None for all rows of its kind.
        values: The values that it sets, or None for DELETE.
    """

    clause: MergeClause
    condition: BoundExpression | None
    values: BoundAssignments | None

    @property
    def sets(self) -> frozenset[str]:
        """Names of the columns that it sets."""
        return frozenset() if self.values is None else self.values.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundMerge:
    """A merge with resolved expressions.

    Args:
        condition: The condition that pairs rows of the table with rows of the source.
        clauses: The clauses, in order.
        columns: Columns of the table that the condition or a clause reads.
    """

    condition: BoundExpression
    clauses: tuple[BoundClause, ...]
    columns: SparkColumns

    def numbers(self, *, on: ClauseOn | None = None, action: ClauseAction | None = None) -> list[int]:
        """Return the positions of the clauses of a kind."""
        return [
            number
            for number, item in enumerate(self.clauses)
            if on in (None, item.clause.on) and action in (None, item.clause.action)
        ]

    def first_of(self, on: ClauseOn) -> Column:
        """Return the number of the first clause of a kind whose condition is true, null without one."""
        chosen = F.lit(None).cast("int")
        for number in reversed(self.numbers(on=on)):
            condition = self.clauses[number].condition
            holds = F.lit(True) if condition is None else condition.column
            chosen = F.when(holds, F.lit(number)).otherwise(chosen)
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two sides of a merge.

    Args:
        table: A scan of the table, under its alias.
        source: The source, under its alias. It is not run.
        alias: Name by which conditions and values may qualify the table.
        source_alias: Name by which they may qualify the source.
        evolves: Whether structs may lack fields of their column.
    """

    table: DataFrame
    source: DataFrame
    alias: str
    source_alias: str
    evolves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binder:
    moment: Moment
    sides: Sides
    schema: StructType

    def condition(self, frame: DataFrame, column: Column, what: str) -> BoundExpression:
        return bind_pairing(self.moment, frame, column, what, aliases="give table and source an alias")

    def clause(self, clause: MergeClause, frame: DataFrame) -> BoundClause:
        with _named_as_in_merge(f"{clause.action.value.upper()} clause", frame):
            return self._clause(clause, frame)

    def _clause(self, clause: MergeClause, frame: DataFrame) -> BoundClause:
        where = f"{clause.on.value} {clause.action.value.upper()}"
        condition = None
        if clause.condition is not None:
            what = f"The condition of {where}"
            condition = self.condition(frame, to_column(clause.condition, what), what)
        if clause.action is ClauseAction.DELETE:
            return BoundClause(clause=clause, condition=condition, values=None)
        inserts = clause.on is ClauseOn.NOT_MATCHED
        given = self.same_names(updates=not inserts) if clause.assignments is None else clause.assignments
        told = SetClause(name=where, qualifiers=[self.sides.alias], inserts=inserts, evolves=self.sides.evolves)
        values = bind_assignments(self.schema, given, frame, told, moment=self.moment)
        refuse_numbered(self.schema, values.columns, inserts=inserts)
        return BoundClause(clause=clause, condition=condition, values=values)

    def same_names(self, *, updates: bool) -> Assignments:
        """Assign to each column the source's column of the same name. An exact match in case takes precedence."""
        source = {field.name: field.data_type for field in from_spark(self.sides.source.schema).fields}
        known = {name.lower(): name for name in source} | {name: name for name in source}
        found: list[tuple[str, Column]] = []
        for field in self.schema.fields:
            its = known.get(field.name, known.get(field.name.lower()))
            if its is None:
                continue
            value = qualified(self.sides.source_alias, its)
            if updates and self.sides.evolves:
                value = _merged(qualified(self.sides.alias, field.name), value, field.data_type, source[its])
            found.append((quoted(field.name), value))
        return found


def _merged(before: Column, value: Column, target: DataType, source: DataType) -> Column:
    """Merge structs: fields that the source lacks keep their values. The result is null only if both are."""
    if not _lacks(target, source):
        return value
    assert isinstance(target, StructType) and isinstance(source, StructType)
    parts = []
    for field in target.fields:
        item, own = source.field(field.name), before.getField(field.name)
        part = own if item is None else _merged(own, value.getField(item.name), field.data_type, item.data_type)
        parts.append(part.alias(field.name))
    return F.when(value.isNotNull() | before.isNotNull(), F.struct(*parts))


def _lacks(target: DataType, source: DataType) -> bool:
    """Return whether a struct lacks a field of another, at any depth of structs."""
    if not isinstance(target, StructType) or not isinstance(source, StructType):
        return False
    pairs = [(field.data_type, source.field(field.name)) for field in target.fields]
    return any(item is None or _lacks(wanted, item.data_type) for wanted, item in pairs)


def bind_merge(
    moment: Moment, sides: Sides, condition: Any, clauses: Sequence[MergeClause], *, schema: StructType
) -> BoundMerge:
    """Resolve a merge.

    Args:
        moment: Clock, zone and user of the command.
        sides: The table and the source.
        condition: SQL text or a Column.
        clauses: The clauses, in order.
        schema: Schema of the table after the merge.

    Raises:
        ParseError, BindError: A condition or value does not fit.
        InvalidArgumentError: A condition is not deterministic or holds a subquery, or a column is set twice.
        SchemaMismatchError: A struct has other fields than its column.
        UnsafeOperationError: An identity column is set.
    """
    binder = _Binder(moment=moment, sides=sides, schema=schema)
    table, source = sides.table, sides.source
    both = table.join(source)
    with _named_as_in_merge("search condition", both):
        pairs = binder.condition(both, to_column(condition, "The condition of a merge"), "The merge condition")
    frames = {ClauseOn.MATCHED: both, ClauseOn.NOT_MATCHED: source, ClauseOn.NOT_MATCHED_BY_SOURCE: table}
    bound = tuple(binder.clause(clause, frames[clause.on]) for clause in clauses)
    columns = SparkColumns(table)
    columns.used_in(pairs)
    for item in bound:
        columns.used_in(
            *([item.condition] if item.condition else ()), *(item.values.expressions if item.values else ())
        )
    return BoundMerge(condition=pairs, clauses=bound, columns=columns)


@contextmanager
def _named_as_in_merge(clause: str, frame: DataFrame) -> Iterator[None]:
    """Give an unresolved name the error condition that Delta uses for it in a MERGE."""
    try:
        yield
    except BindError as error:
        if error.code.startswith("UNRESOLVED_COLUMN"):
            named, columns = error.parameters.get("objectName", ""), error.parameters.get("proposal", frame.columns)
            error.called(Condition.of("DELTA_MERGE_UNRESOLVED_EXPRESSION", sqlExpr=named, clause=clause, cols=columns))
        raise


def bind_pairing(moment: Moment, frame: DataFrame, column: Column, what: str, *, aliases: str) -> BoundExpression:
    """Resolve a condition over rows of the table, of a source, or of both.

    Args:
        moment: Clock, zone and user of the command.
        frame: The rows. They are not read.
        column: The condition as the user wrote it.
        what: Name of the condition, for messages.
        aliases: Advice for a column that table and source both have.

    Raises:
        ParseError, BindError: The condition does not fit.
        InvalidArgumentError: The condition is not deterministic or holds a subquery.
    """
    try:
        bound = bind_condition(moment, frame, column)
    except ParseException as error:
        raise ParseError(
            f"{what} does not parse: {first_line(error)}",
            hint="Write it as in a WHERE clause, without the word WHERE.",
            condition=condition_of(error),
        ) from error
    except AnalysisException as error:
        shown = [item for item in frame.columns if not item.startswith("__pydelta")]
        raise BindError(
            f"{what} does not fit: {first_line(error)}",
            hint=f"The columns there are: {', '.join(shown)}. Where both have one, {aliases}.",
            condition=Condition.of("DELTA_AGGREGATION_NOT_SUPPORTED", operation=what)
            if error.getCondition() == "INVALID_WHERE_CONDITION"
            else condition_of(error),
        ) from error
    if Jvm.of(frame.sparkSession).has_subquery(bound.expression):
        raise InvalidArgumentError(
            f"{what} holds a subquery.",
            hint="Join its result into the source first.",
            condition=Condition.of("DELTA_UNSUPPORTED_SUBQUERY", operation=what, cond=bound.sql),
        )
    if not bound.expression.deterministic():
        raise InvalidArgumentError(
            f"{what} is not deterministic: {bound.sql}.",
            hint="Compute such a value into a source column.",
            condition=Condition.of(
                "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED", operation=what, expression=bound.sql
            ),
        )
    return bound


def qualified(alias: str, column: str) -> Column:
    """Refer to a column by its name under an alias. A DataFrame's own column is ambiguous in a self-join."""
    return F.col(f"{quoted(alias)}.{quoted(column)}")
