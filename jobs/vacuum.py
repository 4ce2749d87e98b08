"""Delete the files that no retained version of the tables needs: ``submit vacuum --database lake --inventory …``.

With ``--inventory`` the inventory table is read once for all tables, and no data is listed. Otherwise each table is
listed or, with ``--lite``, only its log is read. Tables are vacuumed in parallel, and one that fails does not stop the
others. No Spark session is started.

One line of JSON on standard output holds a report per table. Exit codes: 0 done; 1 the arguments are wrong, a table
does not exist, the inventory does not match or the retention is too short; 2 another process was in the way, or the
store or the metastore failed temporarily: run it again; 3 the outcome of a commit is unknown: look at the history
first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from catalog_sync.registered import location_of, metastore_of, requested_locations
from catalog_sync.thrift.client import Metastore
from pydelta.commands.run import Context
from pydelta.commands.run import run as run_command
from pydelta.commands.vacuum.command import Vacuum, VacuumMode, VacuumOptions, VacuumResult
from pydelta.commands.vacuum.inventory import Inventory
from pydelta.commands.vacuum.inventory_sources import inventory_from_delta
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.settings.clock import epoch_ms
from pydelta.tools.inventory import bucket_of, loaded_until, places_of, read_split, split_by_table
from pydelta.tools.jobs import JobParser, JobReport, error_row, run_job
from pydelta.tools.maintenance.decide import MAKE_INVENTORY

__all__ = ["main", "run"]

_SHOWN_FILES = 100
_SHOWN_PARTITIONS = 1000


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="vacuum.py", description=__doc__)
    parser.share("tables", "--database", "--all-databases")
    parser.share("--inventory")
    parser.add_argument("--lite", action="store_true", help="only files that the log says were removed; lists nothing")
    parser.add_argument(
        "--retention-hours", type=float, metavar="HOURS", help="the retention; by default each table's own (168)"
    )
    parser.add_argument("--no-retention-check", action="store_true", help="allow less than a table's own retention")
    parser.share("--dry-run", "--where")
    parser.share("--parallel", default=4, help="tables in parallel (4)")
    parser.add_argument("--deletes-per-second", type=float, metavar="N", help="files deleted per second and table")
    parser.share("--metastore")
    return parser


def run(conf: Mapping[str, str], args: Sequence[str], *, now_ms: int | None = None) -> list[dict[str, Any]]:
    """Vacuum what the arguments name.

    Args:
        conf: Settings for storage and the metastore, by Hadoop's and Spark's names.
        args: Arguments as on the command line.
        now_ms: The current time, epoch milliseconds.

    Returns:
        A report per table, sorted by name. Reports of failed tables have ``exit_code``.

    Raises:
        InvalidArgumentError: Invalid arguments, or the inventory table is not an inventory.
        TableNotFoundError: A named table does not exist.
    """
    options = arguments().parse_args(args)
    if not options.tables and not options.database and not options.all_databases:
        raise InvalidArgumentError("No table was named.", hint="Give locations, names, --database or --all-databases.")
    if options.lite and options.inventory:
        raise InvalidArgumentError(
            "--lite reads only the log, --inventory reads a list of files.", hint="Choose one of them."
        )
    if options.parallel < 1:
        raise InvalidArgumentError(f"--parallel is {options.parallel}.", hint="Give 1 or more.")
    found = metastore_of(options.metastore, conf)
    with found or nullcontext() as metastore:
        tables = _tables(metastore, options)
        listed = _inventory_at(metastore, options.inventory) if options.inventory else None
    with tempfile.TemporaryDirectory(prefix="vacuum-") as folder:
        started = time.monotonic()
        inventories = _inventories(listed, tables, conf, Path(folder)) if listed is not None else {}
        reading = round(time.monotonic() - started, 3)
        with ThreadPoolExecutor(options.parallel) as pool:
            rows = list(
                pool.map(lambda name: _vacuum(name, tables[name], inventories.get(name), conf, options, now_ms), tables)
            )
    return [row | ({"inventory_seconds": reading} if listed is not None else {}) for row in rows]


def _tables(metastore: Metastore | None, options: argparse.Namespace) -> dict[str, str]:
    """Map names to locations. A table that is named twice, or under two names, appears once."""
    found = requested_locations(metastore, options.tables, None if options.all_databases else options.database)
    places: dict[tuple[str, str], str] = {}
    for name in sorted(found):
        place = bucket_of(found[name])
        places.setdefault((place.bucket, place.key), name)
    return {name: found[name] for name in sorted(places.values())}


def _inventory_at(metastore: Metastore | None, text: str) -> str:
    try:
        return location_of(metastore, text)
    except TableNotFoundError as error:
        raise TableNotFoundError(f"No inventory has been loaded yet: {error.message}", hint=MAKE_INVENTORY) from error


def _inventories(
    listed: str, tables: Mapping[str, str], conf: Mapping[str, str], folder: Path
) -> dict[str, Inventory | InvalidArgumentError]:
    """Return the rows of each table from one reading, or an error for a table in a bucket that was never listed."""
    log = DeltaLog.for_table(listed, options=conf)
    snapshot = log.update()
    if snapshot.version < 0:
        raise TableNotFoundError(f"No inventory has been loaded yet: {listed} has no table.", hint=MAKE_INVENTORY)
    source = inventory_from_delta(log, version=snapshot.version)
    if snapshot.schema.field("key") is None or "bucket" not in snapshot.partition_columns:
        raise InvalidArgumentError(
            f"{listed} is a list of files that is not partitioned by bucket, as load_inventory makes it.",
            hint="Load an inventory with jobs/load_inventory.py; for other lists, VACUUM … USING INVENTORY takes one "
            "table at a time.",
        )
    known = set(snapshot.files.core["pv:bucket"].drop_nulls().unique())
    found: dict[str, Inventory | InvalidArgumentError] = {}
    for bucket, root in places_of(list(tables.values())).items():
        inside = {name: location for name, location in tables.items() if bucket_of(location).bucket == bucket}
        as_of = loaded_until(snapshot, bucket)
        if as_of is None and bucket not in known:
            error = InvalidArgumentError(
                f"The inventory {listed} lists nothing of the bucket {bucket}; it lists "
                f"{', '.join(sorted(known)) or 'no bucket'}.",
                hint=f"{MAKE_INVENTORY} Or vacuum the table without --inventory.",
            )
            found |= dict.fromkeys(inside, error)
            continue
        parts = split_by_table(source.frames(root), bucket, list(inside.values()), folder)
        for name, location in inside.items():
            found[name] = _inventory(f"The inventory {listed}", parts[location], as_of)
    return found


def _inventory(description: str, rows: Path, as_of: int | None) -> Inventory:
    return Inventory(description=description, frames=lambda root: read_split(rows), as_of_ms=as_of, encoded=False)


def _vacuum(
    name: str,
    location: str,
    inventory: Inventory | InvalidArgumentError | None,
    conf: Mapping[str, str],
    options: argparse.Namespace,
    now_ms: int | None,
) -> dict[str, Any]:
    report: dict[str, Any] = {"table": name, "location": location}
    started = time.monotonic()
    try:
        if isinstance(inventory, InvalidArgumentError):
            raise inventory
        log = DeltaLog.for_table(location, options=conf)
        mode: VacuumMode = "full" if inventory is None else "inventory"
        command = Vacuum(
            retention_hours=options.retention_hours,
            dry_run=options.dry_run,
            mode="lite" if options.lite else mode,
            inventory=inventory,
            where=options.where,
            enforce_retention=Settings.resolve(conf).retention_check and not options.no_retention_check,
            options=VacuumOptions(deletes_per_second=options.deletes_per_second),
        )
        clock = epoch_ms if now_ms is None else lambda: now_ms
        result = run_command(command, Context(log, clock=clock))
    except DeltaError as error:
        report |= error_row(error)
    else:
        report |= _shown(result)
    return report | {"seconds": round(time.monotonic() - started, 3)}


def _shown(result: VacuumResult) -> dict[str, Any]:
    names = (
        "mode", "dry_run", "version", "cutoff_ms", "listed", "deleted", "directories", "removed_directories", "bytes",
        "list_requests", "delete_requests", "listing_requests", "directory_requests", "start_version", "end_version",
        "inventory_age_ms", "noncurrent_files", "noncurrent_bytes", "delete_markers",
    )  # fmt: skip
    shown = {name: getattr(result, name) for name in names}
    shown |= {"warnings": list(result.warnings), "result": result.sentence, "found": result.files.height}
    if result.dry_run:
        shown["partitions"] = result.partitions.head(_SHOWN_PARTITIONS).to_dicts()
        shown["files"] = result.files["path"].head(_SHOWN_FILES).to_list()
    return shown


def _work(given: Sequence[str]) -> JobReport:
    from pydelta.engines.spark.session.submitted import submitted_conf

    return JobReport.of_rows("tables", run(submitted_conf(), given))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(arguments(), _work, argv)


if __name__ == "__main__":
    sys.exit(main())
