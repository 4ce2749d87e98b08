"""Change the rows and files of tables from the command line, without a JVM.

::

    pydelta delete PATH --where "id = 5"
    pydelta update PATH --set "state='paid'" --where "id = 5"
    pydelta append PATH rows.parquet
    pydelta overwrite PATH rows.parquet --where "day = '2024-01-01'"
    pydelta merge PATH rows.parquet --on id
    pydelta optimize PATH [--zorder-by day] [--purge]

The commands are those of a session. If only Spark can do a step, the command is refused with the reason.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pydelta.api.cli.results import open_local, print_result, rows_of, set_aside
from pydelta.api.console.command_line import (
    AsJson,
    Partitions,
    StorageOptions,
    TablePath,
    TimeZone,
    named_values,
)
from pydelta.errors import InvalidArgumentError

__all__ = ["add_changes"]

_Many = list[str] | None
_Rows = Annotated[
    str, typer.Argument(metavar="FILE", help="File of rows: .parquet, .arrow, .csv (with a header) or .ndjson.")
]
_Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the file, if its name does not show it: parquet, arrow, csv or ndjson."),
]
_BadRecords = Annotated[
    str | None,
    typer.Option(
        "--bad-records",
        metavar="PATH",
        help="Table for rows of .csv and .ndjson that do not fit; without it they are an error.",
    ),
]
_Where = Annotated[str | None, typer.Option("--where", "-w", help="Only rows for which this condition is true.")]
_AllRows = Annotated[bool, typer.Option("--all-rows", help="All rows; required without --where.")]
_HINT = "Write it as column=value, such as --set \"state='paid'\" or --set amount=0."


def add_changes(app: typer.Typer) -> None:
    """Add the commands to an application."""
    _add_delete_and_update(app)
    _add_append(app)
    _add_overwrite(app)
    _add_merge(app)
    _add_optimize(app)


def _add_delete_and_update(app: typer.Typer) -> None:
    @app.command()
    def delete(
        path: TablePath,
        where: _Where = None,
        all_rows: _AllRows = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Delete the rows for which a condition is true."""
        _refuse_everything(where, all_rows, "delete")
        result = open_local(path, option, time_zone).delete(where)
        print_result(as_json, "Deleted", result.version, {
            "rows deleted": result.num_deleted_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
        })  # fmt: skip

    @app.command()
    def update(
        path: TablePath,
        assignments: Annotated[
            _Many,
            typer.Option(
                "--set",
                "-s",
                metavar="COLUMN=VALUE",
                help="A column, and its new value: an SQL constant or another column.",
            ),
        ] = None,
        where: _Where = None,
        all_rows: _AllRows = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Set columns of the rows for which a condition is true."""
        _refuse_everything(where, all_rows, "change")
        values = named_values(assignments, what="An assignment", hint=_HINT, once=True)
        result = open_local(path, option, time_zone).update(where, values)
        print_result(as_json, "Updated", result.version, {
            "rows updated": result.num_updated_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
        })  # fmt: skip


def _add_append(app: typer.Typer) -> None:
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
        """Add the rows of a file, in one version. Columns are matched by name."""
        given = rows_of(rows, form, bad_records, option)
        result = open_local(path, option, time_zone).append(given)
        counts = {"rows added": result.num_rows, "files added": result.num_files}
        print_result(as_json, "Appended", result.version, {**counts, **set_aside(given)})


def _add_overwrite(app: typer.Typer) -> None:
    @app.command()
    def overwrite(
        path: TablePath,
        rows: _Rows,
        where: Annotated[
            str | None, typer.Option("--where", "-w", help="Replace only rows for which this condition is true.")
        ] = None,
        form: _Format = None,
        bad_records: _BadRecords = None,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Replace all rows, or those of a condition, by the rows of a file, in one version."""
        given = rows_of(rows, form, bad_records, option)
        result = open_local(path, option, time_zone).overwrite(given, where)
        counts = {"rows added": result.num_rows, "files added": result.num_files}
        counts["files removed"] = result.num_removed_files
        print_result(as_json, "Overwritten", result.version, {**counts, **set_aside(given)})


def _add_merge(app: typer.Typer) -> None:
    @app.command()
    def merge(
        path: TablePath,
        rows: _Rows,
        on: Annotated[
            list[str], typer.Option("--on", metavar="COLUMN", help="A key column that matches rows; repeatable.")
        ],
        matched: Annotated[
            str, typer.Option("--matched", help="What to do with matched rows: update, delete or keep.")
        ] = "update",
        not_matched: Annotated[
            str, typer.Option("--not-matched", help="What to do with new rows: insert or skip.")
        ] = "insert",
        not_matched_by_source: Annotated[
            str,
            typer.Option(
                "--not-matched-by-source", help="What to do with rows that match no row of the file: keep or delete."
            ),
        ] = "keep",
        form: _Format = None,
        bad_records: _BadRecords = None,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Merge the rows of a file into the table, in one version."""
        nothing = {"keep", "skip"}
        given = rows_of(rows, form, bad_records, option, streamed=True)
        result = open_local(path, option, time_zone).merge(
            given,
            on,
            matched=None if matched in nothing else matched,
            not_matched=None if not_matched in nothing else not_matched,
            not_matched_by_source=None if not_matched_by_source in nothing else not_matched_by_source,
        )
        print_result(as_json, "Merged", result.version, {
            "rows updated": result.num_updated_rows,
            "rows deleted": result.num_deleted_rows,
            "rows inserted": result.num_inserted_rows,
            "rows copied": result.num_copied_rows,
            "files touched": result.num_touched_files,
            **set_aside(given),
        })  # fmt: skip


def _add_optimize(app: typer.Typer) -> None:
    @app.command()
    def optimize(
        path: TablePath,
        where: Partitions = None,
        zorder_by: Annotated[
            _Many,
            typer.Option(
                "--zorder-by", metavar="COLUMN", help="A column to sort rows by, along a Z-order curve; repeatable."
            ),
        ] = None,
        full: Annotated[bool, typer.Option("--full", help="For a clustered table, order all files again.")] = False,
        purge: Annotated[
            bool, typer.Option("--purge", help="Only remove the rows that deletion vectors hide.")
        ] = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Rewrite small files into large ones, or sort rows so that queries can skip files."""
        if purge and (zorder_by or full):
            raise InvalidArgumentError(
                "--purge cannot be combined with --zorder-by or --full.", hint="Run one after the other."
            )
        table = open_local(path, option, time_zone)
        result = table.purge(where).rewritten if purge else table.optimize(where, zorder_by=zorder_by or (), full=full)
        print_result(as_json, "Purged" if purge else "Optimized", result.version, {
            "files removed": len(result.removed),
            "files added": len(result.added),
            "bytes removed": sum(add.size for add in result.removed),
            "bytes added": sum(add.size for add in result.added),
        })  # fmt: skip


def _refuse_everything(where: str | None, every: bool, what: str) -> None:
    """Refuse to change every row unless --all-rows is given, because the condition may have been forgotten."""
    if where is None and not every:
        raise InvalidArgumentError(
            f"Without a condition this would {what} every row.", hint="Give --where, or --all-rows."
        )
    if where is not None and every:
        raise InvalidArgumentError("--where and --all-rows exclude each other.", hint="Give one of them.")
