"""Drop or rename a table's twin in the session's catalog together with the table.

The twin is the entry over symlink manifests that ``catalog_sync`` creates for Trino and Presto. Only the table's own
twin, identified by location and id, is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydelta.engines.spark.catalog.lookup import DeltaEntry, look_up
from pydelta.engines.spark.catalog.objects import table_identifier, text_map
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.errors import DeltaError
from pydelta.manifests.native_entry import ID_KEY, twin_database
from pydelta.storage.uris import normalize_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drop_twin", "rename_twin"]

_log = logging.getLogger(__name__)


def drop_twin(spark: SparkSession, parts: Sequence[str], location: str) -> bool:
    """Drop the twin of a dropped table, if it has its own.

    Args:
        spark: The session.
        parts: The table's name, with its database.
        location: The table's current or former location.

    Returns:
        Whether there was one.
    """
    name = _twin_of(spark, parts, location)
    if name is None:
        return False
    jvm = Jvm.of(spark)
    catalog = jvm.catalog
    identifier = table_identifier(jvm, *name)
    catalog.invalidateCachedTable(identifier)
    catalog.dropTable(identifier, True, False)
    return True


def rename_twin(spark: SparkSession, old: Sequence[str], new: Sequence[str], location: str, *, moved: bool) -> bool:
    """Rename the twin of a renamed table.

    If the new name is taken, or if the table's files moved, the old twin is dropped and the next sync creates a new
    one.

    Args:
        spark: The session.
        old: The table's former name, with its database.
        new: Its new name.
        location: The location under the old name, where the twin's manifests are.
        moved: Whether the files moved, so that the manifests name missing files.

    Returns:
        Whether there was one.
    """
    name = _twin_of(spark, old, location)
    if name is None:
        return False
    jvm = Jvm.of(spark)
    catalog = jvm.catalog
    source, target = table_identifier(jvm, *name), table_identifier(jvm, name[0], new[-1])
    catalog.invalidateCachedTable(source)
    if moved or catalog.tableExists(target):
        catalog.dropTable(source, True, False)
    else:
        catalog.renameTable(source, target)
    return True


def _twin_of(spark: SparkSession, parts: Sequence[str], location: str) -> tuple[str, str] | None:
    """Return database and name of a table's own twin; None if it has none."""
    database = twin_database(settings_of(spark).sync_name, parts[-2])
    if not database or database == parts[-2].lower():
        return None
    found = look_up(spark, (database, parts[-1]))
    if not isinstance(found, DeltaEntry) or not found.twin or normalize_uri(found.location) != normalize_uri(location):
        return None
    try:
        metadata = log_for_path(spark, location).update().metadata
    except DeltaError as error:
        _log.warning("%s.%s stays: its table is not known (%s)", database, parts[-1], error.message)
        return None
    its_id = text_map(Jvm.of(spark), found.table.properties()).get(ID_KEY)
    if metadata is not None and metadata.id != its_id:
        _log.warning("%s.%s stays: it is the twin of an earlier table at %s", database, parts[-1], location)
        return None
    return database, parts[-1]
