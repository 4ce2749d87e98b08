"""Read a text file as rows of a table: CSV with a header, or JSON lines. Rows that do not fit are set aside.

::

    file --CsvRows, JsonRows--> rows in the table's types --> files of the table, as they are read
                 |
                 +-- rows that do not fit --> an error with file, line and column; or the table of bad records,
                                              committed before the others, so that no row is missing from both
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from pydelta.commands.create import Create, CreateMode, TableDefinition
from pydelta.commands.engine import RewriteOutput
from pydelta.commands.run import Context, run
from pydelta.commands.write.command import WriteTarget
from pydelta.commands.write.plan import WritePlan
from pydelta.engines.arrow.conform import conformed
from pydelta.engines.arrow.layout import Session, TableShape, make_task, output_of, written_columns
from pydelta.engines.arrow.merge.spill import GivenRows
from pydelta.engines.arrow.sources import check_replaced, with_inserts
from pydelta.engines.arrow.tasks.csv_rows import CsvRows
from pydelta.engines.arrow.tasks.json_rows import JsonRows
from pydelta.engines.arrow.tasks.text_values import BadRow, TextRules, arrow_type, readable_type
from pydelta.engines.arrow.tasks.write_files import run_task
from pydelta.engines.arrow.threads import cores
from pydelta.errors import ConstraintViolatedError, InvalidArgumentError, SchemaMismatchError, error_context
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.types import ArrayType, MapType, PrimitiveType, StructField, StructType
from pydelta.storage.uris import normalize_uri, overlap

__all__ = ["BAD_ROWS", "TEXT_FORMATS", "TextFile", "TextSource", "bad_rows_error", "csv_fields", "refuse_overlap"]

TEXT_FORMATS: Final = ("csv", "ndjson")
_BATCH_ROWS: Final = 131_072
BAD_ROWS: Final = StructType(
    (
        StructField("source", PrimitiveType("string")),
        StructField("line", PrimitiveType("long")),
        StructField("column", PrimitiveType("string")),
        StructField("reason", PrimitiveType("string")),
        StructField("value", PrimitiveType("binary")),
    )
)
"""Columns of a row that does not fit: file, line, column, reason, and the row's bytes."""
_BAD_SCHEMA: Final = pa.schema([(field.name, arrow_type(field.data_type)) for field in BAD_ROWS])


def bad_rows_error(name: str, bad: BadRow) -> SchemaMismatchError:
    """Make the error for a row that does not fit."""
    column = "" if bad.column is None else f", column {bad.column}"
    return SchemaMismatchError(
        f"{name}, line {bad.line}{column}: {bad.reason}.",
        hint="Correct the file, or give --bad-records PLACE, a table for such rows.",
    )


def refuse_overlap(bad_records: str, table: str) -> None:
    """Check that the table of bad records has a folder that VACUUM of the other table does not clean, nor vice versa.

    Raises:
        InvalidArgumentError: It is the table itself, or one of them is inside the other.
    """
    if normalize_uri(bad_records) == normalize_uri(table):
        raise InvalidArgumentError("--bad-records is the table itself.", hint="Give bad records a separate table.")
    if overlap(bad_records, table):
        raise InvalidArgumentError(
            f"--bad-records {bad_records} and the table {table} are nested: VACUUM of the outer one would "
            "delete files of the inner one.",
            hint="Give bad records a folder outside the table's, or one whose name begins with _.",
        )


def csv_fields(name: str, schema: StructType) -> Callable[[Sequence[str]], list[StructField]]:
    """Return a function that finds the columns of a table by a header, ignoring case.

    Args:
        name: Name of the file.
        schema: Schema of the table.
    """

    def found(names: Sequence[str]) -> list[StructField]:
        fields: list[StructField] = []
        for given in names:
            field = schema.field(given)
            if field is None or field in fields:
                raise SchemaMismatchError(
                    f"{name}, line 1: the header has the column {given!r}, which the table "
                    f"{'lacks' if field is None else 'has once'}.",
                    hint=f"The table's columns are: {', '.join(schema.names)}.",
                )
            if isinstance(field.data_type, (StructType, ArrayType, MapType)) or not readable_type(field.data_type):
                raise SchemaMismatchError(
                    f"{name}, line 1: the column {field.name!r} is {field.data_type}, which CSV cannot hold.",
                    hint="Give the rows as .ndjson or .parquet.",
                )
            fields.append(field)
        for field in schema.fields:
            if not field.nullable and field not in fields:
                raise ConstraintViolatedError(
                    f"{name}, line 1: the header lacks {field.name!r}, which is NOT NULL in the table.",
                    hint="Add the column to the file.",
                )
        return fields

    return found


