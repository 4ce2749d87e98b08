"""Fit a user's DataFrame to the table's columns. A bad row fails the job.

::

    match by name (ignoring case) -> lossless casts -> defaults and generated columns -> checks on every row:
        NOT NULL, CHECK constraints, invariants, generated values, lengths of char and varchar, replaceWhere

All of this is Spark expressions. A check raises an error that contains the row, and ``violation_in`` finds it in
Spark's error. Protocol: "Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns".
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DataType as SparkType

from pydelta.commands.write.options import StatementCondition
from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.java_names import column_named
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.table_expressions import table_expression
from pydelta.errors import (
    BindError,
    ConstraintViolatedError,
    SchemaError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    first_line,
)
from pydelta.errors.conditions import Condition, sql_state
from pydelta.protocol.names import quoted
from pydelta.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
)
from pydelta.protocol.schema_edits import map_fields
from pydelta.protocol.sized_texts import LENGTH, SIZED, has_limits
from pydelta.protocol.types import has_user_type, plain_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Brought",
    "Generated",
    "absent",
    "as_type",
    "cast_parts",
    "conform",
    "ddl",
    "default_of",
    "json_row",
    "name",
    "raised",
    "same_type",
    "stored",
    "violation_in",
]

_GENERATION: Final = "delta.generationExpression"
_INVARIANT: Final = "delta.invariants"
_DEFAULT: Final = "CURRENT_DEFAULT"
_CONSTRAINT_PREFIX: Final = "delta.constraints."
_BEGIN, _MIDDLE, _END = "<pydelta-violation>", "</condition>", "</pydelta-violation>"
_VIOLATION: Final = re.compile(rf"{_BEGIN}(?:(\[.*?){_MIDDLE})?(.*?){_END}", re.DOTALL)
_ROW: Final = ". Row: "
_ROW_LENGTH: Final = 500


@dataclass(frozen=True, slots=True)
class _Check:
    """A condition that must be true (not false, not null) for each row."""

    message: str
    holds: Column
    condition: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The treatment of a generated column that the rows bring. Conditions on the rows, never null; None for no row."""

    anew: Column | None = None
    """Rows for which the column is computed."""
    given: Column | None = None
    """Rows whose value was given and must equal the computed one. In all other rows it stays unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Columns that rows bring in addition to those of the table.

    Args:
        carried: Passed through unchanged, after the table's columns.
        copied: A boolean column, never null. It is true for rows that are already in the table and stay unchanged.
            Nothing in them is computed, trimmed or checked.
        beside: Columns that ``generated`` reads.
        generated: Generated columns of which the rows bring only some values.
        emptied: Partition columns in which an empty string is null. ``conform`` sets it.
    """

    carried: Sequence[str] = ()
    copied: str | None = None
    beside: Sequence[str] = ()
    generated: Mapping[str, Generated] = dataclasses.field(default_factory=dict)
    emptied: frozenset[str] = frozenset()


def name(column: str) -> Column:
    """Return a column by its literal name, including dots and backticks."""
    return column_named(quoted(column))


