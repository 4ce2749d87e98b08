"""Give the page of pydelta ui the tables in the metastore and the state of their twins. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog_sync.inspect import sync_status
from catalog_sync.names import TableName, twin_name
from catalog_sync.registered import registered_locations
from catalog_sync.targets import spark_scheme
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.settings.clock import Deadline, epoch_ms

__all__ = ["WatchedMetastore", "open_catalog"]


class WatchedMetastore:
    """The tables of a metastore's databases and their twins; safe to use from several threads.

    Args:
        connect: Opens a connection; each question has one of its own.
        databases: Those that are shown; empty for all.
        rule: How twins are named, see ``twin_name``.
    """

    def __init__(self, connect: Callable[[], Metastore], databases: Sequence[str], rule: str) -> None:
        self._connect = connect
        self._databases = databases
        self._rule = rule

    def tables(self) -> Mapping[str, str]:
        """Return the location of each registered Delta table by its name.

        Raises:
            MetastoreError, MetastoreUnavailableError: It does not answer, or has no such database.
        """
        with self._connect() as metastore:
            found = registered_locations(metastore, self._databases or None)
        return {name: spark_scheme(location) for name, location in found.items()}

    def twin(self, name: str, log: DeltaLog) -> Mapping[str, Any]:
        """Return what ``catalog_sync status`` says of a table's twin.

        Raises:
            StorageError, MetastoreError, MetastoreUnavailableError: One of them does not answer.
        """
        twin = twin_name(TableName.parse(name), self._rule)
        with self._connect() as metastore:
            found = sync_status(log, metastore, twin, now_ms=epoch_ms())
        return {
            "name": found.twin,
            "state": found.state.value,
            "manifest_version": found.manifest_version,
            "metastore_version": found.metastore_version,
            "lag_versions": found.lag_versions,
            "lag_seconds": found.lag_seconds,
            "problem": found.problem,
        }


def open_catalog(
    address: str | None, databases: Sequence[str], options: Mapping[str, str], seconds: float
) -> WatchedMetastore:
    """Answer to the entry point ``pydelta.catalogs``; nothing is asked of the metastore yet.

    Args:
        address: ``thrift://host:9083``; None for what PYDELTA_METASTORE says.
        databases: Whose tables are shown; empty for all.
        options: Storage options; a metastore needs none.
        seconds: How long one question may take.

    Raises:
        InvalidArgumentError: There is no address, or it cannot be read.
    """
    del options
    settings = Settings.resolve()
    place = MetastoreAddress.parse(address or settings.sync_metastore)
    return WatchedMetastore(lambda: Metastore(place, deadline=Deadline(seconds)), databases, settings.sync_name)
