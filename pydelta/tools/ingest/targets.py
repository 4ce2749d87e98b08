"""Open the tables and the checkpoint of a stream's job, and sum up the results of its batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydelta.commands.write.command import WriteMode
from pydelta.engines.arrow.text_source import refuse_overlap
from pydelta.engines.spark.catalog.lookup import DeltaEntry, location_in, look_up, parse_identifier
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import SessionSettings, log_for_path
from pydelta.engines.spark.write.command import WriteRequest, save_as_table, write_path
from pydelta.errors import TableAlreadyExistsError
from pydelta.storage import Store, open_store
from pydelta.storage.rights import require_rights
from pydelta.tools.ingest.apply import Writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pydelta.tools.ingest.running import BatchReport

__all__ = ["Totals", "has_batch", "open_checkpoint", "place_of_bad", "prepare_table"]

_BAD: Final = (
    "value BINARY, key BINARY, source STRING, partition INT, offset BIGINT, record_time TIMESTAMP, reason STRING, "
    "found_at TIMESTAMP, batch BIGINT"
)


def open_checkpoint(spark: SparkSession, location: str) -> tuple[str, Store]:
    """Return the qualified location of a checkpoint, and its store.

    Raises:
        StoragePermissionError: The session's key may not write, read, list or delete there. Spark does so at each
            batch, and would only fail after the table was created.
    """
    qualified = Jvm.of(spark).qualify(location)
    options = SessionSettings.of(spark).options
    store = open_store(qualified, options)
    require_rights(store, "the stream's checkpoint", {**os.environ, **options})
    return qualified, store


def prepare_table(spark: SparkSession, table: str, columns: StructType, writing: Writing) -> Writing:
    """Find a table by its location or name, and create an empty one if needed.

    Args:
        spark: The session.
        table: A location, or a name in the catalog.
        columns: Columns of a table to create.
        writing: How the stream writes.

    Returns:
        The same settings with locations.

    Raises:
        InvalidArgumentError: Bad records would go to the table itself.
        TableAlreadyExistsError: The name belongs to something that is not a Delta table.
    """
    request = WriteRequest(mode=WriteMode.IGNORE, partition_by=writing.partition_by)
    location = location_in(table)
    if location is not None:
        location = Jvm.of(spark).qualify(location)
        if not log_for_path(spark, location).table_exists():
            write_path(spark, spark.createDataFrame([], columns), location, request)
    else:
        location = _named(spark, table, columns, request)
    if writing.bad_records is None:
        return replace(writing, location=location)
    return replace(writing, location=location, bad_records=place_of_bad(spark, writing.bad_records, location, _BAD))


def place_of_bad(spark: SparkSession, place: str, table: str | None, columns: StructType | str) -> str:
    """Return the location of the table for rows that do not fit. A table given by name is created if needed.

    Args:
        spark: The session.
        place: A location, or a name in the catalog.
        table: Location of the table for the other rows; None if there is none yet.
        columns: Columns of a table to create.

    Raises:
        InvalidArgumentError: Both are the same table, or one is inside the other.
        TableAlreadyExistsError: The name belongs to something that is not a Delta table.
    """
    location = location_in(place)
    if location is not None:
        location = Jvm.of(spark).qualify(location)
    else:
        location = _named(spark, place, columns, WriteRequest(mode=WriteMode.IGNORE))
    if table is not None:
        refuse_overlap(location, table)
    return location


def _named(spark: SparkSession, table: str, columns: StructType | str, request: WriteRequest) -> str:
    """Return the location of a named table, creating an empty one if needed."""
    entry = look_up(spark, parse_identifier(spark, table))
    if entry is None:
        save_as_table(spark, spark.createDataFrame([], columns), table, request)
        entry = look_up(spark, parse_identifier(spark, table))
    if not isinstance(entry, DeltaEntry):
        raise TableAlreadyExistsError(
            f"{table} exists and is not a Delta table.", hint="Choose another name, or drop it first."
        )
    return Jvm.of(spark).qualify(entry.location)


def has_batch(spark: SparkSession, locations: Sequence[str | None], query: str, batch: int) -> bool:
    """Return whether any of the tables already has a batch of a query."""
    for location in filter(None, locations):
        log = log_for_path(spark, Jvm.of(spark).qualify(location))
        found = log.update().set_transactions.get(query) if log.table_exists() else None
        if found is not None and found.version >= batch:
            return True
    return False


@dataclass(slots=True)
class Totals:
    """The summed results of the batches of a run."""

    batches: int = 0
    rows: int = 0
    written: int = 0
    bad: int = 0
    tombstones: int = 0
    superseded: int = 0
    suppressed: int = 0

    def add(self, batch: BatchReport) -> dict[str, Any]:
        """Add the result of a batch, and return its report line."""
        counts = batch.counts
        self.batches += 1
        for name in ("rows", "written", "bad", "tombstones", "superseded", "suppressed"):
            setattr(self, name, getattr(self, name) + getattr(counts, name))
        line: dict[str, Any] = {
            "batch": batch.number,
            "rows": counts.rows,
            "written": counts.written,
            "bad": counts.bad,
        }
        for name in ("tombstones", "superseded", "suppressed"):
            if getattr(counts, name):
                line[name] = getattr(counts, name)
        for name in ("inserted", "updated", "deleted", "version"):
            if getattr(counts, name) is not None:
                line[name] = getattr(counts, name)
        if counts.landed_before:
            line["landed_before"] = True
        return {**line, "seconds": batch.seconds}

    def line(self) -> dict[str, Any]:
        """Return the sums as a report line."""
        names = ("batches", "rows", "written", "bad", "tombstones", "superseded")
        more = {"suppressed": self.suppressed} if self.suppressed else {}
        return {name: getattr(self, name) for name in names} | more
