"""Resolve what UPDATE and MERGE set columns to: names and expressions in the user's words, to columns to store.

A value is stored as Spark's ANSI assignment does it: types that do not go together are refused when the statement is
bound, and a value that does not fit its column fails the job, whatever the session's own mode is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from pydelta.commands.engine import Assignments
from pydelta.conditions import Condition
from pydelta.errors import (
    BindError,
    ConflictingSetError,
    DuplicateInsertColumnError,
    InvalidArgumentError,
    ParseError,
    SchemaMismatchError,
    UnsafeOperationError,
    first_line,
)
from pydelta.protocol.identity import identities
from pydelta.protocol.types import ArrayType, DataType, MapType, PrimitiveType, StructType
from pydelta.spark.catalog.lookup import parse_identifier
from pydelta.spark.change.binding import BoundExpression, Moment, bind_values
from pydelta.spark.errors import condition_of
from pydelta.spark.types import from_spark
from pydelta.spark.write.columns import cast_parts, ddl, raised, same_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Assignment", "BoundAssignments", "bind_assignments", "refuse_numbered", "to_column"]

_NUMBERS: Final = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One target and what it is set to.

    Args:
        path: Names as the table spells them, from the column inwards.
        value: The expression.
        text: The expression as the user wrote it, for messages.
        expression: What ``value`` is, once it was resolved.
    """

    path: tuple[str, ...]
    value: Column
    text: str
    expression: BoundExpression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAssignments:
    """Assignments whose types are known to fit.

    Args:
        items: The assignments.
        types: Type of each value.
        target_types: Type of each target.
    """

    items: tuple[Assignment, ...]
    types: tuple[DataType, ...]
    target_types: tuple[DataType, ...]

    @property
    def columns(self) -> frozenset[str]:
        """Names of the top-level columns concerned."""
        return frozenset(item.path[0] for item in self.items)

    def apply(self, schema: StructType, old: Mapping[str, Column]) -> dict[str, Column]:
        """Each column of the table as it is afterwards.

        Args:
            schema: The table's.
            old: What each column is before, by name.
        """
        found = {}
        for field in schema.fields:
            own = [
                (item.path[1:], self.stored(number))
                for number, item in enumerate(self.items)
                if item.path[0] == field.name
            ]
            before = old.get(field.name, F.lit(None).cast(ddl(field.data_type)))
            found[field.name] = _assigned(before, field.data_type, own)
        return found

    @property
    def expressions(self) -> tuple[BoundExpression, ...]:
        """The values that were resolved."""
        return tuple(item.expression for item in self.items if item.expression is not None)

    def stored(self, number: int) -> Column:
        """A value as the type of its target."""
        item, source, target = self.items[number], self.types[number], self.target_types[number]
        return _store(item.value, source, target, ".".join(item.path))


