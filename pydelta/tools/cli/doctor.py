"""Read the options of ``pydelta doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from pydelta.api.console.command_line import AsJson, StorageOptions, storage_options
from pydelta.api.console.output import print_json

__all__ = ["add_doctor"]

_Uri = Annotated[str | None, typer.Argument(help="A directory of a store to test by writing, racing, deleting.")]
_Log = Annotated[
    str | None, typer.Option("--log", metavar="FILE", help="A job's log to search for known messages; - for stdin.")
]


def add_doctor(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def doctor(uri: _Uri = None, log: _Log = None, as_json: AsJson = False, option: StorageOptions = None) -> None:
        """Check this machine and a store, if one is named; or explain the known troubles in a job's log."""
        from pydelta.tools.doctor.doctor import examine

        found = examine(uri, log=log, options=storage_options(option))
        if as_json:
            print_json(found.json())
        else:
            print("\n".join(found.lines()))  # noqa: T201
        if not found.ok:
            raise typer.Exit(4)
