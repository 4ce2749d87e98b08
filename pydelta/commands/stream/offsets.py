"""Read and write the offsets of a stream over a table. Pure.

The JSON is that of the reference engine, so that a query can continue from a checkpoint of either engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError

__all__ = ["BEFORE_FIRST", "SCHEMA_CHANGE", "SCHEMA_CHANGED", "StreamOffset"]

BEFORE_FIRST: Final = -1
"""The index of a version before any of its files is taken."""

SCHEMA_CHANGE: Final = -20
"""The index at which a batch ends before a version that changes the table's definition."""

SCHEMA_CHANGED: Final = -19
"""The index after that change and before the version's files."""

_PLAIN: Final = 1
_NEWEST: Final = 3
_BY_TIME: Final = 1000
_BEFORE_FIRST_V3: Final = -100
_END_V3: Final = 2**63 - 1 - 100
_HINT: Final = "Start the query with another checkpointLocation; this one belongs to another source."


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A stream's progress: it has read every file of earlier versions, and those of this version up to the index.

    Args:
        table_id: The table's id in its metadata.
        version: A version; the next one to come if everything was read.
        index: Its last file taken, from 0; ``BEFORE_FIRST`` for none; ``SCHEMA_CHANGE`` and ``SCHEMA_CHANGED`` around a
            change of the definition, which comes before the files.
        is_initial: The files are those of the version's snapshot, not of its commit.
        event_time: All rows of the snapshot before this time were taken, in epoch microseconds. The format is our own;
            the reference engine refuses it.

    Example:
        >>> StreamOffset(table_id="t", version=2, index=-1, is_initial=False).to_json()
        '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":2,"index":-1,"isStartingVersion":false}'
    """

    table_id: str
    version: int
    index: int = BEFORE_FIRST
    is_initial: bool = False
    event_time: int | None = None

    @property
    def position(self) -> tuple[int, bool, int, int]:
        """The sort key for offsets of one table: a snapshot comes before the commits after it."""
        index = _BEFORE_FIRST_V3 if self.index == BEFORE_FIRST else self.index
        return self.version, not self.is_initial, index, -(2**63) if self.event_time is None else self.event_time

    @property
    def at_change(self) -> bool:
        """Whether it is at a change of the table's definition."""
        return self.index in (SCHEMA_CHANGE, SCHEMA_CHANGED)

    @property
    def taken(self) -> int:
        """The last file that was taken from the version, or ``BEFORE_FIRST``."""
        return max(self.index, BEFORE_FIRST)

    def to_json(self) -> str:
        """Return the text for a checkpoint; equal offsets have equal text."""
        fields = {
            "sourceVersion": _NEWEST if self.at_change else _PLAIN,
            "reservoirId": self.table_id,
            "reservoirVersion": self.version,
            "index": self.index,
            "isStartingVersion": self.is_initial,
        }
        if self.event_time is not None:
            fields |= {"sourceVersion": _BY_TIME, "eventTimeMicros": self.event_time}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> StreamOffset:
        """Parse the text in a checkpoint.

        Raises:
            InvalidArgumentError: It is not an offset of a Delta table.
            UnsupportedFeatureError: It has a later format.
        """
        fields = _fields(text)
        source = _whole(fields, "sourceVersion")
        if source is None or source < 1:
            raise InvalidArgumentError(f"The checkpoint holds {text!r}: its sourceVersion is not valid.", hint=_HINT)
        event_time = _whole(fields, "eventTimeMicros") if source == _BY_TIME else None
        if source > _NEWEST and event_time is None:
            raise UnsupportedFeatureError(
                f"The checkpoint holds an offset of format {source}, but this engine only knows formats up to "
                f"{_NEWEST}.",
                features=(f"sourceVersion {source}",),
                hint="Continue with the engine that wrote it, or start the query with another checkpointLocation.",
            )
        version, index = _whole(fields, "reservoirVersion"), _whole(fields, "index")
        table_id, is_initial = fields.get("reservoirId"), fields.get("isStartingVersion", False)
        if source == _NEWEST and index == _BEFORE_FIRST_V3:
            index = BEFORE_FIRST
        if (
            version is None or index is None or version < 0
            or (index < BEFORE_FIRST and not (source == _NEWEST and index in (SCHEMA_CHANGE, SCHEMA_CHANGED)))
            or not isinstance(table_id, str) or not isinstance(is_initial, bool)
        ):  # fmt: skip
            raise InvalidArgumentError(f"The checkpoint holds {text!r}, which is not an offset of a table.", hint=_HINT)
        if index == _END_V3:
            version, index, is_initial = version + 1, BEFORE_FIRST, False
        return cls(table_id=table_id, version=version, index=index, is_initial=is_initial, event_time=event_time)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or "reservoirId" not in fields:
        raise InvalidArgumentError(f"The checkpoint holds {text!r}, which is not an offset of a table.", hint=_HINT)
    return fields


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
