"""Read the options of ``pydelta ui``, and start the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydelta.api.console.command_line import METASTORE_VARIABLE, Databases, NoLogin, StorageOptions, storage_options
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

if TYPE_CHECKING:
    from pydelta.api.access.roles import Access
    from pydelta.api.console.addresses import Addresses
    from pydelta.tools.ui.services import Service
    from pydelta.tools.ui.watch import Watched

__all__ = ["add_ui"]

_Many = list[str] | None
_Tables = Annotated[_Many, typer.Argument(help="Locations of tables, or NAME=LOCATION.")]
_Folders = Annotated[_Many, typer.Option("--folder", help="A folder: all tables below it are shown.")]
_Metastore = Annotated[
    str | None,
    typer.Option(
        "--metastore", help=f"thrift://host:9083, for all its databases; for --database, {METASTORE_VARIABLE} will do."
    ),
]
_Streams = Annotated[_Many, typer.Option("--stream", metavar="CHECKPOINT", help="The checkpoint of a streaming query.")]
_Services = Annotated[
    _Many,
    typer.Option(
        "--service",
        metavar="NAME=ADDRESS[,LINK]",
        help="A service to check, and a link to its page; several services on separate lines.",
    ),
]
_Optional = Annotated[
    _Many,
    typer.Option(
        "--optional-service",
        metavar="NAME=ADDRESS[,LINK]",
        help="A service that counts as not started until its host name can be resolved.",
    ),
]
_Schedule = Annotated[
    _Many, typer.Option("--schedule", metavar="FILE", help="Status file of jobs/schedule.py or jobs/maintain.py.")
]
_Engines = Annotated[
    _Many,
    typer.Option(
        "--engine",
        metavar="NAME=ADDRESS",
        help="An engine to ask for its runs: /json/ of Spark's master or worker, /v1/query of Trino or Presto, or "
        "/api/v1/applications of Spark's history server.",
    ),
]
_Lineage = Annotated[
    str | None, typer.Option("--lineage", metavar="FOLDER", help="A folder with OpenLineage events, one per line.")
]
_Preview = Annotated[
    bool, typer.Option("--preview/--no-preview", help="Show rows of tables, and the bounds of their columns.")
]
_Disks = Annotated[
    _Many,
    typer.Option(
        "--disk", metavar="NAME=PLACE", help="A disk to measure: a folder on it, or the address of a MinIO's metrics."
    ),
]
_Refusals = Annotated[
    _Many, typer.Option("--refusals", metavar="FILE", help="File of jobs/maintain.py with counts of refused commits.")
]
_AlertState = Annotated[
    Path | None,
    typer.Option(
        "--alert-state",
        metavar="FILE",
        help="With PYDELTA_ALERT_WEBHOOK: file of the alerts that were posted, for the next start.",
    ),
]
_Access = Annotated[
    str | None,
    typer.Option(
        "--access", metavar="FILE", help="File of users, their roles and tables; the page then asks for a password."
    ),
]
_Host = Annotated[str, typer.Option("--host", help="The address to listen on; several with commas between them.")]
_Port = Annotated[int, typer.Option("--port", help="The port to listen on.")]
_Fresh = Annotated[
    float, typer.Option("--fresh", min=0, metavar="SECONDS", help="How long results are shown before reading again.")
]
_Patience = Annotated[
    float, typer.Option("--patience", min=0.1, metavar="SECONDS", help="How long a page waits for a store.")
]
_Commits = Annotated[int, typer.Option("--commits", min=1, help="How many commits to look back.")]
_Garbage = Annotated[
    bool, typer.Option("--garbage", help="List each table, once an hour, for files that VACUUM would delete.")
]
_GarbageSeconds = Annotated[float, typer.Option("--garbage-seconds", min=1, help="How long one listing may take.")]
_Inventory = Annotated[
    str | None,
    typer.Option("--inventory", metavar="LOCATION", help="With --garbage: a list of files to use instead of listings."),
]


def add_ui(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def ui(
        tables: _Tables = None,
        folder: _Folders = None,
        database: Databases = None,
        metastore: _Metastore = None,
        stream: _Streams = None,
        service: _Services = None,
        optional_service: _Optional = None,
        schedule: _Schedule = None,
        disk: _Disks = None,
        refusals: _Refusals = None,
        alert_state: _AlertState = None,
        host: _Host = "127.0.0.1",
        port: _Port = 8088,
        no_login: NoLogin = False,
        access: _Access = None,
        fresh: _Fresh = 5.0,
        patience: _Patience = 5.0,
        commits: _Commits = 100,
        garbage: _Garbage = False,
        garbage_seconds: _GarbageSeconds = 300.0,
        inventory: _Inventory = None,
        engine: _Engines = None,
        lineage: _Lineage = None,
        preview: _Preview = True,
        option: StorageOptions = None,
    ) -> None:
        """Show tables, their commits, twins and streams on a page that only reads."""
        options = storage_options(option)
        given: dict[str, Any] = {"schedules": schedule or [], "fresh": fresh, "patience": patience, "commits": commits}
        given |= {"refusals": refusals or [], "lineage": lineage, "preview": preview}
        if inventory is not None and not garbage:
            raise InvalidArgumentError("--inventory has no effect without --garbage.", hint="Give both, or neither.")
        try:
            from pydelta.tools.ui.command import run_ui
        except ModuleNotFoundError as error:
            raise DeltaEnvironmentError(
                f"The page needs a package that is not installed: {error.name}.",
                hint="pip install 'pydelta-lakehouse[ui]'",
            ) from error
        from pydelta.tools.ui.catalog.engines import WatchedEngine
        from pydelta.tools.ui.disks import Disk

        given["disks"] = [Disk.parse(text) for text in disk or []]
        given["engines"] = [WatchedEngine.parse(text) for text in engine or []]
        if garbage:
            given["garbage"] = garbage_seconds
        if inventory is not None:
            from pydelta.commands.vacuum.inventory_sources import inventory_at

            given["inventory"] = inventory_at(inventory, options)
        given["services"] = [*_services(service), *_services(optional_service, optional=True)]
        watched = _watched((tables or [], folder or [], database or []), metastore, stream or [], options, given)
        run_ui(watched, _addresses(host, port, no_login=no_login), alert_state, _users(access))


def _addresses(hosts: str, port: int, *, no_login: bool) -> Addresses:
    from pydelta.api.console.addresses import Addresses

    first, *more = hosts.split(",")
    return Addresses(host=first, also=tuple(more), page=port, no_login=no_login)


def _users(file: str | None) -> Access | None:
    from pydelta.api.access.roles import Access

    return None if file is None else Access.read(file)


def _services(texts: _Many, *, optional: bool = False) -> list[Service]:
    """Parse services, of which a text of several lines names several.

    Raises:
        InvalidArgumentError: A line does not name a service.
    """
    from pydelta.tools.ui.services import Service

    lines = [line for text in texts or [] for line in text.splitlines()]
    return [Service.parse(line, optional=optional) for line in lines if line.strip()]


def _watched(
    where: tuple[list[str], list[str], list[str]],
    metastore: str | None,
    streams: list[str],
    options: dict[str, str],
    given: dict[str, Any],
) -> Watched:
    """Gather what the options name: tables, folders, databases, streams and services.

    Raises:
        InvalidArgumentError: Nothing to show was named, or a name is invalid.
        DeltaEnvironmentError: No package with a metastore client is installed.
    """
    from pydelta.tools.ui.sources import Sources, named_place, open_catalog
    from pydelta.tools.ui.watch import Watched

    tables, folders, databases = where
    if not any((*where, metastore, streams, given["services"], given["schedules"], given["engines"])):
        raise InvalidArgumentError(
            "No tables to show were given.",
            hint="Give locations of tables, --folder, --database or --metastore: pydelta ui --folder /data",
        )
    for text in tables:
        named_place(text)
    catalog = None
    if metastore or databases:
        address = metastore or os.environ.get(METASTORE_VARIABLE)
        catalog = open_catalog(address, databases, options, given["patience"])
    return Watched(
        sources=Sources(tables=tables, folders=folders, options=options),
        catalog=catalog,
        checkpoints=streams,
        **given,
    )
