"""Read many values of the JVM in one call each."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pydelta.engines.spark.compiled import new_instance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["UNCOUNTED", "Calls", "CurrentSettings"]

UNCOUNTED: Final = -1
_LONG: Final = 8
_STORAGE_PREFIXES: Final = "fs.,dfs.,hadoop.security.,google.cloud."


@dataclass(frozen=True, slots=True)
class CurrentSettings:
    """A session's settings at one moment, which nobody changes. They may hold secrets.

    Args:
        conf: Those that are set.
        time_zone: The session's time zone.
        parquet_codec: The codec of Parquet files.
    """

    conf: Mapping[str, str] = field(repr=False)
    time_zone: str
    parquet_codec: str


class Calls:
    """The calls of ``java/PydeltaCalls.java`` for one session. Thread-safe.

    Args:
        gateway: PySpark's gateway.
        session: The session in the JVM.
    """

    def __init__(self, gateway: Any, session: Any) -> None:
        self._java = new_instance(gateway, "PydeltaCalls", gateway.java_gateway_server)
        self._session = session
        self._lock = threading.Lock()
        self._settings = 0, CurrentSettings({}, "", "")
        self._storage: tuple[int, Mapping[str, str]] = 0, {}

    def settings(self) -> CurrentSettings:
        """Return the session's current settings."""
        with self._lock:
            changed = _read(self._java.settings(self._session, self._settings[0]))
            if changed is not None:
                self._settings = changed[0], CurrentSettings(**changed[1])
            return self._settings[1]

    def storage(self) -> Mapping[str, str]:
        """Return the current settings of Hadoop's configuration that stores read. They may hold secrets.

        Hadoop copies its configuration for this, so that it takes ten times as long as ``settings``.
        """
        with self._lock:
            changed = _read(self._java.storage(self._session, _STORAGE_PREFIXES, self._storage[0]))
            if changed is not None:
                self._storage = changed
            return self._storage[1]

    def activate(self) -> Any:
        """Make the session the active one of this thread. Returns the one before, None for none, True for itself."""
        return self._java.activate(self._session)

    def writer(self, writer: Any) -> dict[str, Any]:
        """Return what a JVM ``DataFrameWriter`` was given.

        Returns:
            ``source``, ``mode``, ``options``; ``clustering`` and ``partitioning``, lists of names or None; and whether
            there are ``buckets`` and a ``sorting``.
        """
        found: dict[str, Any] = json.loads(self._java.writer(writer))
        return found

    def may_read_files(self, of: Any) -> bool:
        """Return whether an analysed plan, or a JVM frame, may read files, so that its scans must be looked for."""
        return bool(self._java.mayReadFiles(of))

    def rows_at_hand(self, rows: DataFrame, *, most_bytes: int, few_bytes: int) -> tuple[pa.Table | None, int] | None:
        """Return the rows of a frame if the driver has them and they are few.

        Args:
            rows: The frame.
            most_bytes: Upper limit for rows of a relation in the driver.
            few_bytes: Upper limit for all others, and for what is evaluated here.

        Returns:
            The rows and their number. No rows if ``toArrow`` must give them; their number is then ``UNCOUNTED`` if only
            that shows it. None for rows that are not the driver's.
        """
        found = self._java.rowsAtHand(rows._jdf, most_bytes, few_bytes)
        if not isinstance(found, bytes):
            return None if found is None else (None, found)
        return pa.ipc.open_stream(found[_LONG:]).read_all(), int.from_bytes(found[:_LONG], "big")


def _read(changed: str | None) -> tuple[int, dict[str, Any]] | None:
    """Return the number of a state and the state, or None if it is the known one."""
    if changed is None:
        return None
    number, _, text = changed.partition("\n")
    return int(number), json.loads(text)
