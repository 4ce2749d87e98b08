"""Hold one version of a table: immutable, with its files as columns."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from pydelta.log.files import FileTable
from pydelta.log.replay import Replayed, State, column_mapping_mode
from pydelta.log.runs import num_bytes, objects_of, of_kind, runs_of
from pydelta.log.segment import LogSegment
from pydelta.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pydelta.protocol.features import supports
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.names import path_text
from pydelta.protocol.row_tracking import ROW_TRACKING_PROPERTIES
from pydelta.protocol.schema import physical_name
from pydelta.protocol.types import StructType, parse_schema
from pydelta.settings import TableProperties

__all__ = ["FileSums", "Snapshot", "VersionCommit", "change_of"]

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSums:
    """The number of live files and their total size in bytes, or a change of both."""

    num_files: int
    size_bytes: int

    def plus(self, change: FileSums) -> FileSums:
        """Return the sums after a change."""
        return FileSums(num_files=self.num_files + change.num_files, size_bytes=self.size_bytes + change.size_bytes)


def change_of(actions: Sequence[Action]) -> FileSums | None:
    """Compute a commit's change of the sums. Returns None if only the file table can answer.

    An add of a file that is already live changes no count, and a remove may lack its size. Adds with ``dataChange``
    name new files. Other adds are counted only if files are removed with them.
    """
    adds, removes = of_kind(actions, AddFile), of_kind(actions, RemoveFile)
    rearranges = any(not run.data_change for run in runs_of(adds)) or any(
        isinstance(action, AddFile) and not action.data_change for action in objects_of(adds)
    )
    if rearranges and not removes:
        return None
    if any(isinstance(action, RemoveFile) and action.size is None for action in objects_of(removes)):
        return None
    return FileSums(num_files=len(adds) - len(removes), size_bytes=num_bytes(adds) - num_bytes(removes))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VersionCommit:
    """Facts about the commit that made a version.

    Args:
        file_time_ms: Monotonic modification time of its file.
        change: Its change to the number and bytes of live files, if known.
        read_info: Returns its ``commitInfo``.
    """

    file_time_ms: int = 0
    change: FileSums | None = None
    read_info: Callable[[], CommitInfo | None] | None = None


_NO_COMMIT: Final = VersionCommit()


class Snapshot:
    """The state of a table at one version. Immutable; columns and times are computed on first use.

    Version -1 represents a table that does not exist yet: protocol and metadata are None, and there are no files.

    Args:
        version: The version.
        state: Protocol, metadata, set-transactions, domain metadata.
        files: The live files.
        segment: The files it was read from; None for the empty snapshot.
        sums: Number and bytes of live files, if exactly known without the columns.
        commit: The commit that made the version.
    """

    __slots__ = (
        "_commit_info", "_file_time_ms", "_lock", "_mode", "_properties", "_read_commit_info", "_schema", "_state",
        "_sums", "change", "commit_file", "files", "segment", "table_uri", "version",
    )  # fmt: skip

    def __init__(
        self,
        *,
        version: int,
        state: State,
        files: FileTable,
        segment: LogSegment | None = None,
        sums: FileSums | None = None,
        commit: VersionCommit = _NO_COMMIT,
    ) -> None:
        self.table_uri = files.root
        self.version = version
        self.files = files
        self.segment = segment
        self.change = commit.change
        self.commit_file = segment.last_commit if segment else None
        self._state = state
        self._file_time_ms = commit.file_time_ms
        self._sums = sums
        self._read_commit_info = commit.read_info
        self._commit_info: tuple[CommitInfo | None] | None = None
        self._mode = column_mapping_mode(state.protocol, state.metadata)
        self._schema: StructType | None = None
        self._properties: TableProperties | None = None
        self._lock = threading.Lock()

    @classmethod
    def empty(cls, table_uri: str) -> Snapshot:
        """Return the snapshot of a table that does not exist yet."""
        return cls(
            version=-1,
            state=State(),
            files=FileTable(root=table_uri),
            sums=FileSums(num_files=0, size_bytes=0),
        )

    @classmethod
    def of(cls, segment: LogSegment, replayed: Replayed, read_commit_info: Callable[[], CommitInfo | None]) -> Snapshot:
        """Return the snapshot of a replayed segment."""
        info = replayed.commit_info
        read_info = (lambda: info) if replayed.commit_info_read else read_commit_info
        return cls(
            version=segment.version,
            state=replayed.state,
            files=replayed.files,
            segment=segment,
            commit=VersionCommit(file_time_ms=segment.timestamp_ms, read_info=read_info),
        )

    def without_change_feed(self) -> Snapshot:
        """Return the same version as of a table that records no changes, for rewrites whose old rows must not stay."""
        metadata = self.metadata
        if metadata is None or not self.properties.enable_change_data_feed:
            return self
        plain = {name: text for name, text in metadata.configuration.items() if name != _CHANGE_FEED}
        state = dataclasses.replace(self._state, metadata=metadata.replace(configuration=plain))
        return Snapshot(version=self.version, state=state, files=self.files, segment=self.segment, sums=self._sums)

    def __repr__(self) -> str:
        return f"Snapshot(table_uri={self.table_uri!r}, version={self.version})"

    @property
    def state(self) -> State:
        """Everything except files."""
        return self._state

    @property
    def protocol(self) -> Protocol | None:
        """Versions and features; None only at version -1."""
        return self._state.protocol

    @property
    def metadata(self) -> Metadata | None:
        """Schema, partitioning, properties; None only at version -1."""
        return self._state.metadata

    @property
    def schema(self) -> StructType:
        """The logical schema; no fields at version -1."""
        if self._schema is None:
            metadata = self.metadata
            self._schema = parse_schema(metadata.schema_string) if metadata else StructType(())
        return self._schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Logical names, in order."""
        return self.metadata.partition_columns if self.metadata else ()

    @property
    def column_mapping_mode(self) -> str:
        """Mode in effect: ``none``, ``name`` or ``id``. The protocol must support it."""
        return self._mode

    @property
    def properties(self) -> TableProperties:
        """Parsed table properties. The column mapping mode is the one in effect."""
        if self._properties is None:
            configuration = self.metadata.configuration if self.metadata else {}
            self._properties = dataclasses.replace(TableProperties.parse(configuration), column_mapping_mode=self._mode)
        return self._properties

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether commits contain their own time ("In-Commit Timestamps")."""
        protocol, metadata = self.protocol, self.metadata
        if protocol is None or metadata is None or not supports(protocol, "inCommitTimestamp"):
            return False
        return self._parse_only("delta.enableInCommitTimestamps").in_commit_timestamps_enabled

    @property
    def row_tracking(self) -> TableProperties:
        """Only the row tracking properties, so that a scan does not fail on an invalid value that it does not need."""
        return self._parse_only(*ROW_TRACKING_PROPERTIES)

    def _parse_only(self, *names: str) -> TableProperties:
        configuration = self.metadata.configuration if self.metadata else {}
        return TableProperties.parse({name: configuration[name] for name in names if name in configuration})

    @property
    def commit_info(self) -> CommitInfo | None:
        """This version's ``commitInfo``. If a checkpoint replaced the commit, it is read on first use."""
        with self._lock:
            if self._commit_info is None:
                self._commit_info = (self._read_commit_info() if self._read_commit_info else None,)
            return self._commit_info[0]

    @property
    def file_time_ms(self) -> int:
        """Modification time of the commit file, moved forward if a clock went back. Epoch milliseconds."""
        return self._file_time_ms

    @property
    def timestamp_ms(self) -> int:
        """Time of the version in epoch milliseconds: in-commit if enabled, otherwise the commit file's."""
        if self.version >= 0 and self.in_commit_timestamps_enabled:
            info = self.commit_info
            if info is not None and info.in_commit_timestamp is not None:
                return info.in_commit_timestamp
        return self._file_time_ms

    @property
    def set_transactions(self) -> Mapping[str, SetTransaction]:
        """Last ``txn`` by application id."""
        return MappingProxyType(self._state.set_transactions)

    @property
    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        """Live domains by name."""
        return MappingProxyType(self._state.domain_metadata)

    @property
    def clustering_columns(self) -> tuple[str, ...]:
        """Logical paths (dotted) of the clustering columns; empty without clustering."""
        domain = self._state.domain_metadata.get("delta.clustering")
        if domain is None:
            return ()
        try:
            paths = json.loads(domain.configuration).get("clusteringColumns", [])
        except (*MALFORMED_JSON, AttributeError):
            return ()
        return (
            tuple(self._logical_path(path) for path in paths if isinstance(path, list))
            if isinstance(paths, list)
            else ()
        )

    def _logical_path(self, path: Sequence[Any]) -> str:
        names: list[str] = []
        level: Any = self.schema
        for part in path:
            field = None
            if isinstance(level, StructType):
                field = next((field for field in level.fields if physical_name(field) == part), None)
            names.append(field.name if field else str(part))
            level = field.data_type if field else None
        return path_text(names)

    def tombstones(self) -> pl.DataFrame:
        """Return removed files still in the log: ``path dv_id deletion_timestamp size row``. Times are in epoch ms."""
        return self.files.tombstones()

    def sums(self) -> FileSums | None:
        """Return the exact number and bytes of live files if they are already known, otherwise None."""
        if self.files.is_materialized:
            return FileSums(num_files=self.files.num_files, size_bytes=self.files.size_bytes)
        return self._sums

    @property
    def num_files(self) -> int:
        """Number of live files."""
        sums = self.sums()
        return self.files.num_files if sums is None else sums.num_files

    @property
    def size_bytes(self) -> int:
        """Bytes of the live files."""
        sums = self.sums()
        return self.files.size_bytes if sums is None else sums.size_bytes
