"""Maintain tables by policy: ``python jobs/maintain.py --database lake --every 60``.

The properties ``pydelta.maintenance.*`` of each table decide what is done to it (docs/guides/maintenance.md). In each
turn the end of every table's log is read, and due actions begin: OPTIMIZE in a separate job (``--optimize-with``),
VACUUM by ``jobs/vacuum.py`` (``--vacuum-with``), and the sync of an announced commit in this process. Every action
becomes a row of the journal, ``ops.maintenance``.

Without ``--every`` it makes one turn, waits for its actions, and prints one line of JSON. With ``--dry-run`` it only
shows what is due, and why. This process starts no Spark session. Exit codes: 0 done; 1 an argument or a property is
wrong; 2 a temporary failure: run it again; 3 the outcome of a commit is unknown: look at the history first.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from catalog_sync.entries import sync_entries
from catalog_sync.names import TableName, twin_name
from catalog_sync.native import native_location, sync_native
from catalog_sync.registered import location_of, metastore_of, requested_locations
from catalog_sync.sync import SyncOptions
from catalog_sync.targets import SyncTarget, spark_scheme
from catalog_sync.thrift.client import Metastore
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.settings import Settings, parse_bytes
from pydelta.settings.clock import epoch_ms
from pydelta.settings.maintenance import MaintenancePolicy
from pydelta.storage import normalize_uri
from pydelta.tools.inventory import bucket_of, loaded_until
from pydelta.tools.jobs import JobParser, JobReport, pairs, run_job
from pydelta.tools.maintenance import ActionKind, DailyBudget
from pydelta.tools.maintenance.journal import Journal, Outcome
from pydelta.tools.maintenance.notice import Listener
from pydelta.tools.maintenance.refusals import RefusalTally
from pydelta.tools.maintenance.scheduler import ActionDone, ActionOrder, Looked, Scheduler, TablePlace, one_line
from pydelta.tools.maintenance.state import TARGET_BYTES
from pydelta.tools.maintenance.status import StatusOf, write_status

__all__ = ["main", "run"]

_HERE: Final = Path(__file__).resolve().parent


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = JobParser(prog="maintain.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.share("tables", "--database", "--all-databases", "--metastore")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="repeat this often; by default, run once")
    parser.share("--dry-run")
    parser.add_argument(
        "--default",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="policy default, such as vacuum=lite; repeatable",
    )
    parser.add_argument(
        "--bytes-per-day", metavar="SIZE", help="read at most this much of all tables per day, such as 500g"
    )
    parser.add_argument("--requests-per-day", type=int, metavar="N", help="send at most this many requests per day")
    parser.add_argument(
        "--journal", default="ops.maintenance", metavar="DATABASE.TABLE", help="name of the journal (ops.maintenance)"
    )
    parser.add_argument(
        "--journal-location", metavar="URI", help="location of the journal; by default that of its entry or database"
    )
    parser.share("--inventory")
    parser.add_argument(
        "--optimize-with",
        metavar="COMMAND",
        default=shlex.join([sys.executable, str(_HERE / "compact.py")]),
        help="runs jobs/compact.py with the arguments that follow; 'submit compact' for a cluster",
    )
    parser.add_argument(
        "--vacuum-with",
        metavar="COMMAND",
        default=shlex.join([sys.executable, str(_HERE / "vacuum.py")]),
        help="runs jobs/vacuum.py with the arguments that follow, such as with another key of the store",
    )
    parser.add_argument("--status", type=Path, metavar="FILE", help="file for the status of each table")
    parser.add_argument("--listen", metavar="HOST:PORT", help="accept notices of commits at this address, over HTTP")
    parser.add_argument(
        "--refusals", type=Path, metavar="FILE", help="with --listen: file for the number of refused commits per table"
    )
    return parser


def _options(given: Sequence[str]) -> argparse.Namespace:
    """Parse and check the arguments.

    Raises:
        InvalidArgumentError: Invalid arguments.
    """
    options = arguments().parse_args(given)
    if not options.tables and not options.database and not options.all_databases:
        raise InvalidArgumentError("No table was named.", hint="Give locations, names, --database or --all-databases.")
    if options.every is not None and options.every <= 0:
        raise InvalidArgumentError(f"--every is {options.every:g}.", hint="Give a number of seconds above 0.")
    if options.requests_per_day is not None and options.requests_per_day < 1:
        raise InvalidArgumentError(
            f"--requests-per-day is {options.requests_per_day}.", hint="Give 1 or more, or leave it out for no limit."
        )
    if options.every is not None and options.dry_run:
        raise InvalidArgumentError(
            "--dry-run runs once, so it cannot be combined with --every.", hint="Leave one of them out."
        )
    if options.refusals is not None and not options.listen:
        raise InvalidArgumentError("--refusals has no effect without --listen.", hint="Give both, or neither.")
    options.default = pairs(options.default, "--default")
    MaintenancePolicy.parse({}, options.default)
    options.bytes_per_day = (
        parse_bytes(options.bytes_per_day, name="--bytes-per-day") if options.bytes_per_day else None
    )
    return options


class Children:
    """Runs commands, forwards their output, and ends them when the process has to end."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, command: Sequence[str]) -> dict[str, Any]:
        """Run a job to its end, and return its line of JSON.

        Raises:
            InvalidArgumentError: The command cannot be started.
            DeltaError: The job printed no valid JSON.
        """
        if self.stop.is_set():
            raise StoppedError("The scheduler is being stopped.", hint="The work is done after the next start.")
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE)
        except OSError as error:
            raise InvalidArgumentError(
                f"{command[0]} cannot be started: {error.strerror}.",
                hint="Give another command (--optimize-with, --vacuum-with).",
            ) from error
        self._running.add(child)
        last = b""
        assert child.stdout is not None
        for line in child.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            last = line if line.strip() else last
        code = child.wait()
        self._running.discard(child)
        try:
            found = json.loads(last)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            if self.stop.is_set():
                raise StoppedError("The scheduler was stopped.", hint="The work is done after the next start.")
            raise SilentJobError(
                f"{Path(command[0]).name} {Path(command[1]).name if len(command) > 1 else ''} ended with exit code "
                f"{code} and printed no report.",
                hint="Its messages are in the log above; in the stack: make logs SERVICE=scheduler.",
            )
        return found

    def end(self, *_: object) -> None:
        """Stop on a signal, and end all children."""
        self.stop.set()
        for child in list(self._running):
            child.terminate()


