"""Read tables through the stack's Iceberg REST catalog: PyIceberg asks it, and reads the files from the run's store."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from catalog_sync.names import TableName

if TYPE_CHECKING:
    from pydelta.storage import Store

__all__ = ["RestCatalogError", "RestReader"]

_SECONDS: Final = 30.0
_HINT: Final = "make status, make logs SERVICE=iceberg; make up PROFILES=iceberg starts it again"


class RestCatalogError(Exception):
    """A request that the REST catalog refused or did not answer, with its message.

    Args:
        message: The error message.
        hint: What to do next.
    """

    def __init__(self, message: str, hint: str | None = _HINT) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class RestReader:
    """A client of a REST catalog.

    Args:
        address: ``host:port``.
        token: Token of a user who may read.
    """

    address: str
    token: str = field(repr=False)

    def rows(self, table: TableName, store: Store, folder: str) -> pl.DataFrame:
        """Read a table's rows.

        Args:
            table: Name of the Delta table, which the catalog shows under the same name.
            store: Store of the table's folder.
            folder: URI of that folder, as Iceberg's metadata has it.

        Raises:
            RestCatalogError: The catalog refuses, does not know the table, or does not answer.
        """
        from pyiceberg.catalog.rest import RestCatalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError

        try:
            catalog = RestCatalog("stack", uri=f"http://{self.address}", token=self.token)
            found = catalog.load_table((table.database, table.name))
        except (RESTError, NoSuchNamespaceError, NoSuchTableError, OSError) as error:
            raise RestCatalogError(f"The REST catalog at {self.address} does not give {table}: {error}") from error
        found.io = _file_io(store, folder)
        rows = pl.from_arrow(found.scan().to_arrow())
        assert isinstance(rows, pl.DataFrame)
        return rows

    def status_without_token(self) -> int:
        """Return the HTTP status of a request that has no token.

        Raises:
            RestCatalogError: The catalog does not answer.
        """
        try:
            with urllib.request.urlopen(f"http://{self.address}/v1/config", timeout=_SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise RestCatalogError(f"The REST catalog at {self.address} does not answer: {reason}") from error


def _file_io(store: Store, folder: str) -> Any:
    """Build PyIceberg's access to the files of a table from a store, which may be one that PyIceberg does not know."""
    from pyiceberg.io import FileIO, InputFile

    from pydelta.manifests.iceberg.manifests import BytesInput

    class Files(FileIO):
        def new_input(self, location: str) -> InputFile:
            return BytesInput(location, store.read(location.removeprefix(f"{folder}/")))

        def new_output(self, location: str) -> Any:
            raise NotImplementedError(f"{location} is only read.")

        def delete(self, location: Any) -> None:
            raise NotImplementedError(f"{location} is only read.")

    return Files()
