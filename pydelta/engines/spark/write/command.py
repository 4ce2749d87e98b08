"""Write a DataFrame to a location or a named table, in one commit (and a catalog entry).

All writes of rows through Spark end here: the routes of ``enable``, the jobs, the demo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from pydelta.commands.write.command import Write, WriteMode, WriteOptions, WriteResult
from pydelta.commands.write.options import StatementCondition
from pydelta.engines.spark.catalog.define import as_a_statement, enter
from pydelta.engines.spark.catalog.entries import session_identifier
from pydelta.engines.spark.catalog.lookup import DeltaEntry, ViewEntry, look_up, parse_identifier
from pydelta.engines.spark.catalog.objects import check_new_name
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, absent_path, log_for_path, settings_of
from pydelta.engines.spark.running import run_in_session
from pydelta.engines.spark.scan.refresh import transform
from pydelta.engines.spark.types import from_spark
from pydelta.engines.spark.write.assignment import StoreAssignment, has_fields_of, has_struct
from pydelta.engines.spark.write.columns import name
from pydelta.engines.spark.write.writer import DataFrameSource
from pydelta.errors import (
    BindError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsafeOperationError,
)
from pydelta.errors.conditions import Condition
from pydelta.errors.suggestions import nearest
from pydelta.protocol.evolution import can_store, widens_in_writes
from pydelta.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from pydelta.settings import Settings
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["WriteRequest", "insert_by_position", "save_as_table", "write_by_name", "write_path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """The options of a statement or writer, besides the rows and the table.

    Args:
        mode: What to do with an existing table.
        options: Writer options as users give them.
        partition_by: Partition columns, or None.
        properties: Table properties for a new table.
        description: Comment on a new table.
        dynamic: Whether to overwrite only the partitions that the rows belong to.
        replace_where: A condition on the rows to overwrite.
        matches: ``replace_using``, or ``replace_on`` and ``target_alias``, of a statement.
        shape: Converts the data to the rows to write, if they differ, for example by position.
    """

    mode: WriteMode
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] | None = None
    properties: Mapping[str, str] | None = None
    description: str | None = None
    dynamic: bool = False
    replace_where: str | StatementCondition | None = None
    matches: Mapping[str, Any] = field(default_factory=dict)
    shape: Callable[[DataFrame], DataFrame] | None = None

    def parsed(self, settings: Settings) -> WriteOptions:
        """Parse the options, and add what the statement says about the rows to replace.

        Raises:
            InvalidArgumentError: An option is unknown or invalid, or two contradict each other.
        """
        options = WriteOptions.parse(
            self.options,
            mode=self.mode,
            settings=settings,
            partition_by=self.partition_by,
            properties=self.properties,
            description=self.description,
        )
        return options.narrowed(dynamic=self.dynamic, replace_where=self.replace_where, **self.matches)


def write_path(
    spark: SparkSession,
    df: DataFrame,
    location: str,
    request: WriteRequest,
    *,
    managed: bool = False,
    by_save_as_table: bool = False,
) -> WriteResult:
    """Write rows to the table at a location. See ``Write`` for the errors.

    Args:
        spark: The session.
        df: The rows. Columns are matched by name.
        location: A URI or a path.
        request: How to write.
        managed: Whether the files belong to the catalog, for the history.
        by_save_as_table: Whether ``saveAsTable`` defines the table, for the history.
    """
    session = SessionSettings.of(spark)
    parsed = request.parsed(session.settings)
    log = log_for_path(spark, Jvm.of(spark).qualify(location), parsed.storage, session=session)
    source = DataFrameSource(spark, df, request.shape)
    final = replace(parsed, managed=managed, by_save_as_table=by_save_as_table)
    return run_in_session(spark, Write(source, final), log)


def save_as_table(spark: SparkSession, df: DataFrame, table: str, request: WriteRequest) -> WriteResult:
    """Write to a named table, creating it with its catalog entry if it does not exist.

    A new table's files go to the option ``path`` or else to the catalog's default location.

    Raises:
        TableAlreadyExistsError: The name belongs to something that is not a Delta table, or the mode refuses a table.
        TableNotFoundError: The mode replaces a table, but there is none.
        UnsafeOperationError: The table is not at the location in the option ``path``.
    """
    mode = request.mode
    given = {key: value for key, value in request.options.items() if key.lower() != "path"}
    path = next((value for key, value in request.options.items() if key.lower() == "path"), None)
    entry = look_up(spark, parse_identifier(spark, table))
    if isinstance(entry, ViewEntry) or (entry is None and spark.catalog.tableExists(table)):
        raise TableAlreadyExistsError(
            f"{table} exists and is not a Delta table.",
            hint="Choose another name, or drop it first.",
            condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=table),
        )
    if isinstance(entry, DeltaEntry):
        if mode in (WriteMode.CREATE, WriteMode.ERROR_IF_EXISTS):
            raise TableAlreadyExistsError(
                f"The table {table} already exists, at {entry.location}.",
                hint="Replace or append to it, or choose another name."
                if mode is WriteMode.CREATE
                else "Write with mode append, overwrite or ignore, or choose another name.",
                condition=Condition.of("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=table),
            )
        if path is not None and normalize_uri(Jvm.of(spark).qualify(path)) != normalize_uri(entry.location):
            raise UnsafeOperationError(
                f"{table} is at {entry.location}, but the option path says {path}.",
                hint="Leave the path out, or drop the table first: its files stay if it is external.",
                table=entry.location,
                condition=Condition.of(
                    "DELTA_TABLE_LOCATION_MISMATCH",
                    tableName=table,
                    existingTableLocation=entry.location,
                    tableLocation=path,
                ),
            )
        location, managed = entry.location, entry.managed
    else:
        if mode is WriteMode.REPLACE:
            raise TableNotFoundError(
                f"There is no table {table} to replace.",
                hint="Use create or createOrReplace.",
                condition=Condition.of("TABLE_OR_VIEW_NOT_FOUND", relationName=table),
            )
        jvm = Jvm.of(spark)
        check_new_name(jvm, session_identifier(jvm, parse_identifier(spark, table)))
        location, managed = path or jvm.default_location(table), path is None
        if mode is WriteMode.ERROR_IF_EXISTS:
            mode = WriteMode.CREATE
    wanted = replace(request, mode=mode, options=given)
    if mode is WriteMode.APPEND and isinstance(entry, DeltaEntry):
        wanted = _casting(spark, df, entry, wanted)
    appends = mode is WriteMode.APPEND and entry is not None
    with nullcontext() if appends else as_a_statement():
        result = write_path(spark, df, location, wanted, managed=managed, by_save_as_table=True)
    if entry is None:
        enter(spark, parse_identifier(spark, table), log_for_path(spark, location).update(), managed=managed)
    return result


def write_by_name(spark: SparkSession, df: DataFrame, entry: DeltaEntry, request: WriteRequest) -> WriteResult:
    """Write to an existing table, matching columns by name and casting by the policy. Arguments as ``write_path``."""
    log = log_for_path(spark, entry.location)
    if not log.table_exists():
        raise TableNotFoundError(
            f"There is no Delta table at {entry.location}.",
            hint="Create it first, with create or saveAsTable.",
            condition=absent_path(log) if entry.by_path else None,
        )
    return write_path(spark, df, entry.location, _casting(spark, df, entry, request))


def _casting(spark: SparkSession, df: DataFrame, entry: DeltaEntry, request: WriteRequest) -> WriteRequest:
    """Make a write by name cast values that do not fit their columns. Structs are matched by name too."""
    parsed = request.parsed(settings_of(spark))
    log = log_for_path(spark, entry.location)
    if request.shape is not None or parsed.overwrite_schema or parsed.mode.replaces_table or not log.table_exists():
        return request
    snapshot, assignment = log.update(), StoreAssignment.of(spark)
    widens = parsed.merge_schema and snapshot.properties.enable_type_widening
    casts = {}
    for index, given in enumerate(from_spark(df.schema).fields):
        target = snapshot.schema.field(given.name)
        if target is None or can_store(given.data_type, target.data_type):
            continue
        if widens and widens_in_writes(target.data_type, given.data_type):
            continue
        if parsed.merge_schema and has_struct(given.data_type):
            continue  # Its fields are merged with the column's.
        column = name(f"c{index}")
        casts[index] = assignment.by_name(column, given.data_type, target.data_type, target.name, fill=True)
    if not casts:
        return request
    names = df.columns
    columns = [casts.get(index, name(f"c{index}")).alias(own) for index, own in enumerate(names)]

    def shape(rows: DataFrame) -> DataFrame:
        return rows.toDF(*[f"c{index}" for index in range(len(names))]).select(*columns)

    return replace(request, shape=shape)


def _check_number_of_columns(schema: StructType, data: StructType, number: int, *, named: bool) -> None:
    """Refuse data that has another number of columns than its targets, which are the table's or the named ones."""
    if len(data) == number:
        return
    condition = Condition.of("DELTA_METADATA_MISMATCH")
    if len(data) < number:
        condition = Condition.of("DELTA_INSERT_COLUMN_ARITY_MISMATCH", numColumns=number, insertColumns=len(data))
    raise SchemaMismatchError(
        f"{'The statement names' if named else 'The table has'} {number} columns and the data has {len(data)}.\n"
        f"Table schema:\n{schema.tree()}\nData schema:\n{data.tree()}",
        hint="insertInto and INSERT match columns by position; name the columns, write BY NAME, or append with "
        "save or saveAsTable to match them by name.",
        condition=condition,
    )


