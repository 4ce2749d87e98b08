"""Create, restore, clone and index tables from the command line, without a JVM.

::

    pydelta create PATH rows.parquet --partition-by day
    pydelta create PATH --column "id bigint" --column "day date" --property delta.enableChangeDataFeed=true
    pydelta restore PATH --version 12
    pydelta clone PATH TARGET --shallow
    pydelta index PATH --columns id

The commands are those of a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pydelta.api.cli.results import open_local, print_done, print_result, rows_of
from pydelta.api.console.command_line import (
    AsJson,
    AtTimestamp,
    AtVersion,
    StorageOptions,
    TablePath,
    named_values,
    storage_options,
)
from pydelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pydelta.api.python.local import Rows

__all__ = ["add_making"]

_Many = list[str] | None
_Property = Annotated[
    _Many,
    typer.Option("--property", metavar="NAME=VALUE", help="A table property, such as delta.appendOnly=true."),
]
_ZONE: Final = "UTC"
"""Zone of times of ``--timestamp`` without one, as in the other commands."""
_PROPERTY_HINT: Final = "Write --property NAME=VALUE."


def add_making(app: typer.Typer) -> None:
    """Add the commands to an application."""
    _add_create(app)
    _add_restore_and_clone(app)
    _add_index(app)


def _add_create(app: typer.Typer) -> None:
    @app.command()
    def create(
        path: TablePath,
        rows: Annotated[
            str | None, typer.Argument(metavar="FILE", help="The first rows: .parquet or .arrow.", show_default=False)
        ] = None,
        column: Annotated[
            _Many,
            typer.Option("--column", metavar="'NAME TYPE'", help="A column of a table without rows; repeatable."),
        ] = None,
        partition_by: Annotated[
            _Many, typer.Option("--partition-by", metavar="COLUMN", help="A partition column; repeatable.")
        ] = None,
        properties: _Property = None,
        mode: Annotated[
            str, typer.Option("--mode", help="What to do with an existing table: error, ignore or replace.")
        ] = "error",
        form: Annotated[
            str | None, typer.Option("--format", help="Format of the file, if its name does not show it.")
        ] = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Create a table, with the rows of a file or with columns only."""
        from pydelta.api.python.local import LocalTable

        if (rows is None) == (column is None):
            raise InvalidArgumentError(
                "A new table needs either a file of rows or columns.", hint='Give FILE, or --column "id bigint".'
            )
        columns: Mapping[str, str] | Rows = _columns(column or ()) if rows is None else _typed_rows(rows, form)
        made = LocalTable.create(
            path,
            columns,
            partition_by=partition_by or (),
            properties=named_values(properties, what="A property", hint=_PROPERTY_HINT),
            mode=mode,
            options=storage_options(option),
        )
        found = made.detail()
        print_result(as_json, "The table is", made.version, {"files": found["numFiles"], "bytes": found["sizeInBytes"]})


def _add_restore_and_clone(app: typer.Typer) -> None:
    @app.command()
    def restore(
        path: TablePath,
        version: AtVersion = None,
        timestamp: AtTimestamp = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Make an earlier version the current state, as a new version."""
        result = open_local(path, option, _ZONE).restore(version, timestamp)
        print_result(as_json, "Restored", result.version, {
            "files restored": result.num_restored_files,
            "files removed": result.num_removed_files,
            "bytes restored": result.restored_files_size,
            "bytes removed": result.removed_files_size,
        })  # fmt: skip

    @app.command()
    def clone(
        path: TablePath,
        target: Annotated[str, typer.Argument(help="Location of the new table.")],
        shallow: Annotated[
            bool, typer.Option("--shallow", help="Name the files of the table instead of copying them.")
        ] = False,
        replace: Annotated[bool, typer.Option("--replace", help="Replace an existing table.")] = False,
        version: AtVersion = None,
        timestamp: AtTimestamp = None,
        properties: _Property = None,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Create an independent table from a version of this one."""
        made = open_local(path, option, _ZONE).clone(
            target,
            shallow=shallow,
            replace=replace,
            version=version,
            timestamp=timestamp,
            properties=named_values(properties, what="A property", hint=_PROPERTY_HINT),
        )
        found = made.detail()
        print_result(as_json, "Cloned", made.version, {"files": found["numFiles"], "bytes": found["sizeInBytes"]})


def _add_index(app: typer.Typer) -> None:
    @app.command()
    def index(
        path: TablePath,
        columns: Annotated[
            _Many,
            typer.Option(
                "--columns",
                metavar="COLUMN",
                help="A key column; repeatable. Without one, the index that exists covers the files added since.",
            ),
        ] = None,
        drop: Annotated[bool, typer.Option("--drop", help="Delete the record index.")] = False,
        as_json: AsJson = False,
        option: StorageOptions = None,
    ) -> None:
        """Make or refresh a record index, with which a MERGE by a key opens few files."""
        if drop and columns:
            raise InvalidArgumentError("--drop takes no columns.", hint="Leave --columns out: a table has one index.")
        table = open_local(path, option)
        if drop:
            deleted = table.drop_record_index()
            print_done(as_json, "Dropped the record index", {"objects deleted": deleted})
            return
        result = table.index_records(columns or ())
        print_done(as_json, f"The record index on {', '.join(result.columns)} covers version {result.version}", {
            "files covered": result.num_covered_files,
            "files indexed": result.num_indexed_files,
            "files skipped": result.num_skipped_files,
            "segments": result.num_segments,
            "bytes": result.num_bytes,
        })  # fmt: skip


def _columns(texts: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, space, kind = text.strip().partition(" ")
        if not space:
            raise InvalidArgumentError(f"The column {text!r} has no type.", hint='Write --column "id bigint".')
        if name in found:
            raise InvalidArgumentError(f"The column {name!r} is given twice.", hint="Give each column once.")
        found[name] = kind.strip()
    return found


def _typed_rows(file: str, form: str | None) -> Rows:
    from pydelta.engines.arrow.text_source import TextFile

    rows = rows_of(file, form)
    if isinstance(rows, TextFile):
        raise InvalidArgumentError(
            f"{file} is text, which has no types.", hint="Create the table with --column, then add it: pydelta append."
        )
    return rows
