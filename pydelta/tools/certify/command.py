"""Run ``pydelta certify``: make or load a plan, run it, judge it, shrink it if it fails, and report."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.errors.redaction import hide_text
from pydelta.settings import checked_properties
from pydelta.storage.uris import scheme_of
from pydelta.tools.certify.checker import check
from pydelta.tools.certify.delta_rs import import_deltalake
from pydelta.tools.certify.history import CertifyPlan
from pydelta.tools.certify.plan import kinds_without, make_plan
from pydelta.tools.certify.promises import PROMISES
from pydelta.tools.certify.proxy import endpoint_of
from pydelta.tools.certify.report import Report, read_report, verdict_of, write_report
from pydelta.tools.certify.run import Ran, Request, check_place, run_plan
from pydelta.tools.certify.shrinking import shrink
from pydelta.tools.certify.trino import TrinoReader

__all__ = ["Wish", "certify", "recheck"]

_WITH: Final = ("spark", "trino", "delta-rs")
_WRITERS: Final = ("spark", "delta-rs")
_RERUNS: Final = 2
_PACKAGES: Final = ("pyarrow", "polars", "obstore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The arguments of the command line.

    Args:
        uri: An empty location.
        options: Options of its store. They may hold secrets.
        engines: Engines besides pydelta.
        trino: Address of a Trino.
        trino_schema: ``catalog.schema`` in which to register the table.
        trino_writes: Whether Trino also writes.
        minutes: Time after which no operation begins.
        operations: Number of operations.
        processes: Number of pydelta processes.
        seed: Seed of the plan.
        without: Operations to leave out, such as ``optimize`` or ``delta-rs:optimize``.
        properties: Properties of the table.
        retention_seconds: How long VACUUM keeps removed files.
        faults: Whether stores fail and processes are killed.
        shrink: Maximum number of plans to run while shrinking a failing one; 0 turns it off.
        keep: Whether to keep the table.
        report: Folder for the report.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    engines: tuple[str, ...] = ()
    trino: str | None = None
    trino_schema: str = "delta.default"
    trino_writes: bool = False
    minutes: float = 2.0
    operations: int = 200
    processes: int = 3
    seed: int = 0
    without: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    retention_seconds: int = 300
    faults: bool = True
    shrink: int = 20
    keep: bool = False
    report: Path = Path()


def _refuse(wish: Wish) -> TrinoReader | None:
    """Check the arguments before anything is written. Returns the Trino reader if one is wanted.

    Raises:
        InvalidArgumentError, DeltaEnvironmentError: An argument makes no sense, or something it needs is missing.
    """
    unknown = sorted(set(wish.engines) - set(_WITH))
    if unknown:
        raise InvalidArgumentError(
            f"There is no engine {unknown[0]!r} to certify with.", hint=f"--with takes some of: {', '.join(_WITH)}."
        )
    if "delta-rs" in wish.engines:
        import_deltalake()
    if "spark" in wish.engines:
        _version(
            "pyspark", missing="Spark is not installed.", hint="pip install pyspark, or leave spark out of --with."
        )
    if (wish.trino is not None) != ("trino" in wish.engines):
        raise InvalidArgumentError(
            "--with trino and --trino belong together, but only one of them is given.",
            hint="Write --with trino --trino http://127.0.0.1:8080.",
        )
    if wish.trino_writes and wish.trino is None:
        raise InvalidArgumentError(
            "--trino-writes is given, but no Trino.", hint="Write --with trino --trino http://127.0.0.1:8080, too."
        )
    if scheme_of(wish.uri) == "memory":
        raise InvalidArgumentError(
            "memory:// is not shared by processes, so that there is nothing to certify.",
            hint="Name a folder or a bucket.",
        )
    check_place(wish.uri, wish.options)
    if wish.trino is None:
        return None
    catalog, _, schema = wish.trino_schema.partition(".")
    if not catalog or not schema:
        raise InvalidArgumentError(
            f"{wish.trino_schema!r} is not a schema of Trino.", hint="Write --trino-schema CATALOG.SCHEMA."
        )
    return TrinoReader(address=wish.trino, catalog=catalog, schema=schema)


def certify(wish: Wish, replayed: str | None, say: Callable[[str], None]) -> int:
    """Certify a location.

    Args:
        wish: The arguments of the command line.
        replayed: A report whose plan is repeated.
        say: Receives progress messages.

    Returns:
        0 if every promise held, 1 if one was broken, 2 if there is no verdict.

    Raises:
        DeltaError: No verdict was possible; the message gives the reason.
    """
    trino = _refuse(wish)
    if replayed is not None:
        before = read_report(replayed)
        plan = before.smallest or before.plan
        if trino is None and any(process.engine == "trino" for process in plan.processes):
            raise InvalidArgumentError(
                "Trino writes in this plan, but none is named.", hint="Add --with trino --trino http://127.0.0.1:8080."
            )
    else:
        writers = [engine for engine in wish.engines if engine in _WRITERS or (engine == "trino" and wish.trino_writes)]
        plan = make_plan(
            wish.seed,
            engines=["pydelta"] * wish.processes + writers,
            operations=wish.operations,
            properties=checked_properties(wish.properties),
            faults=wish.faults,
            kinds=kinds_without(wish.without),
        )
        plan = msgspec.structs.replace(plan, retention_seconds=wish.retention_seconds)
    readers = tuple(engine for engine in _WITH if engine in wish.engines)
    request = Request(
        uri=wish.uri, options=wish.options, minutes=wish.minutes, keep=wish.keep, readers=readers, trino=trino
    )
    say(
        f"Seed {plan.seed}: {_size(plan)} "
        f"({', '.join(dict.fromkeys(process.engine for process in plan.processes))}), at most {wish.minutes:g} minutes"
    )
    return _judge(wish, plan, request, say)


def _judge(wish: Wish, plan: CertifyPlan, request: Request, say: Callable[[str], None]) -> int:
    started = time.monotonic()
    ran = run_plan(plan, request)
    broken = tuple(check(ran.history))
    verdict = verdict_of(ran.history, broken)
    report = Report(
        verdict=verdict,
        uri=hide_text(wish.uri),
        made_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        seconds=time.monotonic() - started,
        engines=tuple(dict.fromkeys(process.engine for process in plan.processes)),
        readers=tuple(request.readers),
        plan=plan,
        history=ran.history,
        broken=broken,
        faults=dict(sorted(ran.faults.items())),
        versions=_versions(request.readers),
        notes=tuple(_notes(wish, plan, ran)),
    )
    # Write it before the search for a smaller plan, which may be interrupted.
    data, _ = write_report(report, wish.report)
    for item in broken[:10]:
        say(f"BROKEN  {PROMISES[item.promise][0]}: {item.says}")
    if len(broken) > 10:
        say(f"        and {len(broken) - 10} more")
    if verdict == "broken" and wish.shrink and plan.operations > 1:
        say(f"Looking for a smaller plan that still breaks one of them, in at most {wish.shrink} runs …")
        try:
            report = _shrunk(report, request, wish.shrink)
            data.unlink()
        except KeyboardInterrupt:
            say("Stopped looking: the verdict stands.")
    data, shown = write_report(report, wish.report)
    if report.smallest is not None:
        say(f"The smallest: {_size(report.smallest)}")
    for note in report.notes:
        say(f"Note: {note}")
    say(
        {"certified": f"Every promise held ({report.seconds:.0f} s).", "broken": "A promise was broken."}.get(
            verdict, _unsaid(ran)
        )
    )
    if wish.keep:
        say(f"The table stays: {hide_text(ran.table)}")
    say(f"Report: {shown or data}" + ("" if shown else " (for a page: pip install 'pydelta-lakehouse[ui]')"))
    return {"certified": 0, "broken": 1}.get(verdict, 2)


def _shrunk(report: Report, request: Request, tries: int) -> Report:
    """Add to the report the smallest plan found that breaks one of the same promises."""
    promises = {item.promise for item in report.broken}
    calm = replace(request, keep=False)

    def breaks(plan: CertifyPlan) -> bool:
        for _ in range(_RERUNS):
            try:
                found = check(run_plan(plan, calm).history)
            except DeltaEnvironmentError:
                return False
            if promises & {item.promise for item in found}:
                return True
        return False

    smallest, used = shrink(report.plan, breaks, tries=tries)
    found = smallest if smallest is not report.plan else None
    return msgspec.structs.replace(report, smallest=found, shrunk_in=used)


def _size(plan: CertifyPlan) -> str:
    counts = ((plan.operations, "operation", "operations"), (len(plan.processes), "process", "processes"))
    return " of ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)


def _unsaid(ran: Ran) -> str:
    errors = [event.error for event in ran.history.events if event.error]
    more = f" The last error: {errors[-1]}" if errors else ""
    return f"Nothing can be said: no operation wrote rows that another one read.{more}"


def _notes(wish: Wish, plan: CertifyPlan, ran: Ran) -> list[str]:
    """List what a reader of the verdict has to know."""
    notes = list(ran.notes)
    done = {event.step.op for event in ran.history.events}
    left = plan.operations - len(done)
    if left and not ran.history.race:
        notes.append(f"{left} of {plan.operations} operations were not begun: the time was up.")
    others = {process.engine for process in plan.processes} - {"pydelta"}
    if plan.proxy_faults and "trino" in others:
        others.remove("trino")
        notes.append(
            "Trino reaches the store with its own settings, so its store calls were not disturbed. "
            "Its clients were killed."
        )
    if plan.proxy_faults and others and endpoint_of(wish.uri, wish.options) is None:
        notes.append(
            f"Store calls of {' and '.join(sorted(others))} were not disturbed, because the proxy that loses replies "
            "needs an S3 endpoint (fs.s3a.endpoint). Their processes were killed, and pydelta lost replies."
        )
    vacuums = [event for event in ran.history.events if event.step.kind == "vacuum" and event.outcome == "ok"]
    if vacuums and wish.minutes * 60 <= plan.retention_seconds:
        notes.append(
            f"VACUUM ran and had nothing to delete: the run was shorter than the retention of {plan.retention_seconds} "
            "seconds. More --minutes, or a shorter --retention-seconds, test that, too."
        )
    return notes


def _version(package: str, *, missing: str, hint: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise DeltaEnvironmentError(missing, hint=hint) from error


def _versions(readers: Sequence[str]) -> dict[str, str]:
    packages = [
        *_PACKAGES,
        *(name for name, reader in (("deltalake", "delta-rs"), ("pyspark", "spark")) if reader in readers),
    ]
    found = {"Python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def recheck(path: str, say: Callable[[str], None]) -> int:
    """Judge the history of a report again, without a store. Exit codes as in ``certify``."""
    report = read_report(path)
    broken = check(report.history)
    for item in broken:
        say(f"BROKEN  {PROMISES[item.promise][0]}: {item.says}")
    verdict = verdict_of(report.history, broken)
    say(f"The history of seed {report.plan.seed}: {verdict}")
    return {"certified": 0, "broken": 1}.get(verdict, 2)