def insert_by_position(
    spark: SparkSession,
    df: DataFrame,
    entry: DeltaEntry,
    request: WriteRequest,
    *,
    columns: Sequence[str] | None = None,
    by_name: bool = False,
) -> WriteResult:
    """Write as ``insertInto`` and INSERT do: columns are matched by position and values cast by the session's policy.

    With ``by_name``, structs that have their column's fields by name are matched by name too, all others by position.
    If the schema evolves, columns after the table's (or, by name, with other names) are new.

    Args:
        spark: The session.
        df: The rows.
        entry: The table.
        request: How to write; its mode is append or overwrite.
        columns: The target columns in order; None for all. Other columns get their defaults.
        by_name: Whether to match columns by name instead. Columns that the data lacks get their defaults.

    Raises:
        SchemaMismatchError: The number of columns differs.
        AnalysisException: Spark's error for a type that the policy does not cast.
        BindError: The table does not have a column.
        TableNotFoundError: There is no table.
    """
    log = log_for_path(spark, entry.location)
    snapshot = log.update()
    if snapshot.metadata is None:
        raise TableNotFoundError(
            f"There is no Delta table at {log.uri}.",
            hint="Create it first, or check the path.",
            condition=absent_path(log) if entry.by_path else None,
        )
    schema, data = snapshot.schema, from_spark(df.schema)
    merges = request.parsed(settings_of(spark)).merge_schema
    evolves = columns is None and merges
    given_names = data.names if by_name else schema.names
    if columns is not None:
        given_names = tuple(columns)
    known = [item for item in given_names if not evolves or schema.field(item) is not None]
    found = {item: _column_of(schema, item, data, by_name=by_name) for item in known}
    targets = [found.get(item) for item in given_names]
    if evolves and not by_name:  # Columns after the table's are new.
        targets += [None] * (len(data) - len(targets))
    names = [given.name if target is None else target.name for target, given in zip(targets, data.fields, strict=False)]
    for twice in sorted({item for item in names if [other.lower() for other in names].count(item.lower()) > 1}):
        raise SchemaMismatchError(
            f"Column {twice!r} is given twice.",
            hint="Name each column once.",
            condition=Condition.of("COLUMN_ALREADY_EXISTS", columnName=twice),
        )
    _check_number_of_columns(schema, data, len(targets), named=columns is not None)
    keeps = _kept_parts(columns is not None, widens=merges and snapshot.properties.enable_type_widening)
    assignment = StoreAssignment.of(spark)
    by_name = by_name or (columns is None and _fits_by_name(targets, data))
    chosen = []
    for index, (target, given) in enumerate(zip(targets, data.fields, strict=True)):
        column = name(f"c{index}")
        if target is not None and not (by_name and has_fields_of(given.data_type, target.data_type)):
            column = assignment.by_position(column, given.data_type, target.data_type, target.name, keeps=keeps)
        chosen.append(column.alias(names[index]))

    def shape(rows: DataFrame) -> DataFrame:
        return rows.toDF(*[f"c{index}" for index in range(len(data))]).select(*chosen)

    return write_by_name(spark, df, entry, replace(request, shape=shape))


