"""Merge small files of old partitions into large ones: ``spark-submit jobs/compact.py --table … --older-than 7``.

``--database`` compacts every Delta table of a database in the metastore. A table that fails does not stop the others.

Age is decided by a partition column of type date, if there is one, otherwise by the files' modification times. One line
of JSON on standard output reports the result. Run it as often as you like: compacted partitions are not touched. Exit
codes: 0 done (even if there was nothing to do); 1 the arguments are wrong; 2 another writer changed the same files or
the store failed temporarily: run it again; 3 the outcome is unknown: look at the history first.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pydelta.commands.optimize.command import Optimize
from pydelta.commands.run import Context
from pydelta.commands.run import run as run_command
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.log import Snapshot
from pydelta.settings import Settings, parse_bytes
from pydelta.tools.jobs import JobParser, JobReport, error_row, listed, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Age", "CompactResult", "main", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """The result of a compaction. ``version`` is None if there was nothing to do. Sizes are in bytes.

    ``older_than`` is the first day or time that was left alone, and ``by`` is the value that was compared with it.
    """

    table: str
    version: int | None
    by: str | None
    older_than: str | None
    partitions: int
    files_considered: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The criterion for a table's old data: a condition over partitions, or the times of files (epoch ms)."""

    by: str | None = None
    older_than: str | None = None
    condition: str | None = None
    modified_before_ms: int | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, *, days: int | None, now: dt.datetime, zone: str) -> Age:
        """Choose the criterion for a table. Pure.

        Args:
            snapshot: The newest version of the table.
            days: Minimum age in whole days; None for no limit.
            now: The current time, with a zone.
            zone: The session's time zone, in which days begin at midnight.
        """
        if days is None:
            return cls()
        for name in snapshot.partition_columns:
            field = snapshot.schema.field(name)
            if field is not None and str(field.data_type) == "date":
                day = (now.astimezone(ZoneInfo(zone)).date() - dt.timedelta(days=days)).isoformat()
                quoted = "`" + name.replace("`", "``") + "`"
                return cls(by=f"partition {name}", older_than=day, condition=f"{quoted} < DATE'{day}'")
        moment = now - dt.timedelta(days=days)
        text = moment.astimezone(dt.UTC).isoformat(timespec="milliseconds")
        return cls(by="modification time", older_than=text, modified_before_ms=int(moment.timestamp() * 1000))


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="compact.py", description=__doc__)
    named = parser.add_mutually_exclusive_group(required=True)
    named.add_argument("--table", metavar="PATH_OR_NAME", help="a location, or a name in the catalog")
    named.add_argument(
        "--database", metavar="NAME", help="every Delta table of it in the metastore; several with commas, * for all"
    )
    parser.share("--metastore")
    parser.add_argument(
        "--older-than", type=int, metavar="DAYS", help="leave newer data alone; by default, compact all"
    )
    parser.add_argument(
        "--max-files-per-partition",
        type=int,
        default=1000,
        metavar="N",
        help="compact at most this many files of a partition in one run, the smallest first (1000)",
    )
    parser.share("--where")
    parser.add_argument(
        "--small-below",
        metavar="SIZE",
        help="compact files smaller than this, such as 32mb; by default, OPTIMIZE's target",
    )
    parser.add_argument("--target", metavar="SIZE", help="size of new files; by default that of OPTIMIZE")
    parser.add_argument(
        "--modified-before", type=int, metavar="MS", help="compact files older than this, epoch milliseconds"
    )
    parser.add_argument("--zorder-by", metavar="COLUMNS", help="order rows by these columns: a,b")
    return parser


