"""Build a Delta table from actions and small Arrow tables, in any ``Store``, without Spark or transactions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.errors import InvalidArgumentError
from pydelta.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    encode_commit,
    encode_json,
)
from pydelta.protocol.partitions import partition_dir
from pydelta.protocol.paths import LOG_DIR, commit_file, encode_log_path
from pydelta.storage.interface import PutOutcome, Store

__all__ = ["TableBuilder"]

_START_MS: Final = 1_700_000_000_000
_MINUTE_MS: Final = 60_000


class TableBuilder:
    """Writes a table commit by commit, exactly as directed, including tables that no engine would write.

    Commit times are a minute apart from a fixed start, so that tests of time travel need no clock.

    Args:
        store: Store of the table; its root is the table's location.
        columns: Name and type as in a Delta schema (``long``, ``string``, ``date`` …), in order.
        partition_columns: Those that are partition columns.
        properties: The table's ``delta.*`` properties.
        protocol: Versions and features of the first commit.

    Example:
        >>> from pydelta.storage import MemoryStore
        >>> table = TableBuilder(MemoryStore("memory://builder/t"), columns={"x": "long"})
        >>> table.commit(table.file(pa.table({"x": [1, 2]}))).version
        0
    """

    def __init__(
        self,
        store: Store,
        *,
        columns: Mapping[str, str],
        partition_columns: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        protocol: Protocol | None = None,
    ) -> None:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
        self.store = store
        self.version = -1
        self.protocol = protocol or Protocol(min_reader_version=1, min_writer_version=2)
        self.metadata = Metadata(
            id=str(uuid.uuid4()),
            schema_string=encode_json({"type": "struct", "fields": fields}),
            partition_columns=tuple(partition_columns),
            configuration=dict(properties or {}),
            created_time=_START_MS,
        )

    def file(self, data: pa.Table, partition: Mapping[str, str | None] | None = None) -> AddFile:
        """Write a Parquet file into the store, and return its add action. Nothing is committed yet.

        Args:
            data: The rows, without partition columns.
            partition: Serialized value of each partition column.
        """
        values = dict(partition or {})
        name = f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
        path = f"{partition_dir(values)}/{name}" if values else name
        with self.store.open_writer(path) as stream:
            pq.write_table(data, stream)
        written = self.store.head(path)
        assert written is not None
        return AddFile(
            path=encode_log_path(path),
            partition_values=values,
            size=written.size,
            modification_time=self.time_ms(self.version + 1),
            data_change=True,
            stats=encode_json({"numRecords": data.num_rows}),
        )

    def commit(self, *actions: Action, operation: str = "WRITE") -> Self:
        """Commit the next version. The first one includes protocol and metadata unless ``actions`` contains them.

        Raises:
            InvalidArgumentError: The version already exists.
        """
        version = self.version + 1
        opening: list[Action] = [self.protocol, self.metadata] if version == 0 else []
        kinds = {type(action) for action in actions}
        info = CommitInfo(
            {
                "timestamp": self.time_ms(version),
                "operation": operation,
                "operationParameters": {},
                "txnId": uuid.uuid4().hex,
            }
        )
        first: list[Action] = [action for action in opening if type(action) not in kinds]
        data = encode_commit([*([] if CommitInfo in kinds else [info]), *first, *actions])
        path = f"{LOG_DIR}/{commit_file(version)}"
        if self.store.put_if_absent(path, data) is not PutOutcome.CREATED:
            raise InvalidArgumentError(
                f"{self.store.root}/{path} already exists.", hint="Build each table in a separate place."
            )
        self.version = version
        return self

    @staticmethod
    def time_ms(version: int) -> int:
        """Return the commit time of a version, epoch milliseconds."""
        return _START_MS + version * _MINUTE_MS