def conform(
    df: DataFrame,
    *,
    schema: StructType,
    configuration: Mapping[str, str],
    partition_columns: Sequence[str],
    predicate: str | StatementCondition | None = None,
    brought: Brought | None = None,
) -> DataFrame:
    """Convert rows to the table's columns and add checks.

    Args:
        df: The rows. Their schema was found compatible with the table's.
        schema: The table's logical schema.
        configuration: Table properties, for ``delta.constraints.*``.
        partition_columns: The table's partition columns. Empty text in them becomes null, as in the log, before any
            check.
        predicate: A condition that each row must satisfy (``replaceWhere``).
        brought: Other columns of ``df``, and their meaning.

    Returns:
        The table's columns in order. Running it raises on the first bad row.

    Raises:
        BindError: A constraint, generation or default expression does not resolve.
        UnsupportedFeatureError: A check is not possible. Names it.
    """
    data = from_spark(df.schema)
    brought = brought or Brought()
    copied = brought.copied
    checks: list[_Check] = []
    dropped = [*([copied] if copied else ()), *brought.beside]
    extra = [name(column) for column in (*brought.carried, *dropped)]
    shaped = df
    if extra or not _is_shaped(data, schema):
        first = []
        for field in schema.fields:
            given = data.field(field.name)
            column = absent(field) if given is None else cast_parts(name(given.name), given.data_type, field.data_type)
            first.append(_unless(copied, column, _sized(column, field, checks)).alias(field.name))
        shaped = _select(df, [*first, *extra], schema)
    emptied = _emptied(schema, partition_columns)
    if emptied:  # A separate projection avoids computing a non-deterministic value twice.
        shaped = shaped.withColumns({column: _without_empty(name(column)) for column in emptied})
    if any(_GENERATION in field.metadata for field in schema.fields):
        shaped = _generate(shaped, schema, data, checks, extra, dataclasses.replace(brought, emptied=emptied))
    checks += _checks(schema, configuration, predicate)
    if copied:
        checks = [dataclasses.replace(check, holds=name(copied) | check.holds) for check in checks]
    shaped = _guarded(shaped, schema, checks, extra) if checks else shaped
    return shaped.drop(*dropped) if dropped else shaped


def _is_shaped(data: StructType, schema: StructType) -> bool:
    """Return whether rows have the table's columns in order, with their types and without lengths to check."""
    return data.names == schema.names and all(
        LENGTH not in wanted.metadata and same_type(given.data_type, wanted.data_type)
        for given, wanted in zip(data.fields, schema.fields, strict=True)
    )


def _emptied(schema: StructType, partition_columns: Sequence[str]) -> frozenset[str]:
    """Return the columns in which an empty string is null. Protocol: "Partition Value Serialization"."""
    lower = {column.lower() for column in partition_columns}
    texts = (PrimitiveType("string"), PrimitiveType("binary"))
    return frozenset(item.name for item in schema.fields if item.name.lower() in lower and item.data_type in texts)


def _without_empty(column: Column) -> Column:
    return F.when(F.length(column) > 0, column)


def _unless(copied: str | None, old: Column, new: Column) -> Column:
    """Return the new value, or the old one in copied rows."""
    return new if copied is None or new is old else F.when(name(copied), old).otherwise(new)


def raised(*parts: Column, condition: Condition | None = None) -> Column:
    """Build an expression that fails the job with a message. ``violation_in`` finds it and its condition."""
    head = "" if condition is None else json.dumps([condition.name, dict(condition.parameters)]) + _MIDDLE
    return F.raise_error(F.concat(F.lit(_BEGIN + head), *parts, F.lit(_END)))


def violation_in(text: str) -> ConstraintViolatedError | None:
    """Find the violation that a failed job reports; None if it failed for another reason."""
    found = _VIOLATION.search(text)
    if found is None:
        return None
    head, message = found.groups()
    return ConstraintViolatedError(
        message,
        hint="Nothing was written to the table. Correct or filter out such rows, then write again.",
        condition=None if head is None else _condition(head, message),
    )


def _condition(head: str, message: str) -> Condition:
    """Build the condition of a failed check, with the row's values and our message."""
    name_, parameters = json.loads(head)
    dynamic = {"values": message.partition(_ROW)[2], "message": message}
    return Condition(
        name_, {**parameters, **{key: dynamic[key] for key in parameters if key in dynamic}}, sql_state(name_)
    )


def _select(df: DataFrame, columns: Sequence[Column], schema: StructType) -> DataFrame:
    try:
        return df.select(*columns)
    except (AnalysisException, ParseException) as error:
        raise BindError(
            f"An expression of the table does not resolve: {first_line(error)}",
            hint=f"The table's columns are: {', '.join(schema.names)}.",
            condition=condition_of(error),
        ) from error


def absent(field: StructField) -> Column:
    """Return the value of a column that a row lacks: its default, or null."""
    default = field.metadata.get(_DEFAULT)
    value = F.lit(None) if default is None else table_expression(str(default), "default")
    return as_type(value, field.data_type)


