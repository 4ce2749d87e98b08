"""Render the pages and the JSON from values. Text from other people is escaped. This module reads nothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pydelta.protocol.names import camel_case, path_text
from pydelta.tools.ui.catalog.facts import ShownColumn, TableSums
from pydelta.tools.ui.commits import Detail
from pydelta.tools.ui.formats import age, amount, duration, moment, number, of
from pydelta.tools.ui.streams import reads_or_writes
from pydelta.tools.ui.values import CommitState, ShownTable, StreamState, Trouble
from pydelta.tools.ui.watch import Overview

__all__ = [
    "column_rows",
    "commit_page",
    "json_text",
    "message_page",
    "overview_page",
    "render",
    "stylesheet",
    "table_json",
    "table_page",
    "tables_json",
]

_MOST_COLUMNS: Final = 1000
_TYPE_LENGTH: Final = 500
_FOLDER: Final = Path(__file__).parent / "templates"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "amount": amount,
        "duration": duration,
        "moment": moment,
        "number": number,
        "of": of,
        "rows": rows_text,
        "rows_sentence": rows_sentence,
        "seen": seen_text,
        "unseen": unseen_text,
    }
    found.globals["age"] = age
    return found


@lru_cache(maxsize=1)
def stylesheet() -> bytes:
    """Return the stylesheet."""
    return (_FOLDER / "page.css").read_bytes()


def rows_text(commit: CommitState) -> str:
    """Format a commit's effect on rows: ``+300``, ``~5``, ``−12``."""
    rows = commit.rows
    if not rows.known:
        return "not recorded"
    marks = (("+", rows.inserted), ("~", rows.updated), ("−", rows.deleted))
    parts = [f"{mark}{number(count)}" for mark, count in marks if count]
    return " ".join(parts) or "none"


def unseen_text(table: ShownTable) -> str:
    """Return how far back the search went for something that was not found."""
    if table.commits and table.commits[-1].version == 0:
        return "never"
    return f"not in {of(table.looked_back, 'commit')}"


def rows_sentence(commit: CommitState) -> str:
    """Format a commit's effect on rows as a sentence."""
    rows = commit.rows
    if not rows.known:
        return "How many rows it changed is not recorded."
    named = ((rows.inserted, "inserted"), (rows.updated, "updated"), (rows.deleted, "deleted"))
    parts = [f"{of(count, 'row')} {what}" for count, what in named if count]
    return f"{', '.join(parts) or 'No row changed'}."


def seen_text(table: ShownTable, version: int) -> str:
    """Describe whether readers of the symlink manifests see a version."""
    twin = table.twin
    if twin is None or (twin.manifest_version is None and twin.metastore_version is None):
        return "No manifests are published: only readers of the log see it (Spark, Trino's Delta connector, pydelta)."
    seen = twin.seen_version
    who = f"Readers of the twin {twin.name} (Trino's catalog hive)" if twin.name else "Readers of the manifests"
    if seen is None:
        return f"{who} do not see it: {twin.state}."
    if seen >= version:
        return f"{who} see it: they are at version {seen}."
    return f"{who} do not see it yet: they are at version {seen}."


def overview_page(view: Overview) -> str:
    """Render ``/``."""
    bad = sum(1 for table in view.tables if table.weight)
    return _environment().get_template("overview.html").render(view=view, now=view.now_ms, bad=bad)


def table_page(view: Overview, table: ShownTable, sums: TableSums | None = None) -> str:
    """Render the page of a table, with the statistics of its columns if they are known."""
    return render(
        "table.html", now=view.now_ms, table=table, streams=_streams(view, table), known=_known(view),
        columns=column_rows(table, sums), sums=sums,
    )  # fmt: skip


def render(template: str, **values: Any) -> str:
    """Render a template from values."""
    return _environment().get_template(template).render(**values)


def column_rows(table: ShownTable, sums: TableSums | None) -> list[ShownColumn]:
    """Return the columns of a table and the parts of nested ones that have a comment or statistics."""
    of_columns = sums.columns if sums is not None else {}
    partitions = {name.lower() for name in table.partition_columns}
    found: dict[str, ShownColumn] = {}
    for name, kind in table.columns[:_MOST_COLUMNS]:
        path = path_text((name,))
        found[path] = ShownColumn(
            name=name, type=kind if len(kind) <= _TYPE_LENGTH else f"{kind[:_TYPE_LENGTH]}…",
            comment=table.comments.get(path), required=name in table.required,
            partition=name.lower() in partitions, clustered=path in table.clustering_columns,
            sums=of_columns.get(name if name.lower() in partitions else path),
        )  # fmt: skip
    for path in itertools.islice(table.nested, _MOST_COLUMNS):
        if path in table.comments or path in of_columns:
            found[path] = ShownColumn(name=path, comment=table.comments.get(path), sums=of_columns.get(path))
    return list(found.values())


def commit_page(view: Overview, table: ShownTable, detail: Detail) -> str:
    """Render the page of a commit."""
    return _environment().get_template("commit.html").render(view=view, now=view.now_ms, table=table, detail=detail)


def message_page(title: str, trouble: Trouble) -> str:
    """Render a message in place of a page."""
    return _environment().get_template("message.html").render(title=title, trouble=trouble)


def _streams(view: Overview, table: ShownTable) -> list[StreamState]:
    return [stream for stream in view.streams if reads_or_writes(stream, table)]


def _known(view: Overview) -> dict[str, str]:
    """Map the application ids of known streams to the locations of their checkpoints."""
    return {stream.query_id: stream.location for stream in view.streams if stream.query_id}


def tables_json(view: Overview) -> Overview:
    """Return the content of ``/api/tables``, with only the newest commit of each table."""
    return dataclasses.replace(
        view, tables=tuple(dataclasses.replace(table, commits=table.commits[:1]) for table in view.tables)
    )


def table_json(view: Overview, table: ShownTable) -> dict[str, Any]:
    """Return the content of ``/api/table``."""
    return {"table": table, "streams": _streams(view, table), "nowMs": view.now_ms}


def json_text(value: Any) -> bytes:
    """Encode values as JSON with field names as on the command line: ``numFiles`` for ``num_files``."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=1).encode() + b"\n"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel_case(item.name): _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value
