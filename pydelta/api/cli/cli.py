"""Show and maintain a table from the command line, for people or as JSON. Only ``sql`` and ``serve`` start a JVM.

::

    pydelta history PATH      list commits, newest first
    pydelta detail PATH       show schema, properties, size and features
    pydelta files PATH        list the live files of a version, or those that may match a condition
    pydelta checkpoint PATH   write a checkpoint
    pydelta cleanup PATH      delete log files that are past their retention
    pydelta generate PATH     publish the symlink manifests that Trino and Presto read
    pydelta create PATH       create a table; also restore and clone
    pydelta index PATH        make, refresh or drop a record index
    pydelta append PATH FILE  add rows; also overwrite, merge, update and delete
    pydelta optimize PATH     rewrite small files, or sort rows
    pydelta vacuum PATH       delete the files that no retained version needs
    pydelta maintain TABLE    show the maintenance that a table's policy asks for
    pydelta fsck PATH         find damage in a table, and repair it on request
    pydelta doctor [URI]      find problems of this machine, of a store, or in a job's log
    pydelta certify URI       test a store and engines by histories with faults
    pydelta sql               open a SQL prompt over Spark, or run a script
    pydelta users             check the file of users and roles
    pydelta serve             serve JDBC, ODBC, beeline and Spark Connect
    pydelta ui                serve a page about tables, their commits, twins and streams
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from pydelta.api.cli.changing import add_changes
from pydelta.api.cli.history import show_history
from pydelta.api.cli.making import add_making
from pydelta.api.cli.users import add_users
from pydelta.api.console.command_line import (
    AsJson,
    AtTimestamp,
    AtVersion,
    DryRun,
    Inventory,
    NoLogin,
    Partitions,
    StorageOptions,
    TablePath,
    TimeZone,
    Verbose,
    given_time,
    make_app,
    named_values,
    run_app,
    storage_options,
)
from pydelta.api.console.output import moment, print_json, print_table
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.protocol.names import camel_case

if TYPE_CHECKING:
    from pydelta.commands.fsck import FsckReport
    from pydelta.log import DeltaLog, Snapshot
    from pydelta.manifests import ManifestReport

__all__ = ["app", "main"]

_COMMANDS: Final = "pydelta.cli"
"""The group of entry points that add commands; each is called with the application."""

app = make_app(
    "pydelta",
    "Inspect, change and maintain Delta tables. Only sql and serve start a JVM.",
)


def _log(path: str, options: Sequence[str] | None) -> DeltaLog:
    from pydelta.log import DeltaLog

    return DeltaLog.for_table(path, options=storage_options(options))


def _snapshot(log: DeltaLog, version: int | None, timestamp: str | None) -> Snapshot:
    if version is not None and timestamp is not None:
        raise InvalidArgumentError("--version and --timestamp exclude each other.", hint="Give one of them.")
    return log.snapshot(version=version, timestamp_ms=given_time(timestamp) if timestamp is not None else None)


def _statistics(text: str | None) -> dict[str, Any] | None:
    """Parse a file's statistics; None if there are none, or if they are not a JSON object."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _camel(result: Any) -> dict[str, Any]:
    """Return a result's fields under camel-case names: ``numFiles`` for ``num_files``."""
    return {camel_case(field.name): getattr(result, field.name) for field in dataclasses.fields(result)}


