"""Open a table without a JVM: ``pydelta.open(uri)`` reads, changes and maintains it in this process.

::

    table = pydelta.open("s3://bucket/table", options={…})
    table.scan(where="day >= '2024-01-01'", columns=["id", "day"])     an Arrow table; Polars by pl.from_arrow
    table.append(rows)                                                 Arrow or Polars; one version
    table.delete("id = 5")                                             as DELETE of a session, one version
    table.update({"state": "'paid'"}, "id = 5")                        values are constants or columns
    table.merge(rows, on="id")                                         update what is there, insert what is not
    table.optimize()   table.purge()   table.vacuum()                  as the statements of a session

Commits, conflicts, checks and hooks are those of every other command. What only Spark computes is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from pydelta.api.python.local_arguments import (
    hours_of,
    location_of,
    names_of,
    optional_text,
    options_of,
    values_of,
    version_of,
)
from pydelta.commands.change.delete import Delete, DeleteResult
from pydelta.commands.change.merge import Merge, MergeResult, Merging
from pydelta.commands.change.update import Update, UpdateResult
from pydelta.commands.engine import RewriteOutput
from pydelta.commands.optimize.command import Optimize, OptimizeResult
from pydelta.commands.optimize.reorg import Purge, PurgeResult
from pydelta.commands.run import Context, existing_table, run
from pydelta.commands.vacuum.command import Vacuum, VacuumResult
from pydelta.commands.write.command import Write, WriteResult, WriteTarget
from pydelta.commands.write.options import WriteMode, WriteOptions
from pydelta.engines.arrow.columns import ArrowColumns, fields_in, partition_scalar, refuse_depth, refuse_table
from pydelta.engines.arrow.conform import conformed
from pydelta.engines.arrow.engine import ArrowEngine, column_of, only_spark
from pydelta.engines.arrow.evaluate import true_rows
from pydelta.engines.arrow.expressions import Exact, NotHere
from pydelta.engines.arrow.layout import Session, TableShape, make_task, output_of, written_columns
from pydelta.engines.arrow.local_merge import clauses_of
from pydelta.engines.arrow.tasks.arrow import file_array, optional
from pydelta.engines.arrow.tasks.old_files import NeedsSpark, OldFile, hidden_rows, old_file, read_batches, rows_among
from pydelta.engines.arrow.tasks.write_files import run_task
from pydelta.engines.arrow.text_source import TextFile, TextSource
from pydelta.engines.arrow.threads import read_files
from pydelta.errors import InvalidArgumentError, SchemaMismatchError, error_context, first_line
from pydelta.log import DeltaLog, Snapshot
from pydelta.predicate.expressions import fields_of
from pydelta.protocol.actions import AddFile
from pydelta.protocol.schema import logical_to_physical, physical_name, to_arrow
from pydelta.protocol.sized_texts import LENGTH
from pydelta.protocol.types import PrimitiveType, StructField, StructType
from pydelta.settings import Settings
from pydelta.txn import start_transaction

__all__ = ["ArrowRows", "LocalTable", "open_table"]

_RULES: Final = (
    "delta.generationExpression",
    "delta.invariants",
    "delta.identity.step",
    "CURRENT_DEFAULT",
    LENGTH,
)
_CONSTRAINT: Final = "delta.constraints."
_BATCH_ROWS: Final = 131_072
_VOID: Final = PrimitiveType("void")


def open_table(
    uri: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    time_zone: str | None = None,
) -> LocalTable:
    """Open the table at a location, without a session.

    Args:
        uri: A URI or a local path.
        options: Storage options, by Hadoop's names (``fs.s3a.endpoint`` …).
        settings: None for those of the environment (``PYDELTA_*``).
        time_zone: Of times in conditions and values that name none, as ``spark.sql.session.timeZone`` is for a
            session. None refuses them: the zone of this machine is not that of whoever wrote the text.

    Raises:
        TableNotFoundError: There is no Delta table there.
        InvalidArgumentError: There is no such time zone, or an argument is of another type.
    """
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidArgumentError(
            f"The settings must be pydelta.settings.Settings, not {type(settings).__name__}.",
            hint="Make them with Settings.resolve({…}), or set PYDELTA_* in the environment.",
        )
    time_zone = optional_text(time_zone, "The time zone")
    log = DeltaLog.for_table(location_of(uri), options=options_of(options), settings=settings)
    existing_table(log.update())
    return LocalTable(log, time_zone=time_zone)


class LocalTable:
    """A table that is read and changed in this process. Made by ``pydelta.open``.

    Args:
        log: The table's.
        time_zone: Of times that name none; None refuses them.
    """

    def __init__(self, log: DeltaLog, *, time_zone: str | None = None) -> None:
        self._log = log
        self._time_zone = time_zone
        self._engine = ArrowEngine(log, time_zone=time_zone)
        self._context = Context(log, self._engine)

    def __repr__(self) -> str:
        return f"LocalTable({self._log.uri!r})"

    @property
    def version(self) -> int:
        """The newest version."""
        return self._log.update().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest version, as ``scan`` gives them."""
        return _logical(self._log.update().schema)

    def scan(
        self, where: str | None = None, *, columns: Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """Read rows into an Arrow table.

        Args:
            where: A condition as SQL text: columns compared with constants; None for all rows.
            columns: Names of columns, ignoring case, as they are or between backticks, each once; None for all.
            version: None for the newest.

        Raises:
            ParseError, BindError: The condition cannot be used, or there is no such column.
            UnsupportedFeatureError: It, or a file, takes Spark; the message says what.
            VersionNotFoundError: The log does not reach back to the version.
            StorageError: A file is missing or damaged.
        """
        with error_context(table=self._log.uri):
            version = version_of(version)
            given = [] if columns is None else names_of(columns, "Columns")
            snapshot = existing_table(self._log.update() if version is None else self._log.snapshot(version))
            names = [
                (snapshot.schema.field(name) or column_of(snapshot, name)).name
                for name in given or snapshot.schema.names
            ]
            if len(set(names)) < len(names):
                twice = next(name for place, name in enumerate(names) if name in names[:place])
                raise InvalidArgumentError(f"The column {twice!r} is named twice.", hint="Name each column once.")
            bound = None if where is None else self._engine.bind_condition(snapshot, where)
            conjuncts = () if bound is None else bound.conjuncts
            files = snapshot.files.select(data_filters=conjuncts)
            try:
                return _Scan(self._log, snapshot, names, None if bound is None else bound.native).run(files)
            except (NotHere, NeedsSpark) as reason:
                raise only_spark(reason, snapshot) from None

    def append(self, rows: pa.Table | pl.DataFrame | TextFile) -> WriteResult:
        """Add rows in one version. Columns are matched by name, ignoring case; one that is missing is null.

        Raises:
            SchemaMismatchError: A column that the table does not have, or a value that its type does not hold.
            ConstraintViolatedError: A null in a column that is NOT NULL.
            UnsupportedFeatureError: The table has rules that only Spark checks; they are named.
            StorageError: The store refused; no version was made.
        """
        given = _given(rows, self._log, self._time_zone)
        with error_context(table=self._log.uri):
            snapshot = existing_table(self._log.update())
            _refuse_rules(snapshot)
            source = (
                TextSource(self._log, snapshot, given)
                if isinstance(given, TextFile)
                else ArrowRows(self._log, snapshot, given)
            )
            # The write reads the snapshot whose rules were checked above.
            context = self._context.beginning(lambda log: start_transaction(log, snapshot))
            return run(Write(source, WriteOptions(mode=WriteMode.APPEND)), context)

    def delete(self, where: str | None = None) -> DeleteResult:
        """Delete the rows for which a condition is true; all rows without one. See ``DeltaTable.delete``.

        Raises:
            UnsupportedFeatureError: The condition, or a file, takes Spark; the message says what.
        """
        return run(Delete(condition=where, always=("true",)), self._context)

    def update(self, set: Mapping[str, str], where: str | None = None) -> UpdateResult:  # noqa: A002 - as in SQL
        """Set columns of the rows for which a condition is true; of all rows without one.

        Args:
            set: Columns, named as in SQL, with SQL text: a constant (``"'paid'"``, ``"0"``, ``"NULL"``) or another
                column.
            where: A condition as SQL text.

        Raises:
            UnsupportedFeatureError: A value, the condition or the table takes Spark; the message says what.
        """
        return run(Update(assignments=list(values_of(set).items()), condition=where), self._context)

    def merge(
        self,
        rows: pa.Table | pl.DataFrame | TextFile,
        on: str | Sequence[str],
        *,
        matched: str | None = "update",
        not_matched: str | None = "insert",
        not_matched_by_source: str | None = None,
    ) -> MergeResult:
        """Merge rows into the table in one version, by columns that are equal; see ``MERGE``.

        Args:
            rows: Columns are matched by name, ignoring case. A column that the rows lack stays as it is in a row that
                is there, and is null in a new one.
            on: The key columns, named as in SQL. A null matches nothing.
            matched: ``update`` sets the columns that the rows have, ``delete`` deletes; None leaves such rows alone.
            not_matched: ``insert`` adds rows that match none of the table's; None does not.
            not_matched_by_source: ``delete`` deletes the rows that match none of these; None leaves them alone.

        Raises:
            BindError, SchemaMismatchError: A column that the table does not have, or a value that its type cannot hold.
            InvalidArgumentError: Several rows match the same row of the table, or nothing is to be done.
            UnsupportedFeatureError: The table has rules, keys or types that take Spark; the message says which.
        """
        with error_context(table=self._log.uri):
            clauses = clauses_of(matched, not_matched, not_matched_by_source)
            engine = self._engine
            given = _given(rows, self._log, self._time_zone)
            key_names = names_of(on, "Key columns")

            def begin(snapshot: Snapshot) -> Merging:
                found = given.table(snapshot) if isinstance(given, TextFile) else given
                source = ArrowRows(self._log, snapshot, found)
                keys = [column_of(snapshot, name).name for name in key_names]
                if not keys or not set(keys) <= set(source.schema.names):
                    raise InvalidArgumentError(
                        f"The rows have no column {', '.join(set(keys) - set(source.schema.names)) or 'to match by'}.",
                        hint="Name columns by which rows of both sides are matched.",
                    )
                return engine.merging(snapshot, source.as_table(snapshot.schema), keys, clauses)

            return run(Merge(begin, clauses), self._context)

    def optimize(
        self, where: str | None = None, *, zorder_by: Sequence[str] = (), full: bool = False
    ) -> OptimizeResult:
        """Rewrite small files into large ones, or rows into an order that lets queries skip files; see ``OPTIMIZE``.

        Args:
            where: A condition over partition columns, as SQL text; None for all of them.
            zorder_by: Columns to order rows by, none more important than another.
            full: Of a clustered table, order all files again.

        Raises:
            UnsupportedFeatureError: A file takes Spark, or a partition is too large to sort here; the message says so.
            DeltaConcurrentModificationException: A file was deleted meanwhile; run it again.
        """
        order = tuple(names_of(zorder_by, "Columns to order by"))
        return run(Optimize(condition=where, zorder_by=order, full=full), self._context)

    def purge(self, where: str | None = None) -> PurgeResult:
        """Rewrite the files of which deletion vectors hide rows, without those rows; see ``REORG … APPLY (PURGE)``.

        Raises:
            UnsupportedFeatureError: A file takes Spark; the message says why.
            DeltaConcurrentModificationException: A file was changed meanwhile; run it again.
        """
        return run(Purge(condition=where), self._context)

    def vacuum(self, retention_hours: float | None = None, *, dry_run: bool = False) -> VacuumResult:
        """Delete the files that no retained version needs; see ``VACUUM``.

        Args:
            retention_hours: How far back versions stay readable; None for what the table says.
            dry_run: Only say what would go.

        Raises:
            UnsafeOperationError: The retention is below the table's.
        """
        return run(Vacuum(retention_hours=hours_of(retention_hours), dry_run=dry_run), self._context)


def _given(rows: pa.Table | pl.DataFrame | TextFile, log: DeltaLog, zone: str | None) -> pa.Table | TextFile:
    if isinstance(rows, TextFile):
        rows.for_table(log.uri, lambda other, bad: LocalTable(other).append(bad), zone)
        return rows
    if isinstance(rows, pl.DataFrame):
        return _of_polars(rows)
    if not isinstance(rows, pa.Table):
        raise InvalidArgumentError(
            f"Rows are a pyarrow.Table or a polars.DataFrame, not {type(rows).__name__}.",
            hint="Make one with pyarrow.table({…}) or polars.DataFrame({…}).",
        )
    return rows


def _of_polars(rows: pl.DataFrame) -> pa.Table:
    """The rows as Arrow has them; an object of Python would be written as its address."""
    for name, kind in rows.schema.items():
        try:
            if _has_objects(kind):
                raise pa.ArrowInvalid("Arrow has no objects of Python")
            rows.select(pl.col(name).head(0)).to_arrow()
        except (pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise SchemaMismatchError(
                f"Column {name!r} of the rows is {kind}, which no column of a table holds: {first_line(error)}",
                hint="Cast the column to the table's type first.",
            ) from error
    return rows.to_arrow()


def _has_objects(kind: Any) -> bool:
    if isinstance(kind, pl.Struct):
        return any(_has_objects(field.dtype) for field in kind.fields)
    return _has_objects(kind.inner) if isinstance(kind, (pl.List, pl.Array)) else kind == pl.Object


def _logical(schema: StructType) -> pa.Schema:
    return optional(to_arrow(schema))


class _Scan:
    """One scan: which columns come out, and which are read for it."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot, names: Sequence[str], condition: Exact | None) -> None:
        refuse_table(snapshot)
        self._log, self._snapshot, self._condition = log, snapshot, condition
        self._names = names
        self._mode = snapshot.column_mapping_mode
        self._partitions = {name.lower() for name in snapshot.partition_columns}
        fields = [] if condition is None else list(fields_of(condition))
        self._columns = ArrowColumns(snapshot, fields)
        wanted = {*names, *(item.path[0] for item in fields)}
        stored = [field for field in snapshot.schema.fields if field.name in wanted and self._is_stored(field)]
        self._schema = optional(to_arrow(logical_to_physical(StructType(tuple(stored)), self._mode)))
        logical = _logical(snapshot.schema)
        self._out = pa.schema([logical.field(name) for name in names])

    def _is_stored(self, field: StructField) -> bool:
        return field.name.lower() not in self._partitions and field.data_type != _VOID

    def run(self, files: pl.DataFrame) -> pa.Table:
        adds = self._snapshot.files.adds(files)
        old = [old_file(add) for add in adds]
        root, options = self._log.uri, self._log.options
        hidden = hidden_rows(old, store=self._log.store, root=root, options=options)

        def read(number: int) -> list[pa.RecordBatch]:
            return list(self._file(adds[number], old[number], hidden.get(number)))

        batches = [batch for part in read_files(read, len(adds), self._log.store) for batch in part]
        return pa.Table.from_batches(batches, schema=self._out)

    def _file(self, add: AddFile, file: OldFile, hidden: Any) -> Iterator[pa.RecordBatch]:
        for start, batch in read_batches(file, self._schema, self._log.store):
            keep = np.ones(batch.num_rows, dtype=np.bool_)
            if hidden is not None:
                keep &= ~rows_among(hidden, start, batch.num_rows)
            if self._condition is not None:
                column = self._columns.of(add.partition_values, batch)
                keep &= true_rows(self._condition, column, batch.num_rows)
            arrays = [self._array(name, add, batch) for name in self._names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._out).filter(pa.array(keep))

    def _array(self, name: str, add: AddFile, batch: pa.RecordBatch) -> Any:
        field = self._snapshot.schema.field(name)
        assert field is not None, "the names were resolved"
        target = self._out.field(name).type
        if field.data_type == _VOID:
            return pa.nulls(batch.num_rows)
        key = field.name if self._mode == "none" else physical_name(field)
        if field.name.lower() in self._partitions:
            return pa.repeat(partition_scalar(add.partition_values.get(key), field.data_type), batch.num_rows)
        return file_array(batch.column(batch.schema.get_field_index(key)), target)


def _refuse_rules(snapshot: Snapshot) -> None:
    """Check that nothing about new rows of the table takes Spark."""
    try:
        refuse_depth(snapshot.schema)
    except NotHere as reason:
        raise only_spark(reason, snapshot) from None
    assert snapshot.metadata is not None
    rules = {key for key in snapshot.metadata.configuration if key.lower().startswith(_CONSTRAINT)}
    for field in fields_in(snapshot.schema):
        rules |= {f"{field.name}: {key}" for key in _RULES if key in field.metadata}
    if rules:
        raise only_spark(NotHere(f"rules of the table ({', '.join(sorted(rules))})"), snapshot)


class ArrowRows:
    """An Arrow table as a source of rows for ``write_table``."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot, rows: pa.Table) -> None:
        try:
            rows.validate(full=True)  # a place beyond a dictionary would end the process
        except pa.ArrowException as error:
            raise InvalidArgumentError(
                f"The rows are not a valid Arrow table: {first_line(error)}",
                hint="Read or make them again; table.validate(full=True) says what is wrong.",
            ) from error
        self._rows, self._store, self._options = rows, log.store, log.options
        self._partitions = {name.lower() for name in snapshot.partition_columns}
        given: dict[str, StructField] = {}
        for name in rows.schema.names:
            field = snapshot.schema.field(name)
            if field is None or field.name in given:
                raise SchemaMismatchError(
                    f"The rows have a column {name!r}, which the table {'lacks' if field is None else 'has once'}.",
                    hint=f"The table's columns are: {', '.join(snapshot.schema.names)}.",
                )
            given[field.name] = field
        self._given = {field.name: place for place, field in enumerate(given.values())}
        self._schema = StructType(tuple(field for field in snapshot.schema.fields if field.name in given))

    @property
    def schema(self) -> StructType:
        """See ``RowSource.schema``."""
        return self._schema

    def write(self, target: WriteTarget) -> RewriteOutput:
        """See ``RowSource.write``."""
        plan = target.plan
        shape = TableShape.planned(target.table_uri, plan)
        session = Session(settings=target.settings, store_options=self._options)
        task = make_task(shape, target.options, session)
        data, partitions = written_columns(plan.schema, plan.partition_columns)
        columns = [self._column(plan.schema, name) for name in (*data, *partitions)]
        for name in set(self._schema.names).difference(data, partitions):  # void: files have no place for a value
            self._column(plan.schema, name)
        table = pa.Table.from_arrays(columns, names=[f"c{number}" for number in range(len(columns))])
        records = run_task(table.to_batches(max_chunksize=_BATCH_ROWS), task, partition_id=0, store=self._store)
        return output_of(records)

    def as_table(self, schema: StructType) -> pa.Table:
        """Return the rows under the table's names and in its types.

        Raises:
            SchemaMismatchError, ConstraintViolatedError: As ``LocalTable.append``.
        """
        names = self._schema.names
        return pa.Table.from_arrays([self._column(schema, name) for name in names], names=list(names))

    def _column(self, schema: StructType, name: str) -> pa.ChunkedArray:
        field = schema.field(name)
        assert field is not None, "the names are the schema's own"
        place = self._given.get(field.name)
        nothing = pa.chunked_array([pa.nulls(self._rows.num_rows)])
        column = nothing if place is None else self._rows.column(place)
        return conformed(column, field, partition=field.name.lower() in self._partitions)
