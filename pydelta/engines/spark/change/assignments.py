"""Resolve the assignments of UPDATE and MERGE: the user's names and expressions become columns to store.

Values are cast by the session's store assignment policy: see ``pydelta.engines.spark.write.assignment``. Fields of
structs are matched by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import Assignments
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.spark.catalog.lookup import parse_identifier
from pydelta.engines.spark.change.binding import BoundExpression, Moment, bind_typed_values, bind_values
from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.scan.filters import Tree
from pydelta.engines.spark.write.assignment import StoreAssignment
from pydelta.engines.spark.write.columns import as_type
from pydelta.errors import (
    BindError,
    ConflictingSetError,
    DuplicateInsertColumnError,
    InvalidArgumentError,
    ParseError,
    SchemaMismatchError,
    first_line,
)
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.protocol.types import DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Assignment",
    "BoundAssignments",
    "SetClause",
    "bind_assignments",
    "names_of",
    "to_column",
]

_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An assignment: a target and its new value.

    Args:
        path: Names as the table spells them, from the column inwards.
        value: The new value.
        text: The value as the user wrote it, for messages.
        expression: The resolved value, or None before it is resolved.
    """

    path: tuple[str, ...]
    value: Column
    text: str
    expression: BoundExpression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAssignments:
    """Assignments with values cast to the types of their targets.

    Args:
        items: The assignments.
    """

    items: tuple[Assignment, ...]

    @property
    def columns(self) -> frozenset[str]:
        """Names of the top-level columns that are set."""
        return frozenset(item.path[0] for item in self.items)

    def apply(self, schema: StructType, old: Mapping[str, Column]) -> dict[str, Column]:
        """Compute each column of the table after the assignments.

        Args:
            schema: Schema of the table.
            old: Columns before the assignments, by name.
        """
        found = {}
        for field in schema.fields:
            own = [(item.path[1:], item.value) for item in self.items if item.path[0] == field.name]
            before = old.get(field.name, as_type(F.lit(None), field.data_type))
            found[field.name] = _assigned(before, field.data_type, own)
        return found

    def exact(self, schema: StructType) -> dict[str, Exact]:
        """Return the new values by column, for this process to compute.

        Raises:
            NotHere: Only Spark can compute one of them.
        """
        values = {}
        for item in self.items:
            if len(item.path) > 1 or item.expression is None:
                raise NotHere("a field in a struct that is set")
            values[item.path[0]] = Tree.of(item.expression.expression).exact(schema)
        return values

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        """The resolved values."""
        return tuple(item.expression for item in self.items if item.expression is not None)


