"""Keep the journal of maintenance: a Delta table with a row per action, written and read without Spark.

::

    rows --Parquet, statistics--> one data file --add--> one commit, a blind append that conflicts with nothing
    rows of the last days --> when each action last succeeded, its failures since then, today's cost
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.errors import SchemaMismatchError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, Metadata, encode_json
from pydelta.protocol.features import required_protocol
from pydelta.protocol.paths import decode_log_path, encode_log_path
from pydelta.protocol.stats import truncate_max, truncate_min
from pydelta.settings.clock import epoch_ms
from pydelta.storage.discarding import discard
from pydelta.tools.maintenance.decide import DailyBudget
from pydelta.tools.maintenance.state import ActionFailure
from pydelta.tools.maintenance.watch import Known
from pydelta.txn import Operation, start_transaction

__all__ = ["Journal", "Outcome", "Row"]

_DAY_MS: Final = 86_400_000
_REMEMBERED_MS: Final = 35 * 86_400_000
"""How far back rows are read, which exceeds any usual interval of a policy."""


class Outcome:
    """The outcome of an action, as stored in the journal."""

    DONE: Final = "done"
    NOTHING: Final = "nothing to do"
    FAILED: Final = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One action. Times are in epoch milliseconds, sizes in bytes; None means unknown.

    Args:
        at_ms: When it ended.
        table: Name of the table.
        location: Location of the table.
        action: See ``ActionKind``.
        reason: Reason for the action.
        outcome: See ``Outcome``.
        attempt: Number of this try, from 1.
        seconds: Duration.
        version_before, version_after: Versions of the table.
        files_read, bytes_read, files_written, bytes_written, files_removed, bytes_removed: Data files of the table for
            OPTIMIZE, files in the store for VACUUM, manifests for a sync.
        requests: Requests to the store, as far as known.
        saved_files, saved_bytes: How much less the table reads (OPTIMIZE) or the store holds (VACUUM).
        error: Error message in one line.
        error_code: Code of the error.
    """

    at_ms: int
    table: str
    location: str
    action: str
    reason: str
    outcome: str
    attempt: int = 1
    seconds: float = 0.0
    version_before: int | None = None
    version_after: int | None = None
    files_read: int | None = None
    bytes_read: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    files_removed: int | None = None
    bytes_removed: int | None = None
    requests: int | None = None
    saved_files: int | None = None
    saved_bytes: int | None = None
    error: str | None = None
    error_code: str | None = None


_TYPES: Final = {"int": ("long", pa.int64()), "float": ("double", pa.float64()), "str": ("string", pa.string())}
_COLUMNS: Final = {
    "at": ("timestamp", pa.timestamp("us", "UTC")),
    **{item.name: _TYPES[str(item.type).partition(" ")[0]] for item in dataclasses.fields(Row) if item.name != "at_ms"},
}
"""Maps column names to their types in Delta and in Arrow."""


@dataclass(slots=True)
class _Memory:
    """The rows of the last weeks by table, and today's cost of each table."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    day_ms: int = 0
    spent: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Add a row that is newer than all known ones."""
        self.rows.setdefault(row.location, []).append(row)
        if row.at_ms >= self.day_ms:
            size, requests = self.spent.get(row.location, (0, 0))
            self.spent[row.location] = (size + (row.bytes_read or 0), requests + (row.requests or 0))

    def turn_to(self, now_ms: int) -> None:
        """Start a new day if the given time is on another one, and forget rows that are too old to matter."""
        day_ms = now_ms - now_ms % _DAY_MS
        if day_ms == self.day_ms:
            return
        rows = [row for place in self.rows.values() for row in place if row.at_ms >= now_ms - _REMEMBERED_MS]
        self.rows, self.spent, self.day_ms = {}, {}, day_ms
        for row in rows:
            self.add(row)


class Journal:
    """The table of actions. Safe to use from several threads.

    Args:
        log: Log of the table, which is created with the first row.
        clock: Returns epoch milliseconds.
    """

    def __init__(self, log: DeltaLog, clock: Callable[[], int] = epoch_ms) -> None:
        self.log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: _Memory | None = None
        self._waiting: list[Row] = []

    def note(self, row: Row) -> None:
        """Queue a row for the next ``write``."""
        with self._lock:
            self._read().add(row)
            self._waiting.append(row)

    def write(self) -> int | None:
        """Append the queued rows in one commit. Returns its version, or None if there are no rows.

        If the commit fails, the rows stay queued for the next ``write``.

        Raises:
            SchemaMismatchError: The table is not a journal.
            DeltaError: The table cannot be written.
        """
        with self._lock:
            rows = list(self._waiting)
            if not rows:
                return None
            version = append_rows(self.log, rows, now_ms=self._clock())
            del self._waiting[: len(rows)]
            return version

    def known(self, location: str) -> Known:
        """Return what the journal knows of a table: when each action last succeeded, and the failures since then."""
        last: dict[str, int] = {}
        failures: dict[str, ActionFailure] = {}
        with self._lock:
            for row in self._read().rows.get(location, ()):
                if row.outcome == Outcome.FAILED:
                    failures[row.action] = ActionFailure(
                        tries=row.attempt, last_ms=row.at_ms, said=row.error or "", code=row.error_code or ""
                    )
                else:
                    last[row.action] = row.at_ms
                    failures.pop(row.action, None)
        return Known(last=last, failures=failures)

    def failing(self) -> list[Row]:
        """Return the last rows of all actions whose last try failed, oldest first."""
        newest: dict[tuple[str, str], Row] = {}
        with self._lock:
            for rows in self._read().rows.values():
                newest |= {(row.location, row.action): row for row in rows}
        found = [row for row in newest.values() if row.outcome == Outcome.FAILED]
        return sorted(found, key=lambda row: row.at_ms)

    def left(self, limit: DailyBudget, location: str | None = None) -> DailyBudget:
        """Return how much of a daily limit (UTC) is left, for all tables or for one.

        Args:
            limit: The daily limit.
            location: Location of the table; None for all.
        """
        with self._lock:
            spent = self._read().spent
            costs = list(spent.values()) if location is None else [spent.get(location, (0, 0))]
        read, requests = sum(size for size, _ in costs), sum(count for _, count in costs)
        return DailyBudget(
            bytes=None if limit.bytes is None else max(limit.bytes - read, 0),
            requests=None if limit.requests is None else max(limit.requests - requests, 0),
        )

    def _read(self) -> _Memory:
        """Return the remembered rows. The caller holds the lock."""
        now_ms = self._clock()
        if self._memory is None:
            memory = _Memory()
            memory.turn_to(now_ms)
            for row in read_rows(self.log, since_ms=now_ms - _REMEMBERED_MS):
                memory.add(row)
            self._memory = memory
        self._memory.turn_to(now_ms)
        return self._memory