class TextFile:
    """A text file with rows for a table.

    Args:
        path: A local file.
        form: One of ``TEXT_FORMATS``.
        bad_records: Location of the table for rows that do not fit, or None to refuse a file that has one.
        options: Storage options for that table.
    """

    def __init__(self, path: str, form: str, *, bad_records: str | None = None, options: Any = None) -> None:
        self.path, self._form = path, form
        self._bad_log = None if bad_records is None else DeltaLog.for_table(bad_records, options=options)
        self.set_aside = 0
        self._found: tuple[StructType, GivenRows] | None = None
        self._append: Callable[[DeltaLog, pa.Table], object] | None = None
        self._zone: str | None = None

    def for_table(self, table: str, append: Callable[[DeltaLog, pa.Table], object], zone: str | None) -> None:
        """Set the table that the rows are for.

        Args:
            table: Location of the table.
            append: Function that adds rows to a table, for those that do not fit.
            zone: Zone of times that name none. None refuses them.

        Raises:
            InvalidArgumentError: The table of bad records is the table itself, or one of them is inside the other.
        """
        self._append, self._zone = append, zone
        if self._bad_log is not None:
            refuse_overlap(self._bad_log.uri, table)

    def rows(self, snapshot: Snapshot, *, most_bytes: int) -> GivenRows:
        """Return all rows that fit, with the columns that the file names. The file is read once per schema.

        Args:
            snapshot: The table.
            most_bytes: Bytes of them that are held in memory; see ``GivenRows``.
        """
        if self._found is None or self._found[0] != snapshot.schema:
            self.close()
            with self._reader(snapshot.schema, snapshot.partition_columns, notes_names=True) as reader:
                schema = pa.schema([pa.field(field.name, arrow_type(field.data_type)) for field in reader.fields])
                rows = GivenRows(self._good(reader), schema, most_bytes=most_bytes)
                if isinstance(reader, JsonRows):
                    rows.select([name for name in schema.names if name in reader.named])
            self._found = snapshot.schema, rows
        return self._found[1]

    def close(self) -> None:
        """Release the rows that ``rows`` returned."""
        if self._found is not None:
            self._found[1].close()
            self._found = None

    @contextmanager
    def _reader(
        self, schema: StructType, partitions: Sequence[str], *, notes_names: bool = False
    ) -> Iterator[CsvRows | JsonRows]:
        rules = TextRules(base64=self._form != "csv", zone=self._zone, partitions=frozenset(partitions))
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(open(self.path, "rb"))
            except OSError as error:
                raise InvalidArgumentError(
                    f"{self.path} cannot be read: {error.strerror}.", hint="Give an existing local file."
                ) from None
            if self._form == "csv":
                yield CsvRows(stream, self.path, csv_fields(self.path, schema), rules=rules)
            else:
                kinds: dict[bool, list[StructField]] = {True: [], False: []}
                for field in schema.fields:
                    kinds[readable_type(field.data_type)].append(field)
                yield JsonRows(
                    stream, self.path, kinds[True], unread=kinds[False], rules=rules, notes_names=notes_names
                )

    def batches(self, schema: StructType, partitions: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that fit as they are read. At the end, the others have been written to their table."""
        with self._reader(schema, partitions) as reader:
            yield from self._good(reader)

    def _good(self, reader: CsvRows | JsonRows) -> Iterator[pa.RecordBatch]:
        with tempfile.NamedTemporaryFile(prefix="pydelta-bad-") as spool:
            count = 0
            with pa.ipc.new_file(spool, _BAD_SCHEMA) as writer:
                for block in reader.blocks():
                    if block.bad:
                        if self._bad_log is None:
                            raise bad_rows_error(self.path, block.bad[0])
                        count += len(block.bad)
                        writer.write_batch(_bad_batch(self.path, block.bad))
                    yield from pa.Table.from_batches([block.rows]).to_batches(max_chunksize=_BATCH_ROWS)
            spool.flush()
            if count:
                self._set_aside(spool.name, count)

    def _set_aside(self, spool: str, count: int) -> None:
        assert self._bad_log is not None and self._append is not None, "a row is set aside for a table"
        log = self._bad_log
        with error_context(table=log.uri), pa.memory_map(spool) as mapped:
            if not log.table_exists():
                definition = TableDefinition(schema=BAD_ROWS)
                run(Create(definition=definition, mode=CreateMode.CREATE_IF_NOT_EXISTS), Context(log))
            self._append(log, pa.ipc.open_file(mapped).read_all())
        self.set_aside = count


def _bad_batch(name: str, bad: Sequence[BadRow]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "source": os.path.abspath(name),
                "line": row.line,
                "column": row.column,
                "reason": row.reason,
                "value": row.value,
            }
            for row in bad
        ],
        schema=_BAD_SCHEMA,
    )


class TextSource:
    """A text file as a source of rows for ``write_table``. Rows are written as they are read."""

    def __init__(self, log: DeltaLog, snapshot: Snapshot, file: TextFile) -> None:
        self._log, self._file = log, file
        self.schema = snapshot.schema

    def write(self, target: WriteTarget) -> RewriteOutput:
        """See ``RowSource.write``."""
        plan = target.plan
        shape = TableShape.planned(target.table_uri, plan)
        session = Session(settings=target.settings, store_options=self._log.options)
        task = make_task(shape, target.options, session, change_data=target.record_inserts)
        data, partitions = written_columns(plan.schema, plan.partition_columns)
        names = [*data, *partitions]

        def arranged() -> Iterator[pa.RecordBatch]:
            for batch in self._file.batches(plan.schema, plan.partition_columns):
                rows = pa.Table.from_batches([batch])
                columns = [_column(rows, plan, name) for name in names]
                table = pa.Table.from_arrays(columns, names=[f"c{place}" for place in range(len(columns))])
                check_replaced(target, names, table)
                yield from with_inserts(table) if target.record_inserts else table.to_batches()

        return output_of(run_task(arranged(), replace(task, encoders=cores()), partition_id=0, store=self._log.store))


def _column(rows: pa.Table, plan: WritePlan, name: str) -> pa.ChunkedArray:
    field = plan.schema.field(name)
    assert field is not None, "the names are the schema's own"
    given = rows.column(field.name) if field.name in rows.schema.names else pa.chunked_array([pa.nulls(len(rows))])
    return conformed(given, field, partition=name in plan.partition_columns)
