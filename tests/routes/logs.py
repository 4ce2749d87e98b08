"""What a table's log says, without what differs by chance: ids, names of files, times, sizes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.schema import logical_to_physical
from pydelta.protocol.types import StructType, parse_schema
from tests.arrow_rows import canonical

__all__ = ["PREDICATE", "LogReader", "left_in"]

_OWN: Final = frozenset(
    {"timestamp", "inCommitTimestamp", "txnId", "engineInfo", "userName", "userId", "clusterId", "notebook", "job"}
)
_BY_CHANCE: Final = re.compile("Time|Bytes|Size|scannedBy|rewrittenBy", re.IGNORECASE)
_PHYSICAL: Final = re.compile(r"col-[0-9a-f]{8}-[0-9a-f-]{27}")
_NUMBERED: Final = re.compile(r"#\d+")
_AROUND: Final = re.compile(r"\A\((.*)\)\Z", re.DOTALL)
"""What replaces rows says its condition as it was given, which SQL puts between parentheses."""
PREDICATE: Final = "predicate"
"""The parameter of a command that is the text of a condition, which each engine writes in its own way."""


class LogReader:
    """Reads the commits of one table, one after the other.

    Args:
        path: The table's.
        texts: Whether texts of conditions are looked at.
    """

    def __init__(self, path: str, *, texts: bool = True) -> None:
        self._root, self._texts = Path(path), texts
        self._next = 0
        self._names: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._schema = StructType(())
        self._partitions: list[str] = []
        self._mode = "none"

    def commits(self) -> list[list[str]]:
        """Return the commits that were not read yet, each as lines in an order that does not depend on names."""
        found = []
        while (file := self._root / "_delta_log" / f"{self._next:020}.json").exists():
            actions = [json.loads(line) for line in self._known(file.read_text()).splitlines()]
            found.append(self._commit(actions))
            self._next += 1
        return found

    def _known(self, text: str) -> str:
        """Put numbers in the place of physical names, in the order in which they come."""
        return _PHYSICAL.sub(lambda name: self._names.setdefault(name[0], f"col-{len(self._names)}"), text)

    def _commit(self, actions: list[dict[str, Any]]) -> list[str]:
        for action in actions:
            if "metaData" in action:
                self._take(action["metaData"])
        ordered = any(action.get("commitInfo", {}).get("operation") == "WRITE" for action in actions)
        shown: list[str] = []
        for action in actions:
            for kind, body in action.items():
                if kind in ("add", "cdc"):
                    rows = self._rows(body)
                    text = _line(kind, {**_file(body), "rows": rows if ordered else [*rows[:2], sorted(rows[2])]})
                    self._files.setdefault(body["path"], text)
                    shown.append(text)
        for action in actions:
            for kind, body in action.items():
                if kind == "remove":
                    left = {key: body.get(key) for key in ("partitionValues", "dataChange")}
                    vector = (body.get("deletionVector") or {}).get("cardinality")
                    shown.append(_line(kind, {**left, "vector": vector, "was": self._files.get(body["path"])}))
                elif kind not in ("add", "cdc"):
                    shown.append(_line(kind, self._other(kind, body)))
        return sorted(shown)

    def _other(self, kind: str, body: dict[str, Any]) -> Any:
        if kind == "commitInfo":
            left = {key: value for key, value in body.items() if key not in _OWN}
            parameters = body.get("operationParameters") or {}
            left["operationParameters"] = {
                key: _AROUND.sub(r"\1", _NUMBERED.sub("#", str(value)))
                for key, value in parameters.items()
                if self._texts or key != PREDICATE
            }
            metrics = body.get("operationMetrics") or {}
            left["operationMetrics"] = {key: value for key, value in metrics.items() if not _BY_CHANCE.search(key)}
            return left
        if kind == "metaData":
            left = {key: value for key, value in body.items() if key not in ("id", "createdTime")}
            return left | {"schemaString": json.loads(body["schemaString"])}  # properties of fields have no order
        if kind == "protocol":
            return {key: sorted(value) if isinstance(value, list) else value for key, value in body.items()}
        return body

    def _take(self, metadata: dict[str, Any]) -> None:
        self._mode = metadata["configuration"].get("delta.columnMapping.mode", "none")
        self._schema = parse_schema(metadata["schemaString"])
        self._partitions = metadata["partitionColumns"]

    def _rows(self, body: dict[str, Any]) -> Any:
        """The rows of a file, in order, under the names that files have, and the types that it says they have."""
        path = decode_log_path(body["path"]).text
        table = pq.ParquetFile(self._root / path).read()
        table = table.drop_columns([name for name in table.column_names if name.startswith("_row-id-col")])
        names = [self._known(name) for name in table.column_names]
        types = self._known(str([(item.type, item.nullable) for item in table.schema]))
        stored = {item.name: item for item in logical_to_physical(self._schema, self._mode).fields}
        columns = []
        for name, column in zip(names, table.columns, strict=True):
            field = stored.get(name)
            if field is None:
                columns.append(column.to_pylist())
            else:
                columns.append(canonical(column, field.data_type))
        return [names, types, [" | ".join(map(repr, row)) for row in zip(*columns, strict=True)]]


def _file(body: dict[str, Any]) -> dict[str, Any]:
    left = {key: body.get(key) for key in ("partitionValues", "dataChange", "tags",
                                          "defaultRowCommitVersion", "clusteringProvider")}  # fmt: skip
    left["stats"] = json.loads(body["stats"]) if body.get("stats") else None
    left["vector"] = (body.get("deletionVector") or {}).get("cardinality")
    return left


def _line(kind: str, body: Any) -> str:
    return f"{kind} {json.dumps(body, sort_keys=True, ensure_ascii=False)}"


def left_in(path: str) -> set[str]:
    """Return what is in the folder of a table, checksums of Hadoop's file system aside."""
    root = Path(path)
    return {str(item.relative_to(root)) for item in root.rglob("*") if not item.name.endswith(".crc")}
