"""Load deliveries of S3 Inventory into the inventory table: ``submit load_inventory --source s3a://inventory …``.

Accepts deliveries from AWS and from ``jobs/inventory.py``. Chooses the newest complete delivery of each bucket that is
not dated in the future, and replaces those buckets' rows in one commit. Loaded deliveries are skipped and unfinished
ones are ignored, so run it as often as you like. No Spark session is started.

One line of JSON on standard output reports what was loaded. A bucket without a delivery is named in a warning. Exit
codes: 0 done (even if nothing was new); 1 the arguments are wrong, or a delivery is damaged or of another bucket, and
nothing was changed; or a bucket has several inventories or no trustworthy one, and the other buckets were loaded; 2
another process loaded the same bucket, or the store or the metastore failed temporarily: run it again; 3 the outcome is
unknown: look at the history first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from catalog_sync.names import TableName
from catalog_sync.native import native_location, sync_native
from catalog_sync.registered import metastore_of, named_locations, registered_locations
from catalog_sync.thrift.client import Metastore
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.settings.clock import epoch_ms
from pydelta.storage import open_store
from pydelta.tools.inventory import choose_deliveries, load_deliveries
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job

__all__ = ["main", "run"]


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="load_inventory.py", description=__doc__)
    parser.add_argument("--source", required=True, metavar="URI", help="location of the deliveries: bucket and prefix")
    parser.add_argument("--bucket", action="append", metavar="NAME", help="load this bucket; by default, all")
    parser.add_argument(
        "--id", action="append", metavar="NAME", help="load this inventory; repeat it if each lists a part of the "
        "bucket; by default, the only one"
    )  # fmt: skip
    parser.add_argument(
        "--delivery", metavar="STAMP", help="load this delivery, such as 2026-11-21T01-00Z; by default, the newest"
    )
    parser.add_argument(
        "--table", default="inventory.datalake_report", metavar="DATABASE.TABLE", help="inventory.datalake_report"
    )
    parser.add_argument(
        "--location", metavar="URI", help="location of the table; by default that of its entry or database"
    )
    parser.share("--metastore")
    parser.add_argument(
        "--database", action="append", metavar="NAME", help="put the names of this database's tables on their objects; "
        "by default, those of all databases"
    )  # fmt: skip
    parser.add_argument(
        "--table-location", action="append", default=[], metavar="NAME=URI", help="a table that is not in a metastore"
    )
    parser.add_argument(
        "--force", action="store_true", help="also load deliveries that are not newer than the table's rows"
    )
    return parser


def run(conf: Mapping[str, str], args: Sequence[str], *, now_ms: int | None = None) -> dict[str, Any]:
    """Load what the arguments name.

    Args:
        conf: Settings for storage and the metastore, by Hadoop's and Spark's names.
        args: Arguments as on the command line.
        now_ms: The current time, epoch milliseconds.

    Returns:
        What was loaded. ``problems`` has a row for each bucket that failed; the others were loaded.

    Raises:
        InvalidArgumentError: Invalid arguments, or a delivery is damaged or of another bucket.
        DeltaError: See ``load_deliveries``; or the metastore does not answer.
    """
    options = arguments().parse_args(args)
    table = TableName.parse(options.table)
    store = open_store(options.source, conf)
    found = metastore_of(options.metastore, conf)
    with found or nullcontext() as metastore:
        log = DeltaLog.for_table(_location(metastore, table, options.location), options=conf)
        locations = named_locations(options.table_location)
        if metastore is not None:
            locations = registered_locations(metastore, options.database) | locations
        clock = epoch_ms() if now_ms is None else now_ms
        choice = choose_deliveries(
            store, options.bucket, inventory_ids=options.id, stamp=options.delivery, now_ms=clock
        )
        result = load_deliveries(log, store, choice.deliveries, locations=locations, force=options.force, now_ms=clock)
        if metastore is not None and log.update().version >= 0:
            sync_native(metastore, table, log.update())
    problems = [{"bucket": bucket} | error_row(error) for bucket, error in choice.problems]
    remarks = {"warnings": choice.warnings, "problems": problems}
    return {"table": str(table), "location": log.uri} | asdict(result) | remarks


def _location(metastore: Metastore | None, table: TableName, given: str | None) -> str:
    """Return the current or future location of the inventory table."""
    if given is not None:
        return given
    if metastore is not None:
        entry = metastore.table(table.database, table.name)
        location = native_location(entry) if entry is not None else None
        if location is not None:
            return location
        if entry is not None:
            raise InvalidArgumentError(f"{table} is not a Delta table.", hint="Name another table (--table).")
        database = metastore.database_location(table.database)
        if database is not None:
            return f"{database.rstrip('/')}/{table.name}"
    where = f"the metastore has no database {table.database}" if metastore is not None else "there is no metastore"
    raise InvalidArgumentError(f"The location of {table} is not known: {where}.", hint="Give --location.")


def _work(given: Sequence[str]) -> JobReport:
    from pydelta.engines.spark.session.submitted import submitted_conf

    result = run(submitted_conf(), given)
    for warning in result["warnings"]:
        print(f"Warning: {warning}", file=sys.stderr)
    return JobReport(line=result, exit_code=max((row["exit_code"] for row in result["problems"]), default=0))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
