"""Read many values of the JVM in one call each."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
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

    def transform(self, tree: Any, replace: Any, kinds: Sequence[str]) -> Any:
        """Replace nodes of a plan or an expression from the top down, in a plan's subqueries too.

        Args:
            tree: The plan or the expression.
            replace: A ``BiFunction`` of a node and its name; null keeps the node.
            kinds: First words of the names of the nodes that it is called for, or none for all.
        """
        return self._java.transform(tree, replace, f",{','.join(kinds)}," if kinds else "")

    def map_expressions(self, node: Any, replace: Any) -> Any:
        """Replace the expressions of a plan's node by what a ``BiFunction`` of each and its name returns."""
        return self._java.mapExpressions(node, replace)

    def file_index(self, index: Any) -> Any:
        """Return a ``FileIndex`` that lists its files by an object of Python's, which it keeps alive.

        Args:
            index: That object, a ``DeltaFileIndex``. It must not hold the result, or neither is ever freed.
        """
        size, pinned = index.files.size_bytes, index.files.pinned
        texts = "\0".join((index.identity, index.text, *index.roots))
        return self._java.fileIndex(index, index.number, texts, index.partition_schema, size, pinned)

    def scans(self, of: Any) -> str:
        """Return the numbers of the engine's scans among the leaves of an analysed plan, or of a JVM frame's.

        Each follows a blank. A ``*`` comes first if there may be more in subqueries, or in aggregates answered from
        statistics.
        """
        return str(self._java.scans(of))

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
