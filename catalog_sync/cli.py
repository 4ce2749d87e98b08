"""Sync, verify and show tables from the command line. Starts no JVM.

::

    catalog_sync sync TABLE…        bring manifests and metastore to the newest version
    catalog_sync status TABLE…      show versions and lag
    catalog_sync drop TABLE…        drop the twin, keep the table
    catalog_sync verify TABLE       check every line and every partition
    catalog_sync preview TABLE      show the first rows that readers of the manifests get
    catalog_sync add-partition TABLE day=2024-01-01
    catalog_sync ddl TABLE          print the statement, for users who run it themselves
    catalog_sync serve              answer readers of Iceberg as a small REST catalog
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from catalog_sync.diff import SyncPlan, described
from catalog_sync.entries import SyncedEntries, iceberg_of, sync_entries
from catalog_sync.errors import MetastoreUnavailableError
from catalog_sync.iceberg.entry import ICEBERG_PROPERTY
from catalog_sync.iceberg.shown import iceberg_line, iceberg_row
from catalog_sync.names import TableName
from catalog_sync.native import databases_of
from catalog_sync.removal import DroppedTwin, drop_twin, entries_to_drop, find_orphans, prune_orphans
from catalog_sync.rest.options import add_serve
from catalog_sync.sync import SyncOptions, SyncResult, add_partition
from catalog_sync.targets import ENABLED_PROPERTY, SyncTarget, TableChoice, find_targets
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from pydelta.api.console.command_line import AsJson as _Json
from pydelta.api.console.command_line import StorageOptions as _Storage
from pydelta.api.console.command_line import make_app, named_values, run_app, storage_options
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.protocol.names import camel_case
from pydelta.settings import Settings
from pydelta.settings.clock import epoch_ms

__all__ = ["app", "main"]

_Row = dict[str, Any]

app = make_app(
    "catalog_sync",
    "Keep a Hive Metastore and symlink manifests up to date for Trino and Presto, without MSCK.",
)

_Tables = Annotated[list[str] | None, typer.Argument(help="Locations, or names of Delta tables in the metastore.")]
_OneTable = Annotated[str, typer.Argument(help="A location, or the name of a Delta table in the metastore.")]
_Database = Annotated[
    list[str] | None,
    typer.Option(
        "--database", "-d", help="Sync every Delta table of this database; several with commas; * means all databases."
    ),
]
_Name = Annotated[str | None, typer.Option("--entry", help="Name of the table's own entry: database.table.")]
_TwinName = Annotated[
    str | None, typer.Option("--twin", help="Name of the external table; by default in <database>_symlink.")
]
_MetastoreUri = Annotated[
    str | None, typer.Option("--metastore", help="thrift://host:9083; by default PYDELTA_METASTORE.")
]
_Tls = Annotated[bool, typer.Option("--tls", help="Use TLS to the metastore.")]
_Ca = Annotated[str | None, typer.Option("--ca", help="PEM file of the certificates to trust.")]
_Kerberos = Annotated[
    str | None, typer.Option("--kerberos", help="Service name of the metastore's principal, such as hive.")
]


def _connect(uris: str | None, *, tls: bool, ca: str | None, kerberos: str | None) -> Metastore:
    return Metastore(MetastoreAddress.parse(uris, tls=tls, ca_file=ca, kerberos_service=kerberos))


def _targets(
    metastore: Metastore,
    tables: Sequence[str] | None,
    databases: Sequence[str] | None,
    name: str | None,
    twin: str | None,
    storage: Sequence[str] | None,
) -> list[SyncTarget]:
    if not tables and not databases:
        raise InvalidArgumentError("No table was named.", hint="Give a location, a name, or --database.")
    return find_targets(
        metastore,
        TableChoice(tables=tables or (), databases=databases or (), name=name, twin=twin),
        rule=Settings.resolve().sync_name,
        options=storage_options(storage),
    )


@app.command()
def sync(
    tables: _Tables = None,
    database: _Database = None,
    table: _Name = None,
    twin: _TwinName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be changed; change nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Write every manifest, compare every partition.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop partitions that other programs added, and twins left behind.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over the twin of an earlier table at this location.")
    ] = False,
    atomic: Annotated[
        bool | None,
        typer.Option(
            "--atomic/--no-atomic", help="Move all changed partitions in one call, in this and all later syncs."
        ),
    ] = None,
    iceberg: Annotated[
        bool | None,
        typer.Option(
            "--iceberg/--no-iceberg",
            help="Also make an Iceberg entry, which later syncs follow; or leave it alone.",
        ),
    ] = None,
    warn: Annotated[
        bool,
        typer.Option(
            "--warn", help="Report a table that must be changed first as a warning, which does not set the exit code."
        ),
    ] = False,
    every: Annotated[int | None, typer.Option("--every", min=1, help="Run again after this many seconds.")] = None,
    metastore: _MetastoreUri = None,
    tls: _Tls = False,
    ca: _Ca = None,
    kerberos: _Kerberos = None,
    as_json: _Json = False,
    option: _Storage = None,
) -> None:
    """Bring manifests and metastore to the newest version of each table."""
    how = SyncOptions(dry_run=dry_run, full=full, prune=prune, adopt=adopt, atomic=atomic)

    def once() -> int:
        with _connect(metastore, tls=tls, ca=ca, kerberos=kerberos) as client:
            targets = _targets(client, tables, database, table, twin, option)
            rows, code = _each(
                targets, lambda target: _sync_one(client, target, how, iceberg), as_json=as_json, warn=warn
            )
            if database:
                gone = [
                    target
                    for target, row in zip(targets, rows, strict=True)
                    if row.get("error") == TableNotFoundError.code
                ]
                rows += _orphans(client, databases_of(client, database), gone, how, option, as_json=as_json)
        if as_json:
            print(json.dumps(rows, ensure_ascii=False))
        return code

    raise typer.Exit(once() if every is None else _repeat(once, every))


def _sync_one(client: Metastore, target: SyncTarget, how: SyncOptions, iceberg: bool | None) -> SyncedEntries:
    try:
        return sync_entries(client, target, how, iceberg=iceberg)
    except DeltaError as error:
        return SyncedEntries(twin_error=error)


def _orphans(
    client: Metastore,
    databases: Sequence[str],
    gone: Sequence[SyncTarget],
    how: SyncOptions,
    storage: Sequence[str] | None,
    *,
    as_json: bool,
) -> list[_Row]:
    """Report the twins and Iceberg entries whose tables are gone, and drop them where that was requested."""
    settings, options = Settings.resolve(), storage_options(storage)
    rows = []
    rules = {settings.sync_name: [target.twin for target in gone]}
    rules[settings.sync_iceberg_name] = [name for target in gone if (name := iceberg_of(target)) is not None]
    for rule, left in rules.items():
        orphans = find_orphans(client, databases, rule=rule, gone=left, options=options)
        prunes = how.prune and not how.dry_run
        dropped = prune_orphans(client, orphans, rule=rule, adopt=how.adopt) if prunes else []
        for orphan in orphans:
            is_gone = orphan.twin in dropped
            rows.append({"twin": str(orphan.twin), "table": orphan.location, "orphan": orphan.why, "dropped": is_gone})
            if not as_json:
                verdict = "would be dropped" if how.prune and how.dry_run and orphan.may_go(adopt=how.adopt) else "kept"
                ending = "dropped" if is_gone else f"{verdict} (catalog_sync drop {orphan.twin})"
                print(f"{orphan.twin} was left behind: {orphan.why}; {ending}")
    return rows


def _shown(target: SyncTarget, result: SyncResult) -> _Row:
    written = result.manifests
    return {
        "table": target.log.uri,
        "twin": str(result.twin),
        "version": result.version,
        "previous": result.previous,
        "manifestsWritten": len(written.written) if written else 0,
        "plan": _steps(result),
        "drift": [f"{drift.partition}: {drift.what}" for drift in result.plan.drift],
        "crowded": dict(written.crowded) if written else {},
        "calls": result.calls,
    }


def _steps(result: SyncResult) -> list[str]:
    if result.left_out:
        return [f"left out, as the table's property {ENABLED_PROPERTY} says"]
    return list(described(result.plan)) if result.plan != SyncPlan() else ["nothing to change"]


def _each(
    targets: Sequence[SyncTarget], work: Callable[[SyncTarget], SyncedEntries], *, as_json: bool, warn: bool = False
) -> tuple[list[_Row], int]:
    """Sync each table, even after one fails, and return the results and the highest exit code.

    With ``warn``, a table that has to be changed first does not fail the run, since a scheduler cannot change it.
    """
    rows, code = [], 0
    for target in targets:
        found = work(target)
        for error in filter(None, (found.twin_error, found.iceberg_error)):
            code = max(code, 0 if warn and error.exit_code == 1 else error.exit_code)
        if found.twin_error is not None:
            row = _failed(target, found.twin_error, warn=warn)
        else:
            assert found.twin is not None
            row = _shown(target, found.twin) | {"nativeEntryChanged": found.native_changed}
        if found.iceberg_error is not None:
            row["iceberg"] = _failed(target, found.iceberg_error, name=iceberg_of(target), warn=warn)
        elif found.iceberg is not None:
            row["iceberg"] = iceberg_row(found.iceberg)
        rows.append(row)
        if as_json:
            continue
        if "error" not in row:
            steps = row["plan"]
            shown = steps if len(steps) <= 12 else [*steps[:10], f"… and {len(steps) - 10} more"]
            print(f"{row['twin']}: version {row['version']}, {'; '.join(shown)} ({row['calls']} calls)")
            for directory, files in row["crowded"].items():
                print(f"  {directory or 'it'} has {files} files; Trino plans slowly beyond 1000. Next: OPTIMIZE it.")
        if found.iceberg is not None:
            print(iceberg_line(found.iceberg))
    return rows, code


def _failed(target: SyncTarget, error: DeltaError, *, name: TableName | None = None, warn: bool = False) -> _Row:
    """Print the error of a table's entry and return the row that takes its place among the results.

    Args:
        target: The table.
        error: Its error.
        name: Name of the entry, or None for the twin.
        warn: Print a warning if the table has to be changed first.
    """
    warns = warn and error.exit_code == 1
    print(f"{'Warning' if warns else 'Error'}: {name or target.twin}: {error}", file=sys.stderr)
    row = {"table": target.log.uri, "twin": str(target.twin), "error": error.code, "message": str(error)}
    if name is not None:
        row = {"name": str(name), "error": error.code, "message": str(error)}
    return row | ({"warning": True} if warns else {})


def _repeat(once: Callable[[], int], every: int) -> int:
    """Run once per interval until the process is asked to end. Errors are printed, and the next run tries again."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        began = time.monotonic()
        try:
            once()
        except DeltaError as error:
            print(f"Error: {error}", file=sys.stderr)
        sys.stdout.flush()
        stop.wait(max(every - (time.monotonic() - began), 0))
    return 0


