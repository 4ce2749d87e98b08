"""Run VACUUM and FSCK in a Spark session: a query as the inventory, the session's retention check, DataFrames."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from pydelta.api.console.vacuum_display import live_counts, partition_lines, summary_lines
from pydelta.commands.fsck import Fsck, FsckReport
from pydelta.commands.vacuum.command import Vacuum, VacuumResult
from pydelta.commands.vacuum.inventory import Inventory, check_columns
from pydelta.commands.vacuum.inventory_sources import inventory_columns
from pydelta.engines.spark.local_rows import local_frame
from pydelta.engines.spark.logs import settings_of
from pydelta.engines.spark.running import run_in_session
from pydelta.errors import LogCorruptedError
from pydelta.protocol.paths import plain_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.log import DeltaLog

__all__ = ["inventory_of", "run_fsck", "run_vacuum", "vacuum_frame"]

_ROWS_AT_ONCE = 2_000_000
_LOG = logging.getLogger(__name__)


def inventory_of(frame: DataFrame, *, description: str = "The inventory") -> Inventory:
    """Make an inventory of a DataFrame, whose rows reach the driver in slices.

    Spark selects the rows that may lie under the table; the driver holds one slice of them at a time.

    Args:
        frame: A DataFrame with an inventory's columns.
        description: Its name in messages.

    Raises:
        SchemaMismatchError: The columns are not those of an inventory.
    """
    check_columns(_polars_schema(frame), description=description)

    def frames(root: str) -> Iterator[pl.DataFrame]:
        rows = frame.where(_may_lie_under(frame, root))
        slices = 1 + rows.count() // _ROWS_AT_ONCE
        key = F.xxhash64(F.col("path" if "path" in frame.columns else "key"))
        for number in range(slices):
            part = rows if slices == 1 else rows.where(F.pmod(key, F.lit(slices)) == number)
            for batch in part.toArrow().to_batches():
                found: Any = pl.from_arrow(batch)
                yield inventory_columns(found)

    encoded = None if "path" in frame.columns else False
    return Inventory(description=description, frames=frames, encoded=encoded)


def _polars_schema(frame: DataFrame) -> pl.Schema:
    kinds: dict[str, pl.DataType] = {
        "string": pl.String(), "bigint": pl.Int64(), "boolean": pl.Boolean(), "int": pl.Int32(),
        "double": pl.Float64(), "timestamp": pl.Datetime("us", "UTC"), "date": pl.Date(),
    }  # fmt: skip
    return pl.Schema({name: kinds.get(kind, pl.Object()) for name, kind in frame.dtypes})


def _may_lie_under(frame: DataFrame, root: str) -> Any:
    """Return a condition for relative paths and for locations that contain the table's folder in some spelling."""
    folder = plain_root(root).partition("://")[2].partition("/")[2]
    if "path" not in frame.columns:
        return F.col("key").startswith(folder)
    path = F.col("path")
    spelt = path.contains(folder) | path.contains(quote(folder)) | path.contains(quote(folder, safe="/:=+@!$&'()*,;~"))
    return spelt | ~(path.contains("://") | path.rlike(r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"))


def run_vacuum(
    spark: SparkSession,
    log: DeltaLog,
    command: Vacuum,
    *,
    inventory: Inventory | DataFrame | str | None = None,
) -> VacuumResult:
    """Run a VACUUM with the session's settings.

    Args:
        spark: The session, whose ``retentionDurationCheck`` applies.
        log: The table.
        command: What to delete. This function sets its inventory, retention check and progress.
        inventory: An inventory, a DataFrame of one, or the name of a table that holds one.

    Returns:
        What was deleted, or would be. A summary for people is written to standard error.

    Raises:
        DeltaError: As ``Vacuum`` does.
    """
    if isinstance(inventory, str):
        inventory = inventory_of(spark.table(inventory), description=f"The inventory {inventory}")
    listed = inventory if inventory is None or isinstance(inventory, Inventory) else inventory_of(inventory)
    with live_counts() as show:
        checked = settings_of(spark).retention_check
        command = replace(command, inventory=listed, enforce_retention=checked, progress=show)
        result = run_in_session(spark, command, log)
    for text in result.warnings:
        _LOG.warning(text, extra={"table": log.uri})
    for line in [*(partition_lines(result) if command.dry_run else []), *summary_lines(result)]:
        sys.stderr.write(line + "\n")
    return result


def vacuum_frame(spark: SparkSession, result: VacuumResult) -> DataFrame:
    """Return a column ``path``, as the reference engine does: the files of a dry run, otherwise the table."""
    schema = StructType([StructField("path", StringType())])
    if not result.dry_run:
        return local_frame(spark, [(result.root,)], schema)
    root = plain_root(result.root)
    paths = result.files.select(path=pl.lit(root) + pl.col("path")).to_arrow()
    return spark.createDataFrame(paths, schema)


def run_fsck(spark: SparkSession, log: DeltaLog, *, repair: bool) -> DataFrame:
    """Check a table, and repair it if asked to; return the missing files and vectors.

    Args:
        spark: The session.
        log: The table.
        repair: See ``Fsck``.

    Raises:
        LogCorruptedError: The newest version cannot be read.
        And what ``Fsck`` raises.
    """
    report = run_in_session(spark, Fsck(repair=repair), log)
    if report.unreadable is not None:
        raise LogCorruptedError(
            report.unreadable, hint="Run pydelta fsck on it, which lists everything that is wrong.", table=log.uri
        )
    for path, why in (
        *report.damaged_files,
        *report.damaged_vectors,
        *report.unreachable,
        *report.damaged_entry,
    ):
        _LOG.warning("FSCK: %s: %s", path, why, extra={"table": log.uri})
    return _fsck_frame(spark, report)


def _fsck_frame(spark: SparkSession, report: FsckReport) -> DataFrame:
    """List missing files and vectors: ``dataFilePath dataFileMissing deletionVectorFileMissing``."""
    schema = StructType(
        [
            StructField("dataFilePath", StringType()),
            StructField("dataFileMissing", BooleanType()),
            StructField("deletionVectorFileMissing", BooleanType()),
        ]
    )
    missing, hidden = set(report.missing_files), set(report.missing_vectors)
    rows = [(path, path in missing, path in hidden) for path in sorted(missing | hidden)]
    return local_frame(spark, rows, schema)
