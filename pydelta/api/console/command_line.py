"""Run a Typer application and read the options that our command lines share; return the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Any, Final

import typer

from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.storage.kinds import KINDS

__all__ = [
    "AsJson",
    "StorageOptions",
    "TablePath",
    "TimeZone",
    "make_app",
    "named_values",
    "run_app",
    "storage_options",
]

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
        help="Zone of times that name none, such as Europe/Berlin or UTC; without it they are refused.",
    ),
]


def make_app(name: str, text: str) -> typer.Typer:
    """Make a Typer application; its help and its errors show brackets as they are: nothing in them is markup.

    Args:
        name: The program's.
        text: What it is for.
    """
    return typer.Typer(
        name=name,
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def named_values(items: Iterable[str] | None, *, what: str, hint: str) -> dict[str, str]:
    """Turn ``NAME=VALUE`` texts into values by name. No message shows a value: it may be a secret.

    Args:
        items: The texts.
        what: What one of them is, for the message.
        hint: How one is written.

    Raises:
        InvalidArgumentError: A text without a name or without an equals sign.

    Example:
        >>> named_values(["a=1", "b=x=y"], what="An option", hint="Write NAME=VALUE.")
        {'a': '1', 'b': 'x=y'}
    """
    found = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidArgumentError(f"{what} has no {'value' if name else 'name'}.", hint=hint)
        found[name] = value
    return found


def storage_options(items: Iterable[str] | None) -> dict[str, str]:
    """Read ``--option NAME=VALUE`` as ``named_values`` does."""
    return named_values(items, what="A storage option", hint="Write --option NAME=VALUE.")


def run_app(app: Callable[..., Any], argv: Sequence[str] | None, *, printing: Collection[str] = ()) -> None:
    """Run a command line and exit: 0, the error's ``exit_code``, or 2 for arguments that make no sense.

    A report that cannot be printed changes none of these, since what the command did is done.

    Args:
        app: The Typer application.
        argv: Arguments without the program's name; None for those of the process.
        printing: Commands that do nothing but print: 1 where not all of it could be.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    code: Any = None
    with sparing_output() as output:
        try:
            app(args=None if argv is None else given)
        except SystemExit as stopped:
            code = stopped.code
        except DeltaError as error:
            print(f"Error: {error}", file=sys.stderr)
            code = error.exit_code
    if output.is_incomplete and given[:1] != [] and given[0] in printing:
        code = code or 1
    if code is not None:
        raise SystemExit(code)
