"""Change tables from the command line, in a process without a JVM: DELETE, UPDATE, MERGE, append, overwrite, OPTIMIZE.

::

    pydelta delete PATH --where "id = 5"
    pydelta update PATH --set "state='paid'" --where "id = 5"
    pydelta append PATH rows.parquet
    pydelta overwrite PATH rows.parquet --where "day = '2024-01-01'"
    pydelta merge PATH rows.parquet --on id
    pydelta optimize PATH [--zorder-by day] [--purge]

The commands are those of a session. What only Spark computes is refused, with the reason.
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
_AllRows = Annotated[bool, typer.Option("--all-rows", help="Every row; required without --where.")]
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
            _Many, typer.Option("--set", "-s", metavar="COLUMN=VALUE", help="A constant as SQL writes it, or a column.")
        ] = None,
        where: _Where = None,
        all_rows: _AllRows = False,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Set columns of the rows for which a condition is true."""
        _refuse_everything(where, all_rows, "change")
        values = named_values(assignments, what="An assignment", hint=_HINT)
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
        """Add the rows of a file in one version; columns are matched by name."""
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
            str | None, typer.Option("--where", "-w", help="Replace only rows for which this is true.")
        ] = None,
        form: _Format = None,
        bad_records: _BadRecords = None,
        time_zone: TimeZone = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Replace the rows of the table, or those of a condition, with the rows of a file, in one version."""
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
        given = rows_of(rows, form, bad_records, option)
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
        table = open_local(path, option, time_zone)
        result = table.purge(where).rewritten if purge else table.optimize(where, zorder_by=zorder_by or (), full=full)
        print_result(as_json, "Purged" if purge else "Optimized", result.version, {
            "files removed": len(result.removed),
            "files added": len(result.added),
            "bytes removed": sum(add.size for add in result.removed),
            "bytes added": sum(add.size for add in result.added),
        })  # fmt: skip


def _refuse_everything(where: str | None, every: bool, what: str) -> None:
    """Ask for --all-rows where a condition may have been forgotten."""
    if where is None and not every:
        raise InvalidArgumentError(
            f"Without a condition this would {what} every row.", hint="Give --where, or --all-rows."
        )
    if where is not None and every:
        raise InvalidArgumentError("--where and --all-rows exclude each other.", hint="Give one of them.")