def default_of(field: StructField) -> Column:
    """Return what DEFAULT stands for.

    Raises:
        SchemaMismatchError: The column is NOT NULL, and has no default.
    """
    if not field.nullable and _DEFAULT not in field.metadata and _GENERATION not in field.metadata:
        raise SchemaMismatchError(
            f"The column {field.name!r} has no default for DEFAULT to stand for, and is NOT NULL.",
            hint="Write a value, or give the column a default: ALTER TABLE … ALTER COLUMN … SET DEFAULT.",
            condition=Condition.of("NO_DEFAULT_COLUMN_VALUE_AVAILABLE", colName=field.name),
        )
    return absent(field)


def _generate(
    df: DataFrame,
    schema: StructType,
    data: StructType,
    checks: list[_Check],
    extra: Sequence[Column],
    brought: Brought,
) -> DataFrame:
    """Compute missing generated columns and check those that the data brings."""
    everywhere = Generated(given=F.lit(True))
    columns = []
    for field in schema.fields:
        expression = field.metadata.get(_GENERATION)
        if expression is None:
            columns.append(name(field.name))
            continue
        computed = table_expression(str(expression), "generation expression").cast(ddl(field.data_type))
        if field.name in brought.emptied:
            computed = _without_empty(computed)
        if data.field(field.name) is None:
            columns.append(computed.alias(field.name))
            continue
        own, how = name(field.name), brought.generated.get(field.name, everywhere)
        made = own if how.anew is None else F.when(how.anew, computed).otherwise(own)
        columns.append(_unless(brought.copied, own, made).alias(field.name))
        if how.given is not None:
            message = f"Column {field.name!r} must equal its generation expression {expression}"
            rule = f"{field.name} <=> {expression}"
            checks.append(_Check(message, ~how.given | own.eqNullSafe(computed), _violated("Generated Column", rule)))
    return _select(df, [*columns, *extra], schema)