def run(spark: SparkSession, args: Sequence[str], *, now: dt.datetime | None = None) -> CompactResult:
    """Compact what the arguments name.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.
        now: The current time; the clock's by default.

    Raises:
        InvalidArgumentError: Invalid arguments, or a condition over a column that is not a partition column.
        TableNotFoundError: The Delta table does not exist.
        DeltaError: See ``optimize``.
    """
    from pydelta.engines.spark.catalog.lookup import location_in
    from pydelta.engines.spark.engine import SparkEngine
    from pydelta.engines.spark.logs import settings_of
    from pydelta.tables import DeltaTable

    options = arguments().parse_args(args)
    for flag, value, least in (
        ("--older-than", options.older_than, 0),
        ("--max-files-per-partition", options.max_files_per_partition, 2),
    ):
        if value is not None and value < least:
            raise InvalidArgumentError(f"{flag} is {value}.", hint=f"Give a whole number, {least} or more.")
    path = location_in(options.table)
    table = DeltaTable.forPath(spark, path) if path is not None else DeltaTable.forName(spark, options.table)
    log, engine = table._log, SparkEngine(spark)
    moment = now or dt.datetime.now(dt.UTC)
    age = Age.of(log.update(), days=options.older_than, now=moment, zone=engine.time_zone())
    conditions = [f"({text})" for text in (options.where, age.condition) if text is not None]
    limits = [limit for limit in (age.modified_before_ms, options.modified_before) if limit is not None]
    command = Optimize(
        condition=" AND ".join(conditions) or None,
        zorder_by=listed(options.zorder_by) or (),
        max_files_per_partition=options.max_files_per_partition,
        modified_before_ms=min(limits, default=None),
    )
    result = run_command(command, Context(log, engine, settings=_sized(settings_of(spark), options)))
    return CompactResult(
        table=options.table,
        version=result.version,
        by=age.by,
        older_than=age.older_than,
        partitions=result.num_partitions,
        files_considered=result.num_considered,
        files_removed=len(result.removed),
        files_added=len(result.added),
        bytes_removed=sum(add.size for add in result.removed),
        bytes_added=sum(add.size for add in result.added),
    )


def _sized(settings: Settings, options: argparse.Namespace) -> Settings:
    """Return the session's settings with the sizes from the arguments."""
    small, target = options.small_below, options.target
    if small is not None:
        settings = replace(settings, optimize_min_file_bytes=parse_bytes(small, name="--small-below"))
    if target is not None:
        settings = replace(settings, optimize_max_file_bytes=parse_bytes(target, name="--target"))
    return settings


def run_database(spark: SparkSession, args: Sequence[str], *, now: dt.datetime | None = None) -> list[dict[str, Any]]:
    """Compact every Delta table of a database, one after the other.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line, with ``--database``.
        now: The current time; the clock's by default.

    Raises:
        InvalidArgumentError: Invalid arguments, or there is no metastore.
    """
    from catalog_sync.registered import metastore_of, registered_locations
    from pydelta.engines.spark.jvm import Jvm

    options = arguments().parse_args(args)
    jvm = Jvm.of(spark)
    metastore = metastore_of(options.metastore, {**jvm.session_conf(), **jvm.hadoop_options()})
    if metastore is None:
        raise InvalidArgumentError(
            "--database needs a metastore, and there is none.", hint="Give --metastore thrift://host:9083, or --table."
        )
    with metastore:
        tables = registered_locations(metastore, [options.database])
    rest = [f"--max-files-per-partition={options.max_files_per_partition}"]
    rest += [f"--older-than={options.older_than}"] if options.older_than is not None else []
    for name in ("where", "small_below", "target", "modified_before", "zorder_by"):
        value = getattr(options, name)
        rest += [f"--{name.replace('_', '-')}={value}"] if value is not None else []
    rows: list[dict[str, Any]] = []
    for name, location in sorted(tables.items()):
        try:
            rows.append(asdict(run(spark, [f"--table={location}", *rest], now=now)) | {"table": name})
        except DeltaError as error:
            rows.append({"table": name} | error_row(error))
    return rows


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    spark = pydelta.session(app_name="compact")
    if arguments().parse_args(given).database is not None:
        return JobReport.of_rows("tables", run_database(spark, given))
    return JobReport(line=asdict(run(spark, given)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
