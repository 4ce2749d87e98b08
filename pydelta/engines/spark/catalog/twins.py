"""Drop or rename a table's twin and Iceberg entry in the session's catalog together with the table.

``catalog_sync`` creates both: the twin is the entry over symlink manifests for Trino and Presto, and the Iceberg entry
names Iceberg metadata. Only the table's own entries, identified by location and id, are changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.engines.spark.catalog.objects import table_identifier, text_map
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.errors import DeltaError
from pydelta.manifests.native_entry import ID_KEY, METADATA_KEY, RECORDED_KEY, twin_database
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drop_twins", "rename_twins"]

_log = logging.getLogger(__name__)


def drop_twins(spark: SparkSession, parts: Sequence[str], location: str) -> list[tuple[str, str]]:
    """Drop the twin and the Iceberg entry of a dropped table, if it has its own.

    Args:
        spark: The session.
        parts: The table's name, with its database.
        location: The table's current or former location.

    Returns:
        Their names.
    """
    jvm = Jvm.of(spark)
    names = list(_twins_of(spark, parts, location))
    for name in names:
        identifier = table_identifier(jvm, *name)
        jvm.catalog.invalidateCachedTable(identifier)
        jvm.catalog.dropTable(identifier, True, False)
    return names


def rename_twins(
    spark: SparkSession, old: Sequence[str], new: Sequence[str], location: str, *, moved: bool
) -> list[tuple[str, str]]:
    """Rename the twin and the Iceberg entry of a renamed table.

    If the new name is taken, or if the table's files moved, the old entry is dropped and the next sync creates a new
    one.

    Args:
        spark: The session.
        old: The table's former name, with its database.
        new: Its new name.
        location: The location under the old name, where manifests and metadata are.
        moved: Whether the files moved, so that manifests and metadata name missing files.

    Returns:
        Their former names.
    """
    jvm = Jvm.of(spark)
    catalog = jvm.catalog
    names = list(_twins_of(spark, old, location))
    for name in names:
        source, target = table_identifier(jvm, *name), table_identifier(jvm, name[0], new[-1])
        catalog.invalidateCachedTable(source)
        if moved or catalog.tableExists(target):
            catalog.dropTable(source, True, False)
        else:
            catalog.renameTable(source, target)
    return names


def _twins_of(spark: SparkSession, parts: Sequence[str], location: str) -> Iterator[tuple[str, str]]:
    """Yield database and name of a table's own twin and Iceberg entry, if it has them."""
    settings = settings_of(spark)
    for rule in dict.fromkeys((settings.sync_name, settings.sync_iceberg_name)):
        database = twin_database(rule, parts[-2])
        if database and database != parts[-2].lower() and _is_twin(spark, database, parts[-1], location):
            yield database, parts[-1]


def _is_twin(spark: SparkSession, database: str, name: str, location: str) -> bool:
    found = look_up(spark, (database, name))
    if not isinstance(found, DeltaEntry) or not found.twin or normalize_uri(found.location) != normalize_uri(location):
        return False
    try:
        metadata = log_for_path(spark, location).update().metadata
    except DeltaError as error:
        _log.warning("%s.%s stays: its table is not known (%s)", database, name, error.message)
        return False
    properties = text_map(Jvm.of(spark), found.table.properties())
    if metadata is not None and metadata.id != properties.get(ID_KEY):
        _log.warning("%s.%s stays: it is the entry of an earlier table at %s", database, name, location)
        return False
    if properties.get(METADATA_KEY) != properties.get(RECORDED_KEY):
        _log.warning("%s.%s stays: another writer has committed to it", database, name)
        return False
    return True
