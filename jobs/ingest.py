"""Append the rows of files to a Delta table: ``spark-submit jobs/ingest.py --input … --table …``.

CSV follows RFC 4180: quoted values may hold commas, line breaks and doubled quotes. Rows that do not fit are counted
and fail the job, or are written to ``--bad-records``.

One line of JSON on standard output reports the result. Exit codes: 0 done (even if the batch had already landed); 1 the
input or the arguments are wrong; 2 another writer won or the store failed temporarily: run it again; 3 the outcome is
unknown: look for the transaction's id in the history first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydelta.commands.write.command import WriteMode, WriteResult
from pydelta.errors import DeltaError, InvalidArgumentError, first_line
from pydelta.tools.jobs import JobParser, JobReport, pairs, run_job
from pydelta.tools.lineage import note_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.tools.ingest.text_files import Records

__all__ = ["IngestResult", "main", "run"]

_FORMATS = ("csv", "json", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest. ``version`` is None if nothing was committed, see ``WriteResult``. Sizes are in
    bytes.
    """

    table: str
    version: int | None
    skipped: bool
    files: int
    rows: int
    bytes: int
    bad: int = 0
    suppressed: int = 0


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="ingest.py", description=__doc__)
    parser.add_argument("--input", nargs="+", required=True, metavar="PATH", help="files or folders to load")
    parser.add_argument("--format", choices=_FORMATS, required=True)
    parser.share("--table", required=True)
    parser.add_argument("--mode", default="append", help="append (default), overwrite, errorifexists or ignore")
    parser.share("--partition-by")
    parser.add_argument("--schema", metavar="DDL", help="columns of the input, such as 'id bigint, at timestamp'")
    parser.share("--option", "--write-option")
    parser.add_argument("--cast", action="append", default=[], metavar="COL:TYPE", help="cast a column")
    parser.share("--bad-records", "--suppress", "--suppress-column")
    parser.add_argument("--batch-id", metavar="APP:VERSION", help="skip the batch if it already landed")
    return parser


def run(spark: SparkSession, args: Sequence[str]) -> IngestResult:
    """Load what the arguments name.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.

    Raises:
        InvalidArgumentError: Invalid arguments.
        DeltaError: The engine refuses the write; see ``write_table``.
    """
    options = arguments().parse_args(args)
    how = pairs(options.write_option, "--write-option")
    if options.batch_id is not None:
        app, _, version = options.batch_id.rpartition(":")
        if not app or not version.isdigit():
            raise InvalidArgumentError(
                f"--batch-id is {options.batch_id!r}.", hint="Write it as application:number, such as nightly:17."
            )
        how |= {"txnAppId": app, "txnVersion": version}
    partitions = options.partition_by.split(",") if options.partition_by else None
    note_input(*options.input)
    mode = WriteMode.parse(options.mode)
    with ExitStack() as stack:
        with _reading():
            rows, bad = _rows(spark, options, how, stack)
            rows = _cast(rows, options.cast)
            rows, suppressed = _without_erased(spark, rows, options, stack)
        result = _write(spark, rows, options.table, mode, how, partitions)
    return IngestResult(
        table=options.table,
        version=result.version,
        skipped=result.skipped,
        files=result.num_files,
        rows=result.num_rows,
        bytes=result.num_bytes,
        bad=bad,
        suppressed=suppressed,
    )


def _rows(
    spark: SparkSession, options: argparse.Namespace, how: dict[str, str], stack: ExitStack
) -> tuple[DataFrame, int]:
    """Return the rows that fit and the number of the others, which are set aside if there is a table for them."""
    given = pairs(options.option, "--option")
    if options.format == "parquet":
        if options.bad_records is not None:
            raise InvalidArgumentError(
                "--bad-records works only with csv and json.",
                hint="Leave it out: the values of other formats have types.",
            )
        reader = spark.read.format(options.format).options(**given)
        return (reader.schema(options.schema) if options.schema else reader).load(options.input), 0
    from pydelta.tools.ingest.text_files import read_records

    records = read_records(spark, options.input, options.format, schema=options.schema, options=given)
    stack.callback(records.release)
    bad = records.counted(may_set_aside=options.bad_records is not None)
    if bad:
        _set_aside(spark, records, options, how)
    return records.good, bad


