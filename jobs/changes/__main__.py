"""Follow the changes of a database: ``python -m jobs.changes --brokers … --name shop --tables public.orders``.

Debezium writes the changes of each table to a topic. They are merged into one Delta table each by
``jobs/ingest_stream.py``, each exactly once, and a column that is new in the database is added to its table. The
table ``public.orders`` becomes ``shop.orders``, and ``sales.orders`` becomes ``shop.sales_orders``.

One line of JSON on standard output reports each batch. A table whose changes cannot be merged stops alone and is tried
again every half minute. The job runs until it is ended; SIGTERM or a kill costs nothing but the batch that runs. Exit
codes: 0 stopped; 1 the arguments are wrong; 2 the store or the metastore failed temporarily: run it again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from jobs.changes.following import Followed, follow
from jobs.changes.status import Board, serve
from pydelta.errors import DeltaError, InvalidArgumentError, first_line
from pydelta.tools.jobs import JobParser, JobReport, listed, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "run", "tables_of"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TABLE: Final = re.compile(r"(?P<schema>\w+)\.(?P<table>\w+)", re.ASCII)
_MASTER: Final = "local[2]"
_CONF: Final = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
}
"""A batch is small, so that the job runs it in its own process, and the cluster is free for others."""
_AGAIN_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="jobs.changes", description=__doc__)
    add = parser.add_argument
    add("--brokers", required=True, metavar="HOST:PORT,…", help="Kafka's brokers")
    add("--name", required=True, help="prefix of the topics, and database of the tables")
    add("--tables", required=True, metavar="A.B,C.D", help="the tables, as SCHEMA.TABLE in the database")
    add("--warehouse", required=True, metavar="PATH", help="location of the database's folder")
    add("--checkpoints", required=True, metavar="PATH", help="location for the progress of all tables")
    add("--max-per-trigger", type=int, default=50_000, metavar="N", help="maximum number of changes per batch")
    add("--status-port", type=int, metavar="PORT", help="answer here over HTTP how each table is")
    parser.share("--trigger", default="1")
    return parser


def tables_of(options: argparse.Namespace) -> list[Followed]:
    """Return the tables that the arguments name.

    Raises:
        InvalidArgumentError: A name is invalid, or two tables have the same one.
    """
    if not _NAME.fullmatch(options.name):
        raise InvalidArgumentError(
            f"--name is {options.name!r}.", hint="Write lower-case letters, digits and _, beginning with a letter."
        )
    if options.max_per_trigger < 1:
        raise InvalidArgumentError(f"--max-per-trigger is {options.max_per_trigger}.", hint="Give 1 or more.")
    found: dict[str, Followed] = {}
    for text in listed(options.tables) or []:
        match = _TABLE.fullmatch(text)
        if match is None:
            raise InvalidArgumentError(
                f"--tables names {text!r}.", hint="Write SCHEMA.TABLE, with letters, digits and _ only."
            )
        schema, table = match["schema"].lower(), match["table"].lower()
        name = f"{options.name}.{table if schema == 'public' else f'{schema}_{table}'}"
        if name in found:
            raise InvalidArgumentError(f"Two of --tables would be {name}.", hint="Leave one of them out.")
        found[name] = Followed(
            topic=f"{options.name}.{text}",
            table=name,
            brokers=options.brokers,
            checkpoint=f"{options.checkpoints.rstrip('/')}/{name}",
            trigger=options.trigger,
            limit=options.max_per_trigger,
        )
    return list(found.values())


def run(spark: SparkSession, args: Sequence[str], *, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Follow the tables that the arguments name until the job is asked to stop.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.
        tell: Receives the report of each batch.

    Returns:
        How each table was at the end.

    Raises:
        InvalidArgumentError: Invalid arguments.
        DeltaError: The database of the tables cannot be created.
    """
    from pydelta.engines.spark.stopping import Stopping

    options = arguments().parse_args(args)
    tables = tables_of(options)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {options.name} LOCATION '{options.warehouse.rstrip('/')}/{options.name}'")
    board, stopping = Board([it.table for it in tables]), Stopping(spark)
    if options.status_port is not None:
        serve(board, options.status_port)
    with stopping.listening(), ThreadPoolExecutor(len(tables)) as pool:
        following = [pool.submit(_keep_following, spark, it, board, tell, stopping.asked) for it in tables]
        while not stopping.asked.is_set():
            done, running = wait(following, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
            if not running or any(future.exception() for future in done):
                stopping.asked.set()
        for query in spark.streams.active:
            query.stop()
    for future in following:
        future.result()
    return board.answer()[1]


def _keep_following(
    spark: SparkSession, it: Followed, board: Board, tell: Callable[[dict[str, Any]], None], asked: threading.Event
) -> None:
    """Follow a table, and begin again after an error, until asked to stop."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def told(batch: dict[str, Any]) -> None:
        board.applied(it.table, batch)
        tell({"table": it.table, **batch})

    while not asked.is_set():
        try:
            follow(spark, it, tell=told, stopping=asked.is_set)
        except (DeltaError, PySparkException, Py4JError, OSError) as error:
            message = str(error) if isinstance(error, DeltaError) else first_line(error)
            board.failed(it.table, message)
            code = error.code if isinstance(error, DeltaError) else type(error).__name__
            tell({"table": it.table, "error": code, "message": message})
            asked.wait(_AGAIN_SECONDS)
        else:
            return


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    tables_of(arguments().parse_args(given))
    spark = pydelta.session(app_name="changes", master=_MASTER, conf=_CONF)
    return JobReport(line=run(spark, given, tell=tell))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