def to_column(value: Any, what: str) -> Column:
    """SQL text or a Column -> a Column.

    Raises:
        InvalidArgumentError: It is neither.
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
    """Where assignments stand.

    Args:
        name: The clause, for messages.
        qualifiers: Names by which the table may be qualified.
        inserts: The values make new rows.
    """

    name: str = "UPDATE"
    qualifiers: Sequence[str] = ()
    inserts: bool = False


def bind_assignments(
    schema: StructType, given: Assignments, frame: DataFrame, clause: SetClause, *, moment: Moment | None = None
) -> BoundAssignments:
    """Resolve targets against the table and values against the rows that they are computed from.

    Args:
        schema: The table's.
        given: Targets (``name``, ``struct.field``, possibly qualified) with SQL text or a Column.
        frame: Rows that the expressions see.
        clause: Where the assignments stand.
        moment: When the command happens: the values are resolved here and now, for frames whose columns have the ids of
            those of ``frame``. None to resolve them anew wherever they are used.

    Raises:
        BindError: A target or a column in an expression that there is not.
        InvalidArgumentError: Nothing is set, or an expression is neither text nor Column.
        ConflictingSetError, DuplicateInsertColumnError: A target is set twice, or with a part of it.
        SchemaMismatchError: A value of a type that its target cannot hold.
        ParseError: Text that is not an expression.
    """
    where = clause.name
    if not given:
        raise InvalidArgumentError(f"{where} sets nothing.", hint='Give at least one column: set={"column": "value"}.')
    known = {name.lower() for name in clause.qualifiers if name}
    items = []
    for key, value in given:
        path, _ = _target(frame.sparkSession, schema, key, known)
        items.append(Assignment(path=path, value=to_column(value, f"The value of {key!r}"), text=str(value)))
    _refuse_overlap(items, where, clause.inserts)
    with _explained(frame, where):
        if moment is not None:
            items = _with_values(items, bind_values(moment, frame, [item.value for item in items]))
        types = _types_of(frame, items)
    targets = tuple(_type_at(schema, item.path) for item in items)
    problems = [
        f"  - {'.'.join(item.path)} is {target}, and {item.text} is {source}"
        for item, source, target in zip(items, types, targets, strict=True)
        if not _can_assign(source, target)
    ]
    if problems:
        raise SchemaMismatchError(
            f"{where} sets columns to values of types that they cannot hold:\n" + "\n".join(problems),
            hint="Cast the value to the column's type.",
        )
    bound = BoundAssignments(items=tuple(items), types=types, target_types=targets)
    if moment is None:
        return bound
    stored = bind_values(moment, frame, [bound.stored(number) for number in range(len(items))])
    return BoundAssignments(items=tuple(_with_values(items, stored)), types=targets, target_types=targets)


def _with_values(items: Sequence[Assignment], values: Sequence[BoundExpression]) -> list[Assignment]:
    return [replace(item, value=value.column, expression=value) for item, value in zip(items, values, strict=True)]


def refuse_numbered(schema: StructType, columns: Iterable[str], *, inserts: bool) -> None:
    """Nothing, when these columns may be set: no identity column that is there, no new one that is always generated.

    Raises:
        UnsafeOperationError: One that may not.

    Protocol: "Identity Columns".
    """
    for identity in identities(schema):
        if identity.column in columns and not (inserts and identity.explicit):
            kind = "BY DEFAULT" if identity.explicit else "ALWAYS"
            raise UnsafeOperationError(
                f"Column {identity.column!r} is GENERATED {kind} AS IDENTITY and cannot be set "
                f"{'by an insert' if inserts else 'in a row that is there'}.",
                hint="Leave the column out: with names, not with * or …All, where the source has such a column.",
                condition=Condition.of(
                    "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
                    if inserts
                    else "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED",
                    colName=identity.column,
                ),
            )


def _target(
    spark: SparkSession, schema: StructType, key: str, qualifiers: set[str]
) -> tuple[tuple[str, ...], DataType]:
    parts = list(parse_identifier(spark, key))
    if len(parts) > 1 and parts[0].lower() in qualifiers and schema.field(parts[0]) is None:
        parts = parts[1:]
    level: DataType = schema
    path: list[str] = []
    for part in parts:
        field = level.field(part) if isinstance(level, StructType) else None
        if field is None:
            names = level.names if isinstance(level, StructType) else ()
            close = difflib.get_close_matches(part.lower(), [name.lower() for name in names], n=1)
            inside = f" in {'.'.join(path)}" if path else ""
            meant = next((name for name in names if close and name.lower() == close[0]), None)
            raise BindError(
                f"The table has no column {part!r}{inside}, which {key!r} is to set.",
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


def _types_of(frame: DataFrame, items: Sequence[Assignment]) -> tuple[DataType, ...]:
    selected = frame.select(*[item.value.alias(f"v{number}") for number, item in enumerate(items)])
    return tuple(field.data_type for field in from_spark(selected.schema).fields)


@contextmanager
def _explained(frame: DataFrame, where: str) -> Iterator[None]:
    """What Spark says of values that do not resolve, as the engine's own errors."""
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


def _can_assign(source: DataType, target: DataType) -> bool:
    """Spark's rule for ANSI store assignment; parts likewise, those of structs by name."""
    if source in (target, PrimitiveType("void")):
        return True
    if isinstance(source, StructType) and isinstance(target, StructType):
        given = {field.name.lower(): field.data_type for field in source.fields}
        if not set(given) <= {field.name.lower() for field in target.fields}:
            return False
        return all(
            _can_assign(given[field.name.lower()], field.data_type) if field.name.lower() in given else field.nullable
            for field in target.fields
        )
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return _can_assign(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _can_assign(source.key_type, target.key_type) and _can_assign(source.value_type, target.value_type)
    if isinstance(source, ArrayType | MapType | StructType) or isinstance(target, ArrayType | MapType | StructType):
        return False
    names = getattr(source, "name", "decimal"), getattr(target, "name", "decimal")
    if set(names) <= _NUMBERS:
        return True
    if names[1] == "string":
        return names[0] not in ("binary", "variant")
    return set(names) <= _TIMES


def _store(value: Column, source: DataType, target: DataType, path: str) -> Column:
    """The value as the column's type; one that does not fit raises, null stays null."""
    if same_type(source, target):
        return value
    if source == PrimitiveType("void"):
        return F.lit(None).cast(ddl(target))
    if isinstance(target, StructType | ArrayType | MapType):
        return cast_parts(value, source, target)
    stored = value.try_cast(ddl(target))
    overflow = Condition.of("DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", columnName=path, sourceType=source, targetType=target)
    failed = raised(
        F.lit("The value "),
        value.cast("string"),
        F.lit(f" does not fit the column {path!r}, which is {target}."),
        condition=overflow if getattr(source, "name", "decimal") in _NUMBERS else None,
    )
    return F.when(value.isNotNull() & stored.isNull(), failed.cast(ddl(target))).otherwise(stored)


def _assigned(before: Column, data_type: DataType, own: Sequence[tuple[tuple[str, ...], Column]]) -> Column:
    """A column with some of its parts replaced; a struct that was null gets the parts that are set."""
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