def to_column(value: Any, what: str) -> Column:
    """Turn SQL text or a Column into a Column.

    Raises:
        InvalidArgumentError: The value is neither.
    """
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        return F.expr(value)
    raise InvalidArgumentError(
        f"{what} is SQL text or a Column, not {type(value).__name__}.",
        hint='Write a constant as SQL text, such as "\'paid\'" or "0", or with pyspark.sql.functions.lit.',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClause:
    """The clause that holds assignments.

    Args:
        name: Name of the clause, for messages.
        qualifiers: Names by which the table may be qualified.
        inserts: Whether the values make new rows.
        evolves: Whether structs may lack fields of their column. Missing fields become null.
    """

    name: str = "UPDATE"
    qualifiers: Sequence[str] = ()
    inserts: bool = False
    evolves: bool = False


def bind_assignments(
    schema: StructType, given: Assignments, frame: DataFrame, clause: SetClause, *, moment: Moment
) -> BoundAssignments:
    """Resolve targets against the table, and values against the rows from which they are computed.

    Args:
        schema: Schema of the table.
        given: Targets (``name``, ``struct.field``, possibly qualified) with SQL text or a Column.
        frame: Rows that the expressions can read.
        clause: The clause that holds the assignments.
        moment: Clock, zone and user of the command. Values are resolved once, for all frames whose columns have the ids
            of those of ``frame``.

    Raises:
        BindError: A target or a column in an expression does not exist.
        InvalidArgumentError: An INSERT names no column, or an expression is neither text nor a Column.
        ConflictingSetError, DuplicateInsertColumnError: A target is set twice, or together with one of its parts.
        SchemaMismatchError: A struct has other fields than its target.
        AnalysisException: Spark reports that the policy does not cast a value's type.
        ParseError: A text is not an expression.
    """
    where = clause.name
    if not given and clause.inserts:
        raise InvalidArgumentError(f"{where} sets nothing.", hint='Give at least one column: set={"column": "value"}.')
    known = {name.lower() for name in clause.qualifiers if name}
    items = []
    for key, value in given:
        path, _ = _target(frame.sparkSession, schema, key, known)
        items.append(Assignment(path=path, value=to_column(value, f"The value of {key!r}"), text=str(value)))
    _refuse_overlap(items, where, clause.inserts)
    with _explained(frame, where):
        bound, types = bind_typed_values(moment, frame, [item.value for item in items])
    items = [replace(item, value=value.column, expression=value) for item, value in zip(items, bound, strict=True)]
    assignment = StoreAssignment.of(frame.sparkSession)
    stored = []
    for item, source in zip(items, types, strict=True):
        target = _type_at(schema, item.path)
        try:
            stored.append(_stored(assignment, item, source, target, clause))
        except SchemaMismatchError as error:
            named = Condition.of("DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION", fromCatalog=source, toCatalog=target)
            raise error.called(named) from None
    cast = [place for place, value in enumerate(stored) if value is not items[place].value]
    if cast:  # Spark must resolve the casts that were added.
        again = bind_values(moment, frame, [stored[place] for place in cast])
        for place, value in zip(cast, again, strict=True):
            items[place] = replace(items[place], value=value.column, expression=value)
    return BoundAssignments(items=tuple(items))


def _stored(
    assignment: StoreAssignment, item: Assignment, source: DataType, target: DataType, clause: SetClause
) -> Column:
    """Cast a value to its target's type. A nondeterministic value is computed once, however many fields it has."""
    path = ".".join(item.path)
    expression = item.expression
    if expression is None or expression.expression.deterministic() or not isinstance(target, StructType):
        return assignment.by_name(item.value, source, target, path, fill=clause.evolves)
    several = F.transform(
        F.array(item.value), lambda value: assignment.by_name(value, source, target, path, fill=clause.evolves)
    )
    return several.getItem(0)


def names_of(spark: SparkSession, schema: StructType, key: str, qualifiers: Collection[str]) -> list[str]:
    """Split a target into names from the column inwards, without the table's name.

    Args:
        spark: The session, whose parser knows quoted names.
        schema: Schema of the table.
        key: The target as the user wrote it.
        qualifiers: Names of the table, in lower case.
    """
    if _PLAIN.fullmatch(key) and schema.field(key) is not None:  # The parser has nothing to split.
        return [key]
    parts = list(parse_identifier(spark, key))
    if len(parts) > 1 and parts[0].lower() in qualifiers and schema.field(parts[0]) is None:
        parts = parts[1:]
    return parts


def _target(
    spark: SparkSession, schema: StructType, key: str, qualifiers: set[str]
) -> tuple[tuple[str, ...], DataType]:
    parts = names_of(spark, schema, key, qualifiers)
    level: DataType = schema
    path: list[str] = []
    for part in parts:
        field = level.field(part) if isinstance(level, StructType) else None
        if field is None:
            names = level.names if isinstance(level, StructType) else ()
            inside = f" in {'.'.join(path)}" if path else ""
            meant = nearest(part, names)
            raise BindError(
                f"The table has no column {part!r}{inside}, which {key!r} would set.",
                hint=(f"Did you mean {meant!r}? " if meant else "") + f"There are: {', '.join(names) or 'none'}.",
                condition=Condition.of("FIELD_NOT_FOUND", fieldName=part, fields=names)
                if path
                else Condition.of("UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=part, proposal=names),
            )
        path.append(field.name)
        level = field.data_type
    return tuple(path), level


def _type_at(schema: StructType, path: Sequence[str]) -> DataType:
    level: DataType = schema
    for part in path:
        assert isinstance(level, StructType)
        field = level.field(part)
        assert field is not None
        level = field.data_type
    return level


def _refuse_overlap(items: Sequence[Assignment], where: str, inserts: bool) -> None:
    for number, item in enumerate(items):
        for other in items[:number]:
            shorter = min(len(item.path), len(other.path))
            if item.path[:shorter] == other.path[:shorter]:
                names = [".".join(part.path) for part in (other, item)]
                twice = (
                    f"{names[0]!r} twice" if names[0] == names[1] else f"{names[0]!r} and {names[1]!r}, which overlap"
                )
                kind = DuplicateInsertColumnError if inserts else ConflictingSetError
                raise kind(
                    f"{where} sets {twice}.",
                    hint="Set each column, or each field of a struct, once.",
                    condition=Condition.of("DELTA_DUPLICATE_COLUMNS_ON_INSERT")
                    if inserts
                    else Condition.of("DELTA_CONFLICT_SET_COLUMN", columnList=names),
                )


@contextmanager
def _explained(frame: DataFrame, where: str) -> Iterator[None]:
    """Turn Spark's errors about unresolved values into the engine's own errors."""
    try:
        yield
    except ParseException as error:
        raise ParseError(
            f"A value in {where} does not parse: {first_line(error)}",
            condition=condition_of(error),
        ) from error
    except AnalysisException as error:
        raise BindError(
            f"A value in {where} does not fit: {first_line(error)}",
            hint=f"The columns there are: {', '.join(name for name in frame.columns if not name.startswith('__'))}.",
            condition=condition_of(error),
        ) from error


def _assigned(before: Column, data_type: DataType, own: Sequence[tuple[tuple[str, ...], Column]]) -> Column:
    """Replace parts of a column. A null struct gets the parts that are set."""
    if not own:
        return before
    whole = [value for path, value in own if not path]
    if whole:
        return whole[0]
    assert isinstance(data_type, StructType)
    parts = []
    for field in data_type.fields:
        inner = [(path[1:], value) for path, value in own if path[0] == field.name]
        parts.append(_assigned(before.getField(field.name), field.data_type, inner).alias(field.name))
    return F.struct(*parts)