def _fits_by_name(targets: Sequence[StructField | None], data: StructType) -> bool:
    """Return whether the data has the columns' names and types. Then struct fields are matched by name too."""
    return all(
        target is not None and target.name == given.name and has_fields_of(given.data_type, target.data_type)
        for target, given in zip(targets, data.fields, strict=True)
    )


def _kept_parts(listed: bool, *, widens: bool) -> Callable[[DataType, DataType], bool]:
    """Return a function that decides which values an INSERT leaves unchanged: those that widen their column.

    If columns are listed, also arrays and maps whose structs have the column's fields, which are matched by name.
    """

    def keeps(source: DataType, target: DataType) -> bool:
        if listed and isinstance(source, ArrayType | MapType) and has_fields_of(source, target):
            return True
        return widens and widens_in_writes(target, source)

    return keeps


def _column_of(schema: StructType, column: str, data: StructType, *, by_name: bool) -> StructField:
    found = schema.field(column)
    if found is None:
        near = nearest(column, schema.names)
        meant = f" Did you mean {near}?" if near else ""
        raise (SchemaMismatchError if by_name else BindError)(
            f"The table has no column {column!r}.{meant}\nTable schema:\n{schema.tree()}\nData schema:\n{data.tree()}",
            hint=f"Its columns are: {', '.join(schema.names)}.",
            condition=Condition.of("DELTA_METADATA_MISMATCH")
            if by_name
            else Condition.of("UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=column, proposal=schema.names),
        )
    return found


def condition_given(spark: SparkSession, condition: object) -> StatementCondition | None:
    """Convert a Column or a name to a condition. Returns None for a constant true, which means every row."""
    from pyspark.sql import Column

    column = condition if isinstance(condition, Column) else F.col(str(condition))
    if not isinstance(column, Column):
        raise InvalidArgumentError(f"{condition!r} is not a condition.", hint="Give a Column.")
    jvm = Jvm.of(spark)
    expression = jvm.expression(column)
    text = str(expression.sql())
    if text.lower() == "true":
        return None
    unresolved = jvm.view.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute

    def by_name(node: Any, _: str) -> Any:
        """Let a column of any frame (``df.p == 1``) refer to the table's column of that name."""
        return unresolved.quoted(node.name())

    named = transform(jvm, expression, by_name, ("AttributeReference",))
    return StatementCondition(text=text, native=ClassicColumn(jvm.column_of(named)), by_column=True)