@app.command()
def status(
    tables: _Tables = None,
    database: _Database = None,
    table: _Name = None,
    twin: _TwinName = None,
    metastore: _MetastoreUri = None,
    tls: _Tls = False,
    ca: _Ca = None,
    kerberos: _Kerberos = None,
    as_json: _Json = False,
    option: _Storage = None,
) -> None:
    """Show the versions of the table, its manifests and its entry, and how far behind they are.

    The exit code is 4 if a table is not where the metastore says, or its newest version cannot be published.
    """
    with _connect(metastore, tls=tls, ca=ca, kerberos=kerberos) as client:
        rows, code = _statuses(client, _targets(client, tables, database, table, twin, option))
    if as_json:
        _print_json(rows)
    else:
        _print_statuses(rows)
    raise typer.Exit(code)


def _statuses(client: Metastore, targets: Sequence[SyncTarget]) -> tuple[list[_Row], int]:
    """Return a row for each table and the highest exit code. An unreadable table does not stop the others."""
    from catalog_sync.inspect import SyncState, sync_status

    rows: list[_Row] = []
    code = 0
    for target in targets:
        try:
            found = sync_status(target.log, client, target.twin, now_ms=epoch_ms())
            row = _plain(found)
            code = max(code, 4 if found.state in (SyncState.NO_TABLE, SyncState.BLOCKED) else 0)
            iceberg, worst = _iceberg_status(client, target)
            row, code = row | iceberg, max(code, worst)
            rows.append(row)
        except MetastoreUnavailableError:
            raise  # Each further table would only wait for the same metastore.
        except DeltaError as error:
            rows.append(_failed(target, error) | {"state": "error"})
            code = max(code, error.exit_code)
    return rows, code


