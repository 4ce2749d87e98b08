"""What a table's definition says in SQL, asked of Spark: does a default fit, which rows break a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from pydelta.errors import BindError, InvalidArgumentError, ParseError
from pydelta.protocol.types import DataType
from pydelta.spark.types import from_spark
from pydelta.spark.write_columns import ddl, json_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_default", "rows_against"]


def check_default(spark: SparkSession, expression: str, data_type: DataType) -> None:
    """See ``SchemaEngine.check_default``. The expression is computed once, to see that it can be.

    Raises:
        ParseError: It is no expression.
        BindError: It names a column.
        InvalidArgumentError: Its value is none of the column's type.
    """
    one = spark.range(1).select(F.lit(1).alias("__pydelta_nothing"))
    hint = "A default is an expression without columns, such as 0, 'new' or current_timestamp()."
    try:
        value = one.select(F.expr(expression).cast(ddl(data_type)).alias("value"))
    except ParseException as error:
        raise ParseError(f"The default {expression!r} does not parse: {_first_line(error)}", hint=hint) from error
    except AnalysisException as error:
        raise BindError(f"The default {expression!r} does not resolve: {_first_line(error)}", hint=hint) from error
    try:
        row = value.first()
        given = one.select(F.expr(expression).isNull().alias("missing")).first()
    except PySparkException as error:
        raise InvalidArgumentError(
            f"The default {expression!r} is no value of type {data_type}: {_first_line(error)}", hint=hint
        ) from error
    if row is not None and row[0] is None and given is not None and not given[0]:
        raise InvalidArgumentError(f"The default {expression!r} is no value of type {data_type}.", hint=hint)


def rows_against(rows: DataFrame, expression: str) -> tuple[int, str | None]:
    """How many rows there are for which a condition is not true (false or null), and one of them as JSON.

    Args:
        rows: The table's rows.
        expression: The condition.
    """
    broken = rows.filter(~F.coalesce(F.expr(expression), F.lit(False)))
    found = broken.agg(F.count(F.lit(1)), F.first(json_row(from_spark(rows.schema)))).first()
    assert found is not None
    return int(found[0]), found[1]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
