"""List buckets and deliver the lists in the layout of S3 Inventory: ``submit inventory --source s3a://warehouse …``.

Any store can be listed: S3 and compatible stores, HDFS, a local disk. No Spark session is started. One line of JSON on
standard output reports the deliveries. Exit codes: 0 done; 1 the arguments are wrong or a bucket does not exist; 2 the
store failed temporarily: run it again. A run that fails delivers nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydelta.errors import DeltaError
from pydelta.tools.inventory import ListingOptions, write_delivery
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job

__all__ = ["main", "run"]


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="inventory.py", description=__doc__)
    parser.add_argument(
        "--source", action="append", required=True, metavar="URI", help="a bucket, or a directory in one; repeatable"
    )
    parser.add_argument("--destination", required=True, metavar="URI", help="location for the deliveries")
    parser.add_argument("--id", default="lakehouse", help="name of the inventory (lakehouse)")
    parser.add_argument(
        "--format", default="Parquet", choices=["Parquet", "CSV"], help="format of the data files (Parquet)"
    )
    parser.share("--parallel", default=16, help="listings in parallel (16)")
    parser.add_argument(
        "--rows-per-file", type=int, default=1_000_000, metavar="N", help="rows per data file (1000000)"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="remove all but the newest N deliveries; by default, keep all"
    )
    return parser


def run(conf: Mapping[str, str], args: Sequence[str]) -> list[dict[str, Any]]:
    """List the sources that the arguments name. A source that fails does not stop the others.

    Args:
        conf: Settings for storage, by Hadoop's names.
        args: Arguments as on the command line.

    Raises:
        InvalidArgumentError: Invalid arguments.
    """
    options = arguments().parse_args(args)
    how = ListingOptions(
        file_format=options.format, workers=options.parallel, rows_per_file=options.rows_per_file, keep=options.keep
    )
    rows = []
    for source in options.source:
        try:
            found = write_delivery(source, options.destination, inventory_id=options.id, options=conf, how=how)
        except DeltaError as error:
            rows.append({"source": source} | error_row(error))
        else:
            rows.append({"source": source} | asdict(found))
    return rows


def _work(given: Sequence[str]) -> JobReport:
    from pydelta.engines.spark.session.submitted import submitted_conf

    return JobReport.of_rows("inventories", run(submitted_conf(), given))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
