"""Define the values behind the catalog: sums of columns, rows of a preview, runs of engines, lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydelta.tools.ui.values import Trouble

__all__ = [
    "ColumnSums",
    "EngineRun",
    "EngineState",
    "FoundText",
    "LineageState",
    "LineageStep",
    "ShownColumn",
    "ShownDatabase",
    "ShownRows",
    "TableSums",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSums:
    """Statistics of a column, from the log.

    Args:
        nulls: Number of nulls; None if a file does not record it.
        low, high: Bounds of the values as text; None if a file with values does not record them, or they are hidden.
        without: Number of files that have no statistics of the column.
    """

    nulls: int | None = None
    low: str | None = None
    high: str | None = None
    without: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    """A column of a table, or a part of a nested one.

    Args:
        name: Its name, or its dotted path.
        type: Its type in the log; empty for a part.
        comment: Its comment.
        required: Whether it must not be null.
        partition, clustered: Whether the table is partitioned or clustered by it.
        sums: Its statistics; None if they are not known.
    """

    name: str
    type: str = ""
    comment: str | None = None
    required: bool = False
    partition: bool = False
    clustered: bool = False
    sums: ColumnSums | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSums:
    """Statistics of a table, from its log alone.

    Args:
        version: The version that they describe.
        rows: Number of rows; None if a file does not record it.
        hides: Whether deletion vectors hide rows, so that nulls and bounds may belong to hidden ones.
        columns: Sums by the dotted path of a column.
        limited: The reason why some columns, or all, have no statistics.
    """

    version: int
    rows: int | None = None
    hides: bool = False
    columns: Mapping[str, ColumnSums] = field(default_factory=dict)
    limited: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRows:
    """Some rows of a table. Values are text; None is null.

    Args:
        version: The version that was read.
        columns: Names of the columns.
        rows: The rows.
        more_columns: Number of columns that were not read.
        limited: The reason why there are fewer rows than asked for, or why none is shown.
        read_bytes: Bytes that were read from the store.
    """

    version: int
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    more_columns: int = 0
    limited: str | None = None
    read_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """A query, an application or a job.

    Args:
        engine: Name of the engine, as configured.
        id: Its id there.
        name: Name of the application or job, or the text of the query.
        who: The user; None if not known.
        state: ``waiting``, ``running``, ``done``, ``failed`` or ``ended`` if the outcome is not known.
        began_ms, ended_ms: Times; None if not known, or not yet.
        error: Why it failed, in one line.
        cores: Cores that it holds; None if not known.
        memory_bytes: Memory that it holds; None if not known.
        per_executor: Whether the memory is that of one executor of several.
    """

    engine: str
    id: str
    name: str
    who: str | None = None
    state: str = "ended"
    began_ms: int | None = None
    ended_ms: int | None = None
    error: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    per_executor: bool = False

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it has not ended, or a time is not known."""
        if self.began_ms is None or self.ended_ms is None:
            return None
        return max(self.ended_ms - self.began_ms, 0) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine says about its cluster and its runs.

    Args:
        name: Name as configured.
        kind: ``Spark``, ``Spark worker``, ``Spark history`` or ``queries``; None if it did not answer.
        ok: Whether it answers; None if its host has no name here, or before the first answer.
        said: The result in a few words.
        next: What to do if it does not answer.
        runs: Its runs, newest first.
        cores, cores_used, memory_bytes, memory_used_bytes: The cluster's; None if it has none.
    """

    name: str
    kind: str | None = None
    ok: bool | None = None
    said: str = "is being asked"
    next: str | None = None
    runs: tuple[EngineRun, ...] = ()
    cores: int | None = None
    cores_used: int | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageStep:
    """A job that read and wrote tables, in its newest run.

    Args:
        job: Name of the job.
        inputs, outputs: The tables, by their names on the page, or by their locations.
        at_ms: Time of the newest event.
        runs: Number of runs in the events that were read.
        state: ``running``, ``done`` or ``failed``.
    """

    job: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    at_ms: int = 0
    runs: int = 1
    state: str = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageState:
    """What the events of a folder say.

    Args:
        location: The folder; None if none is configured.
        steps: Jobs with their tables, newest first.
        runs: Runs, newest first.
        events: Number of events that were read.
        unreadable: Number of lines that are not events.
        limited: The reason why older events were not read.
        trouble: The reason why the folder could not be read.
    """

    location: str | None = None
    steps: tuple[LineageStep, ...] = ()
    runs: tuple[EngineRun, ...] = ()
    events: int = 0
    unreadable: int = 0
    limited: str | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDatabase:
    """A database, as far as its tables are shown.

    Args:
        name: Its name; empty for tables without one.
        tables: Number of tables.
        bad: Number of tables with a problem.
        files, bytes: Sums over the tables that were read.
        newest_ms: Time of the newest commit.
    """

    name: str
    tables: int
    bad: int
    files: int
    bytes: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundText:
    """A place that a search found.

    Args:
        table: Name of the table.
        kind: ``table``, ``column``, ``comment`` or ``property``.
        where: The column or property; empty for the table itself.
        text: The text that matches.
    """

    table: str
    kind: str
    where: str
    text: str
