"""Run a Typer application and read the options that our command lines share; return the exit code."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Any, Final

import typer

from pydelta.api.console.old_names import current_names
from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.log.times import epoch_ms_of
from pydelta.storage.kinds import KINDS

__all__ = [
    "METASTORE_VARIABLE",
    "AsJson",
    "AtTimestamp",
    "AtVersion",
    "Databases",
    "DryRun",
    "Inventory",
    "Metastore",
    "NoLogin",
    "Partitions",
    "StorageOptions",
    "TableName",
    "TablePath",
    "TimeZone",
    "Verbose",
    "given_time",
    "make_app",
    "named_values",
    "run_app",
    "storage_options",
]

METASTORE_VARIABLE: Final = "PYDELTA_METASTORE"
"""Environment variable with the address of the metastore."""
_SCHEMES: Final = ", ".join(f"{kind.schemes[0]}://" for kind in KINDS if kind.named)
TablePath = Annotated[str, typer.Argument(help=f"Location of the table: a local path, {_SCHEMES}.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="A storage option, such as fs.s3a.endpoint."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="Zone of times without one, such as Europe/Berlin; by default they are refused.",
    ),
]
AtVersion = Annotated[int | None, typer.Option("--version", help="Version of the table.")]
AtTimestamp = Annotated[
    str | None, typer.Option("--timestamp", "-t", help="Time of a version, ISO 8601; in UTC if it has no zone.")
]


TableName = Annotated[str, typer.Argument(help="Location of the table, or its name in the metastore.")]
Metastore = Annotated[
    str | None, typer.Option("--metastore", metavar="URI", help=f"thrift://host:9083; by default {METASTORE_VARIABLE}.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done and why; change nothing.")]
Partitions = Annotated[str | None, typer.Option("--where", "-w", help="Only these partitions.")]
Inventory = Annotated[
    str | None,
    typer.Option("--inventory", metavar="LOCATION", help="A Delta table, Parquet or CSV that lists the files."),
]
Databases = Annotated[
    list[str] | None, typer.Option("--database", "-d", help="Every Delta table that is registered in this database.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's own messages.")]
NoLogin = Annotated[
    bool, typer.Option("--no-login", help="Let in everyone who reaches --host, which has to be one private address.")
]


def _show_version(context: typer.Context, asked: bool) -> None:
    if asked:
        from pydelta.txn.commit import engine_info

        sys.stdout.write(f"{context.command.name} {engine_info().partition('/')[2]}\n")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]


def make_app(name: str, text: str) -> typer.Typer:
    """Create a Typer application whose help and errors show brackets literally, not as markup.

    Args:
        name: The program's name.
        text: What it is for.
    """
    app = typer.Typer(
        name=name,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(help=text)
    def common(version: _Version = False) -> None:
        """Take the options of the program itself."""

    return app


def named_values(items: Iterable[str] | None, *, what: str, hint: str, once: bool = False) -> dict[str, str]:
    """Parse ``NAME=VALUE`` strings into values by name. No message shows a value, which may be a secret.

    Args:
        items: The strings.
        what: What one of them is, for the message.
        hint: How to write one.
        once: Refuse a second value of a name; otherwise the last one counts.

    Returns:
        Names without the blanks around them, with values as they were given.

    Raises:
        InvalidArgumentError: A text has no name or no equals sign, or a name has two values.

    Example:
        >>> named_values(["a=1", "b=x=y"], what="An option", hint="Write NAME=VALUE.")
        {'a': '1', 'b': 'x=y'}
    """
    found = {}
    for item in items or ():
        before, equals, value = item.partition("=")
        name = before.strip()
        if not equals or not name:
            raise InvalidArgumentError(f"{what} has no {'value' if name else 'name'}.", hint=hint)
        if once and name in found:
            raise InvalidArgumentError(f"{what} of {name!r} is given twice.", hint="Give each name once.")
        found[name] = value
    return found


def storage_options(items: Iterable[str] | None) -> dict[str, str]:
    """Parse ``--option NAME=VALUE`` as ``named_values`` does."""
    return named_values(items, what="A storage option", hint="Write --option NAME=VALUE.")


def given_time(text: str) -> int:
    """Parse a time of ``--timestamp`` into epoch milliseconds. A time without a zone is in UTC.

    Raises:
        InvalidArgumentError: The text is not a time.
    """
    return epoch_ms_of(text, dt.UTC)


def run_app(
    app: Callable[..., Any], argv: Sequence[str] | None, *, program: str = "", printing: Collection[str] = ()
) -> None:
    """Run a command line and exit with 0, the error's ``exit_code``, or 2 for invalid arguments.

    A report that cannot be printed does not change the exit code, because the command's work is done.

    Args:
        app: The Typer application.
        argv: Arguments without the program's name; None for those of the process.
        program: Its name, if old names of its flags still work.
        printing: Commands that only print, which exit with 1 if some output was lost.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    code: Any = None
    with sparing_output() as output:
        renamed = current_names(program, given, has_commands=True)
        try:
            app(args=None if argv is None and renamed == given else renamed)
        except SystemExit as stopped:
            code = stopped.code
        except DeltaError as error:
            print(f"Error: {error}", file=sys.stderr)
            code = error.exit_code
    if output.is_incomplete and given[:1] != [] and given[0] in printing:
        code = code or 1
    if code is not None:
        raise SystemExit(code)
