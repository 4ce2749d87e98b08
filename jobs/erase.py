"""Delete the rows of keys from tables for good: ``submit erase --database lake --keys people.csv --history drop``.

Files, history and log are rewritten or deleted, and what is left is searched for the keys. Tables of a database that
have none of the columns are passed over; a mapping says where columns have other names. Shallow clones come before the
tables whose files they read. Nobody is asked: ``--history drop`` is the consent to give earlier versions up.

One line of JSON on standard output is the report. Exit codes: 0 done: the search found nothing; 1 the arguments or the
keys are wrong; 2 another process was in the way, or the store failed temporarily: run it again; 3 the outcome of a
commit is unknown: look at the history first; 4 something is wrong:
a key was found by the search, or a table failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_sync.registered import metastore_of, requested_locations
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.tools.erasure.performing import Beside, Performed, perform, read_options
from pydelta.tools.erasure.register import Filed, Register
from pydelta.tools.erasure.running import ErasureOutcome, ErasureRequest, Targets, choose, look_at
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.commands.run import Context

__all__ = ["main", "run"]

_FOUND = 4
_DELETING = {"fs.s3a.access.key": "ERASE_ACCESS_KEY_ID", "fs.s3a.secret.key": "ERASE_SECRET_ACCESS_KEY"}
"""Storage options of the key that deletes, and the variables that hold them without ``--deletes-with``."""


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="erase.py", description=__doc__)
    parser.share("tables", "--database", "--all-databases", "--dry-run", "--metastore")
    parser.add_argument("--keys", metavar="FILE", help="a key per line, or .csv, .ndjson or .parquet, by column")
    parser.add_argument("--column", metavar="NAME", help="the column that holds the keys")
    parser.add_argument("--map", metavar="FILE", help="TOML: which column of each table holds which key")
    parser.add_argument("--history", choices=("drop",), help="drop: give up all earlier versions")
    parser.add_argument(
        "--object-versions",
        choices=("keep", "drop", "absent"),
        default="keep",
        help="drop: delete older versions of objects in a bucket that keeps them; absent: the store keeps none",
    )
    parser.add_argument(
        "--deletes-with",
        metavar="FILE",
        help="storage options of the key that may delete; by default ERASE_ACCESS_KEY_ID and ERASE_SECRET_ACCESS_KEY",
    )
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write a report there, as JSON and HTML")
    parser.add_argument("--sign", type=Path, metavar="FILE", help="sign it with this Ed25519 private key (PEM)")
    parser.add_argument("--register", metavar="LOCATION", help="the table of requests")
    parser.add_argument("--deadline", metavar="DAY", help="file the request for this day; erase nothing yet")
    parser.add_argument("--due", action="store_true", help="run what the register has open, the earliest first")
    parser.add_argument("--suppress", metavar="LOCATION", help="add the keys to this list")
    parser.add_argument("--search", action="append", default=[], metavar="LOCATION", help="search this folder, too")
    return parser


def run(spark: SparkSession, args: Sequence[str]) -> JobReport:
    """Erase what the arguments name.

    Args:
        spark: An enabled session.
        args: Arguments as on the command line.

    Returns:
        The report of the request; with ``--due`` those of all requests; with ``--dry-run`` the plans.

    Raises:
        InvalidArgumentError: Invalid arguments, keys or mapping.
        TableNotFoundError: A named table does not exist.
        DeltaError: See ``perform``.
    """
    options = arguments().parse_args(args)
    from pydelta.engines.spark.logs import SessionSettings

    session = SessionSettings.of(spark)
    beside = Beside(
        options=session.options,
        search=options.search,
        report=options.report,
        sign=options.sign,
        suppress=options.suppress,
    )
    if options.register is None and (options.due or options.deadline):
        raise InvalidArgumentError("There is no register.", hint="Name its table with --register.")
    if options.due:
        return _due(spark, options, beside)
    if not options.tables and not options.database and not options.all_databases:
        raise InvalidArgumentError("No table was named.", hint="Give locations, names, --database or --all-databases.")
    request = ErasureRequest(
        keys_file=options.keys,
        column=options.column,
        mapping_file=options.map,
        history=options.history,
        object_versions=options.object_versions,
    )
    databases = ["*"] if options.all_databases else options.database
    if options.deadline:
        register = Register(options.register, beside.options)
        filed = register.file(request, tables=options.tables, databases=databases, deadline=options.deadline)
        return JobReport(line={"filed": filed, "deadline": options.deadline})
    targets, planned = _looked(spark, request, options.tables, databases, options, beside)
    if options.dry_run:
        return JobReport(line={"plans": _plans(planned), "passedOver": dict(targets.passed_over)})
    done = perform(request, targets, planned, beside)
    if options.register is not None:
        Register(options.register, beside.options).note(request, done, tables=options.tables, databases=databases)
    return JobReport(line=done.document, exit_code=_code(done))


def _looked(
    spark: SparkSession,
    request: ErasureRequest,
    tables: Sequence[str],
    databases: Sequence[str],
    options: argparse.Namespace,
    beside: Beside,
) -> tuple[Targets, list[ErasureOutcome]]:
    """Choose the tables of a request, and look at them."""
    contexts = _contexts(spark, tables, databases, options.metastore)
    own = read_options(options.deletes_with) if options.deletes_with else _key_of_environment()
    deleting = {**beside.options, **own} if own else None
    targets = choose(request, contexts, named=tables, options=beside.options, deleting=deleting)
    return targets, look_at(targets.chosen, request)


def _plans(planned: Sequence[ErasureOutcome]) -> list[dict[str, Any]]:
    from pydelta.tools.erasure.report import plan_of

    return [plan_of(outcome.erasure) for outcome in planned if outcome.erasure is not None]


def _key_of_environment() -> dict[str, str]:
    """Return the key that deletes, from variables that only this job reads."""
    return {name: os.environ[variable] for name, variable in _DELETING.items() if os.environ.get(variable)}


def _contexts(
    spark: SparkSession, tables: Sequence[str], databases: Sequence[str], metastore: str | None
) -> dict[str, Context]:
    """Return the tables by the names that the request has for them, each once."""
    from pydelta.engines.spark.logs import SessionSettings, log_for_path
    from pydelta.engines.spark.running import session_context

    session = SessionSettings.of(spark)
    with metastore_of(metastore, session.conf) or nullcontext() as found:
        locations = requested_locations(found, tables, databases)
    contexts: dict[str, Context] = {}
    seen: set[str] = set()
    for name, location in locations.items():
        log = log_for_path(spark, location, session=session)
        if log.uri not in seen:
            seen.add(log.uri)
            contexts[name] = session_context(spark, log)
    return contexts


def _due(spark: SparkSession, options: argparse.Namespace, beside: Beside) -> JobReport:
    """Run what the register has open; with ``--dry-run`` show the plans."""
    register = Register(options.register, beside.options)

    def looked(filed: Filed) -> tuple[Targets, list[ErasureOutcome]]:
        return _looked(spark, filed.request, filed.tables, filed.databases, options, beside)

    if options.dry_run:
        waiting = [(filed, looked(filed)[1]) for filed in register.due()]
        return JobReport(line={"requests": [_row(filed) | {"plans": _plans(planned)} for filed, planned in waiting]})
    rows = []
    for filed, done in register.run_due(lambda filed: perform(filed.request, *looked(filed), beside)):
        if isinstance(done, DeltaError):
            rows.append(_row(filed) | error_row(done) | {"exit_code": _FOUND})
        else:
            rows.append(_row(filed) | {"report": done.document, "exit_code": _code(done)})
    return JobReport.of_rows("requests", rows)


def _row(filed: Filed) -> dict[str, Any]:
    return {"id": filed.id, "deadline": None if filed.deadline is None else str(filed.deadline)}


def _code(done: Performed) -> int:
    return 0 if done.status == "proven" else _FOUND


def _work(given: Sequence[str]) -> JobReport:
    import pydelta

    return run(pydelta.session(app_name="erase"), given)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
