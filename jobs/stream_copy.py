"""Copy a Delta table into another as it grows or changes: ``spark-submit jobs/stream_copy.py --from … --table …``.

Rows are appended. With ``--changes`` the change feed is read, and inserts, updates and deletes are applied by
``--merge-key``. Each row and each change is applied exactly once, however often the job restarts.

One line of JSON on standard output reports each batch and the age of its newest commit, and a last one the totals.
SIGTERM ends the job after the current batch. Exit codes: 0 done or stopped; 1 the arguments or the tables are wrong; 2
another writer won or the store failed temporarily: run it again; 3 the outcome is unknown: look at the history first.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pydelta.commands.stream.offsets import BEFORE_FIRST, StreamOffset
from pydelta.errors import InvalidArgumentError, VersionNotFoundError
from pydelta.log import DeltaLog
from pydelta.tools.jobs import JobParser, JobReport, listed, pairs, run_job
from pydelta.tools.lineage import note_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["main", "run"]


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="stream_copy.py", description=__doc__)
    add = parser.add_argument
    add("--from", dest="source", required=True, metavar="PATH_OR_NAME", help="the table to copy")
    parser.share("--table", required=True, help="the copy: a location or a name; created if it does not exist")
    parser.share("--checkpoint")
    add("--changes", action="store_true", help="apply the change feed: needs --merge-key")
    add("--merge-key", metavar="A,B", help="columns that identify a row")
    parser.share("--partition-by", "--trigger")
    add("--max-per-trigger", type=int, metavar="N", help="maximum number of files per batch")
    parser.share("--option", help="option of the source, such as startingVersion=7")
    parser.share("--write-option", help="option of the writer; without --changes")
    return parser


def run(
    spark: SparkSession, args: Sequence[str], *, tell: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Run the copy that the arguments describe.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.
        tell: Receives the report of each batch.

    Returns:
        The totals of all batches of this run.

    Raises:
        InvalidArgumentError: Invalid arguments, or they do not match the checkpoint.
        DeltaError: The reason why the stream ended.
    """
    from pydelta.tools.ingest.apply import Upsert, Writing, apply_batch
    from pydelta.tools.ingest.records import refuse_nulls
    from pydelta.tools.ingest.running import BatchReport, run_stream, trigger_of
    from pydelta.tools.ingest.stream_settings import KeptSettings, keep, kept_settings
    from pydelta.tools.ingest.targets import Totals, has_batch, open_checkpoint, prepare_table

    options = arguments().parse_args(args)
    keys = _keys(options)
    trigger = trigger_of(options.trigger)
    checkpoint, store = open_checkpoint(spark, options.checkpoint)
    before = kept_settings(store)
    log = _source_log(spark, options.source)
    note_table(log)
    rows, columns = _rows(spark, options)
    missing = [name for name in keys or [] if name not in columns.names]
    if missing:
        raise InvalidArgumentError(
            f"--merge-key names the column {missing[0]!r}, which {options.source} does not have.",
            hint=f"Its columns are: {', '.join(columns.names)}.",
        )
    writing = prepare_table(
        spark,
        options.table,
        columns,
        Writing(
            upsert=Upsert(keys=keys, deletes=True, one_row_each=True) if keys else None,
            partition_by=listed(options.partition_by),
            options=pairs(options.write_option, "--write-option"),
            without_bad="Give --merge-key columns that are never null.",
        ),
    )
    way = f"changes by {','.join(keys)}" if keys else "append"
    now = KeptSettings(source=f"delta: {log.uri}", target=writing.location, way=way, schema="")
    keep(store, before, now, landed=lambda was, *batch: has_batch(spark, (was.target,), *batch))
    totals = Totals()

    def report(batch: BatchReport) -> None:
        line = totals.add(batch) | {"latency": _latency(log, batch.reached)}
        if tell is not None:
            tell(line)

    stopped = run_stream(
        refuse_nulls(rows, keys or [], "key"),
        lambda session, batch_rows, batch: apply_batch(session, batch_rows, batch, writing),
        checkpoint=checkpoint,
        trigger=trigger,
        tell=report,
    )
    return {"table": options.table, **totals.line(), "stopped": stopped}


def _keys(options: argparse.Namespace) -> list[str] | None:
    if options.changes != (options.merge_key is not None):
        raise InvalidArgumentError(
            "--changes and --merge-key belong together.", hint="Give both to apply changes, or neither to append."
        )
    if options.changes and options.write_option:
        raise InvalidArgumentError("--write-option is for appends, not for --changes.", hint="Leave it out.")
    if options.max_per_trigger is not None and options.max_per_trigger < 1:
        raise InvalidArgumentError(f"--max-per-trigger is {options.max_per_trigger}.", hint="Give 1 or more.")
    return listed(options.merge_key)


def _source_log(spark: SparkSession, source: str) -> DeltaLog:
    from pydelta.engines.spark.catalog.lookup import location_in
    from pydelta.tables import DeltaTable

    path = location_in(source)
    return (DeltaTable.forPath(spark, path) if path is not None else DeltaTable.forName(spark, source))._log


def _rows(spark: SparkSession, options: argparse.Namespace) -> tuple[DataFrame, Any]:
    """Return the stream in the form in which batches are applied, and the columns of the table."""
    from pydelta.engines.spark.catalog.lookup import location_in
    from pydelta.tools.ingest.changes import decode_changes, row_columns
    from pydelta.tools.ingest.sources import open_rows

    reader = spark.readStream.format("delta").options(**pairs(options.option, "--option"))
    if options.max_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", options.max_per_trigger)
    if options.changes:
        reader = reader.option("readChangeFeed", "true")
    path = location_in(options.source)
    frame = reader.load(path) if path is not None else reader.table(options.source)
    if options.changes:
        return decode_changes(frame), row_columns(frame)
    return open_rows(frame, frame.schema), frame.schema


def _latency(log: DeltaLog, reached: str | None) -> float | None:
    """Return the age in seconds of the newest commit that a batch has read; None if it is unknown."""
    if reached is None:
        return None
    offset = StreamOffset.parse(reached)
    version = offset.version - 1 if offset.index == BEFORE_FIRST else offset.version
    try:
        return max(0.0, round(time.time() - log.snapshot(version).timestamp_ms / 1000, 3))
    except VersionNotFoundError:
        return None  # The log was cleaned up in between.


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    return JobReport(line=run(pydelta.session(app_name="stream_copy"), given, tell=tell))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
