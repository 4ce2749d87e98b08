"""Check a table's database: its default collation, and whether its files may be deleted before tables are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydelta.engines.spark.catalog.entries import drop_table
from pydelta.engines.spark.catalog.file_rights import check_may_delete
from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings
from pydelta.errors import UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.storage.kinds import kind_of
from pydelta.storage.uris import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drop_managed_tables", "is_on_objects", "refuse_default_collation"]

_BYTES: Final = "UTF8_BINARY"


def is_on_objects(spark: SparkSession, database: str) -> bool:
    """Return whether a database of the session catalog exists and is in an object store.

    A metastore deletes there with its own key and reports a missing permission only in its log.
    """
    catalog = Jvm.of(spark).catalog
    if not bool(catalog.databaseExists(database)):
        return False
    location = str(catalog.getDatabaseMetadata(database).locationUri())
    return not kind_of(scheme_of(location)).folders


def refuse_default_collation(spark: SparkSession, parts: Sequence[str], given: str | None = None) -> None:
    """Refuse a default collation other than bytewise comparison for a new table.

    Args:
        spark: The session.
        parts: The table's name in the session catalog. A path is in no database.
        given: The collation in DEFAULT COLLATION; None for that of the database.

    Raises:
        UnsupportedFeatureError: The table's strings would have another collation.
    """
    catalog = Jvm.of(spark).catalog
    database = parts[-2] if len(parts) > 1 else str(catalog.getCurrentDatabase())
    if given is None and catalog.databaseExists(database):
        default = catalog.getDatabaseMetadata(database).properties().get("collation")
        given = str(default.get()) if default.isDefined() else None
    if given is not None and given.upper() != _BYTES:
        raise UnsupportedFeatureError(
            f"Texts of {'.'.join(parts)} would have the collation {given}, which no table feature of the released "
            "protocol keeps.",
            features=("collations",),
            hint=f"Write DEFAULT COLLATION {_BYTES}, and COLLATE in the queries that compare strings.",
            condition=Condition.of("UNSUPPORTED_FEATURE.TABLE_OPERATION", operation="default collation"),
        )


def drop_managed_tables(spark: SparkSession, database: str) -> list[str]:
    """Drop the managed Delta tables of a database with their files; all of them or none.

    Returns:
        Their names.

    Raises:
        StoragePermissionError: This key may not delete the files of a table. Nothing was dropped.
    """
    jvm = Jvm.of(spark)
    identifiers = jvm.to_list(jvm.catalog.listTables(database))
    names = [(database, str(identifier.table())) for identifier in identifiers]
    entries = {name: look_up(spark, name) for name in names}
    managed = {name: entry for name, entry in entries.items() if isinstance(entry, DeltaEntry) and entry.managed}
    for name, entry in managed.items():
        check_may_delete(entry.location, SessionSettings.of(spark).options, name=".".join(name))
    for name in managed:
        drop_table(spark, name, if_exists=True)
    return [".".join(name) for name in managed]