def _iceberg_status(client: Metastore, target: SyncTarget) -> tuple[_Row, int]:
    """Return the state of a table's Iceberg entry under its name, if it has one or asks for one, and an exit code."""
    from catalog_sync.iceberg.status import iceberg_status

    name = iceberg_of(target)
    if name is None:
        return {}, 0
    try:
        found = iceberg_status(target.log, client, name, now_ms=epoch_ms())
    except MetastoreUnavailableError:
        raise
    except DeltaError as error:
        return {"iceberg": _failed(target, error, name=name) | {"state": "error"}}, error.exit_code
    return ({}, 0) if found is None else ({"iceberg": _plain(found)}, 4 if found.state.is_bad else 0)


def _print_statuses(rows: Sequence[_Row]) -> None:
    from catalog_sync.iceberg.status import IcebergState
    from pydelta.api.console.terminal import Terminal, styled

    shown: list[list[object]] = []
    for row in rows:
        versions = (row.get(f"{what}Version") for what in ("table", "manifest", "metastore"))
        shown.append([row["twin"], row["state"], *map(_or_dash, versions), _behind(row), row.get("partitions", "")])
        if (iceberg := row.get("iceberg")) is not None:
            state, seen = iceberg["state"], (_or_dash(row.get("tableVersion")), "", _or_dash(iceberg.get("version")))
            is_bad = state == "error" or IcebergState(state).is_bad
            shown.append([iceberg["name"], styled(state, "bold red") if is_bad else state, *seen, _behind(iceberg), ""])
    columns = ("entry", "state", "table", "manifests", "metastore", "behind", "partitions")
    Terminal().table(columns, shown, file_width=200)
    for row in rows:
        for name, found in ((row["twin"], row), ((row.get("iceberg") or {}).get("name"), row.get("iceberg") or {})):
            if found.get("problem"):
                print(f"{name}: {found['problem']}", file=sys.stderr)
        if row["state"] == "no table":
            print(
                f"{row['twin']}: there is no Delta table at {row['table']}. Next: if it is gone for good, "
                f"catalog_sync drop {row['twin']}, and DROP TABLE of its own entry.",
                file=sys.stderr,
            )


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _behind(row: _Row) -> str:
    lag, seconds = row.get("lagVersions"), row.get("lagSeconds")
    return f"{lag} versions" + (f", {seconds:.0f} s" if seconds else "") if lag is not None else ""


