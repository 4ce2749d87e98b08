"""What came of a statement, as JSON that two engines can be compared by. Runs in both environments."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["frame_outcome", "of_error", "of_value", "table_state"]


def plain(value: Any) -> Any:
    """A value of a row as JSON, types kept apart."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else repr(value)}
    if isinstance(value, int):
        return value
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.datetime | datetime.date | datetime.timedelta):
        return {type(value).__name__: str(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if hasattr(value, "asDict"):
        return {"row": {key: plain(item) for key, item in value.asDict().items()}}
    if isinstance(value, Mapping):
        return {"map": sorted(([plain(key), plain(item)] for key, item in value.items()), key=json.dumps)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {type(value).__name__: str(value)}


def frame_outcome(frame: Any, sees: str = "rows") -> dict[str, Any]:
    """Rows and schema of a DataFrame."""
    if sees == "nothing":
        frame.collect()
        return {"done": True}
    schema = json.loads(frame.schema.json())
    if sees == "schema":
        frame.collect()
        return {"schema": schema}
    rows = [plain(row)["row"] for row in frame.collect()]
    if sees != "ordered":
        rows.sort(key=lambda row: json.dumps(row, sort_keys=True))
    return {"schema": schema, "rows": rows}


def of_value(value: Any) -> Any:
    """What a program returned or told."""
    if isinstance(value, BaseException):
        return of_error(value)
    if value is None:
        return {"done": True}
    if hasattr(value, "collect") and hasattr(value, "schema"):
        return frame_outcome(value)
    return {"value": plain(value)}


def of_error(error: BaseException) -> dict[str, Any]:
    """The class that users catch, its condition and its SQLSTATE; the text is shown and not compared."""
    caught_by = sorted({kind.__name__ for kind in type(error).__mro__} - {"object", "BaseException"})
    shown: dict[str, Any] = {"error": _class_of(error), "text": _first_line(error), "caught_by": caught_by}
    for key, names in (("condition", ("getCondition", "getErrorClass")), ("state", ("getSqlState",))):
        for name in names:
            if hasattr(error, name):
                try:
                    shown[key] = getattr(error, name)()
                except Exception:
                    shown[key] = None
                break
        else:
            shown[key] = None
    if shown["condition"] is None:
        named = re.match(r"\[([A-Z][A-Z0-9_.]+)\]", _first_line(error))
        shown["condition"] = named.group(1) if named else None
    return shown


def _class_of(error: BaseException) -> str:
    """The name users catch: of Delta's exceptions, else PySpark's, else Python's own; captured ones by their base."""
    ours = [kind for kind in type(error).__mro__ if kind.__module__.startswith(("delta.", "pydelta."))]
    conflicts = [kind.__name__ for kind in ours if kind.__name__.endswith("Exception")]
    if conflicts and "Concurrent" in " ".join(kind.__name__ for kind in ours):
        return conflicts[0]
    for kind in type(error).__mro__:
        if kind.__module__.startswith("pyspark.errors.exceptions.base"):
            return kind.__name__
    for kind in type(error).__mro__:
        if kind.__module__ == "builtins":
            return kind.__name__
    return type(error).__name__


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:400]


_DETAIL = ("format", "partitionColumns", "clusteringColumns", "properties", "description")
_SIZES = re.compile(r"(Time|Bytes|bytes|Ms|Size|size|percentile|min|max|p\d\d|Duration)", re.ASCII)
_WAYS = ("scannedBy", "rewrittenBy")  # which of its ways an engine took: the reference has one


def table_state(spark: Any, name: str, *, history: bool) -> dict[str, Any]:
    """What is in a table and what is said of it: ``name`` is a table's, or ``delta.`path```."""
    state: dict[str, Any] = {}
    frame = spark.sql(f"SELECT * FROM {name}")
    state["table"] = frame_outcome(frame)
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0].asDict()
    state["detail"] = {key: plain(detail.get(key)) for key in _DETAIL}
    if history:
        entries = spark.sql(f"DESCRIBE HISTORY {name}").collect()
        state["history"] = [
            {
                "version": entry["version"],
                "operation": entry["operation"],
                "parameters": dict(sorted((entry["operationParameters"] or {}).items())),
                "metrics": {
                    key: None if _SIZES.search(key) else value
                    for key, value in sorted((entry["operationMetrics"] or {}).items())
                    if key not in _WAYS
                },
                "isBlindAppend": entry["isBlindAppend"],
            }
            for entry in entries
        ]
    return state