def _checks(
    schema: StructType, configuration: Mapping[str, str], predicate: str | StatementCondition | None
) -> Iterator[_Check]:
    for field in schema.fields:
        if not field.nullable or not isinstance(field.data_type, PrimitiveType):  # Others have nothing to check.
            for path, holds in _not_null(name(field.name), field, field.name):
                message = f"Column {path!r} is NOT NULL in the table and null in the data"
                yield _Check(message, holds, Condition.of("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=path))
        if _INVARIANT in field.metadata:
            expression = json.loads(field.metadata[_INVARIANT])["expression"]["expression"]
            message = f"Column {field.name!r} has the invariant {expression}"
            yield _Check(message, table_expression(expression, "invariant"), _violated(field.name, expression))
    for key, expression in configuration.items():
        if key.startswith(_CONSTRAINT_PREFIX):
            own = key.removeprefix(_CONSTRAINT_PREFIX)
            text = f"CHECK constraint {own!r} ({expression}) does not hold"
            yield _Check(text, table_expression(expression, "CHECK constraint"), _violated(own, expression))
    if predicate is not None:
        given = StatementCondition.as_given(predicate)
        holds = F.expr(given) if isinstance(given, str) else given
        condition = Condition.of("DELTA_REPLACE_WHERE_MISMATCH", replaceWhere=predicate, message="")
        yield _Check(f"The data has a row outside replaceWhere ({predicate})", holds, condition)


def _violated(rule: str, expression: object) -> Condition:
    return Condition.of("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", constraintName=rule, expression=expression, values="")


def _not_null(column: Column, field: StructField, path: str) -> Iterator[tuple[str, Column]]:
    """Yield conditions under which no required value is missing. Parts of a null parent are not required."""
    if not field.nullable:
        yield path, column.isNotNull()
    for inner, holds in _parts_not_null(column, field.data_type, path):
        yield inner, column.isNull() | holds


def _parts_not_null(column: Column, data_type: DataType, path: str) -> Iterator[tuple[str, Column]]:
    if data_type.user is not None:  # Only the type's class, not an expression, can look inside.
        return
    if isinstance(data_type, StructType):
        for item in data_type.fields:
            yield from _not_null(column.getField(item.name), item, f"{path}.{item.name}")
    elif isinstance(data_type, ArrayType):
        element = StructField("element", data_type.element_type, data_type.contains_null)
        yield from _each_not_null(column, element, f"{path}.element")
    elif isinstance(data_type, MapType):
        value = StructField("value", data_type.value_type, data_type.value_contains_null)
        yield from _each_not_null(F.map_values(column), value, f"{path}.value")
        key = StructField("key", data_type.key_type, True)
        yield from _each_not_null(F.map_keys(column), key, f"{path}.key")


def _each_not_null(column: Column, item: StructField, path: str) -> Iterator[tuple[str, Column]]:
    if not any(True for _ in _not_null(F.lit(None), item, path)):
        return

    def holds(element: Column) -> Column:
        return reduce(lambda left, right: left & right, [part for _, part in _not_null(element, item, path)])

    yield path, F.forall(column, holds)


def _guarded(df: DataFrame, schema: StructType, checks: Sequence[_Check], extra: Sequence[Column]) -> DataFrame:
    """Pass every row through its checks in one column. Any column will do, because all are written."""
    carrier = next(field for field in schema.fields if field.data_type != PrimitiveType("void"))
    row = json_row(schema)
    guarded = name(carrier.name)
    for check in reversed(checks):
        failed = raised(F.lit(f"{check.message}{_ROW}"), F.coalesce(row, F.lit("?")), condition=check.condition)
        failed = as_type(failed, carrier.data_type)
        guarded = F.when(F.coalesce(check.holds, F.lit(False)), guarded).otherwise(failed)
    columns = [(guarded if field is carrier else name(field.name)).alias(field.name) for field in schema.fields]
    return _select(df, [*columns, *extra], schema)


def json_row(schema: StructType) -> Column:
    """Render a row as text for a message, truncated if it is long."""
    names = [name(field.name) for field in schema.fields if field.data_type != PrimitiveType("variant")]
    return F.substring(F.to_json(F.struct(*names), {"ignoreNullFields": "false"}), 1, _ROW_LENGTH)


def _sized(column: Column, field: StructField, checks: list[_Check]) -> Column:
    """Pad char, trim spaces beyond the limit of char and varchar, and refuse values that are still too long."""
    declared = field.metadata.get(LENGTH)
    if declared is None:
        return column
    try:
        data_type = parse_type(json.loads(SparkType.fromDDL(str(declared)).json()))
    except (PySparkException, SchemaError) as error:
        raise UnsupportedFeatureError(
            f"Column {field.name!r} is declared {declared}, whose lengths cannot be checked.",
            features=(str(declared),),
            hint="Declare it again with ALTER TABLE … ALTER COLUMN … TYPE string.",
        ) from error
    message = f"Column {field.name!r} is {declared} and the value is longer"
    holds = F.coalesce(_short_enough(name(field.name), data_type), F.lit(True))
    rule = f"length({field.name}) of {declared}"
    checks.append(_Check(message, holds, Condition.of("DELTA_EXCEED_CHAR_VARCHAR_LIMIT", expr=rule)))
    return _fitted(column, data_type)


def stored(column: Column, data_type: DataType, field: StructField) -> Column:
    """Return a value as the table's column will store it, if it can."""
    return _sized(cast_parts(column, data_type, field.data_type), field, [])


def _fitted(column: Column, declared: DataType) -> Column:
    """Return the value as its declared type stores it, including parts."""
    if not has_limits(declared):
        return column
    if isinstance(declared, StructType):
        parts = [_fitted(column.getField(part.name), part.data_type).alias(part.name) for part in declared.fields]
        return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*parts))
    if isinstance(declared, ArrayType):
        return F.transform(column, lambda element: _fitted(element, declared.element_type))
    if isinstance(declared, MapType):
        if has_limits(declared.key_type):
            column = F.transform_keys(column, lambda key, _: _fitted(key, declared.key_type))
        return F.transform_values(column, lambda _, value: _fitted(value, declared.value_type))
    pads, limit = _limit(declared)
    short = F.length(column) <= limit
    cut = F.when(F.length(F.rtrim(column)) <= limit, F.rpad(F.rtrim(column), limit, " ")).otherwise(column)
    sized = F.when(short, F.rpad(column, limit, " ") if pads else column).otherwise(cut)
    return F.when(column.isNull(), F.lit(None)).otherwise(sized)


