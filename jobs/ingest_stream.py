"""Feed a Delta table from a stream: ``spark-submit jobs/ingest_stream.py --source kafka --topic … --table …``.

Records of Kafka, of files or of Spark's rate source become rows, each exactly once, however often the job restarts.
They are appended or, with ``--merge-key``, replace the row with the same key. Bad records go to a separate table.

One line of JSON on standard output reports each batch, and a last one the totals. SIGTERM ends the job after the
current batch. Exit codes: 0 done or stopped; 1 the input or the arguments are wrong; 2 another writer won, or Kafka or
the store failed temporarily: run it again; 3 the outcome is unknown: look at the history first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydelta.errors import InvalidArgumentError
from pydelta.tools.jobs import JobParser, JobReport, listed, pairs, run_job
from pydelta.tools.lineage import note_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.tools.ingest.apply import Upsert
    from pydelta.tools.ingest.records import RecordFormat
    from pydelta.tools.ingest.sources import RecordSource
    from pydelta.tools.ingest.stream_settings import KeptSettings

__all__ = ["main", "run"]

_SOURCES = ("kafka", "files", "rate")
_FORMATS = ("json", "csv", "avro")


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="ingest_stream.py", description=__doc__)
    add = parser.add_argument
    add("--source", choices=_SOURCES, required=True)
    add("--brokers", metavar="HOST:PORT,…", help="Kafka's brokers")
    add("--topic", metavar="A,B", help="Kafka's topics")
    add("--input", metavar="FOLDER", help="folder of the files")
    add("--format", choices=_FORMATS, default="json", help="format of the records (json)")
    add("--schema", metavar="DDL_OR_FILE", help="columns of the records; by default, inferred once and then kept")
    parser.share("--table", required=True)
    parser.share("--checkpoint", "--bad-records", "--suppress", "--suppress-column")
    add("--merge-key", metavar="A,B", help="key columns; a record replaces the row with the same key")
    add(
        "--order-by",
        metavar="COLUMN",
        help="the column whose value is largest in the newest record of a key; by default, Kafka's order decides",
    )
    add("--changes", choices=("debezium",), help="records are changes of a database: needs --merge-key")
    parser.share("--partition-by", "--trigger")
    add("--max-per-trigger", type=int, metavar="N", help="maximum number of Kafka records, or files, per batch")
    parser.share("--option", help="option of Spark's source, such as kafka.…")
    add("--record-option", action="append", default=[], metavar="K=V", help="option of Spark's parser of records")
    parser.share("--write-option", help="option of the writer; appends only")
    return parser


def run(
    spark: SparkSession,
    args: Sequence[str],
    *,
    tell: Callable[[dict[str, Any]], None] | None = None,
    mark: Callable[[DataFrame], DataFrame] | None = None,
) -> dict[str, Any]:
    """Run the stream that the arguments describe.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.
        tell: Receives the report of each batch.
        mark: Receives the decoded records, and returns them with a reason where it finds a bad one.

    Returns:
        The totals of all batches of this run.

    Raises:
        InvalidArgumentError: Invalid arguments, or they do not match the checkpoint.
        DeltaError: The reason why the stream ended.
    """
    from pydelta.tools.ingest.apply import Writing, apply_batch
    from pydelta.tools.ingest.kafka import KafkaEnds
    from pydelta.tools.ingest.running import BatchReport, run_stream, trigger_of
    from pydelta.tools.ingest.stream_settings import keep, kept_settings
    from pydelta.tools.ingest.suppressed import suppression_of
    from pydelta.tools.ingest.targets import Totals, has_batch, open_checkpoint, prepare_table

    options = arguments().parse_args(args)
    source, upsert, trigger = _source(options), _upsert(options), trigger_of(options.trigger)
    checkpoint, store = open_checkpoint(spark, options.checkpoint)
    before = kept_settings(store)
    with ExitStack() as stack:
        ends = KafkaEnds(spark, source) if source.kind == "kafka" else None
        if ends is not None:
            stack.callback(ends.close)
        how = _record_format(spark, options, source, before.schema if before is not None else None)
        _check_columns(options, how.schema.names)
        decoded = _decoded(spark, options, source, how)
        writing = prepare_table(
            spark,
            options.table,
            how.schema,
            Writing(
                upsert=upsert,
                bad_records=options.bad_records,
                partition_by=listed(options.partition_by),
                options=pairs(options.write_option, "--write-option"),
                suppression=suppression_of(options.suppress, options.suppress_column),
            ),
        )
        now = _settings(options, source, how, writing.location)
        keep(store, before, now, landed=lambda was, *batch: has_batch(spark, (was.target, was.bad_records), *batch))
        totals = Totals()

        def report(batch: BatchReport) -> None:
            line = totals.add(batch)
            if ends is not None and batch.reached is not None:
                line["lag"] = ends.behind(batch.reached)
            if tell is not None:
                tell(line)

        stopped = run_stream(
            decoded if mark is None else mark(decoded),
            lambda session, rows, batch: apply_batch(session, rows, batch, writing),
            checkpoint=checkpoint,
            trigger=trigger,
            tell=report,
        )
    return {"table": options.table, **totals.line(), "stopped": stopped}


def _source(options: argparse.Namespace) -> RecordSource:
    from pydelta.tools.ingest.sources import RecordSource

    needed = {"kafka": ("--brokers", "--topic"), "files": ("--input",), "rate": ()}
    for flag in ("--brokers", "--topic", "--input"):
        value = getattr(options, flag[2:])
        if (value is not None) != (flag in needed[options.source]):
            does = "needs" if value is None else "does not take"
            raise InvalidArgumentError(f"--source {options.source} {does} {flag}.", hint="Run it with --help.")
    if options.max_per_trigger is not None and (options.max_per_trigger < 1 or options.source == "rate"):
        raise InvalidArgumentError(
            f"--max-per-trigger is {options.max_per_trigger} for {options.source}.",
            hint="Give 1 or more for kafka or files; for rate, give --option rowsPerSecond=N.",
        )
    return RecordSource(
        kind=options.source,
        name=options.topic or options.input or "",
        brokers=options.brokers or "",
        limit=options.max_per_trigger,
        options=pairs(options.option, "--option"),
    )


def _upsert(options: argparse.Namespace) -> Upsert | None:
    from pydelta.tools.ingest.apply import Upsert

    keys = listed(options.merge_key)
    if keys is None:
        for flag in ("changes", "order_by"):
            if getattr(options, flag):
                raise InvalidArgumentError(
                    f"--{flag.replace('_', '-')} needs --merge-key.", hint="Give the columns that name a row."
                )
        return None
    if options.changes and (options.order_by or options.format != "json" or options.source == "rate"):
        raise InvalidArgumentError(
            "--changes debezium reads JSON records in the order recorded in them.",
            hint="Leave out --order-by, and give --format json with --source kafka or files.",
        )
    if options.source == "files" and not options.changes and options.order_by is None:
        raise InvalidArgumentError(
            "Files do not say which of two records of a key is newer.", hint="Give --order-by COLUMN."
        )
    if options.write_option:
        raise InvalidArgumentError("--write-option is for appends, not for --merge-key.", hint="Leave it out.")
    return Upsert(keys=keys, order_by=options.order_by, deletes=options.changes is not None)


def _record_format(
    spark: SparkSession, options: argparse.Namespace, source: RecordSource, kept: str | None
) -> RecordFormat:
    """Return the given schema, otherwise the stored one, otherwise one inferred from the records."""
    from pydelta.tools.ingest.records import RecordFormat, schema_of_text
    from pydelta.tools.ingest.running import error_of_spark
    from pydelta.tools.ingest.sources import KAFKA_CLASS, inferred, need_package

    parsing = pairs(options.record_option, "--record-option")
    if source.kind == "rate":
        return RecordFormat(name="rate", schema=spark.readStream.format("rate").load().schema)
    if source.kind == "kafka":
        need_package(spark, KAFKA_CLASS)
    if options.format == "avro":
        need_package(spark, "org.apache.spark.sql.avro.AvroFileFormat")
    given = _schema_text(options.schema) if options.schema else kept
    if given is None:
        if options.changes:
            raise InvalidArgumentError(
                "The columns of the changed table cannot be inferred.", hint="Give them with --schema."
            )
        RecordFormat(name=options.format, schema=_nothing(), options=parsing)
        try:
            schema = inferred(spark, source, options.format, parsing)
        except Exception as error:  # noqa: BLE001  any error of Spark is explained
            raise error_of_spark(error, "The records cannot be read", "Check --input and --format.") from None
        return RecordFormat(name=options.format, schema=schema, options=parsing)
    schema, avro = schema_of_text(given, options.format)
    return RecordFormat(name=options.format, schema=schema, avro_schema=avro, options=parsing)


def _nothing() -> Any:
    from pyspark.sql.types import StructType

    return StructType([])


def _schema_text(given: str) -> str:
    path = Path(given)
    looks_like_a_file = "/" in given or path.suffix in (".json", ".avsc", ".ddl", ".sql")
    try:
        return path.read_text() if looks_like_a_file and " " not in given else given
    except OSError as error:
        raise InvalidArgumentError(
            f"The schema's file {given} cannot be read: {error.strerror}.", hint="Give an existing file, or DDL."
        ) from None


def _check_columns(options: argparse.Namespace, columns: list[str]) -> None:
    for flag in ("merge_key", "order_by", "partition_by"):
        for name in listed(getattr(options, flag)) or []:
            if name not in columns:
                raise InvalidArgumentError(
                    f"--{flag.replace('_', '-')} names the column {name!r}, which the records do not have.",
                    hint=f"Their columns are: {', '.join(columns)}.",
                )


def _decoded(spark: SparkSession, options: argparse.Namespace, source: RecordSource, how: RecordFormat) -> DataFrame:
    from pyspark.sql import functions as F

    from pydelta.tools.ingest.debezium import decode_debezium
    from pydelta.tools.ingest.records import decode, refuse_nulls
    from pydelta.tools.ingest.running import error_of_spark
    from pydelta.tools.ingest.sources import open_records, open_rows, stream_rows

    if source.kind == "kafka":
        note_input(f"kafka://{source.brokers.partition(',')[0]}/{source.name}")
    elif source.kind == "files":
        note_input(source.name)
    try:
        if source.kind == "rate":
            rate = spark.readStream.format("rate").options(**source.options).load()
            decoded = open_rows(rate, how.schema)
        elif source.kind == "files" and how.name != "json":
            decoded = stream_rows(spark, source, how)
        else:
            records = open_records(spark, source)
            decoded = decode_debezium(records, how) if options.changes else decode(records, how)
    except Exception as error:  # noqa: BLE001  any error of Spark is explained
        raise error_of_spark(error, "The stream cannot be read", "Check --input, --format and --option.") from None
    decoded = refuse_nulls(decoded, listed(options.merge_key) or [], "key")
    if "tombstone" in decoded.columns:
        decoded = decoded.withColumn("reason", F.when(~F.col("tombstone"), F.col("reason")))
    return refuse_nulls(decoded, listed(options.order_by) or [], "order")


def _settings(options: argparse.Namespace, source: RecordSource, how: RecordFormat, location: str) -> KeptSettings:
    from pydelta.tools.ingest.stream_settings import KeptSettings

    way = f"{how.name}, " + (options.changes or ("upsert" if options.merge_key else "append"))
    if options.merge_key:
        way += f" by {options.merge_key}" + (f" ordered by {options.order_by}" if options.order_by else "")
    return KeptSettings(
        source=source.shown,
        target=location,
        way=way,
        schema=how.avro_schema or how.schema.json(),
        bad_records=options.bad_records,
    )


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    return JobReport(line=run(pydelta.session(app_name="ingest_stream"), given, tell=tell))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