class StoppedError(DeltaError):
    """An action was not done, because the process ends."""

    code = "PYDELTA_MAINTENANCE_STOPPED"
    retryable = True


class SilentJobError(DeltaError):
    """A job ended without its line of JSON."""

    code = "PYDELTA_JOB_SAID_NOTHING"
    retryable = True


@dataclass(slots=True, kw_only=True)
class Doer:
    """Runs actions: OPTIMIZE and VACUUM in separate processes, syncs in this one.

    Args:
        options: The parsed arguments.
        conf: Settings for storage and the metastore.
        children: Runs the jobs.
    """

    options: argparse.Namespace
    conf: Mapping[str, str]
    children: Children = field(default_factory=Children)

    def __call__(self, order: ActionOrder) -> ActionDone | None:
        """Run an action; see ``pydelta.tools.maintenance.scheduler.Do``."""
        kind = order.action.kind
        try:
            if kind == ActionKind.SYNC:
                return self._sync(order)
            return self._vacuum(order) if kind in ActionKind.VACUUMS else self._optimize(order)
        except StoppedError:
            return None

    def _optimize(self, order: ActionOrder) -> ActionDone:
        policy, snapshot = order.policy, self._log(order).update()
        target = snapshot.properties.target_file_size_bytes or TARGET_BYTES
        given = [f"--table={order.place.location}", f"--target={target}", f"--small-below={policy.small_file_bytes}"]
        if order.action.kind == ActionKind.COMPACT:
            given.append(f"--modified-before={epoch_ms() - policy.min_age_ms}")
        if order.action.kind == ActionKind.ZORDER:
            given.append(f"--zorder-by={','.join(policy.zorder_by)}")
        line = self.children.run([*shlex.split(self.options.optimize_with), *given])
        if "error" in line:
            return _failed(line)
        return ActionDone(
            outcome=Outcome.NOTHING if line["version"] is None else Outcome.DONE,
            facts={
                "version_after": line["version"],
                "files_read": line["files_removed"],
                "bytes_read": line["bytes_removed"],
                "files_written": line["files_added"],
                "bytes_written": line["bytes_added"],
                "files_removed": line["files_removed"],
                "bytes_removed": line["bytes_removed"],
                "requests": order.action.requests,
                "saved_files": line["files_removed"] - line["files_added"],
                "saved_bytes": line["bytes_removed"] - line["bytes_added"],
            },
        )

    def _vacuum(self, order: ActionOrder) -> ActionDone:
        modes = {
            ActionKind.LITE: ["--lite"],
            ActionKind.INVENTORY: [f"--inventory={self.options.inventory}"],
            ActionKind.FULL: [],
        }
        given = [order.place.location, *modes[order.action.kind]]
        given += [f"--metastore={self.options.metastore}"] if self.options.metastore else []
        found = self.children.run([*shlex.split(self.options.vacuum_with), *given])
        line = found["tables"][0] if "tables" in found else found
        if "error" in line:
            return _failed(line)
        return ActionDone(
            outcome=Outcome.DONE if line["deleted"] else Outcome.NOTHING,
            facts={
                "version_after": line["end_version"] or line["version"],
                "files_removed": line["deleted"],
                "bytes_removed": line["bytes"],
                "requests": line["list_requests"] + line["delete_requests"] + order.state.commits,
                "saved_files": line["deleted"],
                "saved_bytes": line["bytes"],
            },
        )

    def _sync(self, order: ActionOrder) -> ActionDone:
        settings = Settings.resolve(dict(self.conf))
        name = TableName.parse(order.place.name)
        found = metastore_of(self.options.metastore, self.conf)
        if found is None:
            raise InvalidArgumentError("There is no metastore to sync to.", hint="Give --metastore thrift://host:9083.")
        target = SyncTarget(
            log=self._log(order), native=name, twin=twin_name(name, settings.sync_name), registered=True
        )
        with found as metastore:
            result = sync_entries(metastore, target, SyncOptions()).check()
        written = result.manifests
        return ActionDone(
            outcome=Outcome.NOTHING if result.previous == result.version else Outcome.DONE,
            facts={
                "version_after": result.version,
                "files_written": len(written.written) if written else 0,
                "files_removed": len(written.removed) if written else 0,
            },
        )

    def _log(self, order: ActionOrder) -> DeltaLog:
        return DeltaLog.for_table(order.place.location, options=self.conf)


