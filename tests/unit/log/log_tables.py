"""Hand-made logs: commits put as files, with the times a test needs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from pydelta.log import DeltaLog
from pydelta.protocol.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, encode_commit
from pydelta.protocol.paths import LOG_DIR, commit_file
from pydelta.settings import Settings
from pydelta.storage.interface import ObjectInfo, PutOutcome, Store
from pydelta.storage.memory import MemoryStore

_places = itertools.count()

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
            {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
            {"name": "name", "type": "string", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    },
    separators=(",", ":"),
)
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
V2_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint",),
    writer_features=("v2Checkpoint", "inCommitTimestamp", "domainMetadata"),
)


def metadata(table_id: str = "t1", **properties: str) -> Metadata:
    configuration = {"delta." + name.replace("_", "."): value for name, value in properties.items()}
    return Metadata(id=table_id, schema_string=SCHEMA, partition_columns=("day",), configuration=configuration)


def stats(number: int) -> str:
    return json.dumps(
        {
            "numRecords": 10,
            "minValues": {"id": number * 10, "at": "2024-05-01T00:00:00.123Z", "price": 1.25, "name": f"a{number}"},
            "maxValues": {"id": number * 10 + 9, "at": "2024-05-02T00:00:00.456Z", "price": 9.5, "name": f"z{number}"},
            "nullCount": {"id": 0, "at": 1, "price": 0, "name": 2},
        },
        separators=(",", ":"),
    )


def add(number: int, day: str | None = "2024-05-01", **changes: object) -> AddFile:
    base = AddFile(
        path=f"day={day}/part-{number:05d}.parquet",
        partition_values={"day": day},
        size=100 + number,
        modification_time=1_700_000_000_000 + number,
        data_change=True,
        stats=stats(number),
    )
    return base.replace(**changes) if changes else base


def remove(file: AddFile, at_ms: int = 1_700_000_000_000) -> RemoveFile:
    return file.remove(deletion_timestamp=at_ms)


def info(operation: str = "WRITE", **fields: object) -> CommitInfo:
    return CommitInfo({"timestamp": 1, "operation": operation, **fields})


class TimedStore(MemoryStore):
    """A memory store whose objects have the modification times a test sets, by file name."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.times: dict[str, int] = {}

    def _timed(self, item: ObjectInfo) -> ObjectInfo:
        name = item.path.rsplit("/", 1)[-1]
        at = self.times.get(name, item.modification_time_ms)
        return ObjectInfo(path=item.path, size=item.size, modification_time_ms=at, etag=item.etag)

    def list_from(self, start, *, prefix):
        return iter([self._timed(item) for item in super().list_from(start, prefix=prefix)])

    def head(self, path):
        found = super().head(path)
        return self._timed(found) if found is not None else None


def new_store() -> TimedStore:
    return TimedStore(f"memory://log-tests/t{next(_places)}")


def log_of(store: Store, **settings: object) -> DeltaLog:
    """A log object that has seen nothing yet."""
    return DeltaLog.for_table(store.root, store=store, settings=Settings(**settings))


def commit(store: Store, version: int, actions: Sequence[Action]) -> None:
    outcome = store.put_if_absent(f"{LOG_DIR}/{commit_file(version)}", encode_commit(actions))
    assert outcome is PutOutcome.CREATED


def create(store: Store, *files: AddFile, protocol: Protocol = PROTOCOL, **properties: str) -> None:
    commit(store, 0, [info("CREATE TABLE"), protocol, metadata(**properties), *files])


def append_until(store: Store, first: int, last: int) -> None:
    """One file a version, file number = version."""
    for version in range(first, last + 1):
        commit(store, version, [info(), add(version)])
