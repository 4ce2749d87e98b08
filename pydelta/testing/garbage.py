"""Make a table with files of every age, for tests of what may be deleted. Files hold a few bytes, not Parquet."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote

from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddCDCFile, AddFile, DeletionVectorDescriptor, RemoveFile, encode_json
from pydelta.protocol.paths import LOG_DIR, commit_file, encode_log_path
from pydelta.settings import Settings
from pydelta.storage.hdfs import HdfsStore
from pydelta.storage.interface import Store
from pydelta.storage.local import LocalStore
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder

__all__ = ["HOUR_MS", "Yard"]

HOUR_MS: Final = 3_600_000


class Yard:
    """A table and a clock. Ages are in hours, counted back from ``now_ms``.

    Args:
        store: A local, memory or HDFS store, in which ages can be set.
        partition_columns: Partition columns, all strings. The table has one more column, ``x``.
        now_ms: The current time of the clock.
        properties: The table's ``delta.*`` properties.
    """

    def __init__(
        self,
        store: Store,
        *,
        partition_columns: tuple[str, ...] = (),
        now_ms: int = 1_800_000_000_000,
        properties: dict[str, str] | None = None,
    ) -> None:
        self.store = store
        self.now_ms = now_ms
        self.columns = partition_columns
        kinds = dict.fromkeys(partition_columns, "string") | {"x": "long"}
        self.builder = TableBuilder(store, columns=kinds, partition_columns=partition_columns, properties=properties)

    @property
    def log(self) -> DeltaLog:
        """A new log of the table."""
        return DeltaLog(self.store, settings=Settings())

    def put(self, path: str, *, age: float, size: int = 10) -> str:
        """Put a file that no commit names yet."""
        self.store.put(path, b"x" * size)
        self.backdate(path, age=age)
        return path

    def backdate(self, path: str, *, age: float) -> None:
        """Set the age of a file."""
        at_ms = self.now_ms - round(age * HOUR_MS)
        if isinstance(self.store, MemoryStore):
            self.store.set_time(path, at_ms)
        elif isinstance(self.store, LocalStore):
            local = unquote(self.store.root.removeprefix("file://"))
            os.utime(f"{local}/{path}", (at_ms / 1000, at_ms / 1000))
        elif isinstance(self.store, HdfsStore):
            self.store.set_time(path, at_ms)

    def add(self, path: str, *, age: float, vector: DeletionVectorDescriptor | None = None) -> AddFile:
        """Put a file, and return its add action."""
        self.put(path, age=age)
        return self.named(path, vector=vector)

    def named(self, path: str, *, vector: DeletionVectorDescriptor | None = None) -> AddFile:
        """Build the add action of a file."""
        values = dict.fromkeys(self.columns, "1")
        return AddFile(
            path=encode_log_path(path),
            partition_values=dict(values),
            size=10,
            modification_time=self.now_ms,
            data_change=True,
            stats=encode_json({"numRecords": 1}),
            deletion_vector=vector,
        )

    def cdc(self, path: str, *, age: float) -> AddCDCFile:
        """Put a change file, and return its action."""
        self.put(path, age=age)
        return AddCDCFile(path=encode_log_path(path), partition_values=dict.fromkeys(self.columns, "1"), size=10)

    def commit(self, *actions: AddFile | RemoveFile | AddCDCFile, age: float) -> int:
        """Commit the next version with the given age."""
        self.builder.commit(*actions)
        self.backdate(f"{LOG_DIR}/{commit_file(self.builder.version)}", age=age)
        return self.builder.version

    def remove(self, add: AddFile, *, age: float | None) -> RemoveFile:
        """Build the remove action of a file. ``age`` is that of its deletion time; None leaves the time out."""
        at_ms = None if age is None else self.now_ms - round(age * HOUR_MS)
        removed = add.remove(deletion_timestamp=at_ms or 0)
        return removed if at_ms is not None else removed.replace(deletion_timestamp=None)

    def files(self) -> set[str]:
        """List the files in the store, leaving out the log."""
        return {info.path for info in self.store.list_all() if not info.path.startswith(LOG_DIR)}