@app.command()
def history(
    path: TablePath,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most this many commits.")] = None,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """List the commits, newest first."""
    show_history(path, storage_options(option), limit=limit, as_json=as_json)


@app.command()
def detail(
    path: TablePath,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """Show schema, partitioning, properties, size and features."""
    from pydelta.commands.describe import describe_detail

    snapshot = _snapshot(_log(path, option), version, timestamp)
    row: dict[str, Any] = {"version": snapshot.version, **describe_detail(snapshot)}
    row |= {name: moment(row[name]) for name in ("createdAt", "lastModified")}
    if as_json:
        print_json(row | {"schema": json.loads(snapshot.schema.to_json())})
        return
    print_table(("", ""), [[name, value] for name, value in row.items()])
    fields = [
        [field.name, str(field.data_type), "yes" if field.nullable else "no",
         "yes" if field.name in snapshot.partition_columns else ""]
        for field in snapshot.schema.fields
    ]  # fmt: skip
    print_table(("column", "type", "nullable", "partition"), fields)


@app.command()
def files(
    path: TablePath,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="Only files that may hold a row for which this is true.")
    ] = None,
    time_zone: TimeZone = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most this many files.")] = None,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """List the live files, with partition values and statistics."""
    from pydelta.predicate import parse_predicate

    snapshot = _snapshot(_log(path, option), version, timestamp)
    if where is None:
        found = snapshot.files.core
    else:
        condition = parse_predicate(where, snapshot.schema, time_zone=time_zone)
        found = snapshot.files.select(None, [condition], time_zone=time_zone or "UTC")
    shown = found if limit is None else found.head(limit)
    spec = snapshot.files.spec
    names = dict(zip(spec.physical_names, spec.partition_columns, strict=True))
    adds = snapshot.files.adds(shown)
    rows: list[dict[str, Any]] = [
        {
            "path": add.path,
            "sizeInBytes": add.size,
            "modificationTime": moment(add.modification_time),
            "partitionValues": {names.get(name, name): value for name, value in add.partition_values.items()},
            "deletionVector": add.deletion_vector.unique_id if add.deletion_vector else None,
            "stats": _statistics(add.stats),
        }
        for add in adds
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("path", "sizeInBytes", "partitionValues", "rows")
    print_table(
        columns,
        [
            [row["path"], row["sizeInBytes"], row["partitionValues"], (row["stats"] or {}).get("numRecords")]
            for row in rows
        ],
        title=f"{len(rows)} of {snapshot.num_files} files, version {snapshot.version}",
    )


@app.command()
def checkpoint(path: TablePath, as_json: AsJson = False, option: StorageOptions = None) -> None:
    """Write a checkpoint of the newest version, and verify it by reading it back."""
    result = _log(path, option).checkpoint()
    row = {
        "version": result.version,
        "path": result.name,
        "numAddFiles": result.num_adds,
        "numRemoveFiles": result.num_removes,
        "sizeInBytes": result.size_bytes,
        "sidecars": list(result.sidecars),
    }
    print_json(row) if as_json else print_table(("", ""), [[name, value] for name, value in row.items()])


@app.command()
def cleanup(path: TablePath, as_json: AsJson = False, option: StorageOptions = None) -> None:
    """Delete log files older than delta.logRetentionDuration that no retained version needs."""
    result = _log(path, option).cleanup()
    row = {
        "deletedFiles": result.deleted,
        "cutoff": moment(result.cutoff_ms),
        "oldestVersion": result.oldest_version,
        "failed": dict(result.failed),
    }
    print_json(row) if as_json else print_table(("", ""), [[name, value] for name, value in row.items()])
    if result.failed:
        raise typer.Exit(1)


@app.command()
def generate(
    path: TablePath,
    where: Partitions = None,
    time_zone: TimeZone = None,
    full: Annotated[bool, typer.Option("--full", help="Write every manifest again.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the published manifests with the log.")] = False,
    mode: Annotated[str, typer.Option("--mode", help="Or iceberg, for an Iceberg entry.")] = "symlink_format_manifest",
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Replace an Iceberg entry that another writer changed.")
    ] = False,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """Publish the symlink manifests, or the Iceberg entry, as far as they changed since the last time."""
    from pydelta.api.cli.iceberg import entry_lines, entry_row
    from pydelta.commands.generate import GenerateIceberg, generation
    from pydelta.commands.run import Context, run
    from pydelta.manifests import verify_manifests

    log = _log(path, option)
    task = generation(mode, where=where, time_zone=time_zone, full=full)
    if isinstance(task, GenerateIceberg):
        if verify:
            raise InvalidArgumentError("--verify compares symlink manifests.", hint="Leave it out with --mode iceberg.")
        entry = run(dataclasses.replace(task, adopt=adopt), Context(log))
        print_json(entry_row(entry)) if as_json else print("\n".join(entry_lines(entry)))
        return
    result = run(task, Context(log))
    report = verify_manifests(log) if verify else None
    if as_json:
        found = _camel(result)
        if report is not None:
            found["verified"] = {"ok": report.ok} | _camel(report)
        print_json(found)
    elif result.previous == result.version and not (result.written or result.removed or result.emptied):
        print(f"The manifests are already at version {result.version}.")
    else:
        why = f" (all of them: {result.reason})" if result.reason else ""
        print(
            f"Version {result.version}: {len(result.written)} manifests with {result.files} files written, "
            f"{len(result.emptied)} emptied, {len(result.removed)} removed{why}."
        )
    for directory, files in result.crowded.items():
        print(
            f"{directory or 'The table'} has {files} files; readers are slow beyond 1000. Next: OPTIMIZE it.",
            file=sys.stderr,
        )
    if report is not None and not report.ok:
        raise typer.Exit(_report_problems(report))


@app.command()
def vacuum(
    path: TablePath,
    retention_hours: Annotated[
        float | None, typer.Option("--retention-hours", metavar="HOURS", help="How far back versions stay readable.")
    ] = None,
    dry_run: DryRun = False,
    lite: Annotated[bool, typer.Option("--lite", help="Find the files in the log instead of a listing.")] = False,
    inventory: Inventory = None,
    where: Partitions = None,
    time_zone: TimeZone = None,
    check: Annotated[
        bool, typer.Option("--retention-check/--no-retention-check", help="Refuse a retention below the table's.")
    ] = True,
    deletes_per_second: Annotated[
        float | None,
        typer.Option("--deletes-per-second", min=1, metavar="N", help="Maximum number of deletions per second."),
    ] = None,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """Delete the files that no retained version, published manifest or running writer needs."""
    from pydelta.api.console.vacuum_display import live_counts, summary_lines
    from pydelta.commands.run import Context, run
    from pydelta.commands.vacuum.command import Vacuum, VacuumOptions
    from pydelta.commands.vacuum.inventory_sources import inventory_at

    log = _log(path, option)
    with nullcontext() if as_json else live_counts() as progress:
        command = Vacuum(
            retention_hours=retention_hours,
            dry_run=dry_run,
            mode="lite" if lite else "full",
            inventory=inventory_at(inventory, log.options) if inventory is not None else None,
            where=where,
            time_zone=time_zone,
            enforce_retention=check,
            progress=progress,
            options=VacuumOptions(deletes_per_second=deletes_per_second),
        )
        result = run(command, Context(log))
    for text in result.warnings:
        print(f"Warning: {text}", file=sys.stderr)
    if as_json:
        files = result.files["path"].to_list() if dry_run else None
        print_json({**_camel(result), "files": files, "partitions": result.partitions.to_dicts()})
        return
    if dry_run:
        print_table(("file", "bytes"), list(result.files.select("path", "size").iter_rows()))
        print_table(("partition", "files", "bytes"), list(result.partitions.iter_rows()))
    for line in summary_lines(result):
        print(line)


@app.command()
def fsck(
    path: TablePath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove missing files from the log, and replace damaged checkpoints.")
    ] = False,
    as_json: AsJson = False,
    option: StorageOptions = None,
) -> None:
    """Find missing files, holes in the log, unreadable checkpoints and stray files."""
    from pydelta.commands.fsck import Fsck
    from pydelta.commands.run import Context, run

    report = run(Fsck(repair=repair), Context(_log(path, option)))
    stray = report.stray_files
    if as_json:
        print_json({**_camel(report), "ok": report.ok, "strayFiles": stray["path"].to_list()})
    else:
        state = f"Version {report.version}" if report.version is not None else "The newest version cannot be read"
        strays = f"{stray.height} stray files ({stray['size'].sum()} bytes)"
        print(f"{state}: {report.checked_files} files looked for, {strays}.")
        if report.repaired_version is not None:
            print(
                f"{len(report.missing_files)} missing files removed from the log in version {report.repaired_version}."
            )
        for name in report.removed_checkpoints:
            print(f"Deleted the checkpoint file {name}; a new checkpoint is there.")
    if not _say_damage(report, repaired=repair):
        raise typer.Exit(4)


def _say_damage(report: FsckReport, *, repaired: bool) -> bool:
    """Print the damage that remains to standard error. Returns whether there is none."""
    said = [f"unreadable: {report.unreadable}"] if report.unreadable else []
    said += [f"hole in the log: version {version}" for version in report.holes]
    said += [f"damaged commit {version}: {why}" for version, why in report.damaged_commits]
    said += [f"missing deletion vector of: {path}" for path in report.missing_vectors]
    said += [f"damaged deletion vector of: {path}: {why}" for path, why in report.damaged_vectors]
    said += [f"damaged file: {path}: {why}" for path, why in report.damaged_files]
    said += [f"cannot be searched: {folder}: {why}" for folder, why in report.unreachable]
    said += [f"damaged Iceberg entry: {path}: {why}" for path, why in report.damaged_entry]
    mendable = [f"damaged checkpoint {name}: {why}" for name, why in report.damaged_checkpoints]
    mendable += ["damaged hint: _last_checkpoint"] if report.damaged_hint else []
    mendable += [f"missing file: {path}" for path in report.missing_files]
    mended = repaired and report.unreadable is None
    for text in said if mended else said + mendable:
        print(text, file=sys.stderr)
    if said:
        print("Next: bring back what is missing from a backup of _delta_log or of the files.", file=sys.stderr)
    if mendable and not mended:
        print("Next: bring the files back, or remove them from the log with pydelta fsck --repair", file=sys.stderr)
    return not said and (mended or not mendable)


def _report_problems(report: ManifestReport) -> int:
    """Print what is wrong with the manifests to standard error; return the exit code of a failed check."""
    for name in ("missing_lines", "extra_lines", "missing_manifests", "stray_manifests", "other_files", "absent_files"):
        for item in getattr(report, name):
            print(f"{name.replace('_', ' ')}: {item or 'of the table'}", file=sys.stderr)
    print("The manifests are not correct. Next: pydelta generate --full", file=sys.stderr)
    return 4


_Master = Annotated[str | None, typer.Option("--master", help="Spark master [local[*]].")]
_Conf = Annotated[list[str] | None, typer.Option("--conf", "-c", metavar="NAME=VALUE", help="A Spark setting.")]
_Warehouse = Annotated[
    str | None, typer.Option("--warehouse", help="Folder for tables and their catalog; by default in your data folder.")
]
_Metastore = Annotated[str | None, typer.Option("--metastore", help="Address of a Hive Metastore: thrift://host:port.")]


@app.command()
def sql(
    execute: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="SQL", help="Run this statement and exit; repeatable."),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", "-f", metavar="FILE", help="Run this script and exit; repeatable.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="sc://HOST:PORT", help="Run everything on this server; see serve.")
    ] = None,
    master: _Master = None,
    conf: _Conf = None,
    warehouse: _Warehouse = None,
    metastore: _Metastore = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print results as CSV.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, help="Maximum number of rows per result; 0 for all [100 in a table]."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Open a SQL prompt over Spark. With --execute, --file or a pipe, run a script up to its first error."""
    if as_json and as_csv:
        raise InvalidArgumentError("--json and --csv exclude each other.", hint="Give one of them.")
    style: Literal["table", "csv", "json"] = "table"
    if as_json or as_csv:
        style = "json" if as_json else "csv"
    try:
        from pydelta.api.prompt.statements import run_sql
    except ModuleNotFoundError as error:
        raise DeltaEnvironmentError(f"{error.name} is not installed.", hint="Install pyspark.") from error

    settings = named_values(conf, what="A Spark setting", hint="Write --conf NAME=VALUE.")
    code = run_sql(
        statements=execute or (),
        files=file or (),
        style=style,
        limit=limit,
        remote=remote,
        master=master,
        conf=settings,
        warehouse=warehouse,
        metastore=metastore,
        verbose=verbose,
    )
    if code:
        raise typer.Exit(code)


@app.command()
def serve(
    thrift: Annotated[
        int | None, typer.Option("--thrift", metavar="PORT", help="Serve JDBC, ODBC and beeline on this port.")
    ] = None,
    connect: Annotated[
        int | None, typer.Option("--connect", metavar="PORT", help="Serve Spark Connect on this port.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other machines need TLS and a log-in.")
    ] = "127.0.0.1",
    users: Annotated[
        str | None, typer.Option("--users", metavar="FILE", help="Users of Spark Connect: lines of name:token.")
    ] = None,
    access: Annotated[
        str | None, typer.Option("--access", metavar="FILE", help="File of users, their roles and tables; see users.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option("--certificate", metavar="FILE", help="Certificate for Spark Connect, as PEM.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="FILE", help="Private key of the certificate, as PEM.")
    ] = None,
    no_login: NoLogin = False,
    master: _Master = None,
    conf: _Conf = None,
    warehouse: _Warehouse = None,
    metastore: _Metastore = None,
    grace: Annotated[
        float, typer.Option("--grace", min=0, metavar="SECONDS", help="How long a stop waits for running commits.")
    ] = 60.0,
    metrics: Annotated[
        int | None,
        typer.Option("--metrics", metavar="PORT", help="Serve metrics for Prometheus on this port of the loopback."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Serve JDBC, ODBC, beeline and Spark Connect; by default on the ports 10000 and 15002."""
    try:
        from pydelta.api.console.addresses import CONNECT_PORT, THRIFT_PORT, Addresses
        from pydelta.api.console.guard import Guard
        from pydelta.api.server.command import run_server
    except ModuleNotFoundError as error:
        raise DeltaEnvironmentError(f"{error.name} is not installed.", hint="Install pyspark.") from error

    if thrift is None and connect is None:
        thrift, connect = THRIFT_PORT, CONNECT_PORT
    settings = named_values(conf, what="A Spark setting", hint="Write --conf NAME=VALUE.")
    code = run_server(
        Addresses(host=host, thrift=thrift, connect=connect, no_login=no_login, metrics=metrics),
        Guard.read(users, certificate, key, access),
        grace=grace,
        master=master,
        conf=settings,
        warehouse=warehouse,
        metastore=metastore,
        verbose=verbose,
    )
    if code:
        raise typer.Exit(code)


add_changes(app)
add_making(app)
add_users(app)
for _point in sorted(entry_points(group=_COMMANDS), key=lambda point: point.name):
    _point.load()(app)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; see ``run_app``."""
    run_app(app, argv, program="pydelta", printing=("history", "detail", "files", "doctor"))


if __name__ == "__main__":
    main()