def append_rows(log: DeltaLog, rows: Sequence[Row], *, now_ms: int) -> int:
    """Append rows to a journal in one commit, creating the table if needed. Returns the version.

    Raises:
        SchemaMismatchError: The table is not a journal.
        DeltaError: It cannot be written. The data file is deleted again, unless it may have been committed.
    """
    txn = start_transaction(log)
    if not txn.table_exists:
        metadata = _metadata(log, now_ms)
        txn.update_metadata(metadata)
        txn.update_protocol(required_protocol(metadata))
    else:
        _check(log, txn.snapshot.schema.fields)
    add = _data_file(log, rows, now_ms)
    operation = Operation(
        name="WRITE",
        parameters={"mode": "Append", "partitionBy": []},
        metrics={"numFiles": 1, "numOutputRows": len(rows), "numOutputBytes": add.size},
    )
    try:
        return txn.commit([add], operation).version
    except BaseException:
        if txn.surely_not_landed:
            discard(log.store, [add.path])
        raise


def read_rows(log: DeltaLog, *, since_ms: int) -> list[Row]:
    """Read the rows of files written since a time, oldest first. Returns no rows if there is no table.

    Raises:
        SchemaMismatchError: The table is not a journal.
        DeltaError: It cannot be read.
    """
    snapshot = log.update()
    if snapshot.version < 0:
        return []
    _check(log, snapshot.schema.fields)
    recent = snapshot.files.core.filter(pl.col("modification_time") >= since_ms)
    rows: list[Row] = []
    for add in snapshot.files.adds(recent):
        table = pq.read_table(io.BytesIO(log.store.read(decode_log_path(add.path).text)), columns=list(_COLUMNS))
        rows += map(_row, table.to_pylist())
    return sorted((row for row in rows if row.at_ms >= since_ms), key=lambda row: row.at_ms)


def _row(values: Mapping[str, Any]) -> Row:
    given = {name: value for name, value in values.items() if name != "at"}
    at: dt.datetime = values["at"]
    return Row(at_ms=round(at.timestamp() * 1000), **given)


def _metadata(log: DeltaLog, now_ms: int) -> Metadata:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (kind, _) in _COLUMNS.items()]
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=encode_json({"type": "struct", "fields": fields}),
        description="What was done to maintain tables, and what it cost and saved",
        partition_columns=(),
        configuration=dict(log.settings.default_properties),
        created_time=now_ms,
    )


def _check(log: DeltaLog, fields: Iterable[Any]) -> None:
    have = {item.name: str(item.data_type) for item in fields}
    wrong = [f"{name} {kind} (is {have.get(name, 'missing')})" for name, (kind, _) in _COLUMNS.items()
             if have.get(name) != kind]  # fmt: skip
    if wrong:
        raise SchemaMismatchError(
            f"{log.uri} is not a journal of maintenance: {', '.join(wrong)}.",
            hint="Name another table for it, or drop this one: the journal is then created with the columns that it "
            "needs.",
        )


def _data_file(log: DeltaLog, rows: Sequence[Row], now_ms: int) -> AddFile:
    """Write the rows to a data file, with statistics on the columns that queries use."""
    values = [
        {"at": dt.datetime.fromtimestamp(row.at_ms / 1000, tz=dt.UTC)}
        | {name: getattr(row, name) for name in _COLUMNS if name != "at"}
        for row in rows
    ]
    table = pa.Table.from_pylist(values, schema=pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()]))
    path = f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
    with log.store.open_writer(path) as target:
        pq.write_table(table, target, compression="snappy", coerce_timestamps="us")
    info = log.store.head(path)
    assert info is not None
    return AddFile(
        path=encode_log_path(path),
        partition_values={},
        size=info.size,
        modification_time=now_ms,
        data_change=True,
        stats=_stats(rows),
    )


def _stats(rows: Sequence[Row]) -> str:
    times = [dt.datetime.fromtimestamp(row.at_ms / 1000, tz=dt.UTC) for row in rows]
    shown = [time.isoformat(timespec="milliseconds").replace("+00:00", "Z") for time in (min(times), max(times))]
    low: dict[str, Any] = {"at": shown[0]}
    high: dict[str, Any] = {"at": shown[1]}
    nulls = {"at": 0}
    for name in ("table", "location", "action", "outcome"):
        texts = [str(getattr(row, name)) for row in rows]
        low[name] = truncate_min(min(texts))
        longest = truncate_max(max(texts))
        if longest is not None:
            high[name] = longest
        nulls[name] = 0
    return encode_json({"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls})