def _failed(line: Mapping[str, Any]) -> ActionDone:
    return ActionDone(
        outcome=Outcome.FAILED,
        error=" ".join(str(line.get("message", line["error"])).split()),
        error_code=str(line["error"]),
        exit_code=int(line.get("exit_code", 1)),
    )


@dataclass(slots=True, kw_only=True)
class _Turn:
    """Everything that a turn needs, opened once."""

    options: argparse.Namespace
    conf: Mapping[str, str]
    rounds: Scheduler
    journal: DeltaLog
    journal_name: TableName
    _entered: bool = False

    def places(self) -> list[TablePlace]:
        """Find the tables: named ones, those of databases, and the journal itself."""
        options = self.options
        with metastore_of(options.metastore, self.conf) or nullcontext() as metastore:
            found = requested_locations(metastore, options.tables, None if options.all_databases else options.database)
            self._enter(metastore)
        places = {
            normalize_uri(spark_scheme(location)): TablePlace(
                name=name,
                location=normalize_uri(spark_scheme(location)),
                registered=metastore is not None and "/" not in name,
            )
            for name, location in sorted(found.items(), reverse=True)
        }
        if self.journal.table_exists():
            places[self.journal.uri] = TablePlace(name=str(self.journal_name), location=self.journal.uri)
        return sorted(places.values(), key=lambda place: place.name)

    def _enter(self, metastore: Metastore | None) -> None:
        """Register the journal and its database in the metastore, once it exists."""
        if self._entered or metastore is None:
            return
        snapshot = self.journal.update()
        if snapshot.version < 0:
            return
        if not metastore.database_exists(self.journal_name.database):
            metastore.create_database(self.journal_name.database, self.journal.uri.rpartition("/")[0])
        sync_native(metastore, self.journal_name, snapshot)
        self._entered = True

    def enter_journal(self) -> None:
        """Register the journal using a new connection; see ``_enter``."""
        with metastore_of(self.options.metastore, self.conf) or nullcontext() as metastore:
            self._enter(metastore)


