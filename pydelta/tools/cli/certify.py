"""Read the options of ``pydelta certify``, and map its results to exit codes."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pydelta.api.console.command_line import StorageOptions, named_values, storage_options
from pydelta.errors import DeltaError, InvalidArgumentError, first_line
from pydelta.errors.redaction import hide_text

__all__ = ["add_certify"]

_Many = list[str] | None
_Uri = Annotated[
    str | None,
    typer.Argument(help="An empty or new folder: a local path, s3a://…; without one, --replay judges again."),
]
_With = Annotated[
    str | None,
    typer.Option("--with", metavar="ENGINES", help="Comma-separated: spark, delta-rs (write and read), trino (reads)."),
]
_Trino = Annotated[
    str | None, typer.Option("--trino", metavar="URL", help="Address of a Trino server, for --with trino.")
]
_TrinoSchema = Annotated[
    str, typer.Option("--trino-schema", metavar="CATALOG.SCHEMA", help="Where Trino registers the table to read it.")
]
_TrinoWrites = Annotated[
    bool, typer.Option("--trino-writes", help="Trino writes, too; its catalog must not be read-only.")
]
_Minutes = Annotated[float, typer.Option("--minutes", min=0.05, help="No operation begins after this time.")]
_Operations = Annotated[int, typer.Option("--operations", min=1, help="Maximum number of operations.")]
_Processes = Annotated[int, typer.Option("--processes", min=1, max=64, help="How many processes of pydelta write.")]
_Seed = Annotated[int | None, typer.Option("--seed", help="Seed of operations and faults; random by default.")]
_Without = Annotated[
    str | None,
    typer.Option(
        "--without", metavar="OPERATIONS", help="Operations to leave out, comma-separated: optimize, delta-rs:merge."
    ),
]
_Properties = Annotated[
    _Many, typer.Option("--property", metavar="NAME=VALUE", help="A table property, such as delta.isolationLevel.")
]
_Retention = Annotated[
    int, typer.Option("--retention-seconds", min=1, metavar="SECONDS", help="How long VACUUM keeps removed files.")
]
_Faults = Annotated[
    bool, typer.Option("--faults/--no-faults", help="Lose replies, delay and fail calls of the store, kill processes.")
]
_Shrink = Annotated[
    int,
    typer.Option(
        "--shrink", min=0, metavar="RUNS", help="At most this many runs to make a failing plan smaller; 0 for none."
    ),
]
_Keep = Annotated[bool, typer.Option("--keep", help="Leave the table for a closer look.")]
_Report = Annotated[Path, typer.Option("--report", metavar="FOLDER", help="Where the report is written.")]
_Replay = Annotated[
    str | None, typer.Option("--replay", metavar="FILE", help="A report: with a URI, run its plan again.")
]


def add_certify(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def certify(
        uri: _Uri = None,
        with_: _With = None,
        trino: _Trino = None,
        trino_schema: _TrinoSchema = "delta.default",
        trino_writes: _TrinoWrites = False,
        minutes: _Minutes = 2.0,
        operations: _Operations = 200,
        processes: _Processes = 3,
        seed: _Seed = None,
        without: _Without = None,
        property_: _Properties = None,
        retention: _Retention = 300,
        faults: _Faults = True,
        shrink: _Shrink = 20,
        keep: _Keep = False,
        report: _Report = Path(),
        replay: _Replay = None,
        option: StorageOptions = None,
    ) -> None:
        """Test whether a store, its settings and engines keep a table's promises, by concurrent histories with faults.

        Exit codes: 0 every promise held, 1 a promise was broken, 2 no verdict was possible.
        """
        from pydelta.tools.certify.command import Wish, recheck
        from pydelta.tools.certify.command import certify as run

        with _verdict():
            if uri is None and replay is None:
                raise InvalidArgumentError(
                    "No location to certify was given.", hint="Name an empty folder: pydelta certify s3a://bucket/trial"
                )
            if uri is None:
                raise typer.Exit(recheck(replay or "", print))
            wish = Wish(
                uri=uri,
                options=storage_options(option),
                engines=_names(with_),
                trino=trino,
                trino_schema=trino_schema,
                trino_writes=trino_writes,
                minutes=minutes,
                operations=operations,
                processes=processes,
                seed=random.randrange(1_000_000) if seed is None else seed,
                without=_names(without),
                properties=named_values(property_, what="A property", hint="Write --property NAME=VALUE."),
                retention_seconds=retention,
                faults=faults,
                shrink=shrink,
                keep=keep,
                report=report,
            )
            code = run(wish, replay, print)
        if code:
            raise typer.Exit(code)


@contextmanager
def _verdict() -> Iterator[None]:
    """Make every early end of a run exit with 2, because 1 would mean that a promise was broken."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        message = "Stopped before there was a verdict: nothing can be said."
    except DeltaError as error:
        message = f"Error: {error}"
    except Exception as error:  # noqa: BLE001 - every early end exits with 2
        what = f"{type(error).__name__}: {hide_text(first_line(error))}"
        message = f"Error: pydelta certify itself failed, so that nothing can be said: {what}"
    else:
        return
    print(message, file=sys.stderr)  # noqa: T201
    raise typer.Exit(2)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
