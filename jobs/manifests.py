"""Update tables' manifests and metastore entries to the newest version: ``submit manifests lake.orders …``.

On request it first rewrites what readers of manifests cannot read or read slowly: files with deletion vectors
(``--purge``) and partitions with very many files (``--compact-first``).

One line of JSON on standard output reports the result for each table. Exit codes: 0 done; 1 the input is wrong; 2 the
metastore or the store did not answer, or another process was publishing: run it again, as often as you like.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from catalog_sync.entries import sync_entries
from catalog_sync.sync import SyncOptions
from catalog_sync.targets import SyncTarget, TableChoice, find_targets
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.log import DeltaLog, Snapshot
from pydelta.manifests import MANY_FILES
from pydelta.settings import Settings
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "run"]


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="manifests.py", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="DATABASE.TABLE", help="Delta tables in the metastore")
    parser.add_argument("--database", action="append", default=[], help="every Delta table of this database")
    parser.add_argument("--location", metavar="URI", help="a table by its location; --entry names it")
    parser.add_argument("--entry", metavar="DATABASE.TABLE", help="name of the table given by --location")
    parser.share("--metastore")
    parser.add_argument("--full", action="store_true", help="write every manifest, compare every partition")
    parser.add_argument(
        "--atomic",
        action=argparse.BooleanOptionalAction,
        help="move all changed partitions in one call; the table keeps to that from then on",
    )
    parser.add_argument("--purge", action="store_true", help="first rewrite the files that have deletion vectors")
    parser.add_argument(
        "--compact-first",
        nargs="?",
        type=int,
        const=MANY_FILES,
        metavar="FILES",
        help=f"first compact the partitions of more files than this ({MANY_FILES})",
    )
    return parser


def run(session_conf: dict[str, str], args: Sequence[str], spark: SparkSession | None = None) -> list[dict[str, Any]]:
    """Sync what the arguments name. A table that fails does not stop the others.

    Args:
        session_conf: Settings of the Spark session, for storage and the metastore's address.
        args: Arguments as on the command line.
        spark: A session that rewrites files; only needed for ``--purge`` and ``--compact-first``.

    Raises:
        InvalidArgumentError: Invalid arguments.
        DeltaError: A table does not exist, or the metastore does not answer.
    """
    options = arguments().parse_args(args)
    tables = [*options.tables, *([options.location] if options.location else [])]
    if not tables and not options.database:
        raise InvalidArgumentError("No table was named.", hint="Give names, --database or --location.")
    if options.compact_first is not None and options.compact_first < 1:
        raise InvalidArgumentError(f"--compact-first is {options.compact_first}.", hint="Give 1 or more.")
    if spark is None and (options.purge or options.compact_first is not None):
        raise InvalidArgumentError(
            "--purge and --compact-first rewrite files, and there is no Spark session.", hint="Run it as a job."
        )
    settings = Settings.resolve(session_conf)
    with Metastore(MetastoreAddress.parse(options.metastore or settings.sync_metastore)) as metastore:
        targets = find_targets(
            metastore,
            TableChoice(tables=tables, databases=options.database, name=options.entry),
            rule=settings.sync_name,
            options=session_conf,
        )
        return [_sync(metastore, target, options, spark) for target in targets]


def _sync(
    metastore: Metastore, target: SyncTarget, options: argparse.Namespace, spark: SparkSession | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"table": target.log.uri, "twin": str(target.twin)}
    how = SyncOptions(full=options.full, atomic=options.atomic)
    try:
        if spark is not None and options.purge:
            found["purged_files"] = _purge(spark, target.log)
        if spark is not None and options.compact_first is not None:
            found["compacted_files"] = _compact(spark, target.log, options.compact_first)
        synced = sync_entries(metastore, target, how)
        result = synced.check()
    except DeltaError as error:
        return found | error_row(error)
    written = len(result.manifests.written) if result.manifests else 0
    return found | {
        "version": result.version,
        "manifests": written,
        "partitions_added": len(result.plan.add),
        "partitions_dropped": len(result.plan.drop),
        "crowded": dict(result.manifests.crowded) if result.manifests else {},
        "iceberg_version": synced.iceberg.version if synced.iceberg is not None else None,
    }


def _purge(spark: SparkSession, log: DeltaLog) -> int:
    """Rewrite the files that have deletion vectors. Returns their number."""
    from pydelta.commands.optimize.reorg import Purge
    from pydelta.engines.spark.running import run_in_session

    return run_in_session(spark, Purge(), log).num_removed_files


def _compact(spark: SparkSession, log: DeltaLog, most: int) -> int:
    """Compact the partitions with more files than ``most``. Returns the number of removed files."""
    from pydelta.commands.optimize.command import Optimize
    from pydelta.engines.spark.running import run_in_session

    snapshot = log.update()
    crowded = _crowded(snapshot, most)
    if not crowded:
        return 0
    return len(run_in_session(spark, Optimize(condition=_condition(snapshot, crowded)), log).removed)


def _crowded(snapshot: Snapshot, most: int) -> list[tuple[str | None, ...]]:
    """Return the partitions with more files than ``most``, as partition values in the log."""
    import polars as pl

    keys = snapshot.files.spec.keys
    if not keys:
        return [()] if snapshot.files.core.height > most else []
    counts = snapshot.files.core.group_by(keys).len("files").filter(pl.col("files") > most)
    return list(counts.drop("files").sort(keys).iter_rows())


def _condition(snapshot: Snapshot, partitions: Iterable[Sequence[str | None]]) -> str | None:
    """Build an SQL condition for exactly these partitions; None without partition columns."""
    if not snapshot.partition_columns:
        return None
    fields = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    kinds = [str(field.data_type) if field is not None else "string" for field in fields]
    names = ["`" + name.replace("`", "``") + "`" for name in snapshot.partition_columns]

    def equal(name: str, kind: str, text: str | None) -> str:
        if text is None:
            return f"{name} IS NULL"
        quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return f"{name} = {quoted if kind == 'string' else f'CAST({quoted} AS {kind})'}"

    rows = (" AND ".join(map(equal, names, kinds, values)) for values in partitions)
    return " OR ".join(f"({row})" for row in rows)


def _work(given: Sequence[str]) -> JobReport:
    import pydelta
    from pydelta.engines.spark.jvm import Jvm

    spark = pydelta.session(app_name="manifests")
    jvm = Jvm.of(spark)
    return JobReport.of_rows("tables", run({**jvm.session_conf(), **jvm.hadoop_options()}, given, spark))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