def _open(options: argparse.Namespace, conf: Mapping[str, str], children: Children) -> _Turn:
    """Open the journal and the scheduler.

    Raises:
        InvalidArgumentError: The location of the journal is unknown.
        DeltaError: The metastore or the store does not answer.
    """
    name = TableName.parse(options.journal)
    with metastore_of(options.metastore, conf) or nullcontext() as metastore:
        location = _journal_location(metastore, name, options.journal_location)
    log = DeltaLog.for_table(location, options=conf)
    rounds = Scheduler(
        Journal(log),
        Doer(options=options, conf=conf, children=children),
        options=conf,
        defaults=options.default,
        budget=DailyBudget(bytes=options.bytes_per_day, requests=options.requests_per_day),
        inventory_of=_InventoryTimes(options=options, conf=conf).of,
    )
    return _Turn(options=options, conf=conf, rounds=rounds, journal=log, journal_name=name)


def _journal_location(metastore: Metastore | None, name: TableName, given: str | None) -> str:
    if metastore is not None:
        entry = metastore.table(name.database, name.name)
        location = native_location(entry) if entry is not None else None
        if location is not None:
            return spark_scheme(location)
        if entry is not None:
            raise InvalidArgumentError(f"{name} is not a Delta table.", hint="Name another journal (--journal).")
    if given is not None:
        return given
    database = metastore.database_location(name.database) if metastore is not None else None
    if database is None:
        where = f"the metastore has no database {name.database}" if metastore is not None else "there is no metastore"
        raise InvalidArgumentError(
            f"The location of the journal {name} is not known: {where}.", hint="Give --journal-location."
        )
    return f"{spark_scheme(database).rstrip('/')}/{name.name}"


@dataclass(slots=True, kw_only=True)
class _InventoryTimes:
    """The times of the newest inventories. The inventory table may be created after this process starts."""

    options: argparse.Namespace
    conf: Mapping[str, str]
    _log: DeltaLog | None = None

    def of(self, location: str) -> int | None:
        """Return when the newest inventory of a table's bucket was made, in epoch milliseconds; None if there is none.

        Raises:
            DeltaError: The metastore does not answer, or the inventory table cannot be read.
        """
        if self.options.inventory is None:
            return None
        if self._log is None:
            try:
                with metastore_of(self.options.metastore, self.conf) or nullcontext() as metastore:
                    self._log = DeltaLog.for_table(location_of(metastore, self.options.inventory), options=self.conf)
            except TableNotFoundError:
                return None
        snapshot = self._log.update()
        return None if snapshot.version < 0 else loaded_until(snapshot, bucket_of(location).bucket)


