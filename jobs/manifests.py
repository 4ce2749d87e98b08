"""Tables in, their manifests and metastore entries at the newest version out: ``submit manifests lake.orders …``.

One line of JSON on standard output says what happened to each table. Exit codes: 0 done, 1 the input is wrong, 2 the
metastore or the store did not answer, or another process was publishing: run it again, as often as you like.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from catalog_sync.metastore import Metastore, MetastoreAddress
from catalog_sync.native import sync_native
from catalog_sync.sync import SyncOptions, sync_table
from catalog_sync.targets import Target, find_targets
from pydelta.errors import DeltaError, InvalidArgumentError, StorageError
from pydelta.settings import Settings

__all__ = ["main", "run"]


class _Parser(argparse.ArgumentParser):
    """Raises where the standard one ends the process: it may be a notebook's."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgumentError(message, hint="Run it with --help to see the arguments.")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = _Parser(prog="manifests.py", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="DATABASE.TABLE", help="Delta tables in the metastore")
    parser.add_argument("--database", action="append", default=[], help="every Delta table of this database")
    parser.add_argument("--location", metavar="URI", help="a table by its location; --table names it")
    parser.add_argument("--table", metavar="DATABASE.TABLE", help="name of the table given by --location")
    parser.add_argument("--metastore", metavar="URI", help="thrift://host:9083; by default that of the session")
    parser.add_argument("--full", action="store_true", help="write every manifest, compare every partition")
    return parser


def run(session_conf: dict[str, str], args: Sequence[str]) -> list[dict[str, Any]]:
    """Sync what the arguments name; a table that fails stops no other.

    Args:
        session_conf: Settings of the Spark session, for storage and the metastore's address.
        args: As on the command line.

    Raises:
        InvalidArgumentError: Arguments that cannot be right.
        DeltaError: A table that is not there; the metastore does not answer.
    """
    options = arguments().parse_args(args)
    tables = [*options.tables, *([options.location] if options.location else [])]
    if not tables and not options.database:
        raise InvalidArgumentError("No table was named.", hint="Give names, --database or --location.")
    settings = Settings.resolve(session_conf)
    with Metastore(MetastoreAddress.parse(options.metastore or settings.sync_metastore)) as metastore:
        targets = find_targets(
            metastore,
            tables,
            databases=options.database,
            name=options.table,
            rule=settings.sync_name,
            options=session_conf,
        )
        return [_sync(metastore, target, SyncOptions(full=options.full)) for target in targets]


def _sync(metastore: Metastore, target: Target, how: SyncOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"table": target.log.uri, "twin": str(target.twin)}
    try:
        result = sync_table(target.log, metastore, target.twin, how)
        if target.native is not None:
            sync_native(metastore, target.native, target.log.update())
    except DeltaError as error:
        return found | {"error": error.code, "message": str(error), "exit_code": _code_of(error)}
    written = len(result.manifests.written) if result.manifests else 0
    return found | {
        "version": result.version,
        "manifests": written,
        "partitions_added": len(result.plan.add),
        "partitions_dropped": len(result.plan.drop),
    }


def _code_of(error: DeltaError) -> int:
    return 2 if isinstance(error, StorageError) and error.retryable else error.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line, give the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if "-h" in given or "--help" in given:
        arguments().print_help()
        return 0
    try:
        arguments().parse_args(given)  # before a session is started
        import pydelta
        from pydelta.spark.jvm import Jvm

        jvm = Jvm.of(pydelta.session(app_name="manifests"))
        rows = run({**jvm.session_conf(), **jvm.hadoop_options()}, given)
    except DeltaError as error:
        print(json.dumps({"error": error.code, "message": str(error), "exit_code": _code_of(error)}), flush=True)
        return _code_of(error)
    print(json.dumps({"tables": rows}), flush=True)
    return max((row.get("exit_code", 0) for row in rows), default=0)


if __name__ == "__main__":
    sys.exit(main())