def _short_enough(column: Column, declared: DataType) -> Column:
    """Return whether all strings are within their limits; null if there is none."""
    if isinstance(declared, StructType):
        parts = [(column.getField(part.name), part.data_type) for part in declared.fields]
        held = [F.coalesce(_short_enough(*part), F.lit(True)) for part in parts if has_limits(part[1])]
        return reduce(lambda left, right: left & right, held)
    if isinstance(declared, ArrayType):
        return F.forall(column, lambda item: F.coalesce(_short_enough(item, declared.element_type), F.lit(True)))
    if isinstance(declared, MapType):
        keys = ArrayType(declared.key_type), F.map_keys(column)
        values = ArrayType(declared.value_type), F.map_values(column)
        held = [_short_enough(items, kind) for kind, items in (keys, values) if has_limits(kind)]
        return reduce(lambda left, right: left & right, held)
    return F.length(column) <= _limit(declared)[1]


def _limit(declared: DataType) -> tuple[bool, int]:
    match = SIZED.fullmatch(str(declared))
    assert match is not None
    return match.group(1) == "char", int(match.group(2))


def cast_parts(column: Column, source: DataType, target: DataType) -> Column:
    """Cast the column to ``target``. Struct fields are matched by name, with null for missing ones."""
    if same_type(source, target):
        return column
    if isinstance(source, StructType) and isinstance(target, StructType):
        parts = []
        for item in target.fields:
            given = source.field(item.name)
            part = (
                as_type(F.lit(None), item.data_type)
                if given is None
                else cast_parts(column.getField(given.name), given.data_type, item.data_type)
            )
            parts.append(part.alias(item.name))
        return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*parts))
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return F.transform(column, lambda element: cast_parts(element, source.element_type, target.element_type))
    if isinstance(source, MapType) and isinstance(target, MapType):
        if not same_type(source.key_type, target.key_type):
            column = F.transform_keys(column, lambda key, _: cast_parts(key, source.key_type, target.key_type))
        if not same_type(source.value_type, target.value_type):
            column = F.transform_values(
                column, lambda _, value: cast_parts(value, source.value_type, target.value_type)
            )
        return column
    return column.cast(ddl(target))


def same_type(left: DataType, right: DataType) -> bool:
    """Compare types, ignoring nullability and metadata."""
    if isinstance(left, StructType) and isinstance(right, StructType):
        return left.names == right.names and all(
            same_type(mine.data_type, yours.data_type) for mine, yours in zip(left.fields, right.fields, strict=True)
        )
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return same_type(left.element_type, right.element_type)
    if isinstance(left, MapType) and isinstance(right, MapType):
        return same_type(left.key_type, right.key_type) and same_type(left.value_type, right.value_type)
    return left == right


def as_type(column: Column, data_type: DataType) -> Column:
    """Cast a column to a type. A user-defined type is used if the JVM has its class."""
    if not has_user_type(data_type):
        return column.cast(ddl(data_type))
    jvm = Jvm.of(SparkSession.active())
    known = plain_type(data_type, lambda user: jvm.is_user_type(user.get("class")))
    bare = map_fields(StructType((StructField("c", known),)), lambda field: field.replace(metadata={})).fields[0]
    native: Any = column
    return ClassicColumn(native._jc.cast(jvm.data_type.fromJson(json.dumps(bare.data_type.to_dict()))))


def ddl(data_type: DataType) -> str:
    """Return the type in Spark's DDL."""
    if isinstance(data_type, StructType):
        return "struct<" + ",".join(f"`{f.name.replace('`', '``')}`:{ddl(f.data_type)}" for f in data_type.fields) + ">"
    if isinstance(data_type, ArrayType):
        return f"array<{ddl(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"map<{ddl(data_type.key_type)},{ddl(data_type.value_type)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return data_type.name
