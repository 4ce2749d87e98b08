"""Find the table that a name, a path or a view refers to, and resolve the name of a new one."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from pydelta.api.sql.view_targets import shown_table
from pydelta.engines.spark.catalog.entries import create_entry, note_difference, session_identifier
from pydelta.engines.spark.catalog.lookup import (
    DeltaEntry,
    ViewEntry,
    location_of,
    look_up,
    parse_identifier,
    split_path_identifier,
)
from pydelta.engines.spark.catalog.objects import check_new_name
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.errors import InvalidArgumentError, TableNotFoundError
from pydelta.errors.conditions import Condition
from pydelta.log import DeltaLog

__all__ = [
    "clone_target",
    "log_for_name",
    "register_table",
    "resolve_target",
]


def log_for_name(spark: SparkSession, name: str) -> DeltaLog:
    """Return the log of a table in the catalog, of a view that shows one whole, or of ``delta.`/path` ``."""
    entry = look_up(spark, parse_identifier(spark, name))
    behind = shown_table(spark, entry) if isinstance(entry, ViewEntry) else None
    log = log_for_path(spark, behind or location_of(spark, name))
    if isinstance(entry, DeltaEntry) and not log.table_exists():
        raise TableNotFoundError(
            f"{name} points to {log.uri}, where there is no Delta table.",
            hint="Its files were deleted: drop the entry with DROP TABLE, or point it to an existing table."
            if not entry.by_path
            else "Check the path.",
            table=log.uri,
        )
    if isinstance(entry, DeltaEntry):
        note_difference(entry, log.update())
    return log


def resolve_target(spark: SparkSession, name: str | None, location: str | None) -> tuple[str | None, str | None]:
    """Turn a builder's name and location into (catalog name or None, location or None)."""
    if name is None:
        return None, location
    path = split_path_identifier(name)
    if path is not None:
        if location is not None and location != path:
            raise InvalidArgumentError(
                f"The table is named by its path {path!r}, but location says {location!r}.",
                hint="Give one of the two.",
                condition=Condition.of(
                    "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH", identifier=path, location=location
                ),
            )
        return None, path
    jvm = Jvm.of(spark)
    if location is None:
        check_new_name(jvm, session_identifier(jvm, parse_identifier(spark, name)))
    return name, location or jvm.default_location(name)


def clone_target(spark: SparkSession, target: str) -> tuple[str | None, str]:
    """Return the name (or None) and location of a clone; an absolute path or URI is a location, anything else a name.

    A name that the catalog already has resolves to its table's location.
    """
    if target.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", target):
        return None, Jvm.of(spark).qualify(target)
    name, location = resolve_target(spark, target, None)
    if name is not None and spark.catalog.tableExists(name):
        return name, location_of(spark, name)
    assert location is not None
    return name, location


def register_table(spark: SparkSession, name: str, log: DeltaLog) -> None:
    """Create a catalog entry that points at the table, unless one exists."""
    create_entry(spark, parse_identifier(spark, name), log.update())
