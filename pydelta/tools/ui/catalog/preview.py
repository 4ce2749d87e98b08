"""Read a few rows of a table for the page, within limits of rows, columns, bytes and time, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.columns import only_spark
from pydelta.engines.arrow.expressions import NotHere
from pydelta.engines.arrow.scans import Scan
from pydelta.engines.arrow.tasks.old_files import NeedsSpark
from pydelta.errors import StorageError
from pydelta.errors.redaction import hide_value
from pydelta.log import DeltaLog, Snapshot
from pydelta.settings.clock import Deadline
from pydelta.storage import Store
from pydelta.tools.ui.catalog.facts import ShownRows
from pydelta.tools.ui.formats import amount, duration

__all__ = ["DEFAULT_ROWS", "MOST_ROWS", "PREVIEW_PROPERTY", "PreviewLimits", "is_denied", "read_rows"]

PREVIEW_PROPERTY: Final = "pydelta.ui.preview"
"""The table property that denies a preview, and the bounds of its columns, if it is false."""
DEFAULT_ROWS: Final = 20
MOST_ROWS: Final = 100
_MOST_COLUMNS: Final = 50
_MOST_FILES: Final = 20
_TEXT_LENGTH: Final = 200
_SHOWN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewLimits:
    """What a preview may cost.

    Args:
        rows: Number of rows.
        bytes: Bytes to read from the store, and in memory afterwards.
        seconds: Seconds after which no further read begins.
    """

    rows: int = DEFAULT_ROWS
    bytes: int = 32 * 1024 * 1024
    seconds: float = 5.0


class _LimitError(StorageError):
    """A preview has read as much as it may."""

    code = "PYDELTA_PREVIEW_LIMIT"


class _LimitedStore:
    """Passes reads to a store until a limit is reached. It has no other operations."""

    def __init__(self, inner: Store, limits: PreviewLimits, deadline: Deadline) -> None:
        self._inner, self._limits, self._deadline = inner, limits, deadline
        self.read_bytes = 0

    @property
    def root(self) -> str:
        return self._inner.root

    def read(self, path: str) -> bytes:
        return self._counted(0, lambda: self._inner.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._counted(length, lambda: self._inner.read_range(path, start, length))

    def _counted(self, length: int, read: Callable[[], bytes]) -> bytes:
        limits = self._limits
        if not self._deadline.remaining():
            raise _LimitError(f"The store took longer than {duration(limits.seconds)}.", hint=_ADVICE)
        if self.read_bytes + length > limits.bytes:
            raise _LimitError(f"More than {amount(limits.bytes)} would have to be read.", hint=_ADVICE)
        data = read()
        self.read_bytes += len(data)
        return data


_ADVICE: Final = "Query the table with an engine, which may read more."


def is_denied(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties deny a preview. Any value other than true does."""
    return properties.get(PREVIEW_PROPERTY, "true").strip().lower() != "true"


def read_rows(log: DeltaLog, snapshot: Snapshot, limits: PreviewLimits) -> ShownRows:
    """Read rows of a table's newest files. If a limit is reached, the rows read until then are returned.

    Args:
        log: The table.
        snapshot: The version to read.
        limits: What it may cost.

    Raises:
        UnsupportedFeatureError: Only Spark reads the table; the error names the reason.
        StorageError: A file is missing or damaged, or the store does not answer.
    """
    names = snapshot.schema.names
    shown = names[:_MOST_COLUMNS]
    store = _LimitedStore(log.store, limits, Deadline(limits.seconds))
    newest = snapshot.files.core.top_k(_MOST_FILES, by="modification_time")
    rows: list[tuple[str | None, ...]] = []
    limited = None
    try:
        batches = Scan(log, snapshot, shown, None).first(newest, limits.rows, cast(Store, store))
        for batch in _of_bounded_size(batches, limits.bytes):
            rows += zip(*(_texts(name, batch.column(at)) for at, name in enumerate(shown)), strict=True)
    except (NotHere, NeedsSpark) as reason:
        raise only_spark(reason, snapshot) from None
    except _LimitError as error:
        limited = error.message
    if limited is None and len(rows) < limits.rows and snapshot.files.core.height > newest.height:
        limited = f"Only the {_MOST_FILES} newest files were read."
    return ShownRows(
        version=snapshot.version,
        columns=tuple(shown),
        rows=tuple(rows),
        more_columns=len(names) - len(shown),
        limited=limited,
        read_bytes=store.read_bytes,
    )


def _of_bounded_size(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Pass batches on while their values are small enough to be turned into text."""
    seen = 0
    for batch in batches:
        seen += batch.nbytes
        if seen > most:
            raise _LimitError(f"The values are larger than {amount(most)}.", hint=_ADVICE)
        yield batch


def _texts(name: str, values: pa.Array) -> list[str | None]:
    """Format the values of a column as text, without credentials."""
    try:
        found = values.to_pylist()
    except (ValueError, OverflowError, pa.ArrowInvalid):  # A time outside of Python's calendar.
        try:
            found = pc.cast(values, pa.string()).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found = [None if item is None else "(cannot be shown)" for item in values.is_valid().to_pylist()]
    return [None if item is None else _text(name, item) for item in found]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return str(hide_value(name, _hexadecimal(value)))
    if isinstance(value, str):
        text = str(hide_value(name, value[: 50 * _TEXT_LENGTH]))
    elif isinstance(value, (list, dict)):
        text = json.dumps(hide_value(name, _plain(value)), ensure_ascii=False, default=str)
    else:
        text = str(hide_value(name, "true" if value is True else "false" if value is False else str(value)))
    return text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]}… ({len(text)} characters)"


def _hexadecimal(value: bytes) -> str:
    more = f"… ({len(value)} bytes)" if len(value) > _SHOWN_BYTES else ""
    return f"0x{value[:_SHOWN_BYTES].hex()}{more}"


def _plain(value: Any) -> Any:
    """Turn a nested value into one that JSON has. The entries of a map are pairs."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return _hexadecimal(value) if isinstance(value, bytes) else value
