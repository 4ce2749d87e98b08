"""Write the report of a run: JSON that can be checked and replayed, and a self-contained HTML page."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.tools.certify.history import CertifyPlan, Event, History
from pydelta.tools.certify.promises import PROMISES, Broken

__all__ = ["Report", "page", "read_report", "verdict_of", "write_report"]

_TEMPLATE: Final = Path(__file__).parent / "templates" / "report.html"
_SHOWN_EVENTS: Final = 60


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run and its verdict.

    Args:
        verdict: ``certified``, ``broken`` or ``nothing to say``.
        uri: The tested location, without credentials.
        made_at: ISO 8601, UTC.
        seconds: Duration of the run.
        engines: Engines that wrote.
        readers: Engines that read afterwards.
        plan: The plan that was run.
        history: The history of the run.
        broken: Promises that did not hold.
        faults: Count of each injected fault.
        versions: Versions of the packages used.
        smallest: The smallest plan found that still breaks a promise; None if none was searched for.
        shrunk_in: Number of plans run to find it.
        notes: Remarks for the reader.
    """

    verdict: str
    uri: str
    made_at: str
    seconds: float
    engines: tuple[str, ...]
    readers: tuple[str, ...]
    plan: CertifyPlan
    history: History
    broken: tuple[Broken, ...] = ()
    faults: dict[str, int] = {}
    versions: dict[str, str] = {}
    smallest: CertifyPlan | None = None
    shrunk_in: int = 0
    notes: tuple[str, ...] = ()


def verdict_of(history: History, broken: Sequence[Broken]) -> str:
    """Judge a run. If nothing was written, the verdict is "nothing to say"."""
    if broken:
        return "broken"
    done = [event for event in history.events if event.outcome == "ok" and event.version is not None]
    written = [event for event in done if event.step.kind != "read"]
    return "certified" if written and len(done) > len(written) else "nothing to say"


def write_report(report: Report, folder: Path) -> tuple[Path, Path | None]:
    """Write the JSON and the page. The page is None if jinja2 is not installed.

    Raises:
        InvalidArgumentError: The folder cannot be written to.
    """
    stamp = report.made_at.replace(":", "").replace("-", "").partition(".")[0].removesuffix("+0000")
    name = f"certify-{report.plan.seed}-{stamp}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / f"{name}.json"
        data.write_bytes(msgspec.json.encode(report))
        try:
            text = page(report, data.name)
        except DeltaEnvironmentError:
            return data, None
        shown = folder / f"{name}.html"
        shown.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(
            f"The report cannot be written to {folder}: {error.strerror}.", hint="Name another folder with --report."
        ) from error
    return data, shown


def read_report(path: str) -> Report:
    """Read a report's JSON.

    Raises:
        InvalidArgumentError: The file is missing or is not a report.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Report)
    except OSError as error:
        raise InvalidArgumentError(
            f"The report {path} cannot be read: {error.strerror}.", hint="Name the JSON that pydelta certify wrote."
        ) from error
    except msgspec.DecodeError as error:
        raise InvalidArgumentError(
            f"{path} is not a report of pydelta certify: {error}.", hint="Name the JSON that it wrote, not the page."
        ) from error


def page(report: Report, data_name: str) -> str:
    """Render the page.

    Raises:
        DeltaEnvironmentError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise DeltaEnvironmentError(
            "The page needs a package that is not installed: jinja2.", hint="pip install 'pydelta-lakehouse[ui]'"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=report, data_name=data_name, **_shown(report))


def _shown(report: Report) -> dict[str, Any]:
    """Collect, count and sort what the page shows of a report."""
    found: dict[str, list[Broken]] = {}
    for item in report.broken:
        found.setdefault(item.promise, []).append(item)
    promises = [(text, cost, found.get(name, [])) for name, (text, cost) in PROMISES.items()]
    concerned = {op for item in report.broken for op in item.ops}
    events = [event for event in report.history.events if event.step.op in concerned]
    start = min((event.invoked_ns for event in report.history.events), default=0)
    return {
        "promises": promises,
        "counts": _counts(report.history.events),
        "commits": len(report.history.commits),
        "events": [_line(event, start) for event in sorted(events, key=_moment)[:_SHOWN_EVENTS]],
        "more_events": max(len(events) - _SHOWN_EVENTS, 0),
        "errors": _errors(report.history.events),
        "properties": {
            "delta.deletedFileRetentionDuration": f"interval {report.plan.retention_seconds} seconds",
            **report.plan.properties,
        },
        "made": dt.datetime.fromisoformat(report.made_at).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _counts(events: Sequence[Event]) -> list[tuple[str, str, Mapping[str, int]]]:
    """Count operations by engine, kind and outcome."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for event in events:
        ended = "conflict" if event.trouble == "conflict" else event.outcome
        counted.setdefault((event.engine, event.step.kind), Counter())[ended] += 1
    return [(engine, kind, counts) for (engine, kind), counts in sorted(counted.items())]


def _errors(events: Sequence[Event]) -> list[tuple[str, int]]:
    """Count the errors by name, most frequent first."""
    counted = Counter(event.error.partition(":")[0] for event in events if event.error)
    return counted.most_common(10)


def _moment(event: Event) -> int:
    return event.invoked_ns


def _line(event: Event, start: int) -> dict[str, Any]:
    ended = None if event.returned_ns is None else round((event.returned_ns - start) / 1e6)
    return {
        "op": event.step.op,
        "kind": event.step.kind,
        "key": event.step.key if event.step.kind not in ("read", "vacuum", "optimize", "checkpoint") else "",
        "engine": event.engine,
        "began": round((event.invoked_ns - start) / 1e6),
        "ended": ended,
        "outcome": event.outcome,
        "version": event.version,
        "error": event.error,
    }