@contextmanager
def _reading() -> Iterator[None]:
    """Convert Spark's errors to one that says that the input cannot be read."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException

    from pydelta.engines.spark.store_errors import store_failure

    try:
        yield
    except (AnalysisException, ParseException) as error:
        if isinstance(error, DeltaError):
            raise
        raise InvalidArgumentError(
            f"The input cannot be read: {first_line(error)}",
            hint="Check --input, --format, --schema and --cast.",
        ) from error
    except Py4JJavaError as error:
        raise store_failure(error, "The input cannot be read") from None


def _cast(rows: DataFrame, casts: Sequence[str]) -> DataFrame:
    for item in casts:
        column, _, data_type = item.rpartition(":")
        if column not in rows.columns:
            raise InvalidArgumentError(
                f"--cast names the column {column!r}, which the input does not have.",
                hint=f"Its columns are: {', '.join(rows.columns)}.",
            )
        rows = rows.withColumn(column, rows["`" + column.replace("`", "``") + "`"].cast(data_type))
    return rows


def _without_erased(
    spark: SparkSession, rows: DataFrame, options: argparse.Namespace, stack: ExitStack
) -> tuple[DataFrame, int]:
    """Return the rows of which no key was erased, and the number of the others. The input is read once for both."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    from pydelta.tools.ingest.suppressed import SUPPRESSED, mark_suppressed, suppression_of

    suppression = suppression_of(options.suppress, options.suppress_column)
    if suppression is None:
        return rows, 0
    marked = mark_suppressed(spark, rows, suppression).persist(StorageLevel.MEMORY_AND_DISK)
    stack.callback(marked.unpersist)
    count = marked.agg(F.count_if(SUPPRESSED)).head()
    return marked.where(~F.col(SUPPRESSED)).drop(SUPPRESSED), 0 if count is None else int(count[0])


def _set_aside(spark: SparkSession, records: Records, options: argparse.Namespace, how: dict[str, str]) -> None:
    """Write rows that do not fit to their table. This happens before the other rows are written, in the same batch."""
    from pydelta.engines.spark.catalog.lookup import DeltaEntry, location_in, look_up, parse_identifier
    from pydelta.engines.spark.jvm import Jvm
    from pydelta.engines.spark.write.command import WriteRequest, write_path
    from pydelta.tools.ingest.targets import place_of_bad

    table = location_in(options.table)
    if table is None:
        entry = look_up(spark, parse_identifier(spark, options.table))
        table = entry.location if isinstance(entry, DeltaEntry) else None
        if options.bad_records == options.table:
            raise InvalidArgumentError("--bad-records is the table itself.", hint="Give bad records a separate table.")
    rows = records.bad
    place = place_of_bad(spark, options.bad_records, table and Jvm.of(spark).qualify(table), rows.schema)
    once = {key: value for key, value in how.items() if key in ("txnAppId", "txnVersion")}
    write_path(spark, rows, place, WriteRequest(mode=WriteMode.APPEND, options=once))


def _write(
    spark: SparkSession,
    rows: DataFrame,
    table: str,
    mode: WriteMode,
    options: dict[str, str],
    partitions: list[str] | None,
) -> WriteResult:
    from pydelta.engines.spark.catalog.lookup import location_in
    from pydelta.engines.spark.write.command import WriteRequest, save_as_table, write_path

    path = location_in(table)
    request = WriteRequest(mode=mode, options=options, partition_by=partitions)
    if path is not None:
        return write_path(spark, rows, path, request)
    return save_as_table(spark, rows, table, request)


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    return JobReport(line=asdict(run(pydelta.session(app_name="ingest"), given)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
