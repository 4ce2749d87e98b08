"""Change tables from the command line, in a process without a JVM: DELETE, UPDATE, MERGE, append, OPTIMIZE.

::

    pydelta delete PATH --where "id = 5"
    pydelta update PATH --set "state='paid'" --where "id = 5"
    pydelta append PATH rows.parquet
    pydelta merge PATH rows.parquet --on id
    pydelta optimize PATH [--zorder-by day] [--purge]

The commands are those of a session. What only Spark computes is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydelta.api.console.command_line import (
    AsJson,
    StorageOptions,
    TablePath,
    TimeZone,
    named_values,
    storage_options,
)
from pydelta.errors import InvalidArgumentError
from pydelta.protocol.names import camel_case

if TYPE_CHECKING:
    import pyarrow as pa

    from pydelta.api.python.local import LocalTable
    from pydelta.engines.arrow.text_source import TextFile

__all__ = ["add_changes"]

_Many = list[str] | None
_Rows = Annotated[str, typer.Argument(metavar="FILE", help="Rows: .parquet, .arrow, .csv (with a header) or .ndjson.")]
_Format = Annotated[
    str | None, typer.Option("--format", help="parquet, arrow, csv or ndjson, whatever the file's name.")
]
_BadRecords = Annotated[
    str | None,
    typer.Option(
        "--bad-records", metavar="PATH", help="A table that takes the rows of .csv and .ndjson that do not fit."
    ),
]
_Where = Annotated[str | None, typer.Option("--where", "-w", help="Only rows for which this is true.")]
_ARROW_FILE = b"ARROW1"
_HINT = "Write it as column=value, such as --set \"state='paid'\" or --set amount=0."


def add_changes(app: typer.Typer) -> None:
    """Add the commands to an application."""
    _add_delete_and_update(app)
    _add_append_and_merge(app)
    _add_optimize(app)


def _add_delete_and_update(app: typer.Typer) -> None:
    @app.command()
    def delete(
        path: TablePath,
        where: _Where = None,
        every: Annotated[bool, typer.Option("--all", help="Every row, where no condition is given.")] = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Delete the rows for which a condition is true."""
        _refuse_everything(where, every, "delete")
        result = _open(path, option, time_zone).delete(where)
        _say(as_json, "Deleted", result.version, {
            "rows deleted": result.num_deleted_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
        })  # fmt: skip

    @app.command()
    def update(
        path: TablePath,
        assignments: Annotated[
            _Many, typer.Option("--set", "-s", metavar="COLUMN=VALUE", help="A constant as SQL writes it, or a column.")
        ] = None,
        where: _Where = None,
        every: Annotated[bool, typer.Option("--all", help="Every row, where no condition is given.")] = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Set columns of the rows for which a condition is true."""
        _refuse_everything(where, every, "change")
        values = named_values(assignments, what="An assignment", hint=_HINT, once=True)
        result = _open(path, option, time_zone).update(values, where)
        _say(as_json, "Updated", result.version, {
            "rows updated": result.num_updated_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
        })  # fmt: skip


def _add_append_and_merge(app: typer.Typer) -> None:
    @app.command()
    def append(
        path: TablePath,
        rows: _Rows,
        form: _Format = None,
        bad_records: _BadRecords = None,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Add the rows of a file in one version; columns are matched by name."""
        given = _rows_of(rows, form, bad_records, option)
        result = _open(path, option, time_zone).append(given)
        counts = {"rows added": result.num_rows, "files added": result.num_files}
        _say(as_json, "Appended", result.version, {**counts, **_aside(given)})

    @app.command()
    def merge(
        path: TablePath,
        rows: _Rows,
        on: Annotated[list[str], typer.Option("--on", metavar="COLUMN", help="Rows match by it; may be repeated.")],
        matched: Annotated[str, typer.Option("--matched", help="update, delete or keep.")] = "update",
        not_matched: Annotated[str, typer.Option("--not-matched", help="insert or skip.")] = "insert",
        not_matched_by_source: Annotated[
            str, typer.Option("--not-matched-by-source", help="keep, or delete rows that match none of the file's.")
        ] = "keep",
        form: _Format = None,
        bad_records: _BadRecords = None,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Merge the rows of a file into the table, in one version."""
        nothing = {"keep", "skip"}
        given = _rows_of(rows, form, bad_records, option)
        result = _open(path, option, time_zone).merge(
            given,
            on,
            matched=None if matched in nothing else matched,
            not_matched=None if not_matched in nothing else not_matched,
            not_matched_by_source=None if not_matched_by_source in nothing else not_matched_by_source,
        )
        _say(as_json, "Merged", result.version, {
            "rows updated": result.num_updated_rows,
            "rows deleted": result.num_deleted_rows,
            "rows inserted": result.num_inserted_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
            **_aside(given),
        })  # fmt: skip


def _add_optimize(app: typer.Typer) -> None:
    @app.command()
    def optimize(
        path: TablePath,
        where: Annotated[str | None, typer.Option("--where", "-w", help="Only these partitions.")] = None,
        zorder_by: Annotated[
            _Many, typer.Option("--zorder-by", metavar="COLUMN", help="Order rows by it; may be repeated.")
        ] = None,
        full: Annotated[bool, typer.Option("--full", help="Of a clustered table, order all files anew.")] = False,
        purge: Annotated[bool, typer.Option("--purge", help="Only take out rows that deletion vectors hide.")] = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Rewrite small files into large ones, or rows into an order that lets queries skip files."""
        if purge and (zorder_by or full):
            raise InvalidArgumentError(
                "--purge goes with neither --zorder-by nor --full.", hint="Run one after the other."
            )
        table = _open(path, option, time_zone)
        result = table.purge(where).rewritten if purge else table.optimize(where, zorder_by=zorder_by or (), full=full)
        _say(as_json, "Purged" if purge else "Optimized", result.version, {
            "files removed": len(result.removed),
            "files added": len(result.added),
            "bytes removed": sum(add.size for add in result.removed),
            "bytes added": sum(add.size for add in result.added),
        })  # fmt: skip


def _open(path: str, options: _Many, time_zone: str | None = None) -> LocalTable:
    from pydelta.api.python.local import open_table

    return open_table(path, options=storage_options(options), time_zone=time_zone)


def _refuse_everything(where: str | None, every: bool, what: str) -> None:
    """Ask for --all where a condition may have been forgotten."""
    if where is None and not every:
        raise InvalidArgumentError(f"Without a condition this would {what} every row.", hint="Give --where, or --all.")
    if where is not None and every:
        raise InvalidArgumentError("--where and --all exclude each other.", hint="Give one of them.")


def _rows_of(file: str, form: str | None, bad_records: str | None, options: _Many) -> pa.Table | TextFile:
    """The rows of a file, by the format given or by its ending; text is read by the table's schema."""
    import pyarrow as pa

    from pydelta.engines.arrow.text_source import TextFile

    readers: Mapping[str, Any] = {"parquet": _parquet, "arrow": _arrow, "csv": None, "ndjson": None}
    named = form or file.lower().rpartition(".")[2]
    if named not in readers:
        raise InvalidArgumentError(
            f"{file} is not a file of rows that this command reads.",
            hint=f"Give one of .{', .'.join(readers)}, or say what it is with --format.",
        )
    if named in ("csv", "ndjson"):
        return TextFile(file, named, bad_records=bad_records, options=storage_options(options))
    if bad_records is not None:
        raise InvalidArgumentError("--bad-records is for .csv and .ndjson.", hint="Leave it out: values have types.")
    try:
        rows: pa.Table = readers[named](file)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"The rows of {file} cannot be read: {text}", hint="Check the file.") from error
    return rows


def _parquet(file: str) -> pa.Table:
    import pyarrow.parquet as pq

    with open(file, "rb") as stream:
        return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").read()


def _arrow(file: str) -> pa.Table:
    """Rows of Arrow's file format, or of its stream format."""
    import pyarrow as pa

    with open(file, "rb") as stream:
        is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
        stream.seek(0)
        with pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream) as reader:
            return reader.read_all()


def _aside(rows: pa.Table | TextFile) -> dict[str, int]:
    """How many rows were set aside, if any were."""
    from pydelta.engines.arrow.text_source import TextFile

    return {"rows set aside": rows.set_aside} if isinstance(rows, TextFile) and rows.set_aside else {}


def _say(as_json: bool, done: str, version: int | None, counts: Mapping[str, int | None]) -> None:
    if as_json:
        names = {camel_case(name.replace(" ", "_")): count for name, count in counts.items()}
        print(json.dumps({"version": version, **names}, indent=2))  # noqa: T201
    elif version is None:
        print("Nothing to do: no version was made.")  # noqa: T201
    else:
        known = [f"{count} {name}" for name, count in counts.items() if count is not None]
        print(f"{done} in version {version}: {', '.join(known)}.")  # noqa: T201
