"""Delete rows that match a condition from a Delta table: ``spark-submit jobs/delete.py --table … --where "id = 5"``.

One line of JSON on standard output reports the result. Run it as often as you like: deleted rows no longer match, and
without a match nothing is committed. Exit codes: 0 done (even if no row matched); 1 the arguments are wrong; 2 another
writer changed the same rows or the store failed temporarily: run it again; 3 the outcome is unknown: look at the
history first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydelta.errors import InvalidArgumentError
from pydelta.tools.jobs import JobParser, JobReport, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "run"]


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="delete.py", description=__doc__)
    parser.share("--table", required=True)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--where", metavar="CONDITION", help="SQL condition of the rows to delete")
    chosen.add_argument("--all-rows", action="store_true", help="delete every row")
    return parser


def run(spark: SparkSession, args: Sequence[str]) -> dict[str, Any]:
    """Delete what the arguments name.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.

    Returns:
        The table and the counts of ``DeltaTable.delete``, named as in the history.

    Raises:
        InvalidArgumentError: Invalid arguments.
        TableNotFoundError: The table does not exist.
        DeltaError: See ``DeltaTable.delete``.
    """
    from pydelta.engines.spark.catalog.lookup import location_in
    from pydelta.tables import DeltaTable

    options = arguments().parse_args(args)
    if options.where is not None and not options.where.strip():
        raise InvalidArgumentError("--where is empty.", hint="Give a condition, or --all-rows to delete every row.")
    path = location_in(options.table)
    table = DeltaTable.forPath(spark, path) if path is not None else DeltaTable.forName(spark, options.table)
    return {"table": options.table, **table.delete(options.where).as_dict()}


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    return JobReport(line=run(pydelta.session(app_name="delete"), given))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
