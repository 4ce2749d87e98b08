"""Answer the requests of the catalog's pages: each as a page, and below ``/api`` as JSON with the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.errors import DeltaError, UnsafeOperationError
from pydelta.tools.ui.catalog.browse import LONGEST_QUERY, databases, search, tables_of
from pydelta.tools.ui.catalog.engines import merged_runs
from pydelta.tools.ui.catalog.facts import EngineRun, TableSums
from pydelta.tools.ui.catalog.lineage import around, named_steps
from pydelta.tools.ui.catalog.preview import DEFAULT_ROWS, MOST_ROWS
from pydelta.tools.ui.pages import column_rows, json_text, render
from pydelta.tools.ui.replies import JSON, NoPageError, PageReply, Query
from pydelta.tools.ui.values import ShownTable, Trouble
from pydelta.tools.ui.watch import Overview, Watch

__all__ = ["answers_of", "chosen_table", "sums_of"]

_MOST_RUNS: Final = 200
_MOST_STEPS: Final = 200
_STATES: Final = ("running", "waiting", "done", "failed", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The values of a page. ``shown`` are those that its JSON has, too."""

    template: str
    shown: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)


def answers_of(watch: Watch) -> dict[str, Callable[[Query], PageReply]]:
    """Map the paths of the catalog's pages to the functions that answer them."""
    found: dict[str, Callable[[Query], PageReply]] = {
        "/api/columns": lambda query: PageReply(json_text(_columns(watch, query)), JSON)
    }
    for path, answer in _ANSWERS.items():
        found[path] = lambda query, answer=answer: _page(answer(watch, query))  # type: ignore[misc]
        found[f"/api{path}"] = lambda query, answer=answer: PageReply(json_text(answer(watch, query).shown), JSON)  # type: ignore[misc]
    return found


def _page(answer: _Answer) -> PageReply:
    return PageReply(render(answer.template, **answer.shown, **answer.more).encode())


def chosen_table(view: Overview, query: Query) -> tuple[Overview, ShownTable]:
    """Return the table that a request names.

    Raises:
        NoPageError: No table of that name is shown.
    """
    table = view.table(query.get("name", ""))
    if table is None:
        what = Trouble(
            what=f"The table {query.get('name', '')!r} is not among those shown.",
            next="Choose one of the page of tables; pydelta ui shows those that it was started with.",
        )
        raise NoPageError(404, "No such table", what)
    return view, table


def sums_of(watch: Watch, table: ShownTable) -> TableSums | None:
    """Return the statistics of a table; None if it could not be read. An error is the reason why there are none."""
    if table.version is None:
        return None
    try:
        return watch.questions.sums(table)
    except DeltaError as error:
        return TableSums(version=table.version, limited=Trouble.of(error).what)


def _columns(watch: Watch, query: Query) -> Mapping[str, Any]:
    _, table = chosen_table(watch.overview(), query)
    sums = sums_of(watch, table)
    about = {"rows": sums.rows, "hides": sums.hides, "limited": sums.limited, "version": sums.version} if sums else {}
    return {"table": table.place.name, "columns": column_rows(table, sums), **about}


def _databases(watch: Watch, _: Query) -> _Answer:
    view = watch.overview()
    return _Answer(
        template="databases.html",
        shown={"databases": databases(view.tables), "troubles": view.troubles},
        more={"now": view.now_ms},
    )


def _database(watch: Watch, query: Query) -> _Answer:
    view, name = watch.overview(), query.get("name", "")
    tables = tables_of(view.tables, name)
    if not tables:
        what = Trouble(what=f"No table of the database {name!r} is shown.", next="Choose one of the page of databases.")
        raise NoPageError(404, "No such database", what)
    rows = [
        {"name": table.place.name, "description": table.description, "columns": len(table.columns),
         "version": table.version, "timestampMs": table.timestamp_ms, "files": table.files, "troubles": table.troubles}
        for table in tables
    ]  # fmt: skip
    return _Answer(template="database.html", shown={"name": name, "tables": rows}, more={"now": view.now_ms})


