"""Read OpenLineage events from a folder, newest first and up to a size: which jobs read and wrote which tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from pydelta.errors import DeltaError
from pydelta.errors.redaction import hide_text
from pydelta.storage import Store, normalize_uri, open_store
from pydelta.tools.lineage.events import dataset_name
from pydelta.tools.ui.catalog.facts import EngineRun, LineageState, LineageStep
from pydelta.tools.ui.formats import amount
from pydelta.tools.ui.values import ShownPlace, Trouble

__all__ = ["ENDINGS", "around", "named_steps", "read_lineage"]

ENDINGS: Final = (".jsonl", ".ndjson", ".json")
_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_FILES: Final = 10_000
_MOST_STEPS: Final = 2000
_MOST_RUNS: Final = 500
_MOST_TABLES: Final = 200
_STATES: Final = {"START": "running", "RUNNING": "running", "COMPLETE": "done", "FAIL": "failed", "ABORT": "failed"}


class _Dataset(msgspec.Struct):
    namespace: str
    name: str


class _Message(msgspec.Struct):
    message: str = ""


class _RunFacets(msgspec.Struct, rename="camel"):
    error_message: _Message | None = None


class _EventRun(msgspec.Struct, rename="camel"):
    run_id: str
    facets: _RunFacets | None = None


class _Job(msgspec.Struct):
    name: str
    namespace: str = ""


class _Event(msgspec.Struct, rename="camel"):
    """The part of an event that this module reads."""

    event_time: str
    run: _EventRun
    job: _Job
    event_type: str = "OTHER"
    inputs: list[_Dataset] = []
    outputs: list[_Dataset] = []


_EVENT: Final = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class _Run:
    """A run, gathered from its events in any order."""

    job: str
    began_ms: int
    newest_ms: int
    state: str = "running"
    error: str | None = None
    inputs: dict[tuple[str, str], None] = field(default_factory=dict)
    outputs: dict[tuple[str, str], None] = field(default_factory=dict)


def read_lineage(location: str, options: Mapping[str, str] | None = None, *, most: int = _MOST_BYTES) -> LineageState:
    """Read the newest events of a folder. Errors become the state's trouble. Data sets have their own names.

    Args:
        location: The folder. Its files have an event of OpenLineage per line.
        options: Storage options.
        most: Number of bytes to read.
    """
    try:
        uri = normalize_uri(location)
        lines, limited = _lines(open_store(uri, options), most)
    except (DeltaError, OSError, ValueError) as error:
        return LineageState(location=hide_text(location), trouble=Trouble.of(error))
    runs, unreadable = _gathered(lines)
    return LineageState(
        location=hide_text(location),
        steps=tuple(_steps(runs)),
        runs=tuple(_shown(runs)),
        events=len(lines) - unreadable,
        unreadable=unreadable,
        limited=limited,
    )


def _lines(store: Store, most: int) -> tuple[list[bytes], str | None]:
    """Read whole lines from the ends of the newest files."""
    files = []
    for info in store.list_from("", prefix=""):
        if info.path.endswith(ENDINGS):
            files.append(info)
        if len(files) > _MOST_FILES:
            break
    lines: list[bytes] = []
    left = most
    for info in sorted(files, key=lambda info: (-info.modification_time_ms, info.path)):
        start = max(info.size - left, 0)
        data = store.read_range(info.path, start, info.size - start) if info.size else b""
        found = data.split(b"\n")
        lines += [line for line in (found[1:] if start else found) if line.strip()]
        left -= len(data)
        if left <= 0:
            return lines, f"Only the newest {amount(most)} of events are read."
    return lines, None


def _gathered(lines: Iterable[bytes]) -> tuple[dict[str, _Run], int]:
    runs: dict[str, _Run] = {}
    unreadable = 0
    for line in lines:
        try:
            event = _EVENT.decode(line)
            at_ms = int(dt.datetime.fromisoformat(event.event_time).timestamp() * 1000)
        except (msgspec.DecodeError, ValueError, OverflowError):
            unreadable += 1
            continue
        run = runs.setdefault(
            event.run.run_id, _Run(job=hide_text(event.job.name[:300]), began_ms=at_ms, newest_ms=at_ms)
        )
        run.began_ms, run.newest_ms = min(run.began_ms, at_ms), max(run.newest_ms, at_ms)
        state = _STATES.get(event.event_type.upper(), "running")
        run.state = run.state if state == "running" else state
        facets = event.run.facets
        if facets is not None and facets.error_message is not None:
            run.error = hide_text(facets.error_message.message.partition("\n")[0][:500])
        for known, given in ((run.inputs, event.inputs), (run.outputs, event.outputs)):
            known.update(dict.fromkeys((item.namespace, item.name) for item in given[:_MOST_TABLES]))
    return runs, unreadable


def _steps(runs: Mapping[str, _Run]) -> Iterable[LineageStep]:
    """Join runs of a job over the same tables. The newest one gives time and state."""
    found: dict[tuple[Any, ...], LineageStep] = {}
    for run in sorted(runs.values(), key=lambda run: run.newest_ms):
        if not run.inputs and not run.outputs:
            continue
        key = (run.job, tuple(sorted(run.inputs)), tuple(sorted(run.outputs)))
        before = found.pop(key, None)
        found[key] = LineageStep(
            job=run.job,
            inputs=tuple(map(_dataset, key[1])),
            outputs=tuple(map(_dataset, key[2])),
            at_ms=run.newest_ms,
            runs=1 if before is None else before.runs + 1,
            state=run.state,
        )
    return list(reversed(found.values()))[:_MOST_STEPS]


def _dataset(key: tuple[str, str]) -> str:
    namespace, name = key
    return hide_text(f"{namespace}{name}" if namespace == "file" or namespace.endswith("/") else f"{namespace}/{name}")


def _shown(runs: Mapping[str, _Run]) -> Iterable[EngineRun]:
    newest = sorted(runs.items(), key=lambda item: -item[1].began_ms)[:_MOST_RUNS]
    for id_, run in newest:
        yield EngineRun(
            engine="pydelta", id=hide_text(id_[:100]), name=run.job, state=run.state, began_ms=run.began_ms,
            ended_ms=None if run.state == "running" else run.newest_ms, error=run.error,
        )  # fmt: skip


def named_steps(steps: Iterable[LineageStep], places: Iterable[ShownPlace]) -> list[LineageStep]:
    """Replace locations by the names of the tables that are shown."""
    names = {_dataset(dataset_name(place.uri)): place.name for place in places}

    def named(datasets: Sequence[str]) -> tuple[str, ...]:
        return tuple(names.get(item, item) for item in datasets)

    return [replace(step, inputs=named(step.inputs), outputs=named(step.outputs)) for step in steps]


def around(steps: Sequence[LineageStep], table: str) -> tuple[list[LineageStep], list[LineageStep]]:
    """Find what a table comes from, and what comes from it, near steps first, over any number of steps.

    Args:
        steps: All steps.
        table: Name of the table, as in the steps.
    """
    return _reached(steps, table, back=True), _reached(steps, table, back=False)


def _reached(steps: Sequence[LineageStep], table: str, *, back: bool) -> list[LineageStep]:
    by_table: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        for name in step.outputs if back else step.inputs:
            by_table.setdefault(name, []).append(number)
    seen, found, queue = {table}, dict[int, None](), [table]
    while queue:
        for number in by_table.get(queue.pop(0), []):
            step = steps[number]
            # A step that only reads and writes the same table, such as DELETE, leads nowhere.
            if number in found or set(step.inputs) == set(step.outputs):
                continue
            found[number] = None
            for name in step.inputs if back else step.outputs:
                if name not in seen:
                    seen.add(name)
                    queue.append(name)
    return [steps[number] for number in found]