def _shown(looked: Looked) -> dict[str, Any]:
    row: dict[str, Any] = {"table": looked.place.name, "location": looked.place.location}
    if looked.error is not None:
        return row | {"error": looked.error, "exit_code": looked.exit_code}
    return row | {"actions": [asdict(action) for action in looked.actions]}


def run(conf: Mapping[str, str], args: Sequence[str], children: Children | None = None) -> dict[str, Any]:
    """Run one turn, wait for its actions, and report.

    Args:
        conf: Settings for storage and the metastore, by Hadoop's and Spark's names.
        args: Arguments as on the command line, without ``--every``.
        children: Runs the jobs.

    Returns:
        ``tables``: due and held-back actions of each; ``exit_code``: the worst one.

    Raises:
        InvalidArgumentError: Invalid arguments.
        DeltaError: The metastore or the journal cannot be read.
    """
    options = _options(args)
    turn = _open(options, conf, children or Children())
    places, now_ms = turn.places(), epoch_ms()
    if options.dry_run:
        found = [turn.rounds.look(place, now_ms=now_ms)[0] for place in places]
    else:
        found = turn.rounds.tick(places, now_ms=now_ms)
        unwritten = turn.rounds.finish()
        turn.enter_journal()
        if unwritten is not None:
            return {"tables": list(map(_shown, found)), "error": unwritten, "exit_code": 2}
    code = max([turn.rounds.exit_code, *(looked.exit_code for looked in found)])
    return {"tables": list(map(_shown, found)), "exit_code": code}


def _loop(options: argparse.Namespace, conf: Mapping[str, str], children: Children) -> int:
    """Run turns until a signal arrives. A turn that fails as a whole is repeated next time."""
    wake, turn = threading.Event(), None
    listener = Listener.open(options.listen, wake) if options.listen else None
    tally = RefusalTally(options.refusals)

    if listener is not None:
        print(json.dumps({"listening": listener.port}), flush=True)

    def stop(*_: object) -> None:
        children.end()
        wake.set()

    status = StatusOf(what=f"maintenance of {_named(options)}", every=options.every)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    next_turn, places = 0.0, list[TablePlace]()
    while not children.stop.is_set():
        noticed = listener.take() if listener is not None else frozenset()
        is_time = time.monotonic() >= next_turn
        if is_time:
            next_turn = time.monotonic() + options.every
        problem = None
        try:
            turn = turn or _open(options, conf, children)
            if is_time:
                places = turn.places()
            chosen = [place for place in places if is_time or place.location in noticed]
            found = turn.rounds.tick(chosen, announced=noticed, now_ms=epoch_ms(), forget=is_time)
            status = status.after(found, turn.rounds.journal.failing(), all_of_them=is_time)
            if listener is not None:
                tally.add(listener.take_refused(), {place.location for place in places}, dt.datetime.now(dt.UTC))
        except (DeltaError, OSError) as error:
            problem = one_line(error)
            print(json.dumps({"maintenance": status.what, "error": problem}), flush=True)
        write_status(options.status, status, problem)
        wake.wait(max(next_turn - time.monotonic(), 0))
        wake.clear()
    if turn is not None:
        turn.rounds.close()
        turn.rounds.finish()
    if listener is not None:
        listener.close()
    return 0


def _named(options: argparse.Namespace) -> str:
    return "all tables" if options.all_databases else ", ".join([*options.tables, *options.database])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one turn, or turns until a signal arrives. Returns the exit code."""
    from pydelta.engines.spark.session.submitted import submitted_conf

    given = list(sys.argv[1:] if argv is None else argv)
    children = Children()

    def work(args: list[str]) -> JobReport:
        options = _options(args)
        if options.every is not None:
            return JobReport(line={"stopped": True}, exit_code=_loop(options, submitted_conf(), children))
        found = run(submitted_conf(), args, children)
        return JobReport(line=found, exit_code=found["exit_code"])

    return run_job(arguments(), work, given)


if __name__ == "__main__":
    sys.exit(main())
