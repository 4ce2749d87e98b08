"""Give the page of pydelta ui the tables in the metastore and the state of their twins. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog_sync.iceberg.status import IcebergStatus, iceberg_status
from catalog_sync.inspect import sync_status
from catalog_sync.names import TableName, iceberg_name, twin_name
from catalog_sync.native import native_is_behind
from catalog_sync.registered import registered_locations
from catalog_sync.targets import spark_scheme
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.settings.clock import Deadline, epoch_ms

__all__ = ["WatchedMetastore", "open_catalog"]


class WatchedMetastore:
    """The tables of a metastore's databases and their twins. Safe to use from several threads.

    Args:
        connect: Opens a connection, one per request.
        databases: Databases to show, or empty for all.
        rule: Naming rule of twins, see ``twin_name``.
        iceberg_rule: Naming rule of Iceberg entries, see ``iceberg_name``.
    """

    def __init__(
        self,
        connect: Callable[[], Metastore],
        databases: Sequence[str],
        rule: str,
        iceberg_rule: str = "{database}_iceberg",
    ) -> None:
        self._connect = connect
        self._databases = databases
        self._rule = rule
        self._iceberg_rule = iceberg_rule

    def tables(self) -> Mapping[str, str]:
        """Map the name of each registered Delta table to its location.

        Raises:
            MetastoreError, MetastoreUnavailableError: The metastore does not answer, or has no such database.
        """
        with self._connect() as metastore:
            found = registered_locations(metastore, self._databases or None)
        return {name: spark_scheme(location) for name, location in found.items()}

    def twin(self, name: str, log: DeltaLog) -> Mapping[str, Any]:
        """Return the state of a table's twin and of its other entries, as ``catalog_sync status`` shows them.

        Raises:
            StorageError, MetastoreError, MetastoreUnavailableError: The store or the metastore does not answer.
        """
        native = TableName.parse(name)
        beside = iceberg_name(native, self._iceberg_rule)
        with self._connect() as metastore:
            found = sync_status(log, metastore, twin_name(native, self._rule), now_ms=epoch_ms())
            iceberg = iceberg_status(log, metastore, beside, now_ms=epoch_ms())
            entry = metastore.table(native.database, native.name)
        return {
            "name": found.twin,
            "state": found.state.value,
            "manifest_version": found.manifest_version,
            "metastore_version": found.metastore_version,
            "lag_versions": found.lag_versions,
            "lag_seconds": found.lag_seconds,
            "problem": found.problem,
            "iceberg": None if iceberg is None else _shown(iceberg),
            "native_behind": native_is_behind(entry, log.update()),
        }


def _shown(iceberg: IcebergStatus) -> Mapping[str, Any]:
    return {
        "name": iceberg.name,
        "state": iceberg.state.value,
        "version": iceberg.version,
        "lag_versions": iceberg.lag_versions,
        "lag_seconds": iceberg.lag_seconds,
        "problem": iceberg.problem,
    }


def open_catalog(
    address: str | None, databases: Sequence[str], options: Mapping[str, str], seconds: float
) -> WatchedMetastore:
    """Create the catalog for the entry point ``pydelta.catalogs``, without connecting yet.

    Args:
        address: ``thrift://host:9083``, or None for PYDELTA_METASTORE.
        databases: Databases to show, or empty for all.
        options: Storage options, which a metastore does not use.
        seconds: Time limit of one request.

    Raises:
        InvalidArgumentError: The address is missing or invalid.
    """
    del options
    settings = Settings.resolve()
    place = MetastoreAddress.parse(address or settings.sync_metastore)
    return WatchedMetastore(
        lambda: Metastore(place, deadline=Deadline(seconds)), databases, settings.sync_name, settings.sync_iceberg_name
    )
