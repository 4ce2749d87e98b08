"""Find the Delta tables in a metastore and their locations, for jobs over many tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from catalog_sync.names import TableName
from catalog_sync.native import databases_of, native_location, native_tables
from catalog_sync.thrift.client import ENVIRONMENT, Metastore, MetastoreAddress
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.settings import Settings

__all__ = [
    "location_of",
    "metastore_of",
    "named_locations",
    "registered_locations",
    "requested_locations",
    "table_location",
]


def metastore_of(uri: str | None, conf: Mapping[str, str]) -> Metastore | None:
    """Connect to the metastore named by the argument, a setting or the environment. Returns None if none names one.

    Args:
        uri: Address given to a job.
        conf: Settings of the Spark session or of spark-submit.

    Raises:
        InvalidArgumentError: An address is invalid.
    """

    named = uri or Settings.resolve(conf).sync_metastore or os.environ.get(ENVIRONMENT)
    found = named or conf.get("spark.hadoop.hive.metastore.uris") or conf.get("spark.hive.metastore.uris")
    return Metastore(MetastoreAddress.parse(found)) if found else None


def registered_locations(metastore: Metastore, databases: Sequence[str] | None = None) -> dict[str, str]:
    """Map the names of all registered Delta tables, or of those of some databases, to their locations."""
    return {
        str(name): location
        for database in databases_of(metastore, ["*"] if databases is None else databases)
        for name, location in native_tables(metastore, database)
    }


def table_location(metastore: Metastore | None, name: str) -> str:
    """Return the location of a table.

    Raises:
        InvalidArgumentError: There is no metastore to ask.
        TableNotFoundError: The metastore has no Delta table of that name.
    """
    if metastore is None:
        raise InvalidArgumentError(
            f"{name} is a name, but there is no metastore to look it up in.",
            hint="Give the table's location, or --metastore thrift://host:9083.",
        )
    table = TableName.parse(name)
    entry = metastore.table(table.database, table.name)
    location = native_location(entry) if entry is not None else None
    if location is None:
        raise TableNotFoundError(
            f"The metastore has no Delta table {table}.", hint="Check the name, or give the table's location."
        )
    return location


def location_of(metastore: Metastore | None, text: str) -> str:
    """Return a location unchanged, and for the name of a table its location; see ``table_location``."""
    return text if "/" in text else table_location(metastore, text)


def requested_locations(
    metastore: Metastore | None, tables: Iterable[str], databases: Sequence[str] | None = ()
) -> dict[str, str]:
    """Map the tables that a job was given to their locations, by the names that they were given.

    Args:
        metastore: The metastore; None if there is none.
        tables: Locations, and names in the metastore.
        databases: Databases, all of whose Delta tables are meant; None for all, empty for none.

    Raises:
        InvalidArgumentError: A name or a database was given, and there is no metastore.
        TableNotFoundError: The metastore has no Delta table of a name.
    """
    found = {text: location_of(metastore, text) for text in tables}
    if databases is None or databases:
        if metastore is None:
            raise InvalidArgumentError(
                "--database and --all-databases need a metastore, and there is none.",
                hint="Give --metastore or locations.",
            )
        found |= registered_locations(metastore, databases)
    return found


def named_locations(items: Iterable[str]) -> dict[str, str]:
    """Read ``NAME=LOCATION`` arguments.

    Raises:
        InvalidArgumentError: An argument has another form.
    """
    found = {}
    for item in items:
        name, equals, location = item.partition("=")
        if not equals or not name or not location:
            raise InvalidArgumentError(
                f"{item!r} is not of the form NAME=LOCATION.", hint="Write it as lake.orders=s3a://b/orders."
            )
        found[name] = location
    return found
