"""Read the progress of streaming queries from their checkpoints: batches, offsets and backlogs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydelta.commands.stream.offsets import BEFORE_FIRST, StreamOffset
from pydelta.errors import DeltaError, InvalidArgumentError, ObjectNotFoundError
from pydelta.errors.redaction import hide_text
from pydelta.storage import Store, normalize_uri, open_store
from pydelta.tools.ui.values import ShownTable, SourceProgress, StreamState, Trouble

__all__ = ["read_stream", "reads_or_writes", "with_backlog"]

_LINES_BEFORE: Final = 2
"""The lines before the offsets in an offsets file: the format and the query's settings."""


def read_stream(location: str, options: Mapping[str, str] | None = None) -> StreamState:
    """Read a checkpoint. Errors become the state's trouble. Writes nothing."""
    try:
        uri = normalize_uri(location)
        return _read(open_store(uri, options), uri)
    except (DeltaError, OSError, ValueError) as error:
        return StreamState(location=hide_text(location), trouble=Trouble.of(error))


def _read(store: Store, uri: str) -> StreamState:
    planned, done = _newest(store, "offsets"), _newest(store, "commits")
    query = _query_id(store)
    if planned is None and query is None:
        raise InvalidArgumentError(
            f"{uri} is not the checkpoint of a streaming query: it has neither metadata nor offsets.",
            hint="Name the folder that the query has as checkpointLocation, once it has started.",
        )
    if planned is None:
        return StreamState(location=uri, query_id=query)
    lines = store.read(f"offsets/{planned}").decode(errors="replace").splitlines()
    settings = _json(lines[1]) if len(lines) >= _LINES_BEFORE else {}
    time_ms = settings.get("batchTimestampMs")
    return StreamState(
        location=uri,
        query_id=query,
        planned_batch=planned,
        done_batch=done,
        planned_ms=time_ms if isinstance(time_ms, int) else None,
        sources=tuple(map(_source, lines[_LINES_BEFORE:])),
    )


def _newest(store: Store, folder: str) -> int | None:
    names = (info.path.rpartition("/")[2] for info in store.list_from("", prefix=folder))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _query_id(store: Store) -> str | None:
    try:
        found = _json(store.read("metadata").decode(errors="replace")).get("id")
    except ObjectNotFoundError:
        return None
    return str(found) if found else None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _source(line: str) -> SourceProgress:
    """Parse one line of an offsets file. A dash means that the source has not delivered anything yet."""
    shown = hide_text(line)
    try:
        offset = StreamOffset.parse(line)
    except DeltaError:
        fields = _json(line)
        is_kafka = bool(fields) and all(isinstance(value, dict) for value in fields.values())
        name = f"Kafka: {', '.join(map(str, fields))}" if is_kafka else "a source of another kind"
        return SourceProgress(source=hide_text(name) if line.strip() != "-" else "nothing yet", offset=shown)
    version = offset.version - 1 if offset.index == BEFORE_FIRST and not offset.is_initial else offset.version
    return SourceProgress(source=offset.table_id, version=version, offset=shown)


def with_backlog(streams: Iterable[StreamState], tables: Sequence[ShownTable]) -> list[StreamState]:
    """Add names and backlogs to the sources that are among the given tables."""
    by_id = {table.table_id: table for table in tables if table.table_id is not None}

    def named(source: SourceProgress) -> SourceProgress:
        table = by_id.get(source.source)
        if table is None or table.version is None or source.version is None:
            return source
        return dataclasses.replace(
            source, source=table.place.name, table=table.place.name,
            backlog_versions=max(table.version - source.version, 0),
        )  # fmt: skip

    return [dataclasses.replace(stream, sources=tuple(map(named, stream.sources))) for stream in streams]


def reads_or_writes(stream: StreamState, table: ShownTable) -> bool:
    """Return whether a query reads a table or writes to it."""
    reads = any(source.table == table.place.name for source in stream.sources)
    return reads or (stream.query_id is not None and stream.query_id in table.writers)