@app.command()
def drop(
    tables: Annotated[
        list[str], typer.Argument(help="Names of Delta tables or of twins; or locations, with --entry or --twin.")
    ],
    table: _Name = None,
    twin: _TwinName = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Also drop the twin of an earlier table at this location.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be dropped; drop nothing.")] = False,
    metastore: _MetastoreUri = None,
    tls: _Tls = False,
    ca: _Ca = None,
    kerberos: _Kerberos = None,
    as_json: _Json = False,
    option: _Storage = None,
) -> None:
    """Drop twins and Iceberg entries that catalog_sync made. Tables, their own entries and all data stay."""
    if (table or twin) and len(tables) != 1:
        raise InvalidArgumentError("A name was given for more than one table.", hint="Drop twins one by one.")
    settings, options = Settings.resolve(), storage_options(option)
    rules = (settings.sync_name, settings.sync_iceberg_name)
    rows: list[_Row] = []
    code = 0
    with _connect(metastore, tls=tls, ca=ca, kerberos=kerberos) as client:
        for text in tables:
            try:
                for name, place in entries_to_drop(client, text, name=table, twin=twin, rules=rules, options=options):
                    found = drop_twin(client, name, location=place, adopt=adopt, dry_run=dry_run, options=options)
                    rows.append({"name": text, "twin": str(name), "table": found.location, "dropped": not dry_run})
                    if not as_json:
                        _print_dropped(found, dry_run=dry_run)
            except MetastoreUnavailableError:
                raise
            except DeltaError as error:
                code = max(code, error.exit_code)
                print(f"Error: {error}", file=sys.stderr)
                rows.append({"name": text, "error": error.code, "message": str(error)})
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
    raise typer.Exit(code)


def _print_dropped(found: DroppedTwin, *, dry_run: bool) -> None:
    what = "the Iceberg entry" if found.iceberg else "the twin"
    print(f"{found.twin}, {what} of {found.location}, {'would be' if dry_run else 'is'} dropped.")
    if found.comes_back and found.iceberg:
        print(f"  The next sync makes it again, since the table's property {ICEBERG_PROPERTY} is true.")
    elif found.comes_back:
        print(f"  The next commit makes it again, since the table's property {ENABLED_PROPERTY} is true.")


