"""Put the row filter and the column masks of a role above the scan of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)

from pydelta.api.access.conditions import Comparison, Constant, kind_of
from pydelta.api.access.roles import Grant, Mask
from pydelta.errors import AccessDeniedError

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = ["shown_plan"]

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "text": (StringType,),
    "integer": (ByteType, ShortType, IntegerType, LongType, DecimalType),
    "boolean": (BooleanType,),
    "date": (DateType,),
}
_PLAIN_COLLATION: Final = "UTF8_BINARY"
_LAST: Final = 4
_HIDDEN: Final = "****"


def shown_plan(jvm: Jvm, plan: Any, grant: Grant, table: str) -> Any:
    """Return the analyzed plan of a table as a role sees it.

    Args:
        jvm: The session's bindings.
        plan: The analyzed scan.
        grant: What the role sees.
        table: The table's name, for errors.

    Raises:
        AccessDeniedError: A column of the filter or of a mask is missing, or has a type for which it is not defined.
    """
    frame = jvm.frame(plan)
    fields: dict[str, StructField] = {}
    for field in frame.schema.fields:
        if field.name.lower() in fields and not grant.is_whole:
            _refuse(table, field.name, "is there twice, in capitals and in small letters")
        fields[field.name.lower()] = field
    for comparison in grant.filters:
        frame = frame.where(_condition(fields, comparison, table))
    if grant.filters:
        # A condition that is not deterministic keeps those of a query above it: otherwise Spark could evaluate them
        # first, and an error could show a value of a hidden row.
        frame = frame.where(F.spark_partition_id() >= 0)
    for name in grant.masks:
        if name not in fields:
            _refuse(table, name, "is masked, but this version of the table does not have it")
    columns = []
    for field in frame.schema.fields:
        mask = grant.masks.get(field.name.lower())
        columns.append(_column(field) if mask is None else _masked(field, mask, table).alias(field.name))
    return frame.select(*columns)._jdf.queryExecution().analyzed()


def _refuse(table: str, column: str, why: str) -> NoReturn:
    raise AccessDeniedError(
        f"Access denied: the column {column} of {table} {why}, so that the rule of your role cannot be applied.",
        hint="Ask the operator to change the file of users and roles.",
    )


def _column(field: StructField) -> Column:
    return F.col("`" + field.name.replace("`", "``") + "`")


def _is_of(kind: str, given: DataType) -> bool:
    """Return whether a column's type takes constants of a kind, without a conversion."""
    collation = getattr(given, "collation", _PLAIN_COLLATION)
    return isinstance(given, _TYPES[kind]) and collation == _PLAIN_COLLATION


def _condition(fields: dict[str, StructField], one: Comparison, table: str) -> Column:
    field = fields.get(one.column.lower())
    if field is None:
        _refuse(table, one.column, "is filtered, but this version of the table does not have it")
    kind = kind_of(one.values[0])
    if not _is_of(kind, field.dataType):
        _refuse(table, field.name, f"has the type {field.dataType.simpleString()}, but is compared with a {kind}")
    column, values = _column(field), [F.lit(value) for value in one.values]
    if one.operator == "IN":
        return column.isin(*values)
    [value] = values
    return {
        "=": column == value, "<>": column != value, "<": column < value,
        "<=": column <= value, ">": column > value, ">=": column >= value,
    }[one.operator]  # fmt: skip


def _masked(field: StructField, mask: Mask, table: str) -> Column:
    column, given = _column(field), field.dataType
    if mask.kind == "null":
        return F.lit(None).cast(given)
    if mask.kind == "constant":
        return _constant(field, mask.value, table)
    if not _is_of("text", given):
        _refuse(table, field.name, f"has the type {given.simpleString()}, but its mask is for texts")
    if mask.kind == "hash":
        return F.sha2(column.cast("string"), 256)
    last = F.when(F.length(column) > _LAST, F.concat(F.lit(_HIDDEN), F.substring(column, -_LAST, _LAST)))
    return F.when(column.isNull(), F.lit(None).cast("string")).otherwise(last.otherwise(F.lit(_HIDDEN)))


def _constant(field: StructField, value: Constant | None, table: str) -> Column:
    assert value is not None, "a constant has a value"
    if not _is_of(kind_of(value), field.dataType):
        _refuse(table, field.name, f"has the type {field.dataType.simpleString()}, but its mask is a {kind_of(value)}")
    return F.lit(value).cast(field.dataType)
