"""Read the options of ``catalog_sync serve``, and start the REST catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from catalog_sync.rest.routes import Namespace
from catalog_sync.thrift.client import Metastore
from pydelta.api.console.command_line import NoLogin, StorageOptions, storage_options
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.settings import Settings
from pydelta.settings.clock import Deadline

if TYPE_CHECKING:
    from catalog_sync.rest.application import ServedTables

__all__ = ["add_serve"]

_PATIENCE_SECONDS = 20.0
_Many = list[str] | None


def add_serve(app: typer.Typer, connect: Callable[..., Metastore]) -> None:
    """Add the command to an application.

    Args:
        app: The application.
        connect: Connects to a metastore, as for the other commands.
    """

    @app.command()
    def serve(
        named: Annotated[
            _Many, typer.Argument(metavar="[NAMESPACE.TABLE=LOCATION]...", help="Tables to serve without a metastore.")
        ] = None,
        folder: Annotated[
            _Many, typer.Option("--folder", help="A folder, whose subfolders are served as tables of its name.")
        ] = None,
        database: Annotated[
            _Many, typer.Option("--database", "-d", help="Serve only the tables of this database; several with commas.")
        ] = None,
        host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option("--port", help="The port to listen on.")] = 8181,
        users: Annotated[
            str | None,
            typer.Option("--users", metavar="FILE", help="Users who may read: lines of name:token."),
        ] = None,
        no_login: NoLogin = False,
        metastore: Annotated[
            str | None, typer.Option("--metastore", help="thrift://host:9083; by default PYDELTA_METASTORE.")
        ] = None,
        tls: Annotated[bool, typer.Option("--tls", help="Use TLS to the metastore.")] = False,
        ca: Annotated[str | None, typer.Option("--ca", help="PEM file of the certificates to trust.")] = None,
        kerberos: Annotated[
            str | None, typer.Option("--kerberos", help="Service name of the metastore's principal, such as hive.")
        ] = None,
        option: StorageOptions = None,
    ) -> None:
        """Answer readers of Iceberg as a small read-only REST catalog.

        It serves the Iceberg entries of the metastore; or, given tables or folders, the Iceberg metadata in them.
        """
        try:
            from catalog_sync.rest.command import serve_catalog
        except ModuleNotFoundError as error:
            raise DeltaEnvironmentError(
                f"The catalog needs a package that is not installed: {error.name}.",
                hint="pip install 'pydelta-lakehouse[ui]'",
            ) from error
        from pydelta.api.console.addresses import Addresses
        from pydelta.api.console.guard import Guard

        how = {"tls": tls, "ca": ca, "kerberos": kerberos}
        tables = _served(named, folder, database, metastore, storage_options(option), lambda uri: connect(uri, **how))
        serve_catalog(tables, Addresses(host=host, page=port, no_login=no_login), Guard.read(users, None, None))


def _served(
    named: _Many,
    folders: _Many,
    databases: _Many,
    metastore: str | None,
    options: dict[str, str],
    connect: Callable[[str | None], Metastore],
) -> ServedTables:
    """Return the tables that the options name.

    Raises:
        InvalidArgumentError: Tables and a metastore were given, or an address or a name is invalid.
    """
    from catalog_sync.rest.tables import FolderTables, MetastoreTables, parse_named_table

    if named or folders:
        if metastore or databases:
            raise InvalidArgumentError(
                "Tables or folders were given, and a metastore too.", hint="Serve one or the other."
            )
        found: list[tuple[Namespace, str, str]] = [parse_named_table(text) for text in named or []]
        return FolderTables(found, folders or [], options)
    names = [part.strip() for text in databases or [] for part in text.split(",") if part.strip()]
    connect(metastore)  # An invalid address is reported at the start.

    def opened() -> Metastore:
        client = connect(metastore)
        client.deadline = Deadline(_PATIENCE_SECONDS)
        return client

    return MetastoreTables(
        opened, [name for name in names if name != "*"], Settings.resolve().sync_iceberg_name, options
    )