@app.command()
def verify(
    table: _OneTable,
    name: _Name = None,
    twin: _TwinName = None,
    files: Annotated[int | None, typer.Option("--files", help="Look for at most this many data files.")] = None,
    metastore: _MetastoreUri = None,
    tls: _Tls = False,
    ca: _Ca = None,
    kerberos: _Kerberos = None,
    as_json: _Json = False,
    option: _Storage = None,
) -> None:
    """Compare manifests with the log, and the metastore with the manifests. The exit code is 4 if they differ."""
    from catalog_sync.inspect import verify_sync

    with _connect(metastore, tls=tls, ca=ca, kerberos=kerberos) as client:
        (target,) = _targets(client, [table], None, name, twin, option)
        report = verify_sync(target.log, client, target.twin, files=files)
    if as_json:
        _print_json({"ok": report.ok} | _plain(report))
    elif report.ok:
        found = report.manifests
        print(
            f"{target.twin} is correct: version {found.version} of {found.table_version}, "
            f"{found.partitions} manifests, {found.lines} lines, {found.checked_files} files looked for."
        )
    else:
        problems = _plain(report) | _plain(report.manifests)
        for field, items in problems.items():
            for item in items if isinstance(items, (list, tuple)) else ():
                print(f"{field}: {item or 'of the table'}", file=sys.stderr)
        if report.manifests.version is None:
            print("nothing is published", file=sys.stderr)
        print("Next: catalog_sync sync --full", file=sys.stderr)
    raise typer.Exit(0 if report.ok else 4)


@app.command()
def preview(
    table: _OneTable,
    partition: Annotated[str, typer.Argument(help="Partition, such as day=2024-01-01.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 10,
    as_json: _Json = False,
    name: _Name = None,
    metastore: _MetastoreUri = None,
    option: _Storage = None,
) -> None:
    """Show the first rows that readers of the manifests get. Only a table given by name needs a metastore."""
    from catalog_sync.inspect import preview as first_rows
    from pydelta.log import DeltaLog

    if "/" in table:
        log = DeltaLog.for_table(table, options=storage_options(option))
    else:
        with _connect(metastore, tls=False, ca=None, kerberos=None) as client:
            (target,) = _targets(client, [table], None, name, None, option)
            log = target.log
    rows = first_rows(log, partition, limit=limit)
    if as_json:
        _print_json(rows)
        return
    from pydelta.api.console.terminal import Terminal

    Terminal().table(list(rows[0]) if rows else ["no rows"], [list(row.values()) for row in rows], file_width=200)


@app.command("add-partition")
def add_partition_command(
    table: _OneTable,
    values: Annotated[list[str], typer.Argument(help="column=value for each partition column.")],
    name: _Name = None,
    twin: _TwinName = None,
    metastore: _MetastoreUri = None,
    tls: _Tls = False,
    ca: _Ca = None,
    kerberos: _Kerberos = None,
    as_json: _Json = False,
    option: _Storage = None,
) -> None:
    """Add a partition with an empty manifest before its first rows, so that queries find it and return no rows."""
    pairs = named_values(values, what="A partition column", hint="Write column=value.")
    with _connect(metastore, tls=tls, ca=ca, kerberos=kerberos) as client:
        (target,) = _targets(client, [table], None, name, twin, option)
        directory = add_partition(target.log, client, target.twin, pairs)
    if as_json:
        _print_json({"twin": str(target.twin), "partition": directory})
    else:
        print(f"{target.twin} has the partition {directory}.")


@app.command()
def ddl(
    table: _OneTable,
    name: _Name = None,
    twin: _TwinName = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Also print how to add the partitions.")] = False,
    option: _Storage = None,
) -> None:
    """Print the statement that creates the external table. A table given by its location needs no metastore."""
    from catalog_sync.twin import create_statement, twin_of
    from pydelta.manifests import read_state

    offline = Metastore(MetastoreAddress(hosts=()))
    with _connect(None, tls=False, ca=None, kerberos=None) if "/" not in table else offline as client:
        (target,) = _targets(client, [table], None, name, twin, option)
    state = read_state(target.log.store)
    live = sorted(state.live()) if partitions and state is not None else ()
    print(create_statement(twin_of(target.log.snapshot()), target.twin, live))


def _plain(value: Any) -> _Row:
    """Return a result's fields under the names that JSON readers expect."""
    found = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            item = _plain(item)
        elif isinstance(item, Enum):
            item = item.value
        found[camel_case(field.name)] = item
    return found


def _print_json(value: object) -> None:
    def plain(item: object) -> object:
        return item.isoformat() if isinstance(item, dt.date | dt.datetime) else str(item)

    print(json.dumps(value, indent=2, ensure_ascii=False, default=plain))


add_serve(app, lambda uris, **how: _connect(uris, **how))  # Looked up at each call: tests replace it.


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; see ``run_app``."""
    run_app(app, argv, program="catalog_sync", printing=("status", "verify", "preview", "ddl"))


if __name__ == "__main__":
    main()
