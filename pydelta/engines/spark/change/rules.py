"""Ask Spark about the SQL in a table's definition: whether a default fits, and which rows break a constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from pydelta.engines.spark.errors import condition_of
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.types import from_spark, to_spark_schema
from pydelta.engines.spark.write.columns import ddl, json_row
from pydelta.engines.spark.write.table_expressions import refuse_foreign, table_expression
from pydelta.errors import BindError, InvalidArgumentError, ParseError, first_line
from pydelta.errors.conditions import Condition
from pydelta.protocol.types import DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_default", "check_definition", "rows_against"]

_GENERATION: Final = "delta.generationExpression"
_DEFAULT: Final = "CURRENT_DEFAULT"
_CONSTRAINT: Final = "delta.constraints."


def check_definition(spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> None:
    """Check that the SQL in a new table's definition can be computed for its rows.

    Args:
        spark: The session.
        schema: Columns of the table, with generation expressions and defaults.
        properties: Properties of the table, with its CHECK constraints.

    Raises:
        ParseError: A text is not an expression.
        BindError: An expression names a missing column, or a generation expression names a generated column.
        InvalidArgumentError: An expression is not deterministic, holds a subquery, or does not have its column's type.
    """
    constraints = {key: text for key, text in properties.items() if key.lower().startswith(_CONSTRAINT)}
    generated = {field.name: str(text) for field in schema.fields if (text := field.metadata.get(_GENERATION))}
    for field in schema.fields:
        if field.metadata.get(_DEFAULT) is not None:
            check_default(spark, str(field.metadata[_DEFAULT]), field.data_type)
    if not constraints and not generated:
        return
    rows = spark.createDataFrame([], to_spark_schema(schema))
    given = StructType(tuple(field for field in schema.fields if field.name not in generated))
    plain = spark.createDataFrame([], to_spark_schema(given))
    for column, text in generated.items():
        what = f"The generation expression {text!r} of column {column!r}"
        refused = Condition.of("UNSUPPORTED_EXPRESSION_GENERATED_COLUMN", fieldName=column, expressionStr=text)
        _check(plain, text, what, refused, whole=rows)
        made = plain.select(F.expr(text)).schema[0].dataType.simpleString()
        wanted = rows.schema[column].dataType.simpleString()
        if made != wanted:
            raise InvalidArgumentError(
                f"{what} gives {made}, but the column is {wanted}.",
                hint=f"Cast it: CAST({text} AS {wanted}), or declare the column as {made}.",
                condition=Condition.of(
                    "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
                    columnName=column,
                    expressionType=made,
                    columnType=wanted,
                ),
            )
    for key, text in constraints.items():
        what = f"The CHECK constraint {key[len(_CONSTRAINT) :]!r} ({text})"
        refused = Condition.of("DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=text)
        _check(rows, text, what, refused)


def _check(rows: DataFrame, text: str, what: str, refused: Condition, *, whole: DataFrame | None = None) -> None:
    """Refuse an expression that cannot be computed from the row alone.

    Args:
        rows: The columns that it may read.
        text: The expression, a condition unless it belongs to a generated column.
        what: Name of the expression, for messages.
        refused: Error condition for an expression that Spark knows and no table can have.
        whole: All columns, including those that it must not read. Given only for a generated column.
    """
    hint = f"The columns that it may read are: {', '.join(rows.columns)}."
    try:
        expression = F.expr(text)
        condition = expression if whole is None else expression.isNotNull()
        analyzed = rows.filter(condition)._jdf.queryExecution().analyzed().condition()
    except ParseException as error:
        raise ParseError(
            f"{what} does not parse: {first_line(error)}",
            condition=condition_of(error),
        ) from error
    except AnalysisException as error:
        raise BindError(
            f"{what} does not fit: {first_line(error)}",
            hint=hint,
            condition=refused if whole is not None and _resolves(whole, text) else condition_of(error),
        ) from error
    if Jvm.of(rows.sparkSession).has_subquery(analyzed):
        raise InvalidArgumentError(f"{what} holds a subquery.", hint=hint, condition=refused)
    refuse_foreign(text, "CHECK constraint" if whole is None else "generation expression")
    if not analyzed.deterministic():
        raise InvalidArgumentError(
            f"{what} is not deterministic, so it could not be checked later.",
            hint="A DEFAULT may be such a value.",
            condition=refused
            if whole is not None
            else Condition.of("DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT", expr=text),
        )


def _resolves(rows: DataFrame, text: str) -> bool:
    try:
        rows.select(F.expr(text))
    except AnalysisException:
        return False
    return True


def check_default(spark: SparkSession, expression: str, data_type: DataType) -> None:
    """See ``Engine.check_default``. The expression is computed once, to check that it can be.

    Raises:
        ParseError: It is not an expression.
        BindError: It names a column.
        InvalidArgumentError: Its value does not have the column's type.
    """
    one = spark.range(1).select(F.lit(1).alias("__pydelta_nothing"))
    hint = "A default is an expression without columns, such as 0, 'new' or current_timestamp()."
    try:
        computed = table_expression(expression, "default")
        value = one.select(computed.cast(ddl(data_type)).alias("value"), computed.alias("given"))
        assignable = _is_assignable(Jvm.of(spark), value)
    except ParseException as error:
        raise ParseError(
            f"The default {expression!r} does not parse: {first_line(error)}", hint=hint, condition=condition_of(error)
        ) from error
    except AnalysisException as error:
        raise BindError(
            f"The default {expression!r} does not resolve: {first_line(error)}",
            hint=hint,
            condition=Condition.of("INVALID_DEFAULT_VALUE.NOT_CONSTANT", defaultValue=expression),
        ) from error
    try:
        text = F.col("value").cast("string").alias("value")  # Python has no date before the year 1.
        row = value.select(text, F.isnull("given").alias("missing")).first()
    except PySparkException as error:
        raise InvalidArgumentError(
            f"The default {expression!r} is not a value of type {data_type}: {first_line(error)}",
            hint=hint,
            condition=Condition.of("INVALID_DEFAULT_VALUE.DATA_TYPE", defaultValue=expression, expectedType=data_type),
        ) from error
    if not assignable or (row is not None and row.value is None and not row.missing):
        raise InvalidArgumentError(
            f"The default {expression!r} is not a value of type {data_type}.",
            hint=hint,
            condition=Condition.of("INVALID_DEFAULT_VALUE.DATA_TYPE", defaultValue=expression, expectedType=data_type),
        )


def _is_assignable(jvm: Jvm, frame: DataFrame) -> bool:
    """Return whether Spark accepts an expression (the second column) as a default of a type (that of the first).

    The rule is that of Spark's own tables: types that can be widened, and constants of another type. Booleans and
    numbers do not convert into each other.
    """
    target, given = (field.dataType() for field in frame._jdf.schema().fields())
    spark_types = jvm.view.org.apache.spark.sql.catalyst.expressions.Cast
    if given.equals(target) or spark_types.canUpCast(given, target):
        return True
    never = ("boolean", "array", "map", "struct")
    if {str(kind.typeName()) for kind in (given, target)} & set(never):
        return False
    constant = jvm.to_list(frame._jdf.queryExecution().analyzed().expressions())[1].child()
    return bool(constant.foldable())


def rows_against(rows: DataFrame, expression: str) -> tuple[int, str | None]:
    """Count the rows for which a condition is false or null, and return one of them as JSON.

    Args:
        rows: Rows of the table.
        expression: The condition.
    """
    broken = rows.filter(~F.coalesce(F.expr(expression), F.lit(False)))
    found = broken.agg(F.count(F.lit(1)), F.first(json_row(from_spark(rows.schema)))).first()
    assert found is not None
    return int(found[0]), found[1]
