"""A DataFrame, a location or a table name and a writer's options in, one commit (and a catalog entry) out.

Everything that writes rows through Spark ends here: the routes of ``enable``, the jobs, the demo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pydelta.commands.write import WriteMode, WriteOptions, WriteResult, write_table
from pydelta.errors import InvalidArgumentError, SchemaMismatchError, TableAlreadyExistsError, TableNotFoundError
from pydelta.protocol.schema import DataType, PrimitiveType, StructType, can_store
from pydelta.spark.catalog import DeltaEntry, ViewEntry, look_up, parse_identifier
from pydelta.spark.catalog_entries import create_entry
from pydelta.spark.engine import SparkEngine
from pydelta.spark.facade import log_for_path, settings_of
from pydelta.spark.jvm import Jvm
from pydelta.spark.types import from_spark
from pydelta.spark.write_columns import ddl, name
from pydelta.spark.writer import DataFrameSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["insert_by_position", "save_as_table", "write_by_name", "write_path"]

_STRINGS = ("string",)
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")


def write_path(
    spark: SparkSession,
    df: DataFrame,
    location: str,
    *,
    mode: WriteMode,
    options: Mapping[str, str] | None = None,
    partition_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    managed: bool = False,
    dynamic: bool = False,
    replace_where: str | None = None,
) -> WriteResult:
    """Write rows to the table at a location; see ``write_table`` for what can go wrong.

    Args:
        spark: The session.
        df: The rows; columns are matched by name.
        location: A URI or a path.
        mode: What to do with a table that is there.
        options: Writer options as users give them.
        partition_by: Partition columns, or None.
        properties: Table properties for a table that is made.
        description: Comment on a table that is made.
        managed: Whether the files belong to the catalog; for the history.
        dynamic: Overwrite just the partitions that the rows belong to.
        replace_where: Overwrite the rows of this condition.
    """
    settings = settings_of(spark)
    parsed = WriteOptions.parse(
        options or {},
        mode=mode,
        settings=settings,
        partition_by=partition_by,
        properties=properties,
        description=description,
    )
    if dynamic or replace_where is not None:
        parsed = replace(parsed, dynamic=dynamic, replace_where=replace_where)
    log = log_for_path(spark, Jvm.of(spark).qualify(location), parsed.storage)
    return write_table(log, DataFrameSource(spark, df), parsed, SparkEngine(spark), settings, managed=managed)


def save_as_table(
    spark: SparkSession,
    df: DataFrame,
    table: str,
    *,
    mode: WriteMode,
    options: Mapping[str, str],
    partition_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
) -> WriteResult:
    """Write to the table of a name, and create it with its catalog entry where there is none.

    A new table's files go to the option ``path``, else to the place the catalog gives its tables.

    Raises:
        TableAlreadyExistsError: The name is taken by something that is no Delta table, or the mode refuses a table.
        TableNotFoundError: The mode replaces a table and none is there.
    """
    given = {key: value for key, value in options.items() if key.lower() != "path"}
    path = next((value for key, value in options.items() if key.lower() == "path"), None)
    entry = look_up(spark, parse_identifier(spark, table))
    if isinstance(entry, ViewEntry) or (entry is None and spark.catalog.tableExists(table)):
        raise TableAlreadyExistsError(
            f"{table} exists and is no Delta table.", hint="Choose another name, or drop it first."
        )
    if isinstance(entry, DeltaEntry):
        if mode is WriteMode.CREATE:
            raise TableAlreadyExistsError(f"The table {table} exists.", hint="Use replace, append or another name.")
        location, managed = entry.location, False
    else:
        if mode is WriteMode.REPLACE:
            raise TableNotFoundError(f"There is no table {table} to replace.", hint="Use create or createOrReplace.")
        location, managed = path or Jvm.of(spark).default_location(table), path is None
        if mode is WriteMode.ERROR_IF_EXISTS:
            mode = WriteMode.CREATE
    result = write_path(
        spark,
        df,
        location,
        mode=mode,
        options=given,
        partition_by=partition_by,
        properties=properties,
        description=description,
        managed=managed,
    )
    if entry is None:
        create_entry(spark, parse_identifier(spark, table), log_for_path(spark, location).update(), managed=managed)
    return result


def write_by_name(
    spark: SparkSession,
    df: DataFrame,
    entry: DeltaEntry,
    *,
    mode: WriteMode,
    options: Mapping[str, str],
    dynamic: bool = False,
    replace_where: str | None = None,
) -> WriteResult:
    """Write to an existing table, columns matched by name."""
    if not log_for_path(spark, entry.location).table_exists():
        raise TableNotFoundError(
            f"There is no Delta table at {entry.location}.", hint="Create it first, with create or saveAsTable."
        )
    return write_path(
        spark, df, entry.location, mode=mode, options=options, dynamic=dynamic, replace_where=replace_where
    )


def insert_by_position(
    spark: SparkSession, df: DataFrame, entry: DeltaEntry, *, mode: WriteMode, options: Mapping[str, str]
) -> WriteResult:
    """``insertInto``: columns are matched by position, and values are cast as the INSERT of SQL does.

    Raises:
        SchemaMismatchError: Another number of columns, or a type that INSERT does not cast.
    """
    schema = log_for_path(spark, entry.location).update().schema
    data = from_spark(df.schema)
    if len(data) != len(schema):
        raise SchemaMismatchError(
            f"The table has {len(schema)} columns and the data has {len(data)}.\n"
            f"Table schema:\n{schema.tree()}\nData schema:\n{data.tree()}",
            hint="insertInto matches columns by position; append with save or saveAsTable to match them by name.",
        )
    renamed = df.toDF(*[f"c{index}" for index in range(len(data))])
    columns = []
    for index, (target, given) in enumerate(zip(schema.fields, data.fields, strict=True)):
        column = name(f"c{index}")
        if given.data_type != target.data_type and not can_store(given.data_type, target.data_type):
            if not _insert_casts(given.data_type, target.data_type):
                raise SchemaMismatchError(
                    f"Column {index + 1} of the data ({given.name}) is {given.data_type}, and the table's column "
                    f"{target.name!r} is {target.data_type}.\n"
                    f"Table schema:\n{schema.tree()}\nData schema:\n{data.tree()}",
                    hint="Cast it, or reorder the columns: insertInto matches them by position.",
                )
            column = column.cast(ddl(target.data_type))
        columns.append(column.alias(target.name))
    return write_by_name(spark, renamed.select(*columns), entry, mode=mode, options=options)


def _insert_casts(source: DataType, target: DataType) -> bool:
    """Spark's store assignment for flat types: between numbers (overflow fails the job), between times, to text."""
    if isinstance(source, StructType) or isinstance(target, StructType):
        return False
    left = source.name if isinstance(source, PrimitiveType) else "decimal" if "decimal" in str(source)[:7] else ""
    right = target.name if isinstance(target, PrimitiveType) else "decimal" if "decimal" in str(target)[:7] else ""
    numbers = (*_NUMBERS, "decimal")
    if right in _STRINGS:
        return left in (*numbers, *_TIMES, "boolean")
    return (left in numbers and right in numbers) or (left in _TIMES and right in _TIMES)


def condition_sql(spark: SparkSession, condition: object) -> str | None:
    """A condition given as a Column or a name -> SQL; None for a constant true, which means every row."""
    from pyspark.sql import Column

    column = condition if isinstance(condition, Column) else F.col(str(condition))
    if not isinstance(column, Column):
        raise InvalidArgumentError(f"{condition!r} is no condition.", hint="Give a Column.")
    text = str(Jvm.of(spark).session.expression(column._jc).sql())
    return None if text.lower() == "true" else text