def _preview(watch: Watch, query: Query) -> _Answer:
    _, table = chosen_table(watch.overview(), query)
    text = query.get("rows", str(DEFAULT_ROWS))
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_ROWS)) and 1 <= int(text) <= MOST_ROWS):
        what = Trouble(what=f"{text!r} is not a number of rows.", next=f"Ask for 1 to {MOST_ROWS} rows.")
        raise NoPageError(400, "No such number of rows", what)
    try:
        rows = watch.questions.rows(table, int(text))
    except UnsafeOperationError as error:
        raise NoPageError(403, "No preview", Trouble.of(error)) from error
    return _Answer(
        template="preview.html", shown={"table": table.place.name, "preview": rows}, more={"most": MOST_ROWS}
    )


def _search(watch: Watch, query: Query) -> _Answer:
    text = query.get("q", "").strip()
    if len(text) > LONGEST_QUERY:
        what = Trouble(
            what=f"The text has {len(text)} characters.", next=f"Search for at most {LONGEST_QUERY} characters."
        )
        raise NoPageError(400, "Too long", what)
    view = watch.overview()
    found, more = search(view.tables, text)
    return _Answer(
        template="search.html", shown={"query": text, "found": found, "more": more}, more={"tables": len(view.tables)}
    )


def _runs(watch: Watch, query: Query) -> _Answer:
    engines, lineage, now = watch.questions.engines(), watch.questions.lineage(), watch.overview(waits=False).now_ms
    runs = merged_runs(engines, lineage.runs)
    engine, state = query.get("engine"), query.get("state")
    names = list(dict.fromkeys([*(item.name for item in engines), *(run.engine for run in runs)]))
    for value, known, what in ((engine, names, "an engine"), (state, _STATES, "a state of a run")):
        if value is not None and value not in known:
            trouble = Trouble(what=f"{value!r} is not {what}.", next=f"Choose one of {', '.join(known) or 'none'}.")
            raise NoPageError(404, "No such runs", trouble)
    chosen = [run for run in runs if engine in (None, run.engine) and state in (None, run.state)]
    return _Answer(
        template="runs.html",
        shown={"runs": chosen[:_MOST_RUNS], "count": len(chosen), "engines": [_brief(item) for item in engines]},
        more={"now": now, "names": names, "states": _STATES, "engine": engine, "state": state, "lineage": lineage},
    )


def _brief(engine: Any) -> Mapping[str, Any]:
    return {"name": engine.name, "kind": engine.kind, "ok": engine.ok, "said": engine.said, "next": engine.next}


def _cluster(watch: Watch, _: Query) -> _Answer:
    view = watch.overview()
    clusters = []
    for engine in watch.questions.engines():
        holders = sorted((run for run in engine.runs if _holds(run)), key=_held)
        clusters.append(
            {**_brief(engine), "cores": engine.cores, "coresUsed": engine.cores_used,
             "memoryBytes": engine.memory_bytes, "memoryUsedBytes": engine.memory_used_bytes,
             "holders": holders[:_MOST_RUNS]}
        )  # fmt: skip
    shown = [item for item in clusters if item["kind"] != "Spark history"]
    return _Answer(template="cluster.html", shown={"clusters": shown}, more={"now": view.now_ms, "view": view})


def _held(run: EngineRun) -> tuple[int, int]:
    return -(run.cores or 0), -(run.memory_bytes or 0)


def _holds(run: EngineRun) -> bool:
    return run.state in ("running", "waiting")


def _lineage(watch: Watch, query: Query) -> _Answer:
    view, lineage = watch.overview(), watch.questions.lineage()
    steps = named_steps(lineage.steps, [table.place for table in view.tables])
    shown: dict[str, Any] = {
        "location": lineage.location, "events": lineage.events, "unreadable": lineage.unreadable,
        "limited": lineage.limited, "trouble": lineage.trouble,
    }  # fmt: skip
    more = {"now": view.now_ms, "names": {table.place.name for table in view.tables}}
    if "name" not in query:
        shown |= {"table": None, "steps": steps[:_MOST_STEPS], "count": len(steps)}
        return _Answer(template="lineage.html", shown=shown, more=more)
    _, table = chosen_table(view, query)
    before, after = around(steps, table.place.name)
    shown |= {"table": table.place.name, "sources": before[:_MOST_STEPS], "targets": after[:_MOST_STEPS],
              "count": len(before) + len(after)}  # fmt: skip
    return _Answer(template="lineage.html", shown=shown, more=more)


_ANSWERS: Final[Mapping[str, Callable[[Watch, Query], _Answer]]] = {
    "/databases": _databases,
    "/database": _database,
    "/preview": _preview,
    "/search": _search,
    "/runs": _runs,
    "/cluster": _cluster,
    "/lineage": _lineage,
}
