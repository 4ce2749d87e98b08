"""Simulate a metastore in memory for tests, and record the calls of a sync and their effect."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from catalog_sync.thrift.client import Metastore, MetastoreAddress, _types

__all__ = ["MemoryMetastore"]


_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "string")


def _goes_over(old: str, new: str) -> bool:
    """Return whether a metastore allows a column's type to change from the first to the second."""
    numbers = old in _NUMBERS and new in _NUMBERS
    return old == new or (numbers and _NUMBERS.index(old) < _NUMBERS.index(new))


class MemoryMetastore(Metastore):
    """A metastore in memory that answers the calls of ``Metastore`` like Hive's. Several may share one content.

    Args:
        content: Metastore whose content is shared, or None for an empty metastore that has every database.
        before: Called with the verb before each call.
    """

    def __init__(self, content: MemoryMetastore | None = None, *, before: Callable[[str], None] | None = None) -> None:
        super().__init__(MetastoreAddress(hosts=()))
        self.entries: dict[tuple[str, str], Any] = content.entries if content is not None else {}
        self.parts: dict[tuple[str, str], dict[str, Any]] = content.parts if content is not None else {}
        self.locks: dict[tuple[str, str], list[int]] = content.locks if content is not None else {}
        self._turn: threading.Lock = content._turn if content is not None else threading.Lock()
        self._before = before

    def _connected(self) -> Any:
        return self

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb not in _ANSWERS:
            raise AttributeError(verb)
        answer = getattr(self, _ANSWERS[verb].__name__)  # A subclass may override it.

        def call(*arguments: Any) -> Any:
            if self._before is not None:
                self._before(verb)
            with self._turn:
                return copy.deepcopy(answer(*copy.deepcopy(arguments)))

        return call

    def _get_table_req(self, request: Any) -> Any:
        if (request.dbName, request.tblName) not in self.entries:
            raise _types().NoSuchObjectException(message="no such table")
        return _types().GetTableResult(table=self.entries[request.dbName, request.tblName])

    def _get_all_databases(self) -> list[str]:
        return sorted({database for database, _ in self.entries})

    def _get_all_tables(self, database: str) -> list[str]:
        return sorted(name for place, name in self.entries if place == database)

    def _get_table_objects_by_name_req(self, request: Any) -> Any:
        found = [self.entries[request.dbName, name] for name in request.tblNames]
        return _types().GetTablesResult(tables=found)

    def _get_database(self, name: str) -> Any:
        return _types().Database(name=name)

    def _create_table(self, entry: Any) -> None:
        if (entry.dbName, entry.tableName) in self.entries:
            raise _types().AlreadyExistsException(message="it exists")
        self.entries[entry.dbName, entry.tableName] = entry
        self.parts[entry.dbName, entry.tableName] = {}

    def _alter_table_with_environment_context(self, database: str, name: str, entry: Any, context: Any) -> None:
        before = self.entries[database, name]
        expected = context.properties.get("expected_parameter_key")
        if expected and before.parameters.get(expected) != context.properties["expected_parameter_value"]:
            raise _types().MetaException(message="The table has been modified.")
        keys = [[(key.name, key.type) for key in table.partitionKeys] for table in (before, entry)]
        if keys[0] != keys[1]:
            raise _types().InvalidOperationException(message="partition keys can not be changed.")
        pairs = zip(before.sd.cols, entry.sd.cols, strict=False)
        wrong = [new.name for old, new in pairs if not _goes_over(old.type, new.type)]
        if wrong:
            raise _types().InvalidOperationException(
                message="The following columns have types incompatible with the existing columns in their respective "
                f"positions : {','.join(wrong)}"
            )
        self.entries[database, name] = entry
        if context.properties.get("CASCADE") == "true":
            for part in self.parts[database, name].values():
                part.sd.cols = entry.sd.cols

    def _lock(self, request: Any) -> Any:
        (part,) = request.component
        key, types = (part.dbname, part.tablename), _types()
        number = max((held for queue in self.locks.values() for held in queue), default=0) + 1
        self.locks.setdefault(key, []).append(number)
        return types.LockResponse(lockid=number, state=self._state_of(number))

    def _check_lock(self, request: Any) -> Any:
        return _types().LockResponse(lockid=request.lockid, state=self._state_of(request.lockid))

    def _state_of(self, number: int) -> int:
        states = _types().LockState
        is_first = any(queue[:1] == [number] for queue in self.locks.values())
        return int(states.ACQUIRED if is_first else states.WAITING)

    def _unlock(self, request: Any) -> None:
        for queue in self.locks.values():
            if request.lockid in queue:
                queue.remove(request.lockid)

    def _drop_table(self, database: str, name: str, delete_data: bool) -> None:
        assert not delete_data, "data is never deleted"
        if self.entries.pop((database, name), None) is None:
            raise _types().NoSuchObjectException(message="no such table")
        del self.parts[database, name]

    def _get_partition_names(self, database: str, name: str, most: int) -> list[str]:
        return sorted(self.parts[database, name])

    def _get_partitions_by_names(self, database: str, name: str, names: list[str]) -> list[Any]:
        return [self.parts[database, name][item] for item in names if item in self.parts[database, name]]

    def _add_partitions_req(self, request: Any) -> None:
        key = (request.dbName, request.tblName)
        for part in request.parts:
            self.parts[key].setdefault(self._name(key, part), part)

    def _alter_partitions_with_environment_context(
        self, database: str, name: str, parts: list[Any], context: Any
    ) -> None:
        key = (database, name)
        found = {self._name(key, part): part for part in parts}
        if not found.keys() <= self.parts[key].keys():
            raise _types().InvalidOperationException(message="a partition is not there")
        self.parts[key].update(found)

    def _drop_partitions_req(self, request: Any) -> None:
        assert not request.deleteData, "data is never deleted"
        parts = self.parts[request.dbName, request.tblName]
        if not set(request.parts.names) <= parts.keys():
            raise _types().NoSuchObjectException(message="a partition is not there")
        for name in request.parts.names:
            del parts[name]

    def _name(self, key: tuple[str, str], part: Any) -> str:
        from pydelta.protocol.partitions import hive_escape

        columns = [column.name for column in self.entries[key].partitionKeys]
        return "/".join(f"{column}={hive_escape(value)}" for column, value in zip(columns, part.values, strict=True))


_ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "get_table_req": MemoryMetastore._get_table_req,
    "get_all_databases": MemoryMetastore._get_all_databases,
    "get_all_tables": MemoryMetastore._get_all_tables,
    "get_table_objects_by_name_req": MemoryMetastore._get_table_objects_by_name_req,
    "get_database": MemoryMetastore._get_database,
    "create_table": MemoryMetastore._create_table,
    "alter_table_with_environment_context": MemoryMetastore._alter_table_with_environment_context,
    "drop_table": MemoryMetastore._drop_table,
    "lock": MemoryMetastore._lock,
    "check_lock": MemoryMetastore._check_lock,
    "unlock": MemoryMetastore._unlock,
    "get_partition_names": MemoryMetastore._get_partition_names,
    "get_partitions_by_names": MemoryMetastore._get_partitions_by_names,
    "add_partitions_req": MemoryMetastore._add_partitions_req,
    "alter_partitions_with_environment_context": MemoryMetastore._alter_partitions_with_environment_context,
    "drop_partitions_req": MemoryMetastore._drop_partitions_req,
}
"""The supported calls of the metastore's interface."""
